//! Taking over a state as a whole: at start one's own checkpoint, later a peer's.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::sync::atomic::Ordering;

use super::{Driver, end};
use crate::checkpoint::{CheckpointReader, PartId, StoredCheckpoint};
use crate::snapshots;

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
        end(stopped.into_values());
        let checkpoint = snapshots::take(&mut parcel, &self.store, &self.core.results)?;
        let header = checkpoint.header();
        self.cursor = self.core.replica.cursor(Some(&header.raft))?;
        self.position = header.position();
        self.load(&checkpoint)?;
        self.core
            .counters
            .checkpoints_installed
            .fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a checkpoint's state the agreed one and starts its feeds, each when its part was read.
    pub(super) fn load(&mut self, checkpoint: &StoredCheckpoint) -> io::Result<()> {
        let header = checkpoint.header();
        let mut reader = checkpoint.reader()?;
        let mut agreed = self.core.agreed_mut();
        agreed.index = header.index;
        agreed.machine = header.machine.clone();
        agreed.ticked.clear();
        agreed.refused.clear();
        let mut without_state: BTreeSet<_> = agreed.machine.feeds().keys().copied().collect();
        while let Some((id, mut part)) = reader.next_part()? {
            let PartId::Feed(id) = id else { continue };
            let mut state = Vec::new();
            part.read_to_end(&mut state)?;
            if without_state.remove(&id) {
                self.start_feed(&mut agreed, id, Some(&state));
            }
        }
        for id in without_state {
            self.start_feed(&mut agreed, id, None);
        }
        drop(agreed);
        self.core.set_applied(header.position());
        self.core.tell_news();
        Ok(())
    }
}
