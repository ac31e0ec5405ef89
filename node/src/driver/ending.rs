//! Feeds that are held, and what was decided of them.
//!
//! A feed that goes on from before a tick begins again from this node's checkpoint, and is led through the log without the
//! ticks that do not count: what it holds may have taken one in, or half of one. Where the checkpoint has taken one in, a
//! peer's takes its place. The driver waits for this, and all feeds with it, as it does when a checkpoint is loaded.

use std::io;

use unisono_replication::command::FeedId;
use unisono_replication::machine::{Effect, Machine};

use super::healing::lead_on;
use super::{Driver, end};
use crate::checkpoint::{Header, Replay, StoredCheckpoint};
use crate::core::Agreed;
use crate::feed::FeedPlan;
use crate::status;
use crate::threads::lock;

/// What the status says of a feed whose checkpoint here has taken in what does not count.
const AFTER: &str = "this node has taken in a tick that an operator ended, and has no state from before: it takes its state from \
                     a peer's checkpoint, and tries again until one is there";

/// What it says of a feed that goes on, and whose checkpoint here is parked where it does not go on from.
const BEFORE: &str = "this node has no state of the feed that the log leads on: it takes its state from a peer's checkpoint, and tries \
                      again until one is there";
/// What it says of a parked feed.
const PARKED: &str = "the feed is parked: the agreed log is kept for it no more, and it goes on from its state in the checkpoint when \
                      an operator ends its ticks";

/// A feed that can begin again, where it stands, and the state of the log there.
struct Begun {
    plan: Result<FeedPlan, crate::feed::SetupError>,
    index: u64,
    replay: Replay,
}

impl Driver {
    /// All replicas do this at the same entry.
    pub(super) fn hold(&self, feed: FeedId) {
        let agreed = self.core.agreed();
        if let Some(reason) = status::held_by_decision(&agreed, feed) {
            tracing::error!(feed = feed.0, reason, "feed held");
        }
        drop(agreed);
        self.core.notify();
    }

    /// A feed that stands before the tick ends here; its state is in the checkpoint, or comes there from a peer. One that has taken
    /// the tick in has what counts if that is accepted.
    pub(super) fn park(&mut self, id: FeedId) {
        let parked = self.core.agreed().machine.feeds()[&id].parked();
        let saved = status::saved(&self.core).get(&id.0).copied();
        let stopped = {
            let mut agreed = self.core.agreed_mut();
            // Since the state is the furthest one that counts, whoever saved more has taken in the tick.
            let saved_more = saved > parked;
            let own = agreed.feeds.get(&id);
            let is_through = own.is_some_and(|own| own.waits_since().is_none());
            let stays = saved_more || (is_through && saved != parked);
            match stays {
                true => None,
                false => {
                    agreed.refused.insert(id, PARKED.to_owned());
                    agreed.feeds.remove(&id)
                }
            }
        };
        self.pending.remove(&id);
        end(stopped);
        tracing::error!(
            feed = id.0,
            state = parked,
            "feed parked: the agreed log is kept for it no more"
        );
        self.core.notify();
        self.core.health.due.notify_one();
    }

    /// A feed whose state in a checkpoint the log does not lead on from: it is parked there, or was.
    pub(super) fn leave_parked(&self, agreed: &mut Agreed, id: FeedId) {
        let Some(feed) = agreed.machine.feeds().get(&id) else {
            return;
        };
        let reason = match feed.parked().is_some() {
            true => PARKED,
            false => {
                lock(&self.core.health.wants).insert(id, agreed.index.saturating_sub(1));
                BEFORE
            }
        };
        agreed.refused.insert(id, reason.to_owned());
    }

    /// What the log says counts: who could not take that in takes the state of one that could, and so wants its checkpoint.
    pub(super) fn release(&self, feed: FeedId, tick: u64) {
        tracing::warn!(
            feed = feed.0,
            tick,
            "the held feed goes on, and what the log says counts"
        );
        let agreed = self.core.agreed();
        let index = self.position.index;
        if let Some(running) = agreed.feeds.get(&feed) {
            let stands = agreed.machine.feeds()[&feed].stands();
            running.go_on(index, stands, Vec::new());
        } else {
            lock(&self.core.health.wants).insert(feed, index - 1);
        }
        drop(agreed);
        self.core.notify();
        self.core.health.due.notify_one();
    }

    /// The feed goes on from before the tick for which it was held.
    pub(super) fn end_ticks(&mut self, id: FeedId) {
        // One that begins later in the log has a state without those ticks.
        if self.pending.contains_key(&id) {
            return;
        }
        let index = self.position.index;
        let stopped = self.core.agreed_mut().feeds.remove(&id);
        end(stopped);
        match self.begin_again(id) {
            Ok(()) => {}
            Err(error) => {
                let reason = format!("{AFTER} ({error})");
                tracing::error!(feed = id.0, reason, "feed ended");
                self.core.agreed_mut().refused.insert(id, reason);
                lock(&self.core.health.wants).insert(id, index - 1);
            }
        }
        self.core.notify();
        self.core.health.due.notify_one();
    }

    fn begin_again(&self, id: FeedId) -> io::Result<()> {
        let base = self.core.checkpoints.current();
        let begun = self.before(id, base.as_ref())?;
        let Begun {
            plan,
            index,
            mut replay,
        } = begun;
        let started = {
            let mut agreed = self.core.agreed_mut();
            agreed.feeds.remove(&id);
            self.start_feed(&mut agreed, id, plan, index);
            agreed.feeds.get(&id).cloned()
        };
        // Else it says why, and the next start tries again.
        let Some(started) = started else {
            return Ok(());
        };
        let mut changed = false;
        let core = &self.core;
        let machine = core.agreed().machine.clone();
        let ended = &machine.feeds()[&id];
        if index == self.position.index {
            let streams = ended.ended.last().map(|ended| ended.streams.clone());
            started.go_on(index, ended.stands(), streams.unwrap_or_default());
        }
        let read = replay.read_up_to(self.position.index, |index, effect, machine| {
            changed |= !lead_on(core, &started, ended, index, effect, machine);
        });
        let outcome = match (read, changed) {
            (Ok(()), false) => return Ok(()),
            (Ok(()), true) => Err(io::Error::other(
                "another feed came to it since this node's last checkpoint",
            )),
            (Err(error), _) => Err(error),
        };
        let stopped = self.core.agreed_mut().feeds.remove(&id);
        drop(started);
        end(stopped);
        outcome
    }

    /// The feed as it was in the last checkpoint, or when it had taken in nothing.
    fn before(&self, id: FeedId, base: Option<&StoredCheckpoint>) -> io::Result<Begun> {
        let from = {
            let agreed = self.core.agreed();
            let ended = agreed.machine.feeds().get(&id);
            let last = ended.and_then(|feed| feed.ended.last());
            last.map_or(0, |last| last.from)
        };
        let header = base.map(StoredCheckpoint::header);
        let known = header.and_then(|header| header.feeds.get(&id)).copied();
        if let (Some(index), Some(base)) = (known, base)
            && index + 1 == from
            && base.header().index > index
        {
            return self.after_parking(id, base);
        }
        let mut replay = Replay::begin(&self.core.replica, header)?;
        let room = &self.core.state_room;
        let plan_at = |machine: &Machine| FeedPlan::new(machine, id, &self.core.config);
        match (known, base) {
            (Some(index), Some(base)) if index < from => {
                replay.read_up_to(index, |_, _, _| {})?;
                if !replay.machine().has_pipelines(id) {
                    return Err(io::Error::other("the log does not know the feed there"));
                }
                let plan = super::install::restore(plan_at(replay.machine()), id, base, room)?;
                Ok(Begun {
                    plan,
                    index,
                    replay,
                })
            }
            (Some(index), _) => Err(io::Error::other(format!(
                "the checkpoint's state of it stands at entry {index}, the tick at {from}"
            ))),
            (None, _) => {
                let index = self.before_first(id, header, from)?;
                replay.read_up_to(index, |_, _, _| {})?;
                let plan = plan_at(replay.machine()).map(FeedPlan::begin);
                Ok(Begun {
                    plan,
                    index,
                    replay,
                })
            }
        }
    }

    /// The log does not reach back to the state; but nothing lies between that and the ticks that were ended.
    fn after_parking(&self, id: FeedId, base: &StoredCheckpoint) -> io::Result<Begun> {
        let index = self.position.index;
        let mut replay = Replay::begin(&self.core.replica, Some(base.header()))?;
        replay.read_up_to(index, |_, _, _| {})?;
        let plan = FeedPlan::new(replay.machine(), id, &self.core.config);
        let plan = super::install::restore(plan, id, base, &self.core.state_room)?;
        Ok(Begun {
            plan,
            index,
            replay,
        })
    }

    /// The last entry before the first that moves a feed of which the checkpoint has no state: it has taken in nothing there.
    fn before_first(&self, id: FeedId, header: Option<&Header>, from: u64) -> io::Result<u64> {
        let begin = header.map_or(0, |header| header.index);
        let known = header.and_then(|header| header.machine.feeds().get(&id));
        if known.is_some_and(|feed| feed.ticks > 0) {
            return Err(io::Error::other("the checkpoint has no state of it"));
        }
        let mut first = None;
        let mut replay = Replay::begin(&self.core.replica, header)?;
        replay.read_up_to(from.max(begin), |index, effect, _| {
            let moves = match &effect {
                Effect::Ticked(ticks) => ticks.iter().any(|tick| tick.feed == id),
                Effect::LanesAdded { feed, .. } | Effect::LanesRetired { feed, .. } => *feed == id,
                _ => false,
            };
            if moves && first.is_none() {
                first = Some(index);
            }
        })?;
        let first = first.ok_or_else(|| io::Error::other("the log has no tick of it"))?;
        Ok((first - 1).max(begin))
    }
}
