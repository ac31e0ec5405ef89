//! Taking over a state as a whole: at start one's own checkpoint, later a peer's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::sync::atomic::Ordering;

use unisono_replication::command::FeedId;

use super::{Driver, end};
use crate::checkpoint::{CheckpointReader, PartId, StoredCheckpoint, take};
use crate::feed::{FeedPlan, SetupError};
use crate::threads::lock;
use unisono_replication::rt;

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
        let checkpoint = take(&mut parcel, &self.store, &self.core.results)?;
        let header = checkpoint.header();
        self.cursor = self.core.replica.cursor(Some(&header.raft))?;
        self.position = header.position();
        self.load(&checkpoint)?;
        self.core
            .counters
            .checkpoints_installed
            .fetch_add(1, Ordering::Relaxed);
        *lock(&self.core.health.checkpoint) = Some(rt::now());
        Ok(())
    }

    /// Makes a checkpoint's state the agreed one and starts its feeds, each when its part was read.
    pub(super) fn load(&mut self, checkpoint: &StoredCheckpoint) -> io::Result<()> {
        let header = checkpoint.header();
        let mut reader = checkpoint.reader()?;
        let mut agreed = self.core.agreed_mut();
        agreed.index = header.index;
        agreed.machine = header.machine.clone();
        agreed.definitions.clear();
        agreed.read_definitions();
        agreed.ticked.clear();
        agreed.refused.clear();
        let mut plans: BTreeMap<FeedId, Result<FeedPlan, SetupError>> = BTreeMap::new();
        let feeds = agreed.machine.feeds().keys();
        for &id in feeds.filter(|&&id| agreed.machine.has_pipelines(id)) {
            plans.insert(id, FeedPlan::new(&agreed.machine, id, &self.core.config));
        }
        let mut restored = BTreeSet::new();
        while let Some((id, mut part)) = reader.next_part()? {
            let (PartId::Feed(feed) | PartId::Lane(feed, _)) = id else {
                continue;
            };
            restored.insert(feed);
            if let Some(plan) = plans.get_mut(&feed) {
                read_part(plan, id, &mut part);
            }
        }
        for (id, plan) in plans {
            let plan = plan.and_then(|plan| match restored.contains(&id) {
                true => plan.resume(),
                false => Ok(plan.begin()),
            });
            self.start_feed(&mut agreed, id, plan);
        }
        drop(agreed);
        self.core.set_applied(header.position());
        self.core.notify();
        Ok(())
    }
}

/// Reads a part into the plan; a plan that cannot be kept says why.
fn read_part(plan: &mut Result<FeedPlan, SetupError>, id: PartId, part: &mut dyn Read) {
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
