//! The proposer: while this node leads, it makes the ticks. One proposal is in flight at a time, and each builds on the
//! agreed state that this node has read, so what it proposes after losing the lead is void.

mod creation;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::time::MissedTickBehavior;
use unisono_replication::command::{
    AddLanes, Command, FeedId, FeedTick, LaneEntry, LaneMove, Ticks,
};
use unisono_replication::machine;
use unisono_replication::tick::{LastTick, Metronome, median_clock_ms, next_agreed_ms};

use crate::core::{Agreed, Authority, Core};
use crate::feed::Feed;
use crate::threads::{Role, test_panic};
use creation::Creation;

/// A feed where nothing moves ticks so often: its timers stand still between ticks.
const AT_LEAST: Duration = Duration::from_millis(500);
/// What other replicas' clocks say counts so long.
const CLOCKS_FRESH: Duration = Duration::from_secs(5);
/// How long after a failed proposal the next one is made.
const PAUSE: Duration = Duration::from_millis(10);

/// Makes ticks for as long as the node runs.
pub async fn run(core: Arc<Core>) {
    let metronome = Metronome {
        interval: core.config.cluster.tick_interval,
        at_least: AT_LEAST,
    };
    let mut creation = Creation::default();
    let mut beat = tokio::time::interval(metronome.interval);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let Some(authority) = core.authority() else {
            continue;
        };
        if let Some(command) = creation.next(&core, &authority).await {
            propose(&core, command).await;
        } else if let Some(command) = next_entry(&core, &authority, metronome) {
            propose(&core, command).await;
        }
    }
}

/// Proposes and waits until this node has read the entry back.
async fn propose(core: &Core, command: Command) {
    test_panic(Role::Proposer);
    match core.replica.propose(command.encode()).await {
        Ok(position) => core.read_up_to(position.index).await,
        Err(error) => {
            core.counters.proposals_lost.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "proposal lost");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// What is to be said now, if anything: new lanes first, then the ticks that are due.
fn next_entry(core: &Core, authority: &Authority, metronome: Metronome) -> Option<Command> {
    let agreed = core.agreed();
    for (&id, feed) in &agreed.feeds {
        if let Some(command) = new_lanes(&agreed.machine.feeds()[&id], feed, authority) {
            return Some(Command::AddLanes(command));
        }
    }
    let clocks_ms = clocks_ms(core);
    let feeds: Vec<FeedTick> = agreed
        .feeds
        .iter()
        .filter_map(|(&id, feed)| tick(core, &agreed, id, feed, metronome, clocks_ms))
        .collect();
    (!feeds.is_empty()).then_some(Command::Ticks(Ticks {
        term: authority.term,
        feeds,
    }))
}

/// Lanes that the sources have and the feed has not. They are new, so they are read from their beginning.
fn new_lanes(agreed: &machine::Feed, feed: &Feed, authority: &Authority) -> Option<AddLanes> {
    let mut lanes = Vec::new();
    for (source, fetcher) in (0_u32..).zip(feed.fetchers()) {
        for name in fetcher.state().lanes {
            let known = |lane: &machine::Lane| lane.source == source && lane.name == name;
            if !agreed.lanes.iter().any(known) {
                lanes.push(LaneEntry {
                    source,
                    name,
                    start: 0,
                });
            }
        }
    }
    let (term, base) = (authority.term, agreed.base);
    (!lanes.is_empty()).then_some(AddLanes {
        term,
        feed: feed.id,
        base,
        lanes,
    })
}

fn tick(
    core: &Core,
    agreed: &Agreed,
    id: FeedId,
    feed: &Feed,
    metronome: Metronome,
    clocks_ms: i64,
) -> Option<FeedTick> {
    let state = &agreed.machine.feeds()[&id];
    let seen = agreed.ticked.get(&id).map(Instant::elapsed);
    let mut moves = Vec::new();
    let mut at_end = Vec::new();
    for (lane, (known, buffer)) in (0_u32..).zip(state.lanes.iter().zip(feed.lanes())) {
        let choice = buffer.choose_cut(known.cut, core.config.cluster.tick_bytes);
        if let Some(choice) = choice {
            moves.push(LaneMove {
                lane,
                cut: choice.cut,
                fingerprint: choice.fingerprint,
            });
        }
        if buffer.is_at_end(choice.map_or(known.cut, |choice| choice.cut)) {
            at_end.push(lane);
        }
    }
    let since = seen.unwrap_or(Duration::MAX);
    if !metronome.is_due(since, !moves.is_empty()) {
        return None;
    }
    let last = state
        .agreed_ms
        .map(|agreed_ms| LastTick { agreed_ms, seen });
    let agreed_ms = next_agreed_ms(last, clocks_ms);
    Some(FeedTick {
        feed: id,
        base: state.base,
        agreed_ms,
        clock_ms: clocks_ms,
        alone: false,
        moves,
        empty: Vec::new(),
        at_end,
    })
}

/// The median of the clocks of all replicas that are heard of.
fn clocks_ms(core: &Core) -> i64 {
    let own = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let own_ms = i64::try_from(own.as_millis()).unwrap_or(i64::MAX);
    let peers = core.replica.peers();
    let fresh = peers
        .iter()
        .filter(|peer| peer.received.elapsed() < CLOCKS_FRESH);
    let mut offsets: BTreeMap<u16, f64> = fresh
        .map(|peer| (peer.number, peer.clock_offset_ms))
        .collect();
    offsets.insert(core.config.node.id, 0.0);
    median_clock_ms(own_ms, offsets.into_values().collect())
}
