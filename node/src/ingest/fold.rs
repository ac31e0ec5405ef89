//! One lane of a feed at its worker: it takes each tick's records from the lane's buffer, decodes them, and folds them into
//! the lane's engine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use unisono_engine::spec::Timestamp;
use unisono_engine::{LaneEngine, NextClosing};
use unisono_replication::command::LaneStand;
use unisono_replication::machine::Hole;

use super::buffer::{LaneBuffer, Part, TakeError};
use super::lookout::Tell;
use super::workers::Worker;
use crate::decode::Decoder;
use crate::definition::FieldSet;
use crate::threads::lock;

/// What a tick asks of a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneStep {
    /// What the replicas' clocks said when the tick was made: it judges what lies in the future.
    pub clock: Timestamp,
    /// Records with offsets in `from..to`, whose fingerprint must be `fingerprint`.
    pub from: i64,
    /// One past the last offset.
    pub to: i64,
    /// What the leader read up to there.
    pub fingerprint: u64,
}

impl FoldState {
    /// Another engine over other fields takes over, at the same cut.
    pub fn replace(&mut self, engine: LaneEngine, fields: &FieldSet) {
        self.engine = engine;
        self.decoder = self.decoder.over(fields);
        self.lends = true;
    }
}

/// Told once when a step is done, or cannot be done.
pub type Done = Box<dyn Fn(Result<(), TakeError>) + Send + Sync>;

/// A lane's engine, and how it gets its records.
pub struct FoldLane {
    buffer: Arc<LaneBuffer>,
    worker: Arc<Worker>,
    /// It waits in its worker's queue.
    queued: AtomicBool,
    state: Mutex<FoldState>,
    done: Done,
}

/// What whoever folds the lane has, and between two ticks its feed.
pub struct FoldState {
    /// The state of the lane.
    pub engine: LaneEngine,
    decoder: Decoder,
    /// Whoever looks out has another decoder, or none.
    lends: bool,
    step: Option<Step>,
}

enum Step {
    Asked(LaneStep),
    Taken(VecDeque<Part>),
}

/// Whether a lane has more to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    GoesOn,
    Rests,
}

impl FoldLane {
    /// A lane that gets its records from `buffer`, which is its alone.
    #[must_use]
    pub fn new(
        engine: LaneEngine,
        decoder: Decoder,
        buffer: Arc<LaneBuffer>,
        worker: Arc<Worker>,
        done: Done,
    ) -> Arc<Self> {
        let state = FoldState {
            engine,
            decoder,
            lends: true,
            step: None,
        };
        let lane = Arc::new(Self {
            buffer,
            worker,
            queued: AtomicBool::new(false),
            state: Mutex::new(state),
            done,
        });
        let woken = Arc::downgrade(&lane);
        lane.buffer.set_waker(Arc::new(move || {
            if let Some(lane) = woken.upgrade() {
                lane.wake();
            }
        }));
        lane
    }

    /// Asks for a step; the one before must be done. Whoever waits is told when it is.
    pub fn fold(self: &Arc<Self>, step: LaneStep) {
        self.lock().step = Some(Step::Asked(step));
        self.wake();
    }

    /// The lane goes on from here; between two ticks.
    pub fn go_on_at(&self, stand: &LaneStand) {
        self.buffer
            .go_on_at(stand.cut, stand.fingerprint, stand.marks);
    }

    /// There is agreed to be no record for a while.
    pub fn set_hole(&self, hole: Hole) {
        self.buffer.set_hole(hole);
    }

    /// The lane between two ticks; during one, this waits for the worker.
    pub fn lock(&self) -> MutexGuard<'_, FoldState> {
        lock(&self.state)
    }

    /// Between two ticks: what the lane is looked at for until the next one ends.
    pub fn look_out(&self, closings: Vec<Arc<NextClosing>>, tell: &Tell) {
        let decoder = {
            let mut state = self.lock();
            let lends = std::mem::take(&mut state.lends);
            lends.then(|| state.decoder.clone())
        };
        self.buffer.look_out(decoder, closings, tell);
    }

    fn wake(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.worker.push(Arc::clone(self));
        }
    }

    /// Does a part of the step; called by the worker alone.
    pub(super) fn turn(&self) -> Turn {
        // Before the look at the buffer: what arrives after it wakes the lane again.
        self.queued.store(false, Ordering::Release);
        let mut state = self.lock();
        let FoldState {
            engine,
            decoder,
            step,
            ..
        } = &mut *state;
        match step {
            None => return Turn::Rests,
            Some(Step::Asked(asked)) => {
                match self.buffer.take(asked.from, asked.to, asked.fingerprint) {
                    Ok(parts) => {
                        engine.begin(Some(asked.clock));
                        *step = Some(Step::Taken(parts.into()));
                    }
                    Err(TakeError::NotYet) => return Turn::Rests,
                    Err(error) => {
                        *step = None;
                        drop(state);
                        (self.done)(Err(error));
                        return Turn::Rests;
                    }
                }
            }
            Some(Step::Taken(_)) => {}
        }
        if let Some(Step::Taken(parts)) = step
            && let Some(part) = parts.pop_front()
        {
            absorb(engine, decoder, &part);
            if !parts.is_empty() {
                // A wake-up meanwhile would queue it twice, which a look at `step` settles.
                self.queued.store(true, Ordering::Release);
                return Turn::GoesOn;
            }
        }
        *step = None;
        drop(state);
        (self.done)(Ok(()));
        Turn::Rests
    }
}

impl Drop for FoldLane {
    fn drop(&mut self) {
        self.worker.leave();
    }
}

fn absorb(engine: &mut LaneEngine, decoder: &mut Decoder, (block, range): &Part) {
    for index in range.clone() {
        let raw = block.record(index);
        let append_time = raw.stamp.append_time();
        decoder.each(raw.offset, append_time, raw.payload, &mut |record| {
            engine.absorb(record);
            #[cfg(any(feature = "faults", feature = "simulation"))]
            if super::wrong::takes_twice() {
                engine.absorb(record);
            }
        });
    }
}
