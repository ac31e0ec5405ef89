//! A feed at work: one thread takes accepted ticks in order, fetches exactly their records from the lanes' buffers, runs
//! the engine, and writes the rows to the results log.

mod runner;
mod setup;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use unisono_engine::FeedEngine;
use unisono_engine::PipelineStats;
use unisono_engine::row::{Digest, Incarnation, Row, Seq, StreamId};
use unisono_replication::command::FeedId;
use unisono_replication::machine::AcceptedTick;

use crate::decode::Decoder;
use crate::ingest::{LaneBuffer, LaneStart, ReadAhead, SourceFetcher};
use crate::results::ResultsLog;
use runner::Runner;
pub use setup::{FeedPlan, SetupError};

/// Ticks that may wait for a feed. Beyond that the log itself is the queue: its reader waits.
const QUEUE: usize = 4096;

/// A feed's thread and its fetchers; dropping it stops them.
pub struct Feed {
    pub id: FeedId,
    /// One for each source, in the feed's order.
    fetchers: Vec<SourceFetcher>,
    lanes: Mutex<Vec<Arc<LaneBuffer>>>,
    sources: Vec<String>,
    sender: Option<SyncSender<Message>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the feed's thread shares with those who ask.
struct Shared {
    engine: Mutex<FeedEngine>,
    status: Mutex<FeedStatus>,
    ticks: AtomicU64,
    stop: AtomicBool,
}

/// A feed's state, for people.
#[derive(Clone, Debug, Default)]
pub struct FeedStatus {
    /// Why the feed takes in nothing more; `None` while it runs.
    pub stopped: Option<String>,
    pub pipelines: BTreeMap<Incarnation, PipelineStats>,
}

/// Where a stream stood at the end of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHead {
    pub stream: StreamId,
    pub next: Seq,
    pub digest: Digest,
}

/// A feed's part of a checkpoint.
pub struct FeedCheckpoint {
    pub engine: Vec<u8>,
    pub heads: Vec<StreamHead>,
}

/// What is sent to the feed's thread; it works it off in order.
enum Message {
    Tick(AcceptedTick),
    AddLane {
        label: String,
        buffer: Arc<LaneBuffer>,
    },
    Checkpoint(SyncSender<FeedCheckpoint>),
}

/// Whom a feed tells what happens.
#[derive(Clone)]
pub struct Hooks {
    /// New rows are in the results log.
    pub rows_ready: Arc<dyn Fn() + Send + Sync>,
    /// The process cannot go on, and why.
    pub fatal: Arc<dyn Fn(String) + Send + Sync>,
}

impl Feed {
    /// Starts the feed of `plan`, whose records are taken in from each lane's cut on.
    ///
    /// # Errors
    /// What is wrong with its definition or its state on disk.
    pub fn start(
        plan: FeedPlan,
        read_ahead: &Arc<ReadAhead>,
        results: ResultsLog,
        hooks: Hooks,
    ) -> Result<Self, SetupError> {
        let fetchers = plan
            .sources
            .iter()
            .map(|source| SourceFetcher::start(source.clone(), read_ahead))
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(SetupError::Thread)?;
        let lanes: Vec<_> = plan
            .lanes
            .into_iter()
            .map(|lane| fetchers[lane.source].add_lane(lane.start))
            .collect();
        let shared = Arc::new(Shared {
            engine: Mutex::new(plan.engine),
            status: Mutex::default(),
            ticks: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let (sender, receiver) = sync_channel(QUEUE);
        let runner = Runner {
            id: plan.id,
            incarnations: plan.incarnations,
            decoder: Decoder::new(&plan.fields),
            lanes: lanes.clone(),
            results,
            hooks,
            shared: Arc::clone(&shared),
        };
        let thread = spawn(plan.id, runner, receiver).map_err(SetupError::Thread)?;
        Ok(Self {
            id: plan.id,
            fetchers,
            lanes: Mutex::new(lanes),
            sources: plan.sources.into_iter().map(|source| source.name).collect(),
            sender: Some(sender),
            shared,
            thread: Some(thread),
        })
    }

    /// Adds a lane that the log has added.
    pub fn add_lane(&self, source: usize, start: LaneStart) {
        let label = lane_label(&self.sources[source], &start.name);
        let buffer = self.fetchers[source].add_lane(start);
        lock(&self.lanes).push(Arc::clone(&buffer));
        self.send(Message::AddLane { label, buffer });
    }

    /// Hands over an accepted tick. Waits while too many are waiting already.
    pub fn tick(&self, tick: AcceptedTick) {
        self.send(Message::Tick(tick));
    }

    /// Asks for the state after all ticks handed over so far. The receiver fails if the feed is stopped.
    pub fn checkpoint(&self) -> Receiver<FeedCheckpoint> {
        let (sender, receiver) = sync_channel(1);
        self.send(Message::Checkpoint(sender));
        receiver
    }

    fn send(&self, message: Message) {
        // The receiver is gone only after a panic of the feed's thread, which its status tells.
        if let Some(sender) = &self.sender {
            let _ = sender.send(message);
        }
    }

    /// The lanes' buffers, by lane.
    #[must_use]
    pub fn lanes(&self) -> Vec<Arc<LaneBuffer>> {
        lock(&self.lanes).clone()
    }

    /// The fetchers, by source.
    #[must_use]
    pub fn fetchers(&self) -> &[SourceFetcher] {
        &self.fetchers
    }

    /// The feed's state after its last tick.
    #[must_use]
    pub fn status(&self) -> FeedStatus {
        lock(&self.shared.status).clone()
    }

    /// Ticks taken in since the feed started here.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.shared.ticks.load(Ordering::Relaxed)
    }

    /// Current values of a pipeline's open windows.
    #[must_use]
    pub fn open_windows(&self, incarnation: Incarnation) -> Vec<Row> {
        lock(&self.shared.engine).open_windows(incarnation)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(feed = self.id.0, "the feed's thread panicked");
        }
    }
}

fn spawn(
    id: FeedId,
    runner: Runner,
    receiver: Receiver<Message>,
) -> std::io::Result<JoinHandle<()>> {
    let name = format!("feed-{}", id.0);
    std::thread::Builder::new()
        .name(name)
        .spawn(move || runner.run(&receiver))
}

/// How people see a lane.
#[must_use]
pub fn lane_label(source: &str, lane: &str) -> String {
    format!("{source}/{lane}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panicked thread left behind is not used: its feed is stopped.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
