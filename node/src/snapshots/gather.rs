//! Makes a checkpoint: the state of each feed where it stands. A feed that is slow, waits or has stopped keeps the state that
//! the checkpoint before has of it.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use unisono_replication::command::FeedId;
use unisono_replication::machine::Effect;
use unisono_replication::rt;
use unisono_replication::rt::mpsc::RecvTimeoutError;
use xxhash_rust::xxh3::Xxh3;

use super::NodeSnapshots;
use super::choice::{Choice, Known, choose};
use super::states::{Hashes, Hashing};
use crate::checkpoint::{
    Head, PartId, Replay, StoredCheckpoint, UnfinishedCheckpoint, copy, encode_heads,
};
use crate::driver::{PendingCheckpoint, PendingFeed};
use crate::feed::FeedCheckpoint;
use crate::threads::lock;

/// How long all feeds together may take to get to where the log was read: those that need longer are saved as they are.
const SOON: Duration = Duration::from_secs(2);
/// How long, after that, a tick may take that is under way. Other feeds' states are held meanwhile.
const A_TICK: Duration = Duration::from_secs(3);

/// A checkpoint on its way, and the hashes of the states in it that stand where the log was read.
pub(super) struct Gathered {
    pub(super) checkpoint: UnfinishedCheckpoint,
    pub(super) hashes: Hashes,
}

type States = BTreeMap<FeedId, FeedCheckpoint>;

impl NodeSnapshots {
    /// Writes the feeds' parts. `None` if there is nothing to save yet.
    pub(super) fn gather(&self, pending: PendingCheckpoint) -> io::Result<Option<Gathered>> {
        let PendingCheckpoint {
            position,
            base,
            replica,
            feeds,
        } = pending;
        let states = collect(feeds);
        let header = base.as_ref().map(StoredCheckpoint::header);
        let mut known = Known {
            base: header.map_or(0, |header| header.index),
            end: position.index,
            ..Known::default()
        };
        if let Some(header) = header {
            known.states.clone_from(&header.feeds);
        }
        known
            .states
            .extend(states.iter().map(|(&id, state)| (id, state.index)));
        let mut replay = Replay::begin(&replica, header)?;
        replay.read_up_to(position.index, |index, effect, _| {
            if let Effect::FeedsJoined { from, into } = effect {
                known.joined.push((from, into, index));
            }
        })?;
        for (&id, feed) in replay.machine().feeds() {
            known.parked.extend(feed.parked().map(|state| (id, state)));
            if replay.machine().has_pipelines(id) {
                known.alive.insert(id);
                if feed.ticks == 0 {
                    known.blank.insert(id);
                }
            }
        }
        let Choice { index, needed } = choose(&known);
        self.note_held(&needed, &known, position.index);
        if index == 0 {
            return Ok(None);
        }
        if index < position.index {
            replay = Replay::begin(&replica, header)?;
            replay.read_up_to(index, |_, _, _| {})?;
        }
        let mut header = replay.into_header();
        header.made_at = position.index;
        header.feeds = needed;
        header
            .feeds
            .retain(|feed, _| known.states.contains_key(feed));
        let kept = header.feeds.keys().filter(|id| !states.contains_key(id));
        let kept: Vec<FeedId> = kept.copied().collect();
        let live = |id: &FeedId| header.feeds.contains_key(id);
        let states: Vec<_> = states.into_iter().filter(|(id, _)| live(id)).collect();
        let mut checkpoint = self.store.begin(header)?;
        let mut hashes = Hashes::new();
        for (id, state) in states {
            let index = state.index;
            let hash = write(&mut checkpoint, id, state)?;
            // One that stands elsewhere cannot be compared.
            hashes.extend((index == position.index).then_some((id, hash)));
        }
        if let Some(base) = base.filter(|_| !kept.is_empty()) {
            copy(&base, &mut checkpoint, |id| kept.contains(&id))?;
        }
        Ok(Some(Gathered { checkpoint, hashes }))
    }

    /// Notes which feeds hold the log back by more than is kept of it anyway, and did so the last time: they don't move.
    fn note_held(&self, needed: &BTreeMap<FeedId, u64>, all: &Known, end: u64) {
        let keeps_log = |id: &FeedId, index: u64| all.parked.get(id) != Some(&index);
        let behind = needed
            .iter()
            .filter(|&(id, &index)| index < end && keeps_log(id, index));
        let behind: BTreeMap<_, _> = behind.map(|(&id, &index)| (id, index)).collect();
        let mut known = lock(&self.behind);
        let mut held = behind.clone();
        held.retain(|id, index| known.get(id) == Some(index) && *index + self.keep < end);
        for (feed, index) in &held {
            tracing::warn!(
                feed = feed.0,
                index,
                "the feed does not move here: the agreed log is kept from entry {index} on, until its state can be \
                 taken from a peer's checkpoint"
            );
        }
        *known = behind;
        *lock(&self.held) = held;
    }
}

/// What the feeds give: those that are nearly there where the log was read, the others as they are.
pub(super) fn collect(feeds: Vec<PendingFeed>) -> States {
    let mut states = States::new();
    let mut slow = Vec::new();
    let until = rt::now() + SOON;
    for feed in feeds {
        let left = until.saturating_duration_since(rt::now());
        match feed.state.recv_timeout(left) {
            Ok(state) => drop(states.insert(feed.id, state)),
            Err(RecvTimeoutError::Timeout) => slow.push((feed.id, feed.saver.save())),
            Err(RecvTimeoutError::Disconnected) => told_kept(feed.id),
        }
    }
    let until = rt::now() + A_TICK;
    for (id, state) in slow {
        let left = until.saturating_duration_since(rt::now());
        match state.recv_timeout(left) {
            Ok(state) => drop(states.insert(id, state)),
            Err(_) => told_kept(id),
        }
    }
    states
}

fn told_kept(feed: FeedId) {
    tracing::warn!(
        feed = feed.0,
        "the feed is stopped or waits for records: its state in the checkpoint is that of the one before"
    );
}

/// Gives the state's hash.
fn write(
    checkpoint: &mut UnfinishedCheckpoint,
    id: FeedId,
    state: FeedCheckpoint,
) -> io::Result<u128> {
    let heads: Vec<_> = state.heads.into_iter().map(Head::from).collect();
    checkpoint.part(PartId::Heads(id), |part| {
        part.write_all(&encode_heads(&heads))
    })?;
    let (snapshot, mut hasher) = (state.snapshot, Xxh3::new());
    checkpoint.part(PartId::Feed(id), |out| {
        let hasher = &mut hasher;
        snapshot.write_feed(&mut Hashing { out, hasher })
    })?;
    for (number, lane) in (0..).zip(0..snapshot.lanes()) {
        checkpoint.part(PartId::Lane(id, number), |out| {
            let hasher = &mut hasher;
            snapshot.write_lane(lane, &mut Hashing { out, hasher })
        })?;
    }
    Ok(hasher.digest128())
}
