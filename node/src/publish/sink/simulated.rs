//! A simulated sink: one topic with its frontier, transactional and fenced, whose answers may be lost.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unisono_engine::row::{Incarnation, StreamId};
use unisono_replication::rt::simulated::{Node, between, chance, current_node};
use unisono_replication::rt::thread;

use crate::publish::sink::{Bounds, Frontier, PublishError, PublishRow, Sink};
use crate::threads::lock;

thread_local! {
    static ENTERED: RefCell<Option<Arc<Topic>>> = const { RefCell::new(None) };
}

/// Sets what the simulation on this thread publishes to.
pub fn enter(topic: &Arc<Topic>) {
    ENTERED.set(Some(Arc::clone(topic)));
}

fn entered() -> Arc<Topic> {
    let entered = ENTERED.with_borrow(Clone::clone);
    entered.expect("it is set before a simulation begins")
}

/// What all nodes publish to.
#[derive(Default)]
pub struct Topic(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whoever acquired it last has this one.
    epoch: u64,
    frontier: Frontier,
    rows: BTreeMap<StreamId, Vec<Vec<u8>>>,
    /// Nodes that do not reach it.
    unreachable: BTreeSet<Node>,
    /// So many answers of a hundred are lost.
    lost_percent: u64,
}

impl Topic {
    /// The rows of each stream, in order.
    #[must_use]
    pub fn rows(&self) -> BTreeMap<StreamId, Vec<Vec<u8>>> {
        lock(&self.0).rows.clone()
    }

    /// Whether a node does not reach it from now on.
    pub fn set_unreachable(&self, node: Node, unreachable: bool) {
        let mut state = lock(&self.0);
        match unreachable {
            true => state.unreachable.insert(node),
            false => state.unreachable.remove(&node),
        };
    }

    /// How many answers of a hundred are lost from now on.
    pub fn set_lost_percent(&self, percent: u64) {
        lock(&self.0).lost_percent = percent;
    }

    /// All reach it.
    pub fn mend(&self) {
        let mut state = lock(&self.0);
        state.unreachable.clear();
        state.lost_percent = 0;
    }
}

/// One node's way to it.
pub struct SimulatedSink {
    name: String,
    topic: Arc<Topic>,
    node: Node,
    /// Its own, while it is acquired.
    epoch: Option<u64>,
}

impl SimulatedSink {
    /// Not acquired.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            topic: entered(),
            node: current_node(),
            epoch: None,
        }
    }

    /// The way to the brokers and back takes its time.
    fn reach(&self) -> Result<(), PublishError> {
        thread::sleep(Duration::from_micros(between(500..8000)));
        match lock(&self.topic.0).unreachable.contains(&self.node) {
            false => Ok(()),
            true => Err(PublishError::Unavailable {
                sink: self.name.clone(),
                reason: "out of reach".to_owned(),
            }),
        }
    }

    fn lose_answer(&self) -> bool {
        let percent = lock(&self.topic.0).lost_percent;
        chance(percent)
    }
}

impl Sink for SimulatedSink {
    fn bounds(&self) -> Option<Bounds> {
        Some(Bounds {
            rows: 100,
            bytes: 64 << 10,
        })
    }

    fn acquire(&mut self) -> Result<Frontier, PublishError> {
        self.reach()?;
        let frontier = {
            let mut state = lock(&self.topic.0);
            state.epoch += 1;
            self.epoch = Some(state.epoch);
            state.frontier.clone()
        };
        self.reach()?;
        Ok(frontier)
    }

    fn publish(
        &mut self,
        batch: &[PublishRow<'_>],
        frontier: &Frontier,
    ) -> Result<(), PublishError> {
        let epoch = self.epoch.take();
        self.reach()?;
        let unknown = || PublishError::Unknown {
            sink: self.name.clone(),
            reason: "no answer".to_owned(),
        };
        if self.lose_answer() {
            return Err(unknown());
        }
        {
            let mut state = lock(&self.topic.0);
            if epoch != Some(state.epoch) {
                let sink = self.name.clone();
                return Err(PublishError::Fenced { sink });
            }
            for row in batch {
                state.take(row);
            }
            state.frontier = frontier.clone();
        }
        self.reach().map_err(|_| unknown())?;
        if self.lose_answer() {
            return Err(unknown());
        }
        self.epoch = epoch;
        Ok(())
    }

    fn release(&mut self) {
        self.epoch = None;
    }
}

impl State {
    fn take(&mut self, row: &PublishRow<'_>) {
        let stream = StreamId {
            incarnation: Incarnation(row.incarnation),
            kind: row.kind,
        };
        let rows = self.rows.entry(stream).or_default();
        assert_eq!(
            rows.len() as u64,
            row.seq,
            "the sink is given row {} of {stream:?}, and has {}",
            row.seq,
            rows.len()
        );
        rows.push(row.value.to_vec());
    }
}
