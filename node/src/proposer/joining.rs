//! Feeds of the same sources become one. Each reads its lanes by itself, so the leader has to arrange that both are at the
//! same cuts: it gives them in one entry, and then proposes the join before anything else moves.
//!
//! Until then the younger feed does not pass the elder: so all that has to come true is that it holds what the elder has
//! taken in, however fast records come.

use std::collections::BTreeMap;
use std::sync::Arc;

use unisono_replication::command::{FeedId, FeedTick, JoinFeeds, LaneMove};
use unisono_replication::machine;

use crate::core::Agreed;
use crate::feed::Feed;
use crate::ingest::LaneBuffer;

/// A feed and an older one of the same sources and lanes; both run on this node.
pub(super) struct Pair {
    pub(super) from: FeedId,
    pub(super) into: FeedId,
    /// Of each lane of `into`, the same lane's place in `from`; of one that is retired perhaps none.
    places: Vec<Option<usize>>,
}

/// All feeds that may become part of an older one.
pub(super) fn pairs(agreed: &Agreed) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let feeds = agreed.machine.feeds();
    for (&from, leaves) in feeds {
        // While it has not ticked it still takes pipelines.
        if leaves.ticks == 0 {
            continue;
        }
        let mut older = feeds.range(..from);
        let elder = older.find_map(|(&into, stays)| {
            let alike = |&id: &FeedId| agreed.feeds.get(&id).map(|feed| feed.terms());
            if alike(&into) != alike(&from) {
                return None;
            }
            let places = stays.places_in(leaves)?;
            let pair = Pair { from, into, places };
            (runs(agreed, into) && runs(agreed, from)).then_some(pair)
        });
        pairs.extend(elder);
    }
    pairs
}

/// Whether the feed runs here with all of its lanes.
fn runs(agreed: &Agreed, id: FeedId) -> bool {
    let Some(feed) = agreed.feeds.get(&id) else {
        return false;
    };
    let lanes = feed.lanes();
    lanes.len() == agreed.machine.feeds()[&id].lanes.len()
        && lanes.iter().all(|lane| lane.fault().is_none())
        && feed.status().stopped.is_none()
}

/// The join of a pair whose cuts are equal.
pub(super) fn of_equal_cuts(agreed: &Agreed, pairs: &[Pair], term: u64) -> Option<JoinFeeds> {
    let feeds = agreed.machine.feeds();
    let fits = |pair: &&Pair| {
        let (leaves, stays) = (&feeds[&pair.from], &feeds[&pair.into]);
        stays.agreed_ms >= leaves.agreed_ms && stays.took_in_the_same(leaves)
    };
    pairs.iter().find(fits).map(|pair| JoinFeeds {
        term,
        from: pair.from,
        into: pair.into,
        from_base: feeds[&pair.from].base,
        into_base: feeds[&pair.into].base,
    })
}

/// One lane as both feeds of a pair have it.
struct SharedLane<'a> {
    /// Its places in the elder feed and in the younger one.
    at: [u32; 2],
    elder: &'a machine::Lane,
    younger: &'a machine::Lane,
    /// What this node has read of it for each.
    buffers: [Arc<LaneBuffer>; 2],
}

/// Where a lane's cut can be the same in both feeds; a feed that is there already does not move.
#[derive(Debug, PartialEq, Eq)]
struct Meeting {
    cut: i64,
    elder: Option<LaneMove>,
    younger: Option<LaneMove>,
}

impl Pair {
    /// How far the younger feed's lanes may be moved: as far as the elder's are, by what is agreed or by `ticks`.
    pub(super) fn limits(&self, agreed: &Agreed, ticks: &[FeedTick]) -> Vec<i64> {
        let stays = &agreed.machine.feeds()[&self.into];
        let moved = moves_of(ticks, self.into);
        let mut limits = vec![0; self.places.len()];
        for (at, (lane, &place)) in (0..).zip(stays.lanes.iter().zip(&self.places)) {
            let Some(place) = place else { continue };
            limits[place] = moved.get(&at).map_or(lane.cut, |step| step.cut);
        }
        limits
    }

    /// If the elder feed ticks, and the younger one holds enough of all lanes, both get the same cuts. The younger one's
    /// agreed time, which would be `next_ms`, must not lie beyond the elder's.
    pub(super) fn meet(&self, agreed: &Agreed, ticks: &mut Vec<FeedTick>, next_ms: i64) -> bool {
        let feeds = agreed.machine.feeds();
        let moved = moves_of(ticks, self.into);
        let Some(elder) = ticks.iter_mut().find(|tick| tick.feed == self.into) else {
            return false;
        };
        let agreed_ms = next_ms.min(elder.agreed_ms);
        let leaves = &feeds[&self.from];
        if leaves.agreed_ms.is_some_and(|last| agreed_ms < last) {
            return false;
        }
        let Some(lanes) = self.lanes(agreed) else {
            return false;
        };
        let meetings: Option<Vec<_>> = lanes
            .iter()
            .map(|lane| lane.meet(moved.get(&lane.at[0])))
            .collect();
        let Some(meetings) = meetings else {
            return false;
        };
        let at_end = |which: usize| {
            let of = lanes.iter().zip(&meetings);
            let of = of.filter(|(lane, met)| lane.buffers[which].is_at_end(met.cut));
            let mut at_end: Vec<u32> = of.map(|(lane, _)| lane.at[which]).collect();
            at_end.sort_unstable();
            at_end
        };
        elder.moves = meetings.iter().filter_map(|met| met.elder).collect();
        elder.at_end = at_end(0);
        let mut moves: Vec<_> = meetings.iter().filter_map(|met| met.younger).collect();
        moves.sort_unstable_by_key(|step| step.lane);
        let younger = FeedTick {
            feed: self.from,
            base: leaves.base,
            agreed_ms,
            clock_ms: elder.clock_ms,
            alone: elder.alone,
            moves,
            empty: Vec::new(),
            at_end: at_end(1),
        };
        ticks.retain(|tick| tick.feed != self.from);
        ticks.push(younger);
        true
    }

    fn lanes<'a>(&self, agreed: &'a Agreed) -> Option<Vec<SharedLane<'a>>> {
        let buffers = |id: &FeedId| agreed.feeds.get(id).map(|feed: &Arc<Feed>| feed.lanes());
        let (elders, youngers) = (buffers(&self.into)?, buffers(&self.from)?);
        let feeds = agreed.machine.feeds();
        let (stays, leaves) = (&feeds[&self.into], &feeds[&self.from]);
        let shared = self.places.iter().enumerate();
        let shared = shared.filter_map(|(at, &place)| Some((at, place?)));
        let lane = |(at, place): (usize, usize)| {
            Some(SharedLane {
                at: [u32::try_from(at).ok()?, u32::try_from(place).ok()?],
                elder: stays.lanes.get(at)?,
                younger: leaves.lanes.get(place)?,
                buffers: [
                    Arc::clone(elders.get(at)?),
                    Arc::clone(youngers.get(place)?),
                ],
            })
        };
        shared.map(lane).collect()
    }
}

impl SharedLane<'_> {
    /// The furthest cut that both can have, where the elder would move as `most` says; `None`: the younger one holds less
    /// than the elder has taken in.
    fn meet(&self, most: Option<&LaneMove>) -> Option<Meeting> {
        let [elder, younger] = &self.buffers;
        let limit = most.map_or(self.elder.cut, |step| step.cut);
        let held = younger.cut_up_to(limit);
        let held = held.filter(|held| held.cut > self.younger.cut);
        let cut = held.map_or(self.younger.cut, |held| held.cut);
        if cut < self.elder.cut || cut > limit {
            return None;
        }
        let moves = |lane, fingerprint| LaneMove {
            lane,
            cut,
            fingerprint,
        };
        let elder = if cut == self.elder.cut {
            None
        } else {
            let known = elder.cut_up_to(cut).filter(|known| known.cut == cut)?;
            Some(moves(self.at[0], known.fingerprint))
        };
        let younger = held.map(|held| moves(self.at[1], held.fingerprint));
        Some(Meeting {
            cut,
            elder,
            younger,
        })
    }
}

fn moves_of(ticks: &[FeedTick], feed: FeedId) -> BTreeMap<u32, LaneMove> {
    let tick = ticks.iter().find(|tick| tick.feed == feed);
    let moves = tick.into_iter().flat_map(|tick| &tick.moves);
    moves.map(|step| (step.lane, *step)).collect()
}

#[cfg(test)]
mod tests;
