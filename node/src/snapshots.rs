//! The node's side of Raft's snapshots: a checkpoint is the snapshot, and a peer is sent it with the rows that it lacks.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use unisono_replication::rt::mpsc::{Sender, sync_channel};

use unisono_engine::row::StreamId;
use unisono_replication::{IncomingSnapshot, Reply, Snapshots, StoredSnapshot};

use crate::admin;
use crate::agreement;
use crate::checkpoint::{
    CheckpointReader, CheckpointStore, Head, Header, PartId, UnfinishedCheckpoint, encode_heads,
    send,
};
use crate::driver::{PendingCheckpoint, Request};
use crate::lead::Asked;
use crate::results::ResultsLog;
use crate::threads::lock;

/// The first bytes of questions that are not about rows.
pub const OTHERS: [u8; 2] = [agreement::TAG, admin::TAG];
/// How long a feed may take to reach a checkpoint's index: one that waits for its records longer has no checkpoint now.
const FEED_PATIENCE: Duration = Duration::from_secs(30);

/// Makes, keeps and takes in checkpoints for Raft.
pub struct NodeSnapshots {
    store: CheckpointStore,
    results: ResultsLog,
    driver: Mutex<Sender<Request>>,
    asked: Mutex<Sender<Asked>>,
    /// Streams that the last checkpoint did not know any more; the next one removes their rows.
    gone: Mutex<BTreeSet<StreamId>>,
    /// For questions about the configuration and commands that peers pass on; there once the node is composed.
    others: OnceLock<Answerer>,
}

/// Answers what is not about rows.
pub type Answerer = Box<dyn Fn(&[u8]) -> io::Result<Vec<u8>> + Send + Sync>;

impl NodeSnapshots {
    #[must_use]
    /// Checkpoints of `store` and `results`, made by the driver that listens to `driver`; leaders' questions go to `asked`.
    pub fn new(
        store: CheckpointStore,
        results: ResultsLog,
        driver: Sender<Request>,
        asked: Sender<Asked>,
    ) -> Self {
        Self {
            store,
            results,
            driver: Mutex::new(driver),
            asked: Mutex::new(asked),
            gone: Mutex::default(),
            others: OnceLock::new(),
        }
    }

    /// From now on questions that begin with one of [`OTHERS`] are answered by this.
    pub fn take_others(&self, answerer: Answerer) {
        // It is called once.
        let _ = self.others.set(answerer);
    }

    /// Rows of pipelines that are no more go when two checkpoints in a row did not know them: the one before the last may
    /// be used again, and its replay compares rows with those that are here.
    fn remove_gone(&self, checkpoint: &Header) {
        let is_gone = |stream: &StreamId| {
            let incarnation = stream.incarnation.0;
            incarnation <= checkpoint.index
                && !checkpoint.machine.pipelines().contains_key(&incarnation)
        };
        let streams = self.results.streams().into_iter();
        let now: BTreeSet<StreamId> = streams.filter(is_gone).collect();
        let before = std::mem::replace(&mut *lock(&self.gone), now.clone());
        for &stream in before.intersection(&now) {
            match self.results.remove(stream) {
                Ok(()) => tracing::info!(
                    incarnation = stream.incarnation.0,
                    "rows of a removed pipeline are removed"
                ),
                Err(error) => tracing::warn!(%error, "rows of a removed pipeline stay"),
            }
        }
    }

    fn ask(&self, request: Request) -> io::Result<()> {
        let driver = lock(&self.driver);
        driver
            .send(request)
            .map_err(|_| io::Error::other("the node is stopping"))
    }

    /// Writes the feeds' parts as they come. `None` if one has stopped or is far behind: there is no checkpoint of this index.
    fn gather(&self, pending: PendingCheckpoint) -> io::Result<Option<UnfinishedCheckpoint>> {
        let machine = &pending.machine;
        let feeds = machine.feeds().keys();
        let expected = feeds.filter(|&&feed| machine.has_pipelines(feed)).count();
        if pending.feeds.len() < expected {
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
        self.remove_gone(stored.header());
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
        if question.first().is_some_and(|tag| OTHERS.contains(tag)) {
            let answerer = self.others.get();
            return answerer.ok_or_else(|| io::Error::other("the node is starting"))?(question);
        }
        crate::backfill::answer(&self.results, question).map_err(io::Error::other)
    }

    fn confirm(&self, question: Vec<u8>, reply: Reply) {
        // Nobody answers while the node ends.
        let _ = lock(&self.asked).send(Asked { question, reply });
    }
}
