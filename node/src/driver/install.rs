//! Taking over a state as a whole: at start one's own checkpoint, later a peer's.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;

use unisono_engine::row::{Digest, Seq, StreamOutput};
use unisono_replication::Position;

use super::{Driver, end};
use crate::checkpoint::{Checkpoint, Head, Parcel, StreamRows, stream_of};
use crate::results::{ResultsError, ResultsLog};

impl Checkpoint {
    /// Where in the log the checkpoint stands.
    #[must_use]
    pub fn position(&self) -> Position {
        Position {
            index: self.index,
            term: self.term,
        }
    }
}

impl Driver {
    /// Puts a peer's state in the place of this node's: rows first, then the checkpoint that names them.
    pub(super) fn install(&mut self, parcel: Parcel) -> io::Result<()> {
        let index = parcel.checkpoint.index;
        if index <= self.position.index {
            return Ok(());
        }
        tracing::info!(index, "taking a peer's checkpoint");
        // The feeds end here: nothing else writes rows meanwhile.
        let stopped = std::mem::take(&mut self.core.agreed_mut().feeds);
        end(stopped.into_values());
        take_rows(&self.core.results, &parcel).map_err(io::Error::other)?;
        self.core.results.sync().map_err(io::Error::other)?;
        self.store.save(&parcel.checkpoint)?;
        self.cursor = self.core.replica.cursor(Some(&parcel.checkpoint.raft))?;
        self.position = parcel.checkpoint.position();
        self.load(parcel.checkpoint);
        self.core
            .counters
            .checkpoints_installed
            .fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a checkpoint's state the agreed one and starts its feeds.
    pub(super) fn load(&mut self, checkpoint: Checkpoint) {
        let position = checkpoint.position();
        let mut agreed = self.core.agreed_mut();
        agreed.index = checkpoint.index;
        agreed.machine = checkpoint.machine;
        agreed.definitions.clear();
        agreed.read_definitions();
        agreed.ticked.clear();
        agreed.refused.clear();
        let states: BTreeMap<_, _> = checkpoint
            .feeds
            .into_iter()
            .map(|feed| (feed.feed, feed.engine))
            .collect();
        let ids: Vec<_> = agreed.machine.feeds().keys().copied().collect();
        for id in ids {
            self.start_feed(&mut agreed, id, &states);
        }
        drop(agreed);
        self.core.set_applied(position);
        self.core.notify();
    }
}

fn take_rows(results: &ResultsLog, parcel: &Parcel) -> Result<(), ResultsError> {
    let sent: BTreeMap<_, &StreamRows> =
        parcel.rows.iter().map(|rows| (rows.stream, rows)).collect();
    let heads = parcel.checkpoint.feeds.iter().flat_map(|feed| &feed.heads);
    for &Head {
        stream,
        next,
        digest,
    } in heads
    {
        let id = stream_of(stream);
        let sent = sent.get(&stream).filter(|sent| !sent.rows.is_empty());
        // What is here below stays if it is the same; what is above is computed again when its ticks are replayed.
        let Some(sent) = sent else {
            results.reset(id, Seq(next), Digest(digest))?;
            continue;
        };
        results.reset(id, Seq(sent.from), Digest(sent.digest_before))?;
        let numbered = (sent.from..).zip(&sent.rows);
        let rows = numbered
            .map(|(seq, row)| row.clone().into_row(seq))
            .collect();
        results.append(&StreamOutput { stream: id, rows })?;
    }
    Ok(())
}
