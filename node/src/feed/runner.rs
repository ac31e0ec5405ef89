//! The loop of a feed's thread.
//!
//! A tick has three steps: its lanes take in their records, at their workers; with all of them there, the engine settles
//! what closes; then the lanes get the next tick's records to take in, if it has come, while the rows are written here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unisono_engine::row::{RowRef, StreamId, StreamKind};
use unisono_engine::spec::{LaneId, Timestamp};
use unisono_engine::{FeedEngine, FeedSnapshot, LaneEngine, Settled, TickEnd};
use unisono_replication::command::FeedId;
use unisono_replication::machine::AcceptedTick;
use unisono_replication::rt::mpsc::{Receiver, TryRecvError};

use super::barrier::Standing;
use super::gate::Gate;
use super::rows::RowBatch;
use super::{Diverged, FeedCheckpoint, Handed, Hooks, Message, Shared, StreamHead};
use crate::ingest::{FoldLane, LaneStep};
use crate::results::{ResultsError, ResultsLog};
use crate::room::FeedRoom;
use crate::threads::{Role, lock, test_panic};

pub(super) struct Runner {
    pub(super) id: FeedId,
    pub(super) engine: FeedEngine,
    pub(super) lanes: Vec<Arc<FoldLane>>,
    pub(super) gate: Arc<Gate>,
    pub(super) results: ResultsLog,
    pub(super) hooks: Hooks,
    pub(super) shared: Arc<Shared>,
    pub(super) room: FeedRoom,
    /// What the last tick closed, while its rows are not written.
    pub(super) settled: Option<Settled>,
    /// Up to which entry of the agreed log all is taken in.
    pub(super) index: u64,
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.refuse_all();
    }
}

/// Why a tick was not taken in.
pub(super) enum Halt {
    /// The feed is being dropped.
    Asked,
    /// For the operator.
    Fault(String),
    /// The process ends with this reason, which is told at its end.
    Fatal(String),
}

impl Runner {
    pub(super) fn run(mut self, messages: &Receiver<Handed>) {
        self.update_status();
        loop {
            let served = match messages.try_recv() {
                Ok(handed) => self.serve(handed),
                // Nothing to do at the same time: the rows now, then wait.
                Err(TryRecvError::Empty) => match self.write_rows() {
                    Ok(()) => match messages.recv() {
                        Ok(handed) => self.serve(handed),
                        Err(_) => return,
                    },
                    Err(halt) => Err(halt),
                },
                Err(TryRecvError::Disconnected) => return,
            };
            match served {
                Ok(()) => {}
                Err(Halt::Asked) => return,
                Err(Halt::Fault(reason)) => {
                    tracing::error!(feed = self.id.0, reason, "feed stopped");
                    return self.stand_still(reason, messages);
                }
                Err(Halt::Fatal(reason)) => {
                    (self.hooks.fatal)(reason.clone());
                    return self.stand_still(reason, messages);
                }
            }
        }
    }

    fn serve(&mut self, handed: Handed) -> Result<(), Halt> {
        match handed.message {
            Message::Tick(tick) => self.tick(&tick)?,
            Message::AddLane(add) => {
                self.write_rows()?;
                let (id, engine) = self.engine.add_lane(add.label);
                let lane = (add.lane)(id, engine, &self.gate);
                self.lanes.push(lane);
            }
            Message::RetireLane(lane, leave) => {
                self.write_rows()?;
                self.engine.retire_lane(lane);
                leave();
            }
            Message::Checkpoint(reply) => {
                self.write_rows()?;
                self.index = self.index.max(handed.index);
                // Whoever asked may have given up waiting.
                let _ = reply.send(self.checkpoint());
            }
            Message::Look => {}
            Message::Leave(reply) => {
                self.write_rows()?;
                // Nobody may want it: the other feed does not run here.
                let _ = reply.send(self.checkpoint());
                self.shared.refuse_all();
                return Err(Halt::Asked);
            }
            Message::Join(join) => self.join(*join)?,
            Message::Remove(remove) => self.remove(*remove)?,
            Message::GoOn(go_on) => self.go_on(&go_on)?,
            Message::Stop(reason) => return Err(Halt::Fault(reason)),
        }
        self.index = self.index.max(handed.index);
        self.shared.index.store(self.index, Ordering::Relaxed);
        self.answer_looks();
        self.answer_saves()
    }

    /// A stopped feed takes nothing in and gives no state: a tick may have been taken in by half. What a checkpoint has of
    /// it is what the one before had. Other feeds go on.
    fn stand_still(&self, reason: String, messages: &Receiver<Handed>) {
        lock(&self.shared.status).stopped = Some(reason);
        self.shared.queue.end();
        self.shared.refuse_all();
        while let Ok(handed) = messages.recv() {
            self.shared.refuse_all();
            if matches!(handed.message, Message::Leave(_)) {
                return;
            }
        }
    }

    fn tick(&mut self, tick: &AcceptedTick) -> Result<(), Halt> {
        test_panic(Role::Feed);
        let moved = tick.moves.iter().map(|step| step.lane);
        self.gate.begin(moved);
        for step in &tick.moves {
            self.lanes[step.lane as usize].fold(LaneStep {
                clock: Timestamp(tick.clock_ms),
                from: step.from,
                to: step.to,
                fingerprint: step.fingerprint,
            });
        }
        // The rows of the tick before, while the workers are busy with this one.
        self.write_rows()?;
        match self.gate.wait() {
            None | Some(Standing::Waiting) => return Err(Halt::Asked),
            Some(Standing::Failed(error)) => return Err(Halt::Fault(error.to_string())),
            Some(Standing::Complete) => {}
        }
        for &(lane, hole) in &tick.holes {
            self.lanes[lane as usize].set_hole(hole);
        }
        let at_end: Vec<LaneId> = tick.at_end.iter().copied().map(LaneId).collect();
        let end = TickEnd {
            agreed: Some(Timestamp(tick.agreed_ms)),
            at_end: &at_end,
        };
        let (settled, observed, kept) = with_lanes(&self.lanes, |lanes| {
            let settled = self.engine.settle(lanes, end);
            let pipelines = self.engine.incarnations().into_iter();
            let observed = pipelines.map(|id| (id, self.engine.observed(id, lanes)));
            let observed = observed.collect::<Vec<_>>();
            let kept = self.room.keep_within(Some(&mut self.engine), lanes);
            (settled, observed, kept)
        });
        // All of it comes back from the log after a restart.
        kept.map_err(|error| Halt::Fatal(error.to_string()))?;
        lock(&self.shared.status).observed.extend(observed);
        if !settled.is_empty() {
            self.settled = Some(settled);
        }
        self.update_status();
        self.look_out();
        self.shared.ticks.fetch_add(1, Ordering::Relaxed);
        self.shared.queue.leave();
        Ok(())
    }

    /// Writes the rows of the last tick, if that is still to be done.
    pub(super) fn write_rows(&mut self) -> Result<(), Halt> {
        let Some(settled) = self.settled.take() else {
            return Ok(());
        };
        let mut batch = RowBatch::new(&self.results);
        let mut emit = |stream: StreamId, row: RowRef<'_>| batch.push(stream, &row);
        let written = self.engine.write(settled, &mut emit);
        batch.finish().map_err(|error| self.classify(&error))?;
        // What was on disk is lost with this process alone: it comes back from the log after a restart.
        written.map_err(|error| {
            Halt::Fatal(format!(
                "state that was put on disk cannot be read back: {error}"
            ))
        })?;
        self.update_status();
        (self.hooks.rows_ready)();
        Ok(())
    }

    /// Answers those who want to look at the feed. Its rows may still be on their way: what is open is not.
    fn answer_looks(&self) {
        let looks = std::mem::take(&mut *lock(&self.shared.looks));
        for look in looks {
            let _ = look.send(self.snapshot());
        }
    }

    /// Those who wait for a state to save get this one, with its rows on disk first, or on their way there.
    fn answer_saves(&mut self) -> Result<(), Halt> {
        let saves = std::mem::take(&mut *lock(&self.shared.saves));
        if saves.is_empty() {
            return Ok(());
        }
        self.write_rows()?;
        for save in saves {
            let _ = save.send(self.checkpoint());
        }
        Ok(())
    }

    pub(super) fn classify(&self, error: &ResultsError) -> Halt {
        match *error {
            // A full disk: nothing can be kept any more, but all of it comes back from the log after a restart.
            ResultsError::Io { .. } => return Halt::Fatal(error.to_string()),
            ResultsError::Diverged {
                stream,
                seq,
                computed,
            } => {
                let diverged = Diverged {
                    stream,
                    seq,
                    computed,
                };
                (self.hooks.diverged)(self.id, diverged);
            }
            _ => {}
        }
        Halt::Fault(error.to_string())
    }

    pub(super) fn snapshot(&self) -> FeedSnapshot {
        with_lanes(&self.lanes, |lanes| self.engine.snapshot(lanes))
    }

    fn checkpoint(&self) -> FeedCheckpoint {
        let snapshot = self.snapshot();
        let mut heads = Vec::new();
        for incarnation in snapshot.incarnations() {
            // The engine's numbers, not the log's: while ticks are replayed, the log is ahead.
            let Some(stats) = snapshot.stats(incarnation) else {
                continue;
            };
            let ends = [
                (StreamKind::Rows, stats.next_row_seq, stats.row_digest),
                (
                    StreamKind::DeadLetters,
                    stats.next_dead_letter_seq,
                    stats.dead_letter_digest,
                ),
            ];
            heads.extend(ends.map(|(kind, next, digest)| StreamHead {
                stream: StreamId { incarnation, kind },
                next,
                digest,
            }));
        }
        let index = self.index;
        FeedCheckpoint {
            index,
            snapshot,
            heads,
        }
    }

    pub(super) fn update_status(&self) {
        let stats = self.engine.incarnations().into_iter();
        let stats = stats.filter_map(|id| self.engine.stats(id).map(|stats| (id, stats)));
        // Those that are about to come from another feed are shown as they were there.
        let mut status = lock(&self.shared.status);
        status.pipelines.extend(stats);
        status.watermarks = self.engine.lane_watermarks();
    }
}

/// Does something with all lanes' engines; to be called between two ticks, when no worker holds one.
fn with_lanes<T>(lanes: &[Arc<FoldLane>], act: impl FnOnce(&mut [&mut LaneEngine]) -> T) -> T {
    let mut held: Vec<_> = lanes.iter().map(|lane| lane.lock()).collect();
    let mut engines: Vec<&mut LaneEngine> =
        held.iter_mut().map(|state| &mut state.engine).collect();
    act(&mut engines)
}
