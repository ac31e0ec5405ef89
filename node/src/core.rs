//! What the parts of a running node share: the agreed state as far as this node has read the log, its feeds, its
//! results, and the signals between them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use tokio::sync::{Notify, mpsc, watch};
use unisono_engine::row::StreamId;
use unisono_replication::command::{FeedId, StreamKey};
use unisono_replication::machine::{self, Machine};
use unisono_replication::rt;
use unisono_replication::{Position, Replica};

use crate::agreement::{self, FileDefinition};
use crate::checkpoint::CheckpointStore;
use crate::config::NodeConfig;
use crate::confirm::Seconds;
use crate::definition::PipelineDefinition;
use crate::doubt::Doubts;
use crate::feed::{Diverged, Feed, Hooks};
use crate::health::fitness::Fitness;
use crate::health::memory::Memory;
use crate::health::reached::Reached;
use crate::health::succession::Successions;
use crate::ids::key_of;
use crate::ingest::{ReadAhead, Workers};
use crate::refused::Refusals;
use crate::results::ResultsLog;
use crate::room::StateRoom;
use crate::threads::{self, lock};
use crate::transit::Transit;
use crate::waits::Waits;

/// Shared by the driver, the proposer, the publishers and the HTTP service.
pub struct Core {
    /// This node's, checked.
    pub config: NodeConfig,
    /// What it has in its files, as peers are told.
    pub definitions: Vec<FileDefinition>,
    /// Its Raft.
    pub replica: Replica,
    /// Its rows.
    pub results: ResultsLog,
    /// Its checkpoints.
    pub checkpoints: CheckpointStore,
    /// Those who decode and fold all feeds' lanes.
    pub workers: Arc<Workers>,
    /// How much all feeds together may read ahead.
    pub read_ahead: Arc<ReadAhead>,
    /// How much memory their state may take.
    pub state_room: Arc<StateRoom>,
    /// What it has counted.
    pub counters: Counters,
    /// The others, as this node sees them while it leads.
    pub seconds: Mutex<Seconds>,
    /// Rows that differ from others', and how far they are alike.
    pub doubts: Arc<Doubts>,
    /// What its publishers have published.
    pub reported: Reported,
    /// Records have arrived in a lane where the proposer had seen none, or a feed has started.
    pub arrivals: Arc<Notify>,
    /// Why pipelines cannot be created at the moment, by name; only the leader tries, so only it knows.
    pub waiting: Mutex<BTreeMap<String, String>>,
    /// The agreed log, as far as it went when this process joined in.
    pub log_read: Reached,
    /// How the sinks are seen from here.
    pub sinks: SinkBoard,
    /// What was seen of how it does.
    pub health: Health,
    /// Who publishes, while the lead is to be given away.
    pub transit: Transit,
    /// How its takeovers went.
    pub successions: Successions,
    /// An operator wants it not to lead.
    pub drained: AtomicBool,
    stopping: AtomicBool,
    agreed: RwLock<Agreed>,
    /// The last entry of the log that this node has read.
    applied: watch::Sender<Position>,
    /// Counts signals that rows were written or frontiers moved.
    news: Arc<watch::Sender<u64>>,
    fatal: mpsc::Sender<String>,
}

/// The agreed state and what runs on it. Only the driver writes it.
#[derive(Default)]
pub struct Agreed {
    /// The index of the log at which the state stands.
    pub index: u64,
    /// The state itself.
    pub machine: Machine,
    /// The machine's pipelines, read; one that this program cannot read is absent, and its feed refused.
    pub definitions: BTreeMap<u64, Arc<PipelineDefinition>>,
    /// Feeds that run here, though they may have stopped.
    pub feeds: BTreeMap<FeedId, Arc<Feed>>,
    /// Feeds that could not be started here, and why.
    pub refused: BTreeMap<FeedId, String>,
    /// When this process saw the last tick of a feed.
    pub ticked: BTreeMap<FeedId, Instant>,
}

impl Agreed {
    /// Feeds that run here and that the log knows. One that goes on in another is gone from the log a moment before it is
    /// from here.
    pub fn known(&self) -> impl Iterator<Item = (FeedId, &Arc<Feed>, &machine::Feed)> {
        let known = self.machine.feeds();
        let feeds = self.feeds.iter();
        feeds.filter_map(|(&id, feed)| Some((id, feed, known.get(&id)?)))
    }

    /// Reads the definitions of the machine's pipelines that are not read yet, and forgets those that it no longer has.
    pub(crate) fn read_definitions(&mut self) {
        let pipelines = self.machine.pipelines();
        self.definitions
            .retain(|incarnation, _| pipelines.contains_key(incarnation));
        for (&incarnation, pipeline) in pipelines {
            if !self.definitions.contains_key(&incarnation)
                && let Ok(read) =
                    PipelineDefinition::from_canonical(&pipeline.definition, &pipeline.sink)
            {
                self.definitions.insert(incarnation, Arc::new(read));
            }
        }
    }
}

/// What this node remembers of how it does.
#[derive(Debug, Default)]
pub struct Health {
    /// Since when rows are missing, or wait.
    pub memory: Mutex<Memory<StreamId>>,
    /// Who is fitter to lead.
    pub fitness: Mutex<Fitness>,
    /// When the driver read the last entry of the agreed log.
    pub committed: Mutex<Option<Instant>>,
    /// Feeds that keep the agreed log from being purged, and from which index on.
    pub held: Mutex<BTreeMap<FeedId, u64>>,
    /// Feeds that are to take their state from a peer's checkpoint that stands beyond this index.
    pub wants: Mutex<BTreeMap<FeedId, u64>>,
    /// A checkpoint is due at once: others may want it.
    pub due: Notify,
    /// Bytes that the agreed log took after the last checkpoint, where that was beyond its budget.
    pub large_log: Mutex<Option<u64>>,
    /// When the last checkpoint was made, or taken from a peer.
    pub checkpoint: Mutex<Option<Instant>>,
}

/// What is counted since the process started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Entries of the agreed log that were read.
    pub entries: AtomicU64,
    /// Ticks that were accepted.
    pub ticks: AtomicU64,
    /// Entries that did not count.
    pub void_entries: AtomicU64,
    /// Checkpoints that were made.
    pub checkpoints: AtomicU64,
    /// Checkpoints that were taken from peers.
    pub checkpoints_installed: AtomicU64,
    /// Feeds that took their state from a peer's checkpoint while the others went on.
    pub feeds_healed: AtomicU64,
    /// How long another replica's word was waited for before ticks.
    pub tick_waits: Waits,
    /// The same before rows were published.
    pub row_waits: Waits,
    /// Ticks that were accepted by the word of the leader alone: no other replica's counted.
    pub ticks_alone: AtomicU64,
    /// Rows and dead letters that this node published alone.
    pub rows_alone: AtomicU64,
    /// Times this node's rows of a feed were not those of most voters.
    pub odd: AtomicU64,
    /// Feeds that were computed again from the last checkpoint, because their rows were in dispute.
    pub feeds_replayed: AtomicU64,
    /// Checkpoints whose states no other replica could compare.
    pub checkpoints_alone: AtomicU64,
    /// Checkpoints that were not kept, for another replica had other states, and there was no majority.
    pub states_disputed: AtomicU64,
    /// Times rows were served that no other replica had, for none had computed them.
    pub rows_served_alone: AtomicU64,
    /// Times another replica held other records than this node, which led, or had computed other rows.
    pub disagreements: AtomicU64,
    /// Times this node, which led, gave the lead to a fitter one.
    pub unfit: AtomicU64,
    /// Proposals whose outcome is unknown or void.
    pub proposals_lost: AtomicU64,
    /// Times a sink was acquired.
    pub takeovers: AtomicU64,
    /// Rows published to sinks other than the built-in one.
    pub published_rows: AtomicU64,
    /// Publications that failed.
    pub publish_retries: AtomicU64,
    /// Times another publisher had acquired a sink.
    pub fenced: AtomicU64,
}

/// How far this node has published to sinks other than the built-in one: on its way to the agreed log.
#[derive(Debug, Default)]
pub struct Reported {
    next: Mutex<BTreeMap<String, BTreeMap<StreamKey, u64>>>,
    /// The term in which a sink's publisher last looked what to publish, and the agreed state that it saw.
    looked: Mutex<BTreeMap<String, (u64, u64)>>,
}

impl Reported {
    /// Notes what a sink has taken.
    pub fn note(&self, sink: &str, stream: StreamId, next: u64) {
        let mut sinks = lock(&self.next);
        let known = sinks.entry(sink.to_owned()).or_default();
        let known = known.entry(key_of(stream)).or_default();
        *known = next.max(*known);
    }

    /// All that was noted, by sink.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, BTreeMap<StreamKey, u64>> {
        lock(&self.next).clone()
    }

    /// Notes that a publisher holds a sink in this term, has nothing under way, and goes by the agreed state at `index`.
    pub fn look(&self, sink: &str, term: u64, index: u64) {
        lock(&self.looked).insert(sink.to_owned(), (term, index));
    }

    /// Whether all that goes out to a sink in this term was chosen by the state at `index` or a later one, and all that went out
    /// before is noted.
    #[must_use]
    pub fn has_looked(&self, sink: &str, term: u64, index: u64) -> bool {
        let looked = lock(&self.looked).get(sink).copied();
        looked.is_some_and(|(then, seen)| then == term && seen >= index)
    }
}

/// How a sink is seen from one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkView {
    /// Why nothing can be published from here.
    pub trouble: Option<String>,
    /// What people should know though publishing goes on.
    pub notice: Option<String>,
    /// What it lacks because it refused it, as this node knew when it published last.
    pub refused: BTreeMap<StreamId, Refusals>,
}

/// What this node's publishers say of their sinks.
#[derive(Debug, Default)]
pub struct SinkBoard(Mutex<BTreeMap<String, SinkView>>);

impl SinkBoard {
    /// Changes what is said of a sink; tells whether that is new.
    pub fn set(&self, sink: &str, change: impl FnOnce(&mut SinkView)) -> bool {
        let mut sinks = lock(&self.0);
        let known = sinks.entry(sink.to_owned()).or_default();
        let before = known.clone();
        change(known);
        *known != before
    }

    /// The cluster has no such sink any more.
    pub fn forget(&self, sink: &str) {
        lock(&self.0).remove(sink);
    }

    /// All that is said, by sink.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, SinkView> {
        lock(&self.0).clone()
    }
}

/// The right to propose and to publish in one term. Its only source is [`Core::authority`]; it says what was true at
/// that moment, and all that is done with it is checked again where it counts: by the log, and by the sink.
#[derive(Debug, PartialEq, Eq)]
pub struct Authority {
    /// The term.
    pub term: u64,
}

impl Core {
    /// Puts the parts together. The receiver tells of what the process cannot go on with.
    #[must_use]
    pub fn new(
        config: NodeConfig,
        replica: Replica,
        results: ResultsLog,
        checkpoints: CheckpointStore,
        workers: Workers,
    ) -> (Arc<Self>, mpsc::Receiver<String>) {
        let (fatal, receiver) = mpsc::channel(8);
        let core = Self {
            read_ahead: ReadAhead::new(config.cluster.read_ahead),
            state_room: StateRoom::new(config.node.state_memory, &config.data_dir),
            definitions: agreement::definitions(&config),
            config,
            replica,
            results,
            checkpoints,
            workers: Arc::new(workers),
            counters: Counters::default(),
            seconds: Mutex::default(),
            doubts: Arc::default(),
            log_read: Reached::default(),
            reported: Reported::default(),
            arrivals: Arc::default(),
            waiting: Mutex::default(),
            sinks: SinkBoard::default(),
            health: Health::default(),
            stopping: AtomicBool::new(false),
            agreed: RwLock::default(),
            applied: watch::Sender::new(Position::default()),
            news: Arc::new(watch::Sender::new(0)),
            transit: Transit::default(),
            successions: Successions::default(),
            drained: AtomicBool::new(false),
            fatal,
        };
        (Arc::new(core), receiver)
    }

    /// The agreed state, for a short look.
    pub fn agreed(&self) -> RwLockReadGuard<'_, Agreed> {
        threads::read(&self.agreed)
    }

    /// The agreed state, for the driver alone.
    pub(crate) fn agreed_mut(&self) -> RwLockWriteGuard<'_, Agreed> {
        threads::write(&self.agreed)
    }

    /// Notes that this node has read the log up to `position`.
    pub(crate) fn set_applied(&self, position: Position) {
        *lock(&self.health.committed) = Some(rt::now());
        let before = self.applied.send_replace(position);
        // With the first entry of its term a leader gains its authority.
        if before.term != position.term {
            self.notify();
        }
    }

    /// The last entry that this node has read, as it changes.
    pub(crate) fn applied(&self) -> watch::Receiver<Position> {
        self.applied.subscribe()
    }

    /// Waits until this node has read the log up to `index`.
    pub async fn read_up_to(&self, index: u64) {
        // The sender lives as long as `self`.
        let _ = self
            .applied
            .subscribe()
            .wait_for(|applied| applied.index >= index)
            .await;
    }

    /// Tells the publishers to look again.
    pub(crate) fn notify(&self) {
        self.news
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Changes whenever rows were written or a frontier moved.
    #[must_use]
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// What a feed calls.
    #[must_use]
    pub fn hooks(&self) -> Hooks {
        let (news, fatal) = (Arc::clone(&self.news), self.fatal.clone());
        let (view, arrivals) = (self.replica.view(), Arc::clone(&self.arrivals));
        let doubts = Arc::clone(&self.doubts);
        Hooks {
            rows_ready: Arc::new(move || news.send_modify(|count| *count = count.wrapping_add(1))),
            leads: Arc::new(move || view.borrow().is_leader()),
            closing: Arc::new(move || arrivals.notify_one()),
            fatal: Arc::new(move |reason| drop(fatal.try_send(reason))),
            diverged: Arc::new(
                move |feed,
                      Diverged {
                          stream,
                          seq,
                          computed,
                      }| {
                    doubts.diverged(feed, stream, seq, computed);
                },
            ),
        }
    }

    /// Ends the process with this reason.
    pub fn fail(&self, reason: String) {
        // If the channel is full, an earlier reason ends the process already.
        let _ = self.fatal.try_send(reason);
    }

    /// Whether the node is on its way to its end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Asks all threads of the node to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.notify();
    }

    /// The right to propose, if this node leads and has read an entry of its own term: before that it does not know all
    /// that was committed before it, on which it must build.
    #[must_use]
    pub fn authority(&self) -> Option<Authority> {
        let view = self.replica.view().borrow().clone();
        let caught_up = self.applied.borrow().term == view.term;
        (view.is_leader() && caught_up).then_some(Authority { term: view.term })
    }

    /// Whether `authority` still holds as far as this node knows.
    #[must_use]
    pub fn holds(&self, authority: &Authority) -> bool {
        self.authority().as_ref() == Some(authority)
    }
}
