//! The node's side of Raft's snapshots: a checkpoint is the snapshot.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, sync_channel};
use std::time::Duration;

use unisono_engine::row::Seq;
use unisono_replication::{IncomingSnapshot, Snapshots, StoredSnapshot};

use crate::checkpoint::{
    Checkpoint, CheckpointStore, FeedState, Head, Parcel, SentRow, StreamRows, seal, stream_of,
    unseal,
};
use crate::driver::{PendingCheckpoint, Request};
use crate::results::{ResultsError, ResultsLog};

/// How long a feed may take to reach a checkpoint's index: one that waits for its records longer has no checkpoint now.
const FEED_PATIENCE: Duration = Duration::from_secs(30);
/// Rows that are read at a time, in number and bytes, for a parcel.
const PAGE: (usize, usize) = (10_000, 16 << 20);

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

    fn parcel(&self, checkpoint: Checkpoint) -> Result<Parcel, ResultsError> {
        let mut rows = Vec::new();
        for head in checkpoint.feeds.iter().flat_map(|feed| &feed.heads) {
            let published = checkpoint.machine.frontier(head.stream);
            rows.extend(self.unpublished(head, published)?);
        }
        Ok(Parcel { checkpoint, rows })
    }

    /// The rows of a stream from its frontier up to its head. Those that were published since and removed are left out.
    fn unpublished(&self, head: &Head, published: u64) -> Result<Option<StreamRows>, ResultsError> {
        let id = stream_of(head.stream);
        let from = published.max(self.results.first_seq(id).0);
        let Some(digest_before) = self.results.digest_before(id, Seq(from))? else {
            return Ok(None);
        };
        let mut rows = Vec::new();
        let mut next = from;
        while next < head.next {
            let page = self.results.read(id, Seq(next), PAGE.0, PAGE.1)?;
            if page.is_empty() {
                break;
            }
            next += page.len() as u64;
            rows.extend(
                page.into_iter()
                    .filter(|row| row.seq.0 < head.next)
                    .map(SentRow::new),
            );
        }
        let (stream, digest_before) = (head.stream, digest_before.0);
        Ok(Some(StreamRows {
            stream,
            from,
            digest_before,
            rows,
        }))
    }

    fn stored(&self, checkpoint: Checkpoint) -> io::Result<StoredSnapshot> {
        let raft = checkpoint.raft.clone();
        let parcel = self.parcel(checkpoint).map_err(io::Error::other)?;
        Ok(StoredSnapshot {
            raft,
            data: seal(&parcel).map_err(io::Error::other)?,
        })
    }
}

impl Snapshots for NodeSnapshots {
    fn current(&self) -> io::Result<Option<StoredSnapshot>> {
        self.store
            .load()?
            .map(|checkpoint| self.stored(checkpoint))
            .transpose()
    }

    fn build(&self) -> io::Result<Option<Vec<u8>>> {
        let (sender, receiver) = sync_channel(1);
        self.ask(Request::Checkpoint(sender))?;
        let pending = receiver
            .recv()
            .map_err(|_| io::Error::other("the node is stopping"))?;
        let Some(checkpoint) = gather(pending) else {
            return Ok(None);
        };
        // Rows first, then the checkpoint that names them.
        self.results.sync().map_err(io::Error::other)?;
        self.store.save(&checkpoint)?;
        Ok(Some(checkpoint.raft))
    }

    fn install(&self, snapshot: IncomingSnapshot) -> io::Result<()> {
        let parcel: Parcel = unseal(&snapshot.data).map_err(io::Error::other)?;
        let (sender, receiver) = sync_channel(1);
        self.ask(Request::Install(Box::new(parcel), sender))?;
        receiver
            .recv()
            .map_err(|_| io::Error::other("the node is stopping"))?
    }

    fn answer(&self, question: &[u8]) -> io::Result<Vec<u8>> {
        crate::backfill::answer(&self.results, question).map_err(io::Error::other)
    }
}

/// Waits for the feeds' parts. `None` if one has stopped or is far behind: there is no checkpoint of this index.
fn gather(pending: PendingCheckpoint) -> Option<Checkpoint> {
    if pending.feeds.len() < pending.machine.feeds().len() {
        tracing::warn!("no checkpoint: a feed of the cluster does not run on this node");
        return None;
    }
    let mut feeds = Vec::new();
    for (feed, receiver) in pending.feeds {
        let Ok(part) = receiver.recv_timeout(FEED_PATIENCE) else {
            tracing::warn!(
                feed = feed.0,
                "no checkpoint: the feed is stopped or waits for records"
            );
            return None;
        };
        let heads = part.heads.into_iter().map(Head::from).collect();
        feeds.push(FeedState {
            feed,
            engine: packed(&part.snapshot)?,
            heads,
        });
    }
    let (index, term) = (pending.position.index, pending.position.term);
    Some(Checkpoint {
        index,
        term,
        raft: pending.raft,
        machine: pending.machine,
        feeds,
    })
}

fn packed(snapshot: &unisono_engine::FeedSnapshot) -> Option<Vec<u8>> {
    let mut parts = vec![Vec::new(); snapshot.lanes() + 1];
    snapshot.write_feed(&mut parts[0]).ok()?;
    for lane in 0..snapshot.lanes() {
        snapshot.write_lane(lane, &mut parts[lane + 1]).ok()?;
    }
    postcard::to_stdvec(&parts).ok()
}
