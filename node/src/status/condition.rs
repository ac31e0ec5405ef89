//! How this node does, gathered from its parts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use unisono_engine::row::{Incarnation, StreamId};
use unisono_replication::command::FeedId;
use unisono_replication::machine::Pipeline;
use unisono_replication::rt;
use unisono_replication::{HandOverError, PeerStatus, Role, View};

use super::{FRESH, NodeStatus};
use crate::core::{Agreed, Core};
use crate::handover::hand_over;
use crate::health::memory::Numbers;
use crate::health::ready::{STUCK, Seat};
use crate::health::{Condition, HUNG, LAG, STANDS, TakenOtherwise};
use crate::ids::{key_of, streams_of};
use crate::ingest::CutChoice;
use crate::threads::lock;

/// Word of a leader or a quorum is never too old before this, however short the time-outs of elections.
const CONTACT: Duration = Duration::from_secs(1);

/// How old word of a leader or a quorum may be: the last election time-outs.
#[must_use]
pub fn contact(core: &Core) -> Duration {
    (core.config.cluster.election_timeout.1 * 2).max(CONTACT)
}

/// A process that was first heard so long ago has caught up.
const SETTLED: Duration = Duration::from_secs(3);
/// Peers are heard five times a second.
const HEARD: Duration = Duration::from_millis(300);

/// The part that this node plays.
#[must_use]
pub fn seat(core: &Core, view: &View) -> Seat {
    let pulse = core.replica.pulse();
    match (view.role, view.leader) {
        (Role::Leader, _) => Seat::Leads(pulse.quorum),
        (Role::Learner, _) => Seat::Learns,
        (Role::Follower, Some(leader)) => Seat::Follows(leader, pulse.heard),
        (Role::Follower | Role::Candidate, _) => Seat::Leaderless,
    }
}

/// Entries of the agreed log that somebody has read, or this node has, and its driver has not.
#[must_use]
pub fn lag(core: &Core, view: &View) -> u64 {
    let told = peers(core, FRESH).into_values().map(|told| told.applied);
    let front = told.max().unwrap_or(0).max(view.applied);
    front.saturating_sub(core.agreed().index)
}

/// Whether the agreed log was read, since the process started, as far as the leader had read it then: before that this node
/// does not know what there is, and what was published.
#[must_use]
pub fn has_read_log(core: &Core) -> bool {
    let goal = || {
        let leader = core.replica.view().borrow().leader?;
        if leader == core.config.node.id {
            // It has applied an entry of its own term, and with it all that was committed before.
            return core.authority().map(|_| 0);
        }
        Some(peers(core, FRESH).get(&leader)?.applied)
    };
    core.log_read.is_reached(goal, || core.agreed().index)
}

/// What the peers told that were heard so lately.
#[must_use]
pub fn peers(core: &Core, within: Duration) -> BTreeMap<u16, NodeStatus> {
    let peers = core.replica.peers().into_iter();
    let fresh = peers.filter(|peer| rt::since(peer.received) < within);
    fresh
        .filter_map(|peer| Some((peer.number, NodeStatus::decode(&peer.status)?)))
        .collect()
}

/// A feed is called by the sources that it reads, and its number in the log.
#[must_use]
pub fn feed_name(agreed: &Agreed, id: FeedId) -> String {
    let sources = agreed.machine.feeds()[&id].sources.iter();
    let names: Vec<_> = sources.map(|source| source.name.as_str()).collect();
    format!("{}#{}", names.join("+"), id.0)
}

/// Why a feed takes in nothing more; `None` while it runs, or is about to.
#[must_use]
pub fn stopped(agreed: &Agreed, id: FeedId) -> Option<String> {
    let refused = agreed.refused.get(&id).cloned();
    refused.or_else(|| agreed.feeds.get(&id).and_then(|feed| feed.status().stopped))
}

/// Why a feed stands still here; empty if it runs.
#[must_use]
pub fn feed_troubles(core: &Core, agreed: &Agreed, id: FeedId) -> Vec<String> {
    let name = || feed_name(agreed, id);
    if let Some(doubt) = core.doubts.trouble(id) {
        return vec![format!("feed {}: {doubt}", name())];
    }
    let mut troubles = Vec::new();
    if let Some(error) = stopped(agreed, id) {
        troubles.push(format!("feed {} is stopped: {error}", name()));
    }
    let Some(feed) = agreed.feeds.get(&id) else {
        if troubles.is_empty() {
            troubles.push(format!("feed {} has not started here yet", name()));
        }
        return troubles;
    };
    let sources = feed.fetchers().iter();
    troubles.extend(sources.filter_map(|fetcher| fetcher.state().trouble));
    // A lane that cannot be read holds its feed back when a tick wants more of it.
    for fault in feed.lanes().into_iter().filter_map(|lane| lane.fault()) {
        if !troubles.iter().any(|trouble| trouble.contains(&fault)) {
            troubles.push(fault);
        }
    }
    // Where no broker answers, the source says so itself, though later.
    let lanes = agreed.machine.feeds()[&id].lanes.iter();
    let silent = lanes
        .zip(feed.lanes())
        .find_map(|(lane, buffer)| Some((lane, buffer.silence()?)));
    if let Some((lane, silence)) = silent.filter(|_| troubles.is_empty()) {
        let (name, ms) = (&lane.name, silence.as_millis());
        troubles.push(format!(
            "feed {}, lane {name}: nothing comes, and the source has not answered for {ms} ms",
            feed_name(agreed, id)
        ));
    }
    let waits = feed.waits_since().map(rt::since);
    if let Some(age) = waits.filter(|&age| age >= STANDS && troubles.is_empty()) {
        let age = age.as_secs();
        troubles.push(format!(
            "feed {}: a tick that was agreed {age} s ago is not taken in here yet",
            name()
        ));
    }
    troubles
}

/// Lanes whose windows wait for the end of a transaction, of all feeds or of one pipeline's. That is no trouble of this node.
#[must_use]
pub fn held_by_transactions(agreed: &Agreed, only: Option<Incarnation>) -> Vec<String> {
    let pipelines = agreed.machine.pipelines();
    let only = only.map(|only| pipelines.get(&only.0).map(|pipeline| pipeline.feed));
    let mut told = Vec::new();
    for (id, feed, known) in agreed.known() {
        if only.is_some_and(|only| only != Some(id)) {
            continue;
        }
        for (lane, buffer) in known.lanes.iter().zip(feed.lanes()) {
            let Some(since) = buffer.held_since() else {
                continue;
            };
            let (source, age) = (&known.sources[lane.source as usize].name, rt::since(since));
            told.push(format!(
                "source {source}, lane {}: a transaction has been open for {} s at offset {}: what was appended since cannot be \
                 read, and windows wait for it; kafka-transactions describe-producers shows whose it is",
                lane.name,
                age.as_secs(),
                lane.cut,
            ));
        }
    }
    told
}

/// Takes in how rows stand now. To be called several times a second.
pub fn observe(core: &Core) {
    let view = core.replica.view().borrow().clone();
    let in_touch = seat(core, &view).is_in_touch(contact(core));
    let keeps_up = in_touch && lag(core, &view) <= LAG;
    let publishes = core.authority().is_some();
    let agreed = core.agreed();
    let mut streams = BTreeMap::new();
    for (&incarnation, pipeline) in agreed.machine.pipelines() {
        for stream in streams_of(incarnation) {
            let waits = pipeline.paused || agreed.machine.is_held(pipeline.feed);
            let numbers = numbers(core, &agreed, stream, publishes && !waits);
            streams.insert(stream, numbers);
        }
    }
    drop(agreed);
    lock(&core.health.memory).see(keeps_up, &streams, rt::now());
}

fn numbers(core: &Core, agreed: &Agreed, stream: StreamId, publishes: bool) -> Numbers {
    Numbers {
        frontier: agreed.machine.frontier(key_of(stream)),
        next: core.results.next_seq(stream).0,
        publishes,
    }
}

/// Rows of a stream that are published and not here: the first, and the one after the last.
#[must_use]
pub fn hole(core: &Core, agreed: &Agreed, stream: StreamId) -> Option<(u64, u64)> {
    let Numbers { frontier, next, .. } = numbers(core, agreed, stream, false);
    let lacks = lock(&core.health.memory).lacks(stream, frontier, next, rt::now());
    lacks.then_some((next, frontier))
}

/// For how long rows of a pipeline have waited to be published from here.
#[must_use]
pub fn waits(core: &Core, incarnation: u64) -> Option<Duration> {
    let memory = lock(&core.health.memory);
    let waits = streams_of(incarnation).map(|stream| memory.waits(stream, rt::now()));
    waits.into_iter().flatten().max()
}

/// For how long the write to this node's disk takes that takes longest: of the agreed log, or of rows.
#[must_use]
pub fn writing(core: &Core) -> Option<Duration> {
    core.replica.pulse().writing.max(core.results.writing())
}

/// How this node does, before what it failed in counts.
#[must_use]
pub fn own(core: &Core) -> Condition {
    own_without(core, &BTreeSet::new(), HUNG)
}

/// The same, where nothing comes of the feeds in `silent`, and a write hangs that takes so long.
pub(super) fn own_without(core: &Core, silent: &BTreeSet<FeedId>, hung: Duration) -> Condition {
    let view = core.replica.view().borrow().clone();
    let hangs = writing(core).is_some_and(|age| age >= hung);
    let lacks = lag(core, &view) > LAG;
    let sinks = core.sinks.all();
    let agreed = core.agreed();
    // One that is held runs nowhere, however well its parts are.
    let runs = |&id: &FeedId| {
        let runs = !agreed.machine.is_held(id) && feed_troubles(core, &agreed, id).is_empty();
        (id.0, runs && !silent.contains(&id))
    };
    let feeds: BTreeMap<u64, bool> = agreed.machine.feeds().keys().map(runs).collect();
    let is_able = |(incarnation, pipeline): &(&u64, &Pipeline)| {
        let disputed = agreed.feeds.get(&pipeline.feed).is_some_and(|feed| {
            let lanes = feed.lanes();
            lanes.iter().any(|lane| lane.disputes())
        });
        let sink = sinks.get(&pipeline.sink);
        let reached = sink.is_none_or(|view| view.trouble.is_none());
        let moves = waits(core, **incarnation).is_none_or(|age| age < STUCK);
        feeds.get(&pipeline.feed.0) == Some(&true) && !disputed && reached && moves
    };
    let able = agreed.machine.pipelines().iter().filter(is_able).count();
    Condition {
        score: match hangs || lacks || core.drained.load(Ordering::Relaxed) {
            true => 0,
            false => u32::try_from(able).unwrap_or(u32::MAX),
        },
        feeds,
        taken: agreed
            .feeds
            .iter()
            .map(|(id, feed)| (id.0, feed.index()))
            .collect(),
        saved: saved(core),
        disputes: disputes(&agreed),
    }
}

/// If this node leads: gives the lead to the fittest of the others that follow closely, or else to the one that lacks least.
///
/// # Errors
/// Why not; this node may still lead then.
pub async fn give_away(core: &Core) -> Result<(), HandOverError> {
    let voters = core.replica.view().borrow().voters.clone();
    let told = peers(core, FRESH);
    let mut others = core.replica.peers();
    others.retain(|peer| voters.contains(&peer.number) && told.contains_key(&peer.number));
    others.sort_by_key(|peer| {
        let score = told[&peer.number].condition.score;
        (Reverse((score, merit(peer))), peer.number)
    });
    let fittest: Vec<u16> = others.into_iter().map(|peer| peer.number).collect();
    match hand_over(core, &fittest).await {
        Err(HandOverError::NoCandidate) => hand_over(core, &[]).await,
        given => given,
    }
}

/// Of two that are as fit, whom to give the lead: who was not heard just now may be gone, or come back, and who has just
/// come takes in first what came meanwhile.
fn merit(peer: &PeerStatus) -> (bool, Duration) {
    let heard = peer.connected && rt::since(peer.received) < HEARD;
    (heard, rt::since(peer.since).min(SETTLED))
}

/// Where each feed's state stands in the last checkpoint.
#[must_use]
pub fn saved(core: &Core) -> BTreeMap<u64, u64> {
    let checkpoint = core.checkpoints.current();
    let feeds = checkpoint.map(|checkpoint| checkpoint.header().feeds.clone());
    let feeds = feeds.unwrap_or_default().into_iter();
    feeds.map(|(id, index)| (id.0, index)).collect()
}

/// What this node reads otherwise than is agreed. What was read once may be right the next time.
#[must_use]
pub fn disputes(agreed: &Agreed) -> Vec<TakenOtherwise> {
    let mut disputes = Vec::new();
    for (id, feed) in &agreed.feeds {
        for (lane, buffer) in (0..).zip(feed.lanes()) {
            let Some(dispute) = buffer.dispute().filter(|dispute| dispute.times > 1) else {
                continue;
            };
            let read = dispute.read.unwrap_or(CutChoice {
                cut: dispute.from,
                fingerprint: 0,
            });
            disputes.push(TakenOtherwise {
                feed: id.0,
                lane,
                from: dispute.from,
                to: dispute.to,
                agreed: dispute.agreed,
                cut: read.cut,
                fingerprint: read.fingerprint,
            });
        }
    }
    disputes
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn peer(age: Duration, silent: Duration, connected: bool) -> PeerStatus {
        let now = Instant::now();
        PeerStatus {
            number: 2,
            status: Vec::new(),
            received: now - silent,
            since: now - age,
            connected,
            clock_offset_ms: 0.0,
            round_trip: None,
        }
    }

    #[test]
    fn who_is_there_longer_is_given_the_lead_and_who_may_be_gone_last() {
        let ms = Duration::from_millis;
        let best = merit(&peer(ms(5000), ms(10), true));
        assert_eq!(
            best,
            merit(&peer(ms(9000), ms(200), true)),
            "both have caught up"
        );
        let worse = [
            merit(&peer(ms(500), ms(10), true)),
            merit(&peer(ms(50), ms(10), true)),
            merit(&peer(ms(9000), ms(10), false)),
            merit(&peer(ms(900), ms(310), true)),
        ];
        assert!(
            best > worse[0] && worse.is_sorted_by(|left, right| left > right),
            "{worse:?}"
        );
    }
}
