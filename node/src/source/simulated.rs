//! A simulated source: lanes in memory, which nodes may not see, or see wrongly.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use unisono_engine::record::Stamp;

use unisono_replication::rt;
use unisono_replication::rt::simulated::{Node, current_node};

use crate::signal::Signal;
use crate::source::{
    Block, Found, FoundLane, KnownLane, LaneTrail, SourceError, SourceReader, SourceSurvey,
    Unanswered,
};
use crate::threads::lock;

/// How long a reader waits without being told of records.
const PAUSE: Duration = Duration::from_millis(100);

thread_local! {
    static ENTERED: RefCell<Option<Arc<Log>>> = const { RefCell::new(None) };
}

/// Sets what the simulation on this thread reads.
pub fn enter(log: &Arc<Log>) {
    ENTERED.set(Some(Arc::clone(log)));
}

fn entered() -> Arc<Log> {
    let entered = ENTERED.with_borrow(Clone::clone);
    entered.expect("it is set before a simulation begins")
}

/// What all nodes read.
#[derive(Default)]
pub struct Log(Mutex<State>);

#[derive(Default)]
struct State {
    lanes: Vec<Vec<Record>>,
    /// Nodes that do not reach it.
    blind: BTreeSet<Node>,
    /// Nodes to which it says nothing, and since when.
    deaf: BTreeMap<Node, Instant>,
    /// What a node reads instead of a record.
    wrong: BTreeMap<(Node, usize, i64), Wrong>,
    signals: Vec<(Node, Weak<Signal>)>,
}

#[derive(Clone)]
struct Record {
    append_time_ms: i64,
    payload: Arc<[u8]>,
}

/// A record as one node reads it.
#[derive(Clone)]
pub struct Wrong(pub Vec<u8>);

impl Log {
    /// With so many lanes.
    #[must_use]
    pub fn new(lanes: usize) -> Arc<Self> {
        let log = Self::default();
        lock(&log.0).lanes.resize(lanes, Vec::new());
        Arc::new(log)
    }

    /// Adds a record to a lane. Those who see it are told.
    pub fn append(&self, lane: usize, append_time_ms: i64, payload: &[u8]) {
        let mut state = lock(&self.0);
        state.lanes[lane].push(Record {
            append_time_ms,
            payload: payload.into(),
        });
        state
            .signals
            .retain(|(_, signal)| signal.strong_count() > 0);
        let seeing = state.signals.iter();
        let seeing = seeing
            .filter(|(node, _)| !state.blind.contains(node) && !state.deaf.contains_key(node));
        let signals: Vec<_> = seeing.filter_map(|(_, signal)| signal.upgrade()).collect();
        drop(state);
        signals.iter().for_each(|signal| signal.raise());
    }

    /// How many records it has.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.0).lanes.iter().map(Vec::len).sum()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All payloads, lane after lane.
    #[must_use]
    pub fn payloads(&self) -> Vec<Arc<[u8]>> {
        let state = lock(&self.0);
        let records = state.lanes.iter().flatten();
        records.map(|record| Arc::clone(&record.payload)).collect()
    }

    /// Whether a node does not reach it from now on.
    pub fn set_blind(&self, node: Node, blind: bool) {
        let mut state = lock(&self.0);
        match blind {
            true => state.blind.insert(node),
            false => state.blind.remove(&node),
        };
    }

    /// Whether a node is said nothing from now on: nothing comes, and nobody says why.
    pub fn set_deaf(&self, node: Node, deaf: bool) {
        let mut state = lock(&self.0);
        match deaf {
            true => drop(state.deaf.entry(node).or_insert_with(rt::now)),
            false => drop(state.deaf.remove(&node)),
        }
    }

    /// The record that comes next in a lane is another one for this node, until [`Self::mend`].
    pub fn read_wrongly(&self, node: Node, lane: usize, wrong: Wrong) {
        let mut state = lock(&self.0);
        let offset = state.lanes[lane].len() as i64;
        state.wrong.insert((node, lane, offset), wrong);
    }

    /// All nodes read what is there.
    pub fn mend(&self) {
        let mut state = lock(&self.0);
        state.wrong.clear();
        state.blind.clear();
        state.deaf.clear();
    }
}

fn name(lane: usize) -> String {
    lane.to_string()
}

fn unreachable() -> SourceError {
    SourceError::Unavailable("the source is out of reach".to_owned())
}

/// Reads the simulation's source.
struct Reader {
    log: Arc<Log>,
    node: Node,
    /// The lane of each handle.
    open: Vec<usize>,
}

pub(crate) fn open(signal: &Arc<Signal>) -> Box<dyn SourceReader> {
    let (log, node) = (entered(), current_node());
    lock(&log.0).signals.push((node, Arc::downgrade(signal)));
    let open = Vec::new();
    Box::new(Reader { log, node, open })
}

impl SourceReader for Reader {
    fn open(&mut self, trail: &LaneTrail, _names: &[&str]) -> Result<usize, SourceError> {
        let lane = trail.name.parse().map_err(|_| unreachable())?;
        if lock(&self.log.0).blind.contains(&self.node) {
            return Err(unreachable());
        }
        self.open.push(lane);
        Ok(self.open.len() - 1)
    }

    fn close(&mut self, _lane: usize) {}

    fn fill(
        &mut self,
        lane: usize,
        trail: &LaneTrail,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<usize, SourceError> {
        let state = lock(&self.log.0);
        if state.blind.contains(&self.node) {
            return Err(unreachable());
        }
        if state.deaf.contains_key(&self.node) {
            return Ok(0);
        }
        let lane = self.open[lane];
        let mut count = 0;
        let from = usize::try_from(trail.next).unwrap_or(0);
        for (offset, record) in (trail.next..).zip(state.lanes[lane].iter().skip(from)) {
            if block.weight() >= max_bytes {
                break;
            }
            let wrong = state.wrong.get(&(self.node, lane, offset));
            let payload = wrong.map_or(&*record.payload, |wrong| &wrong.0);
            block.push(
                offset,
                offset + 1,
                Stamp::Producer(record.append_time_ms),
                Some(payload),
            );
            count += 1;
        }
        Ok(count)
    }

    fn pause(&mut self) -> Duration {
        PAUSE
    }

    fn at_end(&mut self, lane: usize) -> Option<i64> {
        self.log_end(lane)
    }

    fn log_end(&self, lane: usize) -> Option<i64> {
        let state = lock(&self.log.0);
        let seen = !state.blind.contains(&self.node) && !state.deaf.contains_key(&self.node);
        seen.then(|| state.lanes[self.open[lane]].len() as i64)
    }

    fn unanswered(&mut self, _lane: usize) -> Option<Unanswered> {
        let state = lock(&self.log.0);
        Some(Unanswered {
            since: state.deaf.get(&self.node).copied().unwrap_or_else(rt::now),
            slowest: Duration::ZERO,
        })
    }
}

struct Survey {
    log: Arc<Log>,
    node: Node,
}

pub(crate) fn survey() -> Box<dyn SourceSurvey> {
    let (log, node) = (entered(), current_node());
    Box::new(Survey { log, node })
}

impl SourceSurvey for Survey {
    fn stamps(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn begin(&mut self) -> Result<Vec<FoundLane>, SourceError> {
        let state = lock(&self.log.0);
        if state.blind.contains(&self.node) {
            return Err(unreachable());
        }
        let lane = |lane: usize| FoundLane {
            name: name(lane),
            start: 0,
            identity: format!("lane {lane}"),
        };
        Ok((0..state.lanes.len()).map(lane).collect())
    }

    fn look(&mut self, known: &[KnownLane]) -> Result<Found, SourceError> {
        let mut found = Found::default();
        let lanes = self.begin()?.into_iter();
        found.new = lanes
            .filter(|lane| known.iter().all(|known| known.trail.name != lane.name))
            .collect();
        Ok(found)
    }
}
