//! The node's side of Raft's snapshots: a checkpoint is the snapshot, and a peer is sent it with the rows that it lacks.

use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, sync_channel};
use std::time::Duration;

use unisono_engine::row::Seq;
use unisono_replication::{IncomingSnapshot, Snapshots, StoredSnapshot};

use crate::checkpoint::{
    CheckpointReader, CheckpointStore, CheckpointWriter, Head, Header, PartId, StoredCheckpoint,
    UnfinishedCheckpoint, encode_heads, read_heads, stream_of,
};
use crate::driver::{PendingCheckpoint, Request};
use crate::results::ResultsLog;

/// How long a feed may take to reach a checkpoint's index: one that waits for its records longer has no checkpoint now.
const FEED_PATIENCE: Duration = Duration::from_secs(30);

/// Makes, keeps and takes in checkpoints for Raft.
pub struct NodeSnapshots {
    store: CheckpointStore,
    results: ResultsLog,
    driver: Mutex<Sender<Request>>,
}

impl NodeSnapshots {
    #[must_use]
    pub fn new(store: CheckpointStore, results: ResultsLog, driver: Sender<Request>) -> Self {
        Self {
            store,
            results,
            driver: Mutex::new(driver),
        }
    }

    fn ask(&self, request: Request) -> io::Result<()> {
        let driver = self
            .driver
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        driver
            .send(request)
            .map_err(|_| io::Error::other("the node is stopping"))
    }

    /// Writes the feeds' parts as they come. `None` if one has stopped or is far behind: there is no checkpoint of this index.
    fn gather(&self, pending: PendingCheckpoint) -> io::Result<Option<UnfinishedCheckpoint>> {
        if pending.feeds.len() < pending.machine.feeds().len() {
            tracing::warn!("no checkpoint: a feed of the cluster does not run on this node");
            return Ok(None);
        }
        let mut checkpoint = self.store.begin(Header {
            index: pending.position.index,
            term: pending.position.term,
            raft: pending.raft,
            machine: pending.machine,
        })?;
        for (feed, receiver) in pending.feeds {
            let Ok(state) = receiver.recv_timeout(FEED_PATIENCE) else {
                tracing::warn!(
                    feed = feed.0,
                    "no checkpoint: the feed is stopped or waits for records"
                );
                return Ok(None);
            };
            let heads: Vec<_> = state.heads.into_iter().map(Head::from).collect();
            checkpoint.part(PartId::Heads(feed), |part| {
                part.write_all(&encode_heads(&heads))
            })?;
            let snapshot = state.snapshot;
            checkpoint.part(PartId::Feed(feed), |part| snapshot.write_feed(part))?;
            for (number, lane) in (0..).zip(0..snapshot.lanes()) {
                checkpoint.part(PartId::Lane(feed, number), |part| {
                    snapshot.write_lane(lane, part)
                })?;
            }
        }
        Ok(Some(checkpoint))
    }
}

impl Snapshots for NodeSnapshots {
    fn current(&self) -> io::Result<Option<StoredSnapshot>> {
        let Some(checkpoint) = self.store.current() else {
            return Ok(None);
        };
        let raft = checkpoint.header().raft.clone();
        let results = self.results.clone();
        let data = Box::new(move |out: &mut dyn Write| send(&checkpoint, &results, out));
        Ok(Some(StoredSnapshot { raft, data }))
    }

    fn build(&self) -> io::Result<Option<Vec<u8>>> {
        let (sender, receiver) = sync_channel(1);
        self.ask(Request::Checkpoint(sender))?;
        let pending = receiver
            .recv()
            .map_err(|_| io::Error::other("the node is stopping"))?;
        let Some(checkpoint) = self.gather(pending)? else {
            return Ok(None);
        };
        // Rows first, then the checkpoint that names them.
        self.results.sync().map_err(io::Error::other)?;
        let stored = self.store.finish(checkpoint)?;
        Ok(Some(stored.header().raft.clone()))
    }

    fn install(&self, snapshot: IncomingSnapshot) -> io::Result<()> {
        let path = snapshot.file.path();
        // All of it is looked at before any of it takes the place of what is here.
        CheckpointReader::open(path)?.verify()?;
        let parcel = Box::new(CheckpointReader::open(path)?);
        let (sender, receiver) = sync_channel(1);
        self.ask(Request::Install(parcel, sender))?;
        receiver
            .recv()
            .map_err(|_| io::Error::other("the node is stopping"))?
    }

    fn answer(&self, question: &[u8]) -> io::Result<Vec<u8>> {
        crate::backfill::answer(&self.results, question).map_err(io::Error::other)
    }
}

/// Writes what a peer is sent: the checkpoint's parts, then the rows that were not published at its index.
fn send(
    checkpoint: &StoredCheckpoint,
    results: &ResultsLog,
    out: &mut dyn Write,
) -> io::Result<()> {
    let header = checkpoint.header();
    let mut reader = checkpoint.reader()?;
    let mut parcel = CheckpointWriter::begin(out, header)?;
    let mut heads = Vec::new();
    while let Some((id, mut part)) = reader.next_part()? {
        match id {
            PartId::Heads(_) => {
                let feeds = read_heads(&mut part)?;
                parcel.part(id, |out| out.write_all(&encode_heads(&feeds)))?;
                heads.extend(feeds);
            }
            PartId::Feed(_) | PartId::Lane(..) => {
                parcel.part(id, |out| io::copy(&mut part, out).map(drop))?;
            }
            // Those that were on the way when this node took the checkpoint are sent from the results log.
            PartId::Rows(_) => {}
        }
    }
    for head in heads {
        let id = stream_of(head.stream);
        // Those that were published since and removed are left out.
        let published = header.machine.frontier(head.stream);
        let from = Seq(published.max(results.first_seq(id).0));
        let known = results.digest_before(id, from).map_err(io::Error::other)?;
        if from.0 < head.next && known.is_some() {
            parcel.part(PartId::Rows(head.stream), |out| {
                results.export(id, from, Seq(head.next), out)
            })?;
        }
    }
    parcel.finish()?;
    Ok(())
}

/// Takes what [`send`] wrote: the rows into the results log, the rest into a checkpoint of this node's own.
///
/// # Errors
/// It cannot be read, or not be written.
pub fn take(
    parcel: &mut CheckpointReader,
    store: &CheckpointStore,
    results: &ResultsLog,
) -> io::Result<StoredCheckpoint> {
    let mut checkpoint = store.begin(parcel.header().clone())?;
    let mut without_rows = std::collections::BTreeMap::new();
    while let Some((id, mut part)) = parcel.next_part()? {
        match id {
            PartId::Heads(_) => {
                let heads = read_heads(&mut part)?;
                checkpoint.part(id, |out| out.write_all(&encode_heads(&heads)))?;
                without_rows.extend(heads.into_iter().map(|head| (head.stream, head)));
            }
            PartId::Feed(_) | PartId::Lane(..) => {
                checkpoint.part(id, |out| io::copy(&mut part, out).map(drop))?;
            }
            PartId::Rows(stream) => {
                let rows: &mut dyn Read = &mut part;
                results.import(stream_of(stream), rows)?;
                without_rows.remove(&stream);
            }
        }
    }
    // What is here below stays if it is the same; what is above is computed again when its ticks are replayed.
    for head in without_rows.values() {
        let digest = unisono_engine::row::Digest(head.digest);
        let reset = results.reset(stream_of(head.stream), Seq(head.next), digest);
        reset.map_err(io::Error::other)?;
    }
    results.sync().map_err(io::Error::other)?;
    store.finish(checkpoint)
}
