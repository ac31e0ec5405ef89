//! The whole node but its HTTP service, on simulated time, network, disks, sources and sinks. Its threads are coroutines,
//! its code is the service's.
//!
//! A simulation has one [`Outside`]: what all nodes read and publish to. It is set for the thread on which the simulation
//! runs, and every source and sink of every config is that one.

use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use unisono_api::Order;
use unisono_api::dto::EndTicks;
use unisono_engine::row::{Seq, StreamId};
use unisono_replication::command::FeedId;
use unisono_replication::rt::simulated::{self, Disk, Node, block_on};
use unisono_replication::rt::{self, Handle};
use unisono_replication::{PortLimits, Replica};

pub use crate::publish::sink::simulated::Topic;
pub use crate::source::simulated::{Log, Wrong};

use crate::alike;
use crate::config::NodeConfig;
use crate::core::Core;
use crate::feed::Feed;
use crate::handover::hand_over;
use crate::serve;
use crate::threads::lock;

/// A tick that waits no longer is on its way; one that waits for a second costs a replica's word.
const KEEPS_UP: Duration = Duration::from_millis(500);

/// What lies outside of all nodes.
#[derive(Clone, Default)]
pub struct Outside {
    /// What they read.
    pub log: Arc<Log>,
    /// What they publish to.
    pub topic: Arc<Topic>,
}

/// Sets what the simulation on this thread reads and publishes to.
pub fn enter(outside: &Outside) {
    crate::source::simulated::enter(&outside.log);
    crate::publish::sink::simulated::enter(&outside.topic);
    crate::ingest::wrong::forget();
}

/// The next record that a node takes in, it takes in twice: as if a bit of its state had flipped.
pub fn take_twice(node: Node) {
    crate::ingest::wrong::take_twice(node);
}

/// A node as the world sees it.
#[derive(Clone, Default)]
pub struct Seen {
    core: Arc<Mutex<Weak<Core>>>,
    ended: Arc<Mutex<Option<String>>>,
}

/// What one process knows.
pub struct Look(Arc<Core>);

impl Seen {
    /// A look at the process, if it runs.
    #[must_use]
    pub fn look(&self) -> Option<Look> {
        lock(&self.core).upgrade().map(Look)
    }

    /// Why the process has ended itself, once.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        lock(&self.ended).take()
    }
}

impl Look {
    /// Streams of which rows are served, and the number of the first row that is not.
    #[must_use]
    pub fn published(&self) -> Vec<(StreamId, u64)> {
        let agreed = self.0.agreed();
        let streams = self.0.results.streams().into_iter();
        streams
            .filter_map(|stream| Some((stream, alike::served(&self.0, &agreed, stream).ok()?)))
            .collect()
    }

    /// Of each feed, how far a lane may be ahead of another, and how far event time has come in each, in milliseconds.
    #[must_use]
    pub fn event_times(&self) -> Vec<(Option<i64>, Vec<Option<i64>>)> {
        let agreed = self.0.agreed();
        let times = |feed: &Arc<Feed>| {
            let watermarks = feed.watermarks().into_iter();
            watermarks.map(|time| time.map(|time| time.0)).collect()
        };
        let feeds = agreed.feeds.values();
        feeds
            .map(|feed| (feed.max_skew_ms(), times(feed)))
            .collect()
    }

    /// How often its rows were not those of most, feeds were computed again, and feeds took a peer's state.
    #[must_use]
    pub fn doubted(&self) -> (u64, u64, u64) {
        use std::sync::atomic::Ordering::Relaxed;
        let counters = &self.0.counters;
        let (odd, again) = (&counters.odd, &counters.feeds_replayed);
        let healed = &counters.feeds_healed;
        (odd.load(Relaxed), again.load(Relaxed), healed.load(Relaxed))
    }

    /// Checkpoints that it made, those that nobody could compare, and those that were not kept.
    #[must_use]
    pub fn checkpoints(&self) -> (u64, u64, u64) {
        use std::sync::atomic::Ordering::Relaxed;
        let counters = &self.0.counters;
        let (alone, disputed) = (&counters.checkpoints_alone, &counters.states_disputed);
        let made = &counters.checkpoints;
        (
            made.load(Relaxed),
            alone.load(Relaxed),
            disputed.load(Relaxed),
        )
    }

    /// Whether all of its rows are compared, and none in doubt; those from the first on are here.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let agreed = self.0.agreed();
        let whole = |stream: &StreamId| {
            let served = alike::served(&self.0, &agreed, *stream).ok();
            let (first, next) = (
                self.0.results.first_seq(*stream),
                self.0.results.next_seq(*stream),
            );
            first == Seq(0) && served == Some(next.0)
        };
        let doubted = agreed.feeds.keys().any(|&feed| self.0.doubts.is_open(feed));
        !doubted && self.0.results.streams().iter().all(whole)
    }

    /// Whether its word counts, as far as it and whoever leads can tell: no tick waits for long to be taken in here, and if it
    /// leads, all others' words count.
    #[must_use]
    pub fn keeps_up(&self) -> bool {
        let agreed = self.0.agreed();
        let waits = |feed: &Arc<Feed>| feed.waits_since().map_or(Duration::ZERO, rt::since);
        let others = self.voters().0.saturating_sub(1);
        let seconds = lock(&self.0.seconds);
        let counts =
            |feed: FeedId| self.leads().is_none() || seconds.eligible(feed).len() >= others;
        let mut feeds = agreed.feeds.iter();
        feeds.all(|(&id, feed)| waits(feed) < KEEPS_UP && counts(id))
    }

    /// How many rows of a stream were computed here.
    #[must_use]
    pub fn computed(&self, stream: StreamId) -> u64 {
        self.0.results.next_seq(stream).0
    }

    /// The rows of a stream from `from` on, up to `below`, as JSON; fewer if they are no more or not yet here.
    #[must_use]
    pub fn rows(&self, stream: StreamId, from: u64, below: u64) -> Vec<(u64, Vec<u8>)> {
        let most = usize::try_from(below.saturating_sub(from)).unwrap_or(0);
        let rows = self.0.results.read(stream, Seq(from), most, usize::MAX);
        let rows = rows.unwrap_or_default().into_iter();
        rows.map(|row| (row.seq.0, row.json)).collect()
    }

    /// How far the lanes of all feeds are agreed, in records.
    #[must_use]
    pub fn agreed_records(&self) -> i64 {
        let agreed = self.0.agreed();
        let feeds = agreed.machine.feeds().values();
        feeds
            .flat_map(|feed| &feed.lanes)
            .map(|lane| lane.cut)
            .sum()
    }

    /// The term in which it leads and may propose.
    #[must_use]
    pub fn leads(&self) -> Option<u64> {
        self.0.authority().map(|authority| authority.term)
    }

    /// How many replicas vote, and whether a change of them is half done.
    #[must_use]
    pub fn voters(&self) -> (usize, bool) {
        let view = self.0.replica.view();
        let view = view.borrow();
        (view.voters.len(), view.joint)
    }

    /// Gives the lead to another one, if it leads.
    pub fn hand_over(&self) -> impl Future<Output = ()> + Send + 'static {
        let core = Arc::clone(&self.0);
        async move {
            // It may not lead any more.
            let _ = hand_over(&core, &[]).await;
        }
    }

    /// A feed that is held until an operator decides, by its number.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        let agreed = self.0.agreed();
        let mut feeds = agreed.machine.feeds().iter();
        let held = feeds.find(|(_, feed)| feed.held.is_some());
        held.map(|(id, _)| id.0)
    }

    /// How often an operator ended ticks.
    #[must_use]
    pub fn ends(&self) -> usize {
        let agreed = self.0.agreed();
        let feeds = agreed.machine.feeds().values();
        feeds.map(|feed| feed.ended.len()).sum()
    }

    /// An operator ends the ticks in dispute of a feed; what this node says to that.
    pub fn end_ticks(
        &self,
        feed: u64,
    ) -> impl Future<Output = Result<(), String>> + Send + 'static {
        let core = Arc::clone(&self.0);
        async move {
            let order = Order::EndTicks(feed.to_string(), EndTicks::default());
            let done = crate::admin::order(&core, &order).await;
            done.map(drop).map_err(|refusal| refusal.to_string())
        }
    }

    /// Checkpoints that it took from others.
    #[must_use]
    pub fn checkpoints_taken(&self) -> u64 {
        let taken = &self.0.counters.checkpoints_installed;
        taken.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Rows that it published by its own word alone.
    #[must_use]
    pub fn rows_alone(&self) -> u64 {
        let alone = &self.0.counters.rows_alone;
        alone.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Why feeds stand still here.
    #[must_use]
    pub fn stopped(&self) -> Vec<String> {
        let agreed = self.0.agreed();
        let stopped = agreed.feeds.values();
        let stopped = stopped.filter_map(|feed| feed.status().stopped);
        stopped.chain(agreed.refused.values().cloned()).collect()
    }
}

/// Starts a process on `node`, with the config of this text at `path`.
///
/// # Panics
/// The config has a fault.
pub fn start(node: Node, path: &Path, text: &str, disk: &Disk, seen: &Seen) {
    let config = NodeConfig::parse(path, text);
    let config = config.unwrap_or_else(|errors| panic!("{errors}"));
    let (disk, seen) = (disk.clone(), seen.clone());
    simulated::spawn_thread_on(node, move || {
        if let Err(reason) = run(config, &disk, &seen) {
            *lock(&seen.ended) = Some(reason);
        }
    });
}

fn run(config: NodeConfig, disk: &Disk, seen: &Seen) -> Result<(), String> {
    let node = serve::Node::compose(config, &Handle::current(), |config, snapshots| {
        let dir = config.data_dir.join("raft");
        block_on(Replica::simulate(
            serve::raft_config(config, None, PortLimits::default()),
            disk,
            &dir,
            snapshots,
        ))
    });
    let mut node = node.map_err(|error| error.to_string())?;
    *lock(&seen.core) = Arc::downgrade(&node.core);
    let reason = block_on(node.fatal.recv());
    Err(reason.unwrap_or_default())
}
