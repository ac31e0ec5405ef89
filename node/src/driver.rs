//! The driver: one thread that reads the agreed log in order, applies it to the agreed state, and hands accepted ticks to
//! their feeds. Raft itself waits for none of this.

mod ending;
mod healing;
mod install;
mod joining;
mod removing;
mod replaying;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unisono_replication::command::{Command, FeedId};
use unisono_replication::machine::{AcceptedTick, Effect};
use unisono_replication::rt;
use unisono_replication::rt::mpsc::{Receiver, SyncSender};
use unisono_replication::tick::CATCH_UP_MS;
use unisono_replication::{CursorEvent, LogCursor, LogError, Position, Replica};

use crate::checkpoint::{CheckpointReader, Header, StoredCheckpoint};
use crate::core::{Agreed, Core};
use crate::feed::{Feed, FeedCheckpoint, FeedPlan, Saver, SetupError};
use crate::proposer::wall_ms;
use crate::source::LaneTrail;
use crate::threads::{Role, test_panic};
pub use healing::{Healed, Patient, Why};
pub use replaying::Rewound;

/// How long the driver waits for an entry before it looks at requests. Entries wake it; requests are rare.
const WAIT: Duration = Duration::from_millis(100);
/// The same while a feed is about to start or to leave, and while a peer's checkpoint is on its way.
const WAIT_SHORTLY: Duration = Duration::from_millis(20);

/// An index that does not come in this time is waited for no more.
const AWAITED_WITHIN: Duration = Duration::from_secs(10);
/// A new feed starts when no pipeline has joined it for so long.
const SETTLED: Duration = Duration::from_millis(100);

/// What others ask of the driver.
pub enum Request {
    /// What a checkpoint is made of, as far as the driver has read; feeds deliver their parts when they are there.
    Checkpoint(SyncSender<PendingCheckpoint>),
    /// The same when the log was read up to this index exactly; `None` if it is further, or does not come so far.
    StatesAt(u64, SyncSender<Option<PendingCheckpoint>>),
    /// A peer's state takes the place of this node's.
    Install(Box<CheckpointReader>, SyncSender<io::Result<()>>),
    /// A feed is to go on from a peer's state at this index: it is taken out for that.
    TakeOut(FeedId, u64, Why, SyncSender<io::Result<Patient>>),
    /// A feed is to be computed again from this node's own checkpoint: it is taken out for that.
    TakeBack(FeedId, SyncSender<io::Result<Rewound>>),
    /// A feed must not go on as it is, for this reason.
    EndFeed(FeedId, String, SyncSender<()>),
    /// It is put in again; gives that index, or the one up to which it is computed again.
    PutIn(Box<Healed>, SyncSender<io::Result<u64>>),
}

/// A checkpoint whose feeds are still on their way.
pub struct PendingCheckpoint {
    /// How far the driver has read.
    pub position: Position,
    /// The checkpoint before.
    pub base: Option<StoredCheckpoint>,
    /// Where the log is read again.
    pub replica: Replica,
    /// The feeds' parts, as they come.
    pub feeds: Vec<PendingFeed>,
}

/// A feed on its way to where the driver has read.
pub struct PendingFeed {
    /// The feed.
    pub id: FeedId,
    /// Its state there.
    pub state: Receiver<FeedCheckpoint>,
    /// Gives its state before.
    pub saver: Saver,
}

/// The driver's state.
pub struct Driver {
    core: Arc<Core>,
    requests: Receiver<Request>,
    cursor: LogCursor,
    position: Position,
    /// Feeds that were created and have not started, and since when.
    created: BTreeMap<FeedId, Instant>,
    /// Feeds that start from the checkpoint that was loaded last when the log has come to where their state stands.
    pending: BTreeMap<FeedId, u64>,
    loaded: Option<StoredCheckpoint>,
    /// Feeds whose pipelines go on in another one, until they are there and their readers have ended.
    leaving: Vec<Arc<Feed>>,
    /// Those who want the states at an index that is about to come.
    awaited: Vec<Awaited>,
}

struct Awaited {
    index: u64,
    since: Instant,
    reply: SyncSender<Option<PendingCheckpoint>>,
}

impl Driver {
    /// A driver that goes on from `checkpoint`, or from the log's beginning.
    ///
    /// # Errors
    /// The checkpoint is another version's.
    pub fn new(
        core: Arc<Core>,
        requests: Receiver<Request>,
        checkpoint: Option<StoredCheckpoint>,
    ) -> io::Result<Self> {
        let header = checkpoint.as_ref().map(StoredCheckpoint::header);
        let position = header.map(Header::position).unwrap_or_default();
        let raft = header.map(|header| header.raft.as_slice());
        let cursor = core.replica.cursor(raft)?;
        let mut driver = Self {
            core,
            requests,
            cursor,
            position,
            created: BTreeMap::new(),
            pending: BTreeMap::new(),
            loaded: None,
            leaving: Vec::new(),
            awaited: Vec::new(),
        };
        if let Some(checkpoint) = checkpoint {
            driver.load(checkpoint)?;
        }
        Ok(driver)
    }

    /// Runs until the log closes.
    pub fn run(mut self) {
        loop {
            while let Ok(request) = self.requests.try_recv() {
                self.serve(request);
            }
            self.start_created(SETTLED);
            self.leaving.retain(|feed| !feed.has_left());
            self.give_states();
            let wait = if self.created.is_empty() && self.leaving.is_empty() {
                WAIT
            } else {
                WAIT_SHORTLY
            };
            match self.cursor.next(wait) {
                Ok(CursorEvent::Entry { position, payload }) => {
                    if let Err(reason) = self.entry(position, payload.as_deref()) {
                        return self.core.fail(reason);
                    }
                }
                Ok(CursorEvent::Idle) => {}
                Ok(CursorEvent::Closed) => return,
                // A peer's checkpoint is on its way: it comes as a request.
                Err(LogError::Superseded { .. }) => rt::thread::sleep(WAIT_SHORTLY),
                Err(error) => return self.core.fail(error.to_string()),
            }
        }
    }

    fn serve(&mut self, request: Request) {
        match request {
            // Whoever asked may have given up.
            Request::Checkpoint(reply) => drop(reply.send(self.states())),
            Request::StatesAt(index, reply) => {
                let since = rt::now();
                self.awaited.push(Awaited {
                    index,
                    since,
                    reply,
                });
                self.give_states();
            }
            Request::TakeOut(feed, index, why, reply) => {
                let _ = reply.send(self.take_out(feed, index, why));
            }
            Request::TakeBack(feed, reply) => {
                let _ = reply.send(self.take_back(feed));
            }
            Request::EndFeed(feed, reason, reply) => {
                if self.core.agreed().machine.has_pipelines(feed) {
                    self.give_up(feed, &reason);
                }
                let _ = reply.send(());
            }
            Request::PutIn(healed, reply) => {
                let _ = reply.send(self.put_in(*healed));
            }
            Request::Install(parcel, reply) => {
                let _ = reply.send(self.install(*parcel));
            }
        }
    }

    /// All feeds' states, as far as the log was read.
    fn states(&self) -> PendingCheckpoint {
        let agreed = self.core.agreed();
        let leaving = self.leaving.iter().map(|feed| (feed.id, feed));
        let feeds = agreed.feeds.iter().map(|(&id, feed)| (id, feed));
        let feeds = leaving.chain(feeds).map(|(id, feed)| PendingFeed {
            id,
            state: feed.checkpoint(self.position.index),
            saver: feed.saver(),
        });
        PendingCheckpoint {
            position: self.position,
            base: self.core.checkpoints.current(),
            replica: self.core.replica.clone(),
            feeds: feeds.collect(),
        }
    }

    /// Answers those who wait for the states at the index that the log was read up to, or waited too long.
    fn give_states(&mut self) {
        let here = self.position.index;
        let is_due = |awaited: &mut Awaited| {
            awaited.index <= here || rt::since(awaited.since) >= AWAITED_WITHIN
        };
        let due: Vec<Awaited> = self.awaited.extract_if(.., is_due).collect();
        for awaited in due {
            let states = (awaited.index == here).then(|| self.states());
            let _ = awaited.reply.send(states);
        }
    }

    fn entry(&mut self, position: Position, payload: Option<&[u8]>) -> Result<(), String> {
        test_panic(Role::Driver);
        let before = std::mem::replace(&mut self.position, position);
        self.core.counters.entries.fetch_add(1, Ordering::Relaxed);
        if let Some(payload) = payload {
            let command = Command::decode(payload)
                .map_err(|error| format!("entry {} of the agreed log: {error}", position.index))?;
            if matches!(
                command,
                Command::Ticks(_)
                    | Command::AddLanes(_)
                    | Command::RetireLanes(_)
                    | Command::JoinFeeds(_)
            ) {
                // A feed starts where the machine stands, so before the first entry that moves it.
                self.position = before;
                self.start_created(Duration::ZERO);
                self.position = position;
            }
            let mut agreed = self.core.agreed_mut();
            let effect = agreed
                .machine
                .apply(position.index, position.term, &command);
            agreed.index = position.index;
            drop(agreed);
            self.count_alone(&command, &effect);
            self.follow(effect);
        } else {
            self.core.agreed_mut().index = position.index;
        }
        self.start_pending().map_err(|error| error.to_string())?;
        self.core.set_applied(position);
        self.give_states();
        Ok(())
    }

    fn count_alone(&self, command: &Command, effect: &Effect) {
        if let (Command::Ticks(proposed), Effect::Ticked(ticks)) = (command, effect) {
            let accepted = |feed: FeedId| ticks.iter().any(|tick| tick.feed == feed);
            let alone = proposed.feeds.iter();
            let alone = alone.filter(|tick| tick.alone && accepted(tick.feed));
            let counter = &self.core.counters.ticks_alone;
            counter.fetch_add(alone.count() as u64, Ordering::Relaxed);
        }
    }

    fn follow(&mut self, effect: Effect) {
        match effect {
            Effect::Void(reason) => {
                self.core
                    .counters
                    .void_entries
                    .fetch_add(1, Ordering::Relaxed);
                tracing::debug!(?reason, index = self.position.index, "void entry");
            }
            Effect::FeedCreated(_) => {}
            // A feed takes pipelines before its first tick only, so it can simply begin anew.
            Effect::PipelineCreated { incarnation } => {
                let (feed, stopped) = {
                    let mut agreed = self.core.agreed_mut();
                    agreed.read_definitions();
                    let feed = agreed.machine.pipelines()[&incarnation].feed;
                    (feed, agreed.feeds.remove(&feed))
                };
                end(stopped);
                // One whose state stands further on has it there.
                if !self.pending.contains_key(&feed) {
                    self.created.insert(feed, rt::now());
                }
            }
            Effect::LanesAdded { feed, first } => self.add_lanes(feed, first as usize),
            Effect::LanesRetired { feed, lanes } => self.retire_lanes(feed, &lanes),
            Effect::Ticked(ticks) => {
                for tick in ticks {
                    self.tick(tick);
                }
            }
            Effect::FrontierMoved => {
                self.retain();
                self.core.notify();
            }
            Effect::FeedsJoined { from, into } => self.join_feeds(from, into),
            Effect::ConfigChanged => self.core.notify(),
            Effect::FeedHeld(feed) => self.hold(feed),
            Effect::FeedReleased { feed, tick } => self.release(feed, tick),
            Effect::TicksEnded(feed) => self.end_ticks(feed),
            Effect::FeedParked(feed) => self.park(feed),
            Effect::PipelineRemoved { incarnation, feed } => {
                self.remove_pipeline(incarnation, feed);
            }
        }
    }

    fn tick(&mut self, tick: AcceptedTick) {
        self.core.counters.ticks.fetch_add(1, Ordering::Relaxed);
        let id = tick.feed;
        let feed = {
            let mut agreed = self.core.agreed_mut();
            // A tick of long ago, read again after a start, says nothing of the time since.
            match is_live(tick.clock_ms, wall_ms()) {
                true => agreed.ticked.insert(id, rt::now()),
                false => agreed.ticked.remove(&id),
            };
            agreed.feeds.get(&id).cloned()
        };
        if feed.is_some_and(|feed| !feed.tick(self.position.index, tick)) {
            let reason = "more ticks wait for their records than memory may hold: restart this node when the records can be \
                          read again, or wait until the feed's state is taken from a peer's checkpoint";
            self.give_up(id, reason);
        }
    }

    fn add_lanes(&self, id: FeedId, first: usize) {
        let agreed = self.core.agreed();
        let Some(feed) = agreed.feeds.get(&id) else {
            return;
        };
        for lane in &agreed.machine.feeds()[&id].lanes[first..] {
            feed.add_lane(
                self.position.index,
                lane.source as usize,
                LaneTrail::of(lane),
            );
        }
    }

    fn retire_lanes(&self, id: FeedId, lanes: &[u32]) {
        let agreed = self.core.agreed();
        let Some(feed) = agreed.feeds.get(&id) else {
            return;
        };
        for &lane in lanes {
            let retired = &agreed.machine.feeds()[&id].lanes[lane as usize];
            tracing::info!(
                feed = id.0,
                lane = retired.name,
                bytes = retired.cut,
                "lane retired"
            );
            let (source, name) = (retired.source as usize, retired.name.clone());
            feed.retire_lane(self.position.index, lane, source, name);
        }
    }

    /// Starts the feeds that no pipeline has joined for `settled`: clients are not set up for each pipeline again.
    fn start_created(&mut self, settled: Duration) {
        let settled = |since: &Instant| rt::since(*since) >= settled;
        while let Some((&id, _)) = self.created.iter().find(|(_, since)| settled(since)) {
            self.created.remove(&id);
            self.start_anew(id);
        }
    }

    fn start_anew(&self, id: FeedId) {
        let mut agreed = self.core.agreed_mut();
        let plan = FeedPlan::new(&agreed.machine, id, &self.core.config).map(FeedPlan::begin);
        self.start_feed(&mut agreed, id, plan, self.position.index);
    }

    /// Starts a feed that stands at `index`.
    fn start_feed(
        &self,
        agreed: &mut Agreed,
        id: FeedId,
        plan: Result<FeedPlan, SetupError>,
        index: u64,
    ) {
        let core = &self.core;
        let feed = plan.and_then(|plan| {
            let (workers, results) = (Arc::clone(&core.workers), core.results.clone());
            let room = core.state_room.share();
            Feed::start(
                plan,
                room,
                workers,
                &core.read_ahead,
                results,
                core.hooks(),
                index,
            )
        });
        match feed {
            Ok(feed) => {
                agreed.refused.remove(&id);
                agreed.feeds.insert(id, Arc::new(feed));
                // The proposer has not seen it yet.
                self.core.arrivals.notify_one();
            }
            Err(error) => {
                tracing::error!(feed = id.0, %error, "feed cannot start");
                agreed.refused.insert(id, error.to_string());
            }
        }
    }

    fn retain(&self) {
        let agreed = self.core.agreed();
        for stream in self.core.results.streams() {
            let published = agreed.machine.frontier(crate::ids::key_of(stream));
            let published = unisono_engine::row::Seq(published);
            if let Err(error) = self.core.results.retain(stream, published) {
                tracing::warn!(%error, "old rows cannot be removed");
            }
        }
    }
}

/// Whether a tick was made just now, by the clocks that it tells of. If this node's own clock is wrong, none is: then what
/// the others' clocks say is agreed time.
fn is_live(clock_ms: i64, own_ms: i64) -> bool {
    own_ms.saturating_sub(clock_ms).saturating_abs() <= CATCH_UP_MS
}

/// Ends feeds: nothing of them runs any more when this returns. Not to be called while the agreed state is locked, for
/// all others would wait for their threads too.
fn end(feeds: impl IntoIterator<Item = Arc<Feed>>) {
    for mut feed in feeds {
        // A query that looks at the feed holds it for a moment; until then its thread would go on.
        while let Err(held) = Arc::try_unwrap(feed) {
            feed = held;
            rt::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_read_again_long_after_it_was_made_is_no_stamp() {
        assert!(is_live(1_000_000, 1_010_000));
        assert!(!is_live(1_000_000, 1_010_001));
        assert!(
            !is_live(4_600_000, 1_000_000),
            "this node's clock is behind"
        );
    }
}
