//! A feed that takes its state from a peer's checkpoint while all others go on. The driver takes it out and puts it in again;
//! what takes long, files and rows, is not done on its thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use unisono_engine::row::Incarnation;
use unisono_replication::command::FeedId;
use unisono_replication::machine::{self, Effect, Machine};

use super::{Driver, end};
use crate::checkpoint::{
    CheckpointReader, CheckpointStore, Replay, StoredCheckpoint, copy, copy_parts, take_rows,
};
use crate::core::Core;
use crate::feed::{Feed, FeedPlan, SetupError};
use crate::results::ResultsLog;
use crate::source::LaneTrail;
use crate::threads::lock;

/// What the status says of a feed meanwhile, and after a failure until the next attempt.
const UNDER_WAY: &str = "the agreed log does not reach back to this feed's state here: it takes its state from a peer's \
                         checkpoint, and tries again after each checkpoint until one is there";

/// Why a feed takes a peer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It does not move here, and keeps the log.
    Held,
    /// Its own is wrong.
    Wrong,
}

/// A feed that was taken out.
pub struct Patient {
    feed: FeedId,
    /// Where the peer's state stands.
    index: u64,
    base: StoredCheckpoint,
    /// How far the log was read.
    read: u64,
    stopped: Option<Arc<Feed>>,
    /// It is parked at this state, and stays so.
    parked: bool,
    core: Arc<Core>,
}

/// One that can be put in again.
pub struct Healed {
    pub(super) feed: FeedId,
    pub(super) index: u64,
    pub(super) plan: Result<FeedPlan, SetupError>,
    pub(super) replay: Replay,
    /// From its own checkpoint.
    pub(super) again: bool,
}

impl Patient {
    /// Whether the state is only to be kept, for the feed is parked.
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    /// Keeps a peer's state of a parked feed in the place of this node's. Rows stay as they are: what the feed goes on behind is
    /// said when it does.
    ///
    /// # Errors
    /// The part, or something here, cannot be read, or not be written.
    pub fn keep(self, mut part: CheckpointReader, store: &CheckpointStore) -> io::Result<u64> {
        let Self { feed, index, .. } = self;
        let mut header = self.base.header().clone();
        header.feeds.insert(feed, index);
        header.made_at = self.read.max(header.made_at);
        let mut checkpoint = store.begin(header)?;
        copy(&self.base, &mut checkpoint, |other| other != feed)?;
        copy_parts(&mut part, &mut checkpoint)?;
        store.finish(checkpoint)?;
        Ok(index)
    }

    /// Puts a peer's part in the place of this node's: rows first, then a checkpoint that names them.
    ///
    /// # Errors
    /// The part, or something here, cannot be read, or not be written.
    pub fn treat(
        self,
        mut part: CheckpointReader,
        store: &CheckpointStore,
        results: &ResultsLog,
    ) -> io::Result<Healed> {
        let Self { feed, index, .. } = self;
        // It ends here: nothing else writes its rows meanwhile.
        end(self.stopped);
        let mut header = self.base.header().clone();
        header.feeds.insert(feed, index);
        header.made_at = self.read.max(header.made_at);
        let mut checkpoint = store.begin(header)?;
        copy(&self.base, &mut checkpoint, |other| other != feed)?;
        take_rows(&mut part, results, &mut checkpoint)?;
        let stored = store.finish(checkpoint)?;
        let mut replay = Replay::begin(&self.core.replica, Some(stored.header()))?;
        replay.read_up_to(index, |_, _, _| {})?;
        if !replay.machine().has_pipelines(feed) {
            return Err(refused("the log does not know the feed there"));
        }
        let plan = FeedPlan::new(replay.machine(), feed, &self.core.config);
        let plan = super::install::restore(plan, feed, &stored, &self.core.state_room)?;
        Ok(Healed {
            feed,
            index,
            plan,
            replay,
            again: false,
        })
    }
}

impl Driver {
    /// Takes a feed out that can go on from a peer's state at `index`.
    pub(super) fn take_out(&mut self, feed: FeedId, index: u64, why: Why) -> io::Result<Patient> {
        let base = self.core.checkpoints.current();
        let base = base.ok_or_else(|| refused("there is no checkpoint here"))?;
        let header = base.header();
        let known = header.feeds.get(&feed).copied().unwrap_or(header.index);
        let mut agreed = self.core.agreed_mut();
        let parked = agreed.machine.feeds().get(&feed);
        let parked = parked.and_then(machine::Feed::parked);
        let fits = match (parked, why) {
            (Some(parked), _) => parked == index,
            (None, Why::Held) => index > known,
            // What is here is worth nothing; the log is there from the checkpoint on.
            (None, Why::Wrong) => index >= header.index,
        };
        if !fits || index > self.position.index {
            return Err(refused("it stands elsewhere than this node needs"));
        }
        if !agreed.machine.has_pipelines(feed) || self.pending.contains_key(&feed) {
            return Err(refused("the feed is another one by now"));
        }
        let own = agreed.feeds.get(&feed);
        if why == Why::Held && own.is_some_and(|own| own.index() >= index) {
            return Err(refused("the feed goes on by itself"));
        }
        // Nobody takes what is in dispute from whoever took it in, nor what was ended.
        if !agreed.machine.feeds()[&feed].counts_at(index) {
            return Err(refused(
                "it has taken in a tick that is in dispute, or was ended",
            ));
        }
        let stopped = agreed.feeds.remove(&feed);
        // Why it is refused, if it is, is said again when it is put in.
        if parked.is_none() {
            let reason = self.core.doubts.out(feed);
            let reason = reason.unwrap_or_else(|| UNDER_WAY.to_owned());
            agreed.refused.insert(feed, reason);
        }
        Ok(Patient {
            feed,
            index,
            base,
            read: self.position.index,
            stopped,
            parked: parked.is_some(),
            core: Arc::clone(&self.core),
        })
    }

    /// Starts it, and has it follow the log up to where that was read.
    pub(super) fn put_in(&mut self, healed: Healed) -> io::Result<u64> {
        let Healed {
            feed,
            index,
            plan,
            mut replay,
            again,
        } = healed;
        {
            let mut agreed = self.core.agreed_mut();
            if !agreed.machine.has_pipelines(feed) || agreed.feeds.contains_key(&feed) {
                return Err(refused("the feed is another one by now"));
            }
            self.start_feed(&mut agreed, feed, plan, index);
        }
        let started = self.core.agreed().feeds.get(&feed).cloned();
        if let Some(started) = started {
            let mut changed = false;
            let (core, machine) = (&self.core, self.core.agreed().machine.clone());
            let agreed = &machine.feeds()[&feed];
            let read = replay.read_up_to(self.position.index, |index, effect, machine| {
                changed |= !lead_on(core, &started, agreed, index, effect, machine);
            });
            drop(started);
            if changed {
                let reason = "other pipelines came to the feed, or left it, since the peer's checkpoint: it begins again \
                              with the next one";
                self.give_up(feed, reason);
            }
            if let Err(error) = read {
                self.give_up(feed, &error.to_string());
                return Err(error);
            }
        }
        let mut wants = lock(&self.core.health.wants);
        if wants.get(&feed).is_some_and(|&beyond| beyond < index) {
            wants.remove(&feed);
        }
        drop(wants);
        let counters = &self.core.counters;
        let (counter, gives) = match again {
            true => (&counters.feeds_replayed, self.position.index),
            false => (&counters.feeds_healed, index),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.core.notify();
        Ok(gives)
    }

    /// Ends a feed that cannot go on here as it is.
    pub(super) fn give_up(&mut self, id: FeedId, reason: &str) {
        tracing::error!(feed = id.0, reason, "feed ended");
        let mut agreed = self.core.agreed_mut();
        agreed.refused.insert(id, reason.to_owned());
        let ended = agreed.feeds.remove(&id);
        drop(agreed);
        if let Some(feed) = &ended {
            feed.abandon();
        }
        self.leaving.extend(ended);
    }
}

/// Hands a feed what an entry says of it, but for ticks that do not count as it is `agreed` by now; `false` if it has to begin
/// otherwise.
pub(super) fn lead_on(
    core: &Core,
    feed: &Feed,
    agreed: &machine::Feed,
    index: u64,
    effect: Effect,
    machine: &Machine,
) -> bool {
    let own = feed.id;
    match effect {
        Effect::Ticked(_) if agreed.has_ended(index) => {}
        Effect::Ticked(ticks) => {
            let mut ticks = ticks.into_iter().filter(|tick| tick.feed == own);
            return ticks.all(|tick| feed.tick(index, tick));
        }
        Effect::LanesAdded { feed: id, first } if id == own => {
            for lane in &machine.feeds()[&id].lanes[first as usize..] {
                feed.add_lane(index, lane.source as usize, LaneTrail::of(lane));
            }
        }
        Effect::LanesRetired { feed: id, lanes } if id == own => {
            for lane in lanes {
                let retired = &machine.feeds()[&id].lanes[lane as usize];
                feed.retire_lane(index, lane, retired.source as usize, retired.name.clone());
            }
        }
        Effect::FeedsJoined { into, .. } => return into != own,
        Effect::PipelineRemoved {
            feed: id,
            incarnation,
        } if id == own => {
            let plan = FeedPlan::new(machine, own, &core.config);
            let Ok(plan) = plan else { return false };
            feed.remove(index, Incarnation(incarnation), plan);
        }
        Effect::FeedReleased { feed: id, .. } if id == own => {
            feed.go_on(index, machine.feeds()[&own].stands(), Vec::new());
        }
        Effect::TicksEnded(id) if id == own => {
            let known = &machine.feeds()[&own];
            let streams = known.ended.last().map(|ended| ended.streams.clone());
            feed.go_on(index, known.stands(), streams.unwrap_or_default());
        }
        _ => {}
    }
    true
}

pub(super) fn refused(why: &str) -> io::Error {
    io::Error::other(format!("a state of a feed is not taken: {why}"))
}
