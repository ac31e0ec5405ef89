//! Taking over a state as a whole: at start one's own checkpoint, later a peer's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use unisono_replication::command::FeedId;
use unisono_replication::rt;

use super::{Driver, end};
use crate::checkpoint::{CheckpointReader, PartId, StoredCheckpoint, take};
use crate::feed::{FeedPlan, SetupError};
use crate::room::StateRoom;
use crate::threads::lock;

impl Driver {
    /// Puts a peer's state in the place of this node's: rows first, then the checkpoint that names them.
    pub(super) fn install(&mut self, mut parcel: CheckpointReader) -> io::Result<()> {
        let index = parcel.header().index;
        if index <= self.position.index {
            return Ok(());
        }
        tracing::info!(index, "taking a peer's checkpoint");
        // The feeds end here: nothing else writes rows meanwhile.
        let stopped = std::mem::take(&mut self.core.agreed_mut().feeds);
        end(std::mem::take(&mut self.leaving));
        end(stopped.into_values());
        let checkpoint = take(&mut parcel, &self.core.checkpoints, &self.core.results)?;
        let header = checkpoint.header();
        self.cursor = self.core.replica.cursor(Some(&header.raft))?;
        self.position = header.position();
        self.load(checkpoint)?;
        self.core
            .counters
            .checkpoints_installed
            .fetch_add(1, Ordering::Relaxed);
        *lock(&self.core.health.checkpoint) = Some(rt::now());
        Ok(())
    }

    /// Makes a checkpoint's state the agreed one and starts its feeds: those whose state stands there at once, the others when
    /// the log has come to theirs.
    pub(super) fn load(&mut self, checkpoint: StoredCheckpoint) -> io::Result<()> {
        let header = checkpoint.header();
        let mut agreed = self.core.agreed_mut();
        agreed.index = header.index;
        agreed.machine = header.machine.clone();
        agreed.definitions.clear();
        agreed.read_definitions();
        agreed.ticked.clear();
        agreed.refused.clear();
        self.created.clear();
        self.pending.clone_from(&header.feeds);
        // What is parked has no log that leads on from there.
        let parked = self.pending.extract_if(.., |_, at| *at < header.index);
        for (id, _) in parked.collect::<Vec<_>>() {
            self.leave_parked(&mut agreed, id);
        }
        for (&id, feed) in header.machine.feeds() {
            let blank = feed.ticks == 0 && header.machine.has_pipelines(id);
            if blank && !header.feeds.contains_key(&id) {
                let plan = FeedPlan::new(&header.machine, id, &self.core.config);
                self.start_feed(&mut agreed, id, plan.map(FeedPlan::begin), header.index);
            }
        }
        drop(agreed);
        let position = header.position();
        self.loaded = Some(checkpoint);
        self.start_pending()?;
        self.core.set_applied(position);
        self.core.notify();
        Ok(())
    }

    /// Starts the feeds whose state stands where the log was read.
    pub(super) fn start_pending(&mut self) -> io::Result<()> {
        let Some(checkpoint) = &self.loaded else {
            return Ok(());
        };
        let here = self.position.index;
        let mut agreed = self.core.agreed_mut();
        let due: BTreeSet<FeedId> = self
            .pending
            .extract_if(.., |_, index| *index <= here)
            .map(|(id, _)| id)
            .collect();
        if !due.is_empty() {
            let mut plans = BTreeMap::new();
            // One that is no more went on in another.
            for &id in due.iter().filter(|&&id| agreed.machine.has_pipelines(id)) {
                plans.insert(id, FeedPlan::new(&agreed.machine, id, &self.core.config));
            }
            for (id, plan) in restore_all(plans, checkpoint, &self.core.state_room)? {
                self.start_feed(&mut agreed, id, plan, here);
            }
            self.core.notify();
        }
        drop(agreed);
        if self.pending.is_empty() {
            self.loaded = None;
        }
        Ok(())
    }
}

type Plan = Result<FeedPlan, SetupError>;

/// Gives a plan the state that a checkpoint has of its feed.
pub(super) fn restore(
    plan: Plan,
    feed: FeedId,
    checkpoint: &StoredCheckpoint,
    room: &Arc<StateRoom>,
) -> io::Result<Plan> {
    let mut restored = restore_all(BTreeMap::from([(feed, plan)]), checkpoint, room)?;
    let plan = restored.pop_first().map(|(_, plan)| plan);
    plan.ok_or_else(|| io::Error::other("a plan is gone"))
}

/// The same for several, reading the checkpoint once.
fn restore_all(
    mut plans: BTreeMap<FeedId, Plan>,
    checkpoint: &StoredCheckpoint,
    room: &Arc<StateRoom>,
) -> io::Result<BTreeMap<FeedId, Plan>> {
    for plan in plans.values_mut().flatten() {
        plan.room = Some(room.share());
    }
    let mut reader = checkpoint.reader()?;
    while let Some((id, mut part)) = reader.next_part()? {
        if let Some(plan) = id.feed().and_then(|feed| plans.get_mut(&feed)) {
            read_part(plan, id, &mut part);
        }
    }
    let resume = |(id, plan): (FeedId, Plan)| (id, plan.and_then(FeedPlan::resume));
    Ok(plans.into_iter().map(resume).collect())
}

/// Reads a part into the plan; a plan that cannot be kept says why.
fn read_part(plan: &mut Plan, id: PartId, part: &mut dyn Read) {
    let Ok(whole) = plan else { return };
    let read = match id {
        PartId::Feed(_) => whole.read_feed(part),
        PartId::Lane(_, lane) => whole.read_lane(lane, part),
        PartId::Heads(_) | PartId::Rows(_) => Ok(()),
    };
    if let Err(error) = read {
        *plan = Err(error);
    }
}
