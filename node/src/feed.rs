//! A feed at work: one thread takes accepted ticks in order, lets the lanes' workers take in exactly their records, closes
//! what they complete, and writes the rows to the results log.

mod barrier;
mod ending;
mod gate;
mod joining;
mod lookout;
mod queue;
mod removing;
mod rows;
mod runner;
mod setup;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unisono_engine::row::{Digest, Incarnation, Seq, StreamId};
use unisono_engine::spec::{LaneId, Timestamp};
use unisono_engine::{FeedSnapshot, LaneEngine, NextClosing, Observed, PipelineStats};
use unisono_replication::command::FeedId;
use unisono_replication::machine::AcceptedTick;
use unisono_replication::rt::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel,
};

use crate::decode::Decoder;
use crate::definition::{FieldSet, Terms, notes};
use crate::ingest::{FoldLane, LaneBuffer, ReadAhead, SourceFetcher, Tell, Workers};
use crate::results::ResultsLog;
use crate::room::FeedRoom;
use crate::source::LaneTrail;
use crate::threads::{Role, Thread, lock, spawn};
use ending::GoOn;
use gate::Gate;
use joining::Join;
use queue::Queue;
use removing::Remove;
use runner::Runner;
pub use setup::{FeedPlan, PlannedLane, SetupError, terms};

/// How long a look at a feed may wait for the tick that is under way.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// A feed's thread and its fetchers; dropping it stops them.
pub struct Feed {
    /// The index of the log entry that created it.
    pub id: FeedId,
    /// One for each source, in the feed's order.
    fetchers: Vec<SourceFetcher>,
    lanes: Mutex<Vec<Arc<LaneBuffer>>>,
    sources: Vec<String>,
    /// Those that the lanes' decoders read from the last message sent on.
    fields: Mutex<FieldSet>,
    terms: Terms,
    /// For the lanes of each source that come to be.
    decoders: Mutex<Vec<Decoder>>,
    workers: Arc<Workers>,
    sender: Option<Sender<Handed>>,
    gate: Arc<Gate>,
    shared: Arc<Shared>,
    thread: Option<Thread>,
}

/// What the feed's thread shares with those who ask.
#[derive(Default)]
struct Shared {
    status: Mutex<FeedStatus>,
    ticks: AtomicU64,
    index: AtomicU64,
    queue: Queue,
    /// Those who want to see the state after the present tick.
    looks: Mutex<Vec<SyncSender<FeedSnapshot>>>,
    /// Those who want it for a checkpoint.
    saves: Mutex<Vec<SyncSender<FeedCheckpoint>>>,
    /// What lanes are looked at for, while this node leads.
    closings: Mutex<Vec<Arc<NextClosing>>>,
}

/// A feed's state, for people.
#[derive(Clone, Debug, Default)]
pub struct FeedStatus {
    /// Why the feed takes in nothing more; `None` while it runs.
    pub stopped: Option<String>,
    /// How each pipeline stands.
    pub pipelines: BTreeMap<Incarnation, PipelineStats>,
    /// What each pipeline's definition met in the records.
    pub observed: BTreeMap<Incarnation, Observed>,
    /// How far event time has come in each lane, by lane.
    pub watermarks: Vec<Option<Timestamp>>,
}

/// Where a stream stood at the end of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHead {
    /// The stream.
    pub stream: StreamId,
    /// The number that its next row has.
    pub next: Seq,
    /// Its digest up to the row before.
    pub digest: Digest,
}

/// A feed's part of a checkpoint.
pub struct FeedCheckpoint {
    /// The index of the agreed log at which it stands: nothing up to there is lacking.
    pub index: u64,
    /// The state of all its lanes and pipelines.
    pub snapshot: FeedSnapshot,
    /// Where the streams of its pipelines stood.
    pub heads: Vec<StreamHead>,
}

/// What is sent to the feed's thread; it works it off in order.
struct Handed {
    /// The index of the agreed log that the feed has come to with it.
    index: u64,
    message: Message,
}

enum Message {
    Tick(AcceptedTick),
    AddLane(AddLane),
    /// A lane is read no more; what is to be done for that.
    RetireLane(LaneId, Box<dyn FnOnce() + Send>),
    Checkpoint(SyncSender<FeedCheckpoint>),
    /// Somebody wants to look.
    Look,
    /// The pipelines go on in another feed: gives the state, and ends.
    Leave(SyncSender<FeedCheckpoint>),
    /// The pipelines of a feed that leaves go on here.
    Join(Box<Join>),
    /// A pipeline ends.
    Remove(Box<Remove>),
    /// Ticks that came next do not count: goes on behind what was published of them.
    GoOn(Box<GoOn>),
    /// Takes nothing in any more, for this reason.
    Stop(String),
}

/// A lane that the log has added; its engine is made when the feed is there.
struct AddLane {
    label: String,
    lane: MakeLane,
}

/// Makes a lane that tells the gate when its part of a tick is done.
type MakeLane = Box<dyn FnOnce(LaneId, LaneEngine, &Arc<Gate>) -> Arc<FoldLane> + Send>;

/// Whom a feed tells what happens.
#[derive(Clone)]
pub struct Hooks {
    /// New rows are in the results log.
    pub rows_ready: Arc<dyn Fn() + Send + Sync>,
    /// Whether this node makes the ticks.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// A record has come that may close a window.
    pub closing: Tell,
    /// The process cannot go on, and why.
    pub fatal: Arc<dyn Fn(String) + Send + Sync>,
    /// A row of a feed is not what it was before.
    pub diverged: Arc<dyn Fn(FeedId, Diverged) + Send + Sync>,
}

/// A row that is not what it was before.
#[derive(Clone, Copy, Debug)]
pub struct Diverged {
    /// Of this stream.
    pub stream: StreamId,
    /// Its number.
    pub seq: Seq,
    /// The digest up to and with it, as it is computed now.
    pub computed: Digest,
}

/// Why nobody can look at a feed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// It has stopped; its status says why.
    #[error("the feed has stopped")]
    Stopped,
    /// A tick is under way whose records have not arrived. Try again, or ask another replica.
    #[error("the feed waits for the records of a tick")]
    Busy,
}

impl Feed {
    /// Starts the feed of `plan`, whose state has `room` unless the plan brings its own, and which stands at `index` of the agreed log; its records are taken in from each lane's cut on.
    ///
    /// # Errors
    /// What is wrong with its definition or its state on disk.
    pub fn start(
        plan: FeedPlan,
        room: FeedRoom,
        workers: Arc<Workers>,
        read_ahead: &Arc<ReadAhead>,
        results: ResultsLog,
        hooks: Hooks,
        index: u64,
    ) -> Result<Self, SetupError> {
        let fetchers = plan
            .sources
            .iter()
            .map(|source| SourceFetcher::start(source.clone(), read_ahead))
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(SetupError::Thread)?;
        let gate = Arc::new(Gate::default());
        let decoders = plan.decoders();
        let mut buffers = Vec::new();
        let mut lanes = Vec::new();
        for (number, (lane, engine)) in (0..).zip(plan.lanes.into_iter().zip(plan.engines)) {
            let buffer = fetchers[lane.source].add_lane(lane.trail, lane.retired);
            buffers.push(Arc::clone(&buffer));
            let decoder = decoders[lane.source].clone();
            lanes.push(fold_lane(number, engine, decoder, buffer, &workers, &gate));
        }
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = channel();
        let runner = Runner {
            id: plan.id,
            engine: plan.engine,
            lanes,
            gate: Arc::clone(&gate),
            results,
            hooks,
            shared: Arc::clone(&shared),
            room: plan.room.unwrap_or(room),
            settled: None,
            index,
        };
        let name = plan.id.0.to_string();
        let thread = spawn(Role::Feed, Some(&name), move || runner.run(&receiver))
            .map_err(SetupError::Thread)?;
        Ok(Self {
            id: plan.id,
            fetchers,
            lanes: Mutex::new(buffers),
            sources: plan.sources.into_iter().map(|source| source.name).collect(),
            fields: Mutex::new(plan.fields),
            terms: plan.terms,
            decoders: Mutex::new(decoders),
            workers,
            sender: Some(sender),
            gate,
            shared,
            thread: Some(thread),
        })
    }

    /// Adds a lane that the log has added.
    pub fn add_lane(&self, index: u64, source: usize, trail: LaneTrail) {
        let label = lane_label(&self.sources[source], &trail.name);
        let buffer = self.fetchers[source].add_lane(trail, false);
        lock(&self.lanes).push(Arc::clone(&buffer));
        let decoder = lock(&self.decoders)[source].clone();
        let workers = Arc::clone(&self.workers);
        let lane = Box::new(move |id: LaneId, engine, gate: &Arc<Gate>| {
            fold_lane(id.0, engine, decoder, buffer, &workers, gate)
        });
        self.send(index, Message::AddLane(AddLane { label, lane }));
    }

    /// Retires a lane, after all ticks handed over so far.
    pub fn retire_lane(&self, index: u64, lane: u32, source: usize, name: String) {
        let buffer = lock(&self.lanes).get(lane as usize).cloned();
        let leave = self.fetchers[source].retirement(name);
        let retire = Box::new(move || {
            leave();
            if let Some(buffer) = buffer {
                buffer.retire();
            }
        });
        self.send(index, Message::RetireLane(LaneId(lane), retire));
    }

    /// Hands over the tick of entry `index`. Whether it was taken: not where so many wait already that their memory is used
    /// up. Then the feed has to be ended, for it has missed one.
    #[must_use]
    pub fn tick(&self, index: u64, tick: AcceptedTick) -> bool {
        let taken = self.shared.queue.enter(&tick);
        if taken {
            self.send(index, Message::Tick(tick));
        }
        taken
    }

    /// Asks for the state after all that was handed over so far, which is what entries up to `index` say. The receiver fails
    /// if the feed is stopped.
    pub fn checkpoint(&self, index: u64) -> Receiver<FeedCheckpoint> {
        let (sender, receiver) = sync_channel(1);
        self.send(index, Message::Checkpoint(sender));
        receiver
    }

    /// Asks for the state wherever it stands, without holding the feed.
    #[must_use]
    pub fn saver(&self) -> Saver {
        Saver(Arc::clone(&self.shared))
    }

    fn send(&self, index: u64, message: Message) {
        // The receiver is gone only while the feed is being dropped.
        if let Some(sender) = &self.sender {
            let _ = sender.send(Handed { index, message });
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

    /// What is odd about a pipeline's definition, given the records since the feed started here.
    #[must_use]
    pub fn notes(&self, pipeline: Incarnation) -> Vec<String> {
        let observed = lock(&self.shared.status).observed.get(&pipeline).cloned();
        observed.map_or_else(Vec::new, |observed| notes(&observed, &lock(&self.fields)))
    }

    /// What the feed does for all of its pipelines.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Lanes that are added from now on are decoded to these fields.
    fn decode(&self, fields: &FieldSet) {
        for decoder in lock(&self.decoders).iter_mut() {
            *decoder = decoder.over(fields);
        }
        lock(&self.fields).clone_from(fields);
    }

    /// How far, in milliseconds of event time, a lane may be ahead of the slowest one; `None`: as far as it is read.
    #[must_use]
    pub fn max_skew_ms(&self) -> Option<i64> {
        self.terms.max_skew_ms
    }

    /// How far event time has come in each lane, by lane.
    #[must_use]
    pub fn watermarks(&self) -> Vec<Option<Timestamp>> {
        lock(&self.shared.status).watermarks.clone()
    }

    /// Ticks taken in since the feed started here.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.shared.ticks.load(Ordering::Relaxed)
    }

    /// Since when the oldest tick waits that is not taken in; `None`: none does.
    #[must_use]
    pub fn waits_since(&self) -> Option<Instant> {
        self.shared.queue.since()
    }

    /// Up to which entry of the agreed log all is taken in; for a feed that was just told of more, less than that.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.shared.index.load(Ordering::Relaxed)
    }

    /// Whether it takes in nothing more.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        lock(&self.shared.status).stopped.is_some()
    }

    /// The state after the present tick, shared with the feed, which goes on meanwhile.
    ///
    /// # Errors
    /// It has stopped, or waits for records.
    pub fn look(&self) -> Result<FeedSnapshot, LookError> {
        if lock(&self.shared.status).stopped.is_some() {
            return Err(LookError::Stopped);
        }
        let (sender, receiver) = sync_channel(1);
        lock(&self.shared.looks).push(sender);
        self.send(0, Message::Look);
        let looked = receiver.recv_timeout(LOOK_PATIENCE);
        looked.map_err(|error| match error {
            RecvTimeoutError::Timeout => LookError::Busy,
            RecvTimeoutError::Disconnected => LookError::Stopped,
        })
    }
}

/// Asks a feed for its state.
pub struct Saver(Arc<Shared>);

impl Saver {
    /// The state after the tick that is under way, though more may wait. The receiver fails if the feed is stopped or ends.
    #[must_use]
    pub fn save(&self) -> Receiver<FeedCheckpoint> {
        let (sender, receiver) = sync_channel(1);
        lock(&self.0.saves).push(sender);
        receiver
    }
}

impl Shared {
    /// Nobody answers any more.
    fn refuse_all(&self) {
        lock(&self.looks).clear();
        lock(&self.saves).clear();
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.gate.abandon();
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic has ended the process already.
            let _ = thread.join();
        }
    }
}

fn fold_lane(
    number: u32,
    engine: LaneEngine,
    decoder: Decoder,
    buffer: Arc<LaneBuffer>,
    workers: &Workers,
    gate: &Arc<Gate>,
) -> Arc<FoldLane> {
    let gate = Arc::clone(gate);
    let done = Box::new(move |result| gate.arrive(number, result));
    FoldLane::new(engine, decoder, buffer, workers.assign(), done)
}

/// How people see a lane.
#[must_use]
pub fn lane_label(source: &str, lane: &str) -> String {
    format!("{source}/{lane}")
}
