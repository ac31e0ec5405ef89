//! A feed that nobody can lead on, or that is held, must not keep the agreed log for ever: it is parked at a state that replicas have
//! in their checkpoints.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono_replication::command::{FeedId, ParkFeed};
use unisono_replication::machine;
use unisono_replication::rt;

use crate::core::{Authority, Core};
use crate::disputed::stands_at;
use crate::handover::hand_over;
use crate::health::Condition;
use crate::status;

/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);
/// How long nobody must have led the feed on: far longer than a lane rests that cannot be read.
const STILL: Duration = Duration::from_secs(60);
/// A feed is parked when so many times [`ClusterConfig::keep_log_entries`](crate::config::ClusterConfig) are kept for it.
const KEPT: u64 = 2;
/// How long after one hand-over for this the next one is tried.
const COOL_DOWN: Duration = Duration::from_secs(30);

/// What the leader remembers of feeds that stand still.
#[derive(Default)]
pub(super) struct Parking {
    looked: Option<Instant>,
    handed_over: Option<Instant>,
    /// Since when each feed has stood where it stands.
    still: BTreeMap<FeedId, (BTreeMap<u16, u64>, Instant)>,
}

/// The voters that are heard, all of them.
type Told = BTreeMap<u16, Condition>;

impl Parking {
    /// The entry that parks a feed, if one is due.
    pub(super) async fn next(&mut self, core: &Core, authority: &Authority) -> Option<ParkFeed> {
        if self.looked.is_some_and(|at| rt::since(at) < LOOK) {
            return None;
        }
        self.looked = Some(rt::now());
        let voters = core.replica.view().borrow().voters.clone();
        let own = core.config.node.id;
        let peers = status::peers(core, status::FRESH).into_iter();
        let peers = peers.map(|(node, told)| (node, told.condition));
        let told: Told = peers
            .chain([(own, status::own(core))])
            .filter(|(node, _)| voters.contains(node))
            .collect();
        let feeds: Vec<(FeedId, machine::Feed)> = {
            let agreed = core.agreed();
            let feeds = agreed.machine.feeds().iter();
            let open = feeds
                .filter(|(id, feed)| feed.parked().is_none() && agreed.machine.has_pipelines(**id));
            open.map(|(&id, feed)| (id, feed.clone())).collect()
        };
        self.still
            .retain(|id, _| feeds.iter().any(|(it, _)| it == id));
        for (id, feed) in feeds {
            if told.len() < voters.len() || !self.stands_still(id, &feed, &told, rt::now()) {
                continue;
            }
            if is_unsaved(id, &feed, &told) {
                continue;
            }
            let Some((node, state)) = furthest(id, &feed, &told) else {
                continue;
            };
            let kept = core.agreed().index.saturating_sub(state);
            if kept <= core.config.cluster.keep_log_entries.saturating_mul(KEPT) {
                continue;
            }
            if node != own {
                self.hand_over(core, node).await;
                return None;
            }
            let stands = stands_at(core, id, state);
            let stands =
                stands.inspect_err(|error| tracing::warn!(%error, "the agreed log is not read"));
            return Some(ParkFeed {
                term: authority.term,
                feed: id,
                base: feed.base,
                state,
                stands: stands.ok()??,
            });
        }
        None
    }

    /// Whether no replica has taken anything in of it for a while, though the log has more of it, or it is held.
    fn stands_still(
        &mut self,
        id: FeedId,
        feed: &machine::Feed,
        told: &Told,
        now: Instant,
    ) -> bool {
        if feed.held.is_some() {
            return true;
        }
        let runs = |told: &Condition| told.feeds.get(&id.0) == Some(&true);
        let taken: BTreeMap<u16, u64> = told
            .iter()
            .filter_map(|(&node, told)| Some((node, *told.taken.get(&id.0)?)))
            .collect();
        if told.values().any(runs) || taken.values().any(|&at| at >= feed.base) {
            self.still.remove(&id);
            return false;
        }
        let known = self.still.entry(id);
        let (then, since) = known.or_insert_with(|| (taken.clone(), now));
        if *then != taken {
            (*then, *since) = (taken, now);
        }
        now.saturating_duration_since(*since) >= STILL
    }

    async fn hand_over(&mut self, core: &Core, node: u16) {
        if self.handed_over.is_some_and(|at| rt::since(at) < COOL_DOWN) {
            return;
        }
        self.handed_over = Some(rt::now());
        tracing::warn!(
            node,
            "it has the state that a feed is to be parked at: it is to lead"
        );
        if let Err(error) = hand_over(core, &[node]).await {
            tracing::warn!(%error, "no hand-over");
        }
    }
}

/// Whether somebody has taken in the tick in dispute and has yet to save that: only from such a state can it be accepted, and what
/// is parked needs no log.
fn is_unsaved(id: FeedId, feed: &machine::Feed, told: &Told) -> bool {
    let Some(held) = &feed.held else {
        return false;
    };
    let is_beyond = |at: Option<&u64>| at.is_some_and(|&at| at >= held.tick);
    told.values()
        .any(|told| is_beyond(told.taken.get(&id.0)) && !is_beyond(told.saved.get(&id.0)))
}

/// Who has the furthest state of the feed that counts, and where that stands; the least number, where several have it.
fn furthest(id: FeedId, feed: &machine::Feed, told: &Told) -> Option<(u16, u64)> {
    let saved = told.iter().filter_map(|(&node, told)| {
        let state = *told.saved.get(&id.0)?;
        (feed.counts_at(state) && feed.bound <= state && state < feed.base).then_some((node, state))
    });
    saved.max_by_key(|&(node, state)| (state, std::cmp::Reverse(node)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use unisono_replication::command::{Command, CreateFeed};
    use unisono_replication::machine::Machine;

    use super::*;

    const FEED: FeedId = FeedId(5);

    /// A feed whose last entry is 50.
    fn feed() -> machine::Feed {
        let mut machine = Machine::default();
        let create = CreateFeed {
            term: 1,
            sources: Vec::new(),
            lanes: Vec::new(),
        };
        let _ = machine.apply(5, 1, &Command::CreateFeed(create));
        let mut feed = machine.feeds()[&FEED].clone();
        feed.base = 50;
        feed
    }

    /// Each voter: how far it has taken in, how far it has saved, and whether it runs.
    fn told(of: &[(u16, u64, u64, bool)]) -> Told {
        let told = |&(node, taken, saved, runs): &(u16, u64, u64, bool)| {
            let condition = Condition {
                feeds: [(FEED.0, runs)].into(),
                taken: [(FEED.0, taken)].into(),
                saved: [(FEED.0, saved)].into(),
                ..Condition::default()
            };
            (node, condition)
        };
        of.iter().map(told).collect()
    }

    #[test]
    fn a_feed_stands_still_that_nobody_has_led_on_for_long_and_that_is_behind_everywhere() {
        let (mut parking, feed, start) = (Parking::default(), feed(), Instant::now());
        let stuck = told(&[(1, 40, 30, false), (2, 41, 30, false)]);
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(!parking.stands_still(FEED, &feed, &stuck, start));
        assert!(!parking.stands_still(FEED, &feed, &stuck, later(59)));
        assert!(parking.stands_still(FEED, &feed, &stuck, later(60)));
        let moved = told(&[(1, 40, 30, false), (2, 42, 30, false)]);
        assert!(!parking.stands_still(FEED, &feed, &moved, later(61)));
        assert!(!parking.stands_still(FEED, &feed, &moved, later(120)));
        assert!(parking.stands_still(FEED, &feed, &moved, later(121)));
        // One that runs somewhere, or has nothing more to take in there, is led on from there.
        for well in [(2, 42, 30, true), (2, 50, 30, false)] {
            let told = told(&[(1, 40, 30, false), well]);
            assert!(!parking.stands_still(FEED, &feed, &told, later(300)));
            assert!(parking.still.is_empty());
        }
    }

    #[test]
    fn it_is_parked_at_the_furthest_state_that_counts() {
        let mut feed = feed();
        let told = told(&[(1, 40, 30, false), (2, 41, 35, false), (3, 49, 49, false)]);
        assert_eq!(furthest(FEED, &feed, &told), Some((3, 49)));
        // What is in dispute is no state to go on from, nor what binds what lies before it.
        feed.held = Some(machine::Held {
            since: 48,
            tick: 40,
            stands: Vec::new(),
            alone: true,
            by: unisono_replication::command::Decider::Majority,
            dispute: None,
            parked: None,
        });
        assert_eq!(furthest(FEED, &feed, &told), Some((2, 35)));
        assert!(is_unsaved(FEED, &feed, &told));
        let told = self::told(&[(1, 39, 30, false), (2, 41, 45, false), (3, 49, 49, false)]);
        assert!(!is_unsaved(FEED, &feed, &told));
        feed.bound = 50;
        assert_eq!(furthest(FEED, &feed, &told), None);
    }
}
