//! The node's side of Raft's snapshots: a checkpoint is the snapshot, and a peer is sent it with the rows that it lacks.

mod budget;
mod choice;
mod gather;
mod healing;
mod states;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use unisono_engine::row::StreamId;
use unisono_replication::command::FeedId;
use unisono_replication::rt::Handle;
use unisono_replication::rt::mpsc::{Sender, SyncSender, sync_channel};
use unisono_replication::{IncomingSnapshot, Reply, Snapshots, StoredSnapshot};

use crate::admin;
use crate::agreement;
use crate::alike;
use crate::checkpoint::{CheckpointReader, CheckpointStore, Header, send};
use crate::core::Core;
use crate::driver::Request;
use crate::lead::Asked;
use crate::results::ResultsLog;
use crate::threads::lock;
pub use budget::{bound_log, large_log};
use healing::Cut;
pub use healing::{heal, wanted};

/// The first bytes of questions that are not about rows.
pub const OTHERS: [u8; 3] = [agreement::TAG, admin::TAG, alike::TAG];
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
    /// Held while a checkpoint is made, or a peer's, or a part of it, takes its place.
    making: Mutex<()>,
    /// Feeds that keep the agreed log from being purged, and from which index on.
    held: Mutex<BTreeMap<FeedId, u64>>,
    /// Feeds that the last checkpoint found behind, and where.
    behind: Mutex<BTreeMap<FeedId, u64>>,
    /// Entries of the log that are kept below a checkpoint anyway.
    keep: u64,
    /// What a peer is copying.
    cut: Mutex<Option<Cut>>,
    /// Hashes of states that peers asked for.
    hashes: states::Asked,
    /// Feeds of which another one had another state when a checkpoint was made last.
    disputed: Mutex<BTreeSet<FeedId>>,
    /// Who compared the last checkpoint's states.
    preferred: Mutex<Option<u16>>,
    /// The node, once it is composed; it holds this.
    known: OnceLock<(Weak<Core>, Handle)>,
}

/// Answers what is not about rows.
pub type Answerer = Box<dyn Fn(&[u8]) -> io::Result<Vec<u8>> + Send + Sync>;

impl NodeSnapshots {
    #[must_use]
    /// Checkpoints of `store` and `results`, made by the driver that listens to `driver`; leaders' questions go to `asked`.
    /// `keep` entries of the log stay below a checkpoint.
    pub fn new(
        store: CheckpointStore,
        results: ResultsLog,
        driver: Sender<Request>,
        asked: Sender<Asked>,
        keep: u64,
    ) -> Self {
        Self {
            store,
            results,
            driver: Mutex::new(driver),
            asked: Mutex::new(asked),
            gone: Mutex::default(),
            others: OnceLock::new(),
            making: Mutex::default(),
            held: Mutex::default(),
            behind: Mutex::default(),
            keep,
            cut: Mutex::default(),
            hashes: Arc::default(),
            disputed: Mutex::default(),
            preferred: Mutex::default(),
            known: OnceLock::new(),
        }
    }

    /// From now on questions that begin with one of [`OTHERS`] are answered by this.
    pub fn take_others(&self, answerer: Answerer) {
        // It is called once.
        let _ = self.others.set(answerer);
    }

    /// From now on states are compared with those of this node's peers before a checkpoint counts.
    pub fn know(&self, core: &Arc<Core>, runtime: &Handle) {
        // It is called once.
        let _ = self.known.set((Arc::downgrade(core), runtime.clone()));
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.known.get().and_then(|(core, _)| core.upgrade())
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

    /// Asks the driver, and waits for what it says.
    fn request<T>(&self, make: impl FnOnce(SyncSender<T>) -> Request) -> io::Result<T> {
        let stopping = || io::Error::other("the node is stopping");
        let (sender, receiver) = sync_channel(1);
        let sent = lock(&self.driver).send(make(sender));
        sent.map_err(|_| stopping())?;
        receiver.recv().map_err(|_| stopping())
    }
}

impl Snapshots for NodeSnapshots {
    fn current(&self) -> io::Result<Option<StoredSnapshot>> {
        let Some(checkpoint) = self.store.current() else {
            return Ok(None);
        };
        let raft = checkpoint.header().raft.clone();
        let results = self.results.clone();
        let data = Box::new(move |out: &mut dyn Write| send(&checkpoint, &results, None, out));
        Ok(Some(StoredSnapshot { raft, data }))
    }

    fn build(&self) -> io::Result<Option<Vec<u8>>> {
        let _making = lock(&self.making);
        let others = |core: &Arc<Core>| !alike::others(core).0.is_empty();
        let with_others = self.core().filter(others);
        let checkpoint = match with_others.filter(|core| !core.agreed().feeds.is_empty()) {
            Some(core) => self.compared(&core)?,
            None => {
                let pending = self.request(Request::Checkpoint)?;
                self.gather(pending)?.map(|gathered| gathered.checkpoint)
            }
        };
        let Some(checkpoint) = checkpoint else {
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
        let _making = lock(&self.making);
        self.request(|reply| Request::Install(parcel, reply))?
    }

    fn answer(&self, question: &[u8]) -> io::Result<Vec<u8>> {
        if question.first().is_some_and(|tag| OTHERS.contains(tag)) {
            let answerer = self.others.get();
            return answerer.ok_or_else(|| io::Error::other("the node is starting"))?(question);
        }
        if question.first() == Some(&healing::TAG) {
            return self.answer_part(question);
        }
        if question.first() == Some(&states::TAG) {
            return self.answer_states(question);
        }
        crate::backfill::answer(&self.results, question).map_err(io::Error::other)
    }

    fn confirm(&self, question: Vec<u8>, reply: Reply) {
        // Nobody answers while the node ends.
        let _ = lock(&self.asked).send(Asked { question, reply });
    }
}
