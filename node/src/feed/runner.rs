//! The loop of a feed's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use unisono_engine::record::RecordBatch;
use unisono_engine::row::{Incarnation, StreamId, StreamKind};
use unisono_engine::spec::{LaneId, Timestamp};
use unisono_replication::command::FeedId;
use unisono_replication::machine::AcceptedTick;

use super::{FeedCheckpoint, Hooks, Message, Shared, StreamHead, lock};
use crate::decode::Decoder;
use crate::ingest::{LaneBuffer, Part, TakeError};
use crate::results::{ResultsError, ResultsLog};

/// How often a thread that waits for records looks whether it should stop.
const PATIENCE: Duration = Duration::from_millis(100);

pub(super) struct Runner {
    pub(super) id: FeedId,
    pub(super) incarnations: Vec<Incarnation>,
    pub(super) decoder: Decoder,
    pub(super) lanes: Vec<Arc<LaneBuffer>>,
    pub(super) results: ResultsLog,
    pub(super) hooks: Hooks,
    pub(super) shared: Arc<Shared>,
}

/// Why a tick was not taken in.
enum Halt {
    /// The feed is being dropped.
    Asked,
    /// For the operator.
    Fault(String),
    /// The process ends with this reason, which is told at its end.
    Fatal(String),
}

impl Runner {
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        self.update_status();
        while let Ok(message) = messages.recv() {
            match message {
                Message::AddLane { label, buffer } => {
                    lock(&self.shared.engine).add_lane(label);
                    self.lanes.push(buffer);
                }
                Message::Tick(tick) => match self.tick(&tick) {
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
                },
                Message::Checkpoint(reply) => {
                    match self.checkpoint() {
                        // Whoever asked may have given up waiting.
                        Ok(checkpoint) => drop(reply.send(checkpoint)),
                        Err(error) => tracing::error!(%error, "no checkpoint"),
                    }
                }
            }
        }
    }

    /// A stopped feed takes nothing in and gives no checkpoint: its state stays that of its last good tick, and the log
    /// is kept from there on. Other feeds go on.
    fn stand_still(&self, reason: String, messages: &Receiver<Message>) {
        lock(&self.shared.status).stopped = Some(reason);
        while messages.recv().is_ok() {}
    }

    fn tick(&mut self, tick: &AcceptedTick) -> Result<(), Halt> {
        // All records first: the engine is not held while a lane is waited for.
        let mut taken = Vec::with_capacity(tick.moves.len());
        for step in &tick.moves {
            let lane = &self.lanes[step.lane as usize];
            let parts = self.take(lane, step.from, step.to, step.fingerprint)?;
            taken.push((LaneId(step.lane), self.decode(&parts)));
        }
        let at_end: Vec<LaneId> = tick.at_end.iter().copied().map(LaneId).collect();
        let outputs = {
            let mut engine = lock(&self.shared.engine);
            let mut open = engine.begin(Some(Timestamp(tick.agreed_ms)));
            for (lane, batch) in &taken {
                open.absorb(*lane, batch, 0..batch.len());
            }
            open.close(&at_end)
        };
        for output in &outputs {
            self.results
                .append(output)
                .map_err(|error| Self::judge(&error))?;
        }
        self.update_status();
        self.shared.ticks.fetch_add(1, Ordering::Relaxed);
        if !outputs.is_empty() {
            (self.hooks.rows_ready)();
        }
        Ok(())
    }

    fn decode(&self, parts: &[Part]) -> RecordBatch {
        let mut batch = self.decoder.new_batch();
        for (block, range) in parts {
            for record in range.clone().map(|index| block.record(index)) {
                let append_time = record.append_time_ms.map(Timestamp);
                self.decoder
                    .decode_into(&mut batch, record.offset, append_time, record.payload);
            }
        }
        batch
    }

    fn judge(error: &ResultsError) -> Halt {
        match error {
            // A full disk: nothing can be kept any more, but all of it comes back from the log after a restart.
            ResultsError::Io { .. } => Halt::Fatal(error.to_string()),
            _ => Halt::Fault(error.to_string()),
        }
    }

    fn take(
        &self,
        lane: &LaneBuffer,
        from: i64,
        to: i64,
        fingerprint: u64,
    ) -> Result<Vec<Part>, Halt> {
        loop {
            match lane.take(from, to, fingerprint, PATIENCE) {
                Ok(parts) => return Ok(parts),
                Err(TakeError::NotYet) if self.shared.stop.load(Ordering::Relaxed) => {
                    return Err(Halt::Asked);
                }
                Err(TakeError::NotYet) => {}
                Err(error) => {
                    return Err(Halt::Fault(error.to_string()));
                }
            }
        }
    }

    fn checkpoint(&self) -> Result<FeedCheckpoint, ResultsError> {
        let engine = lock(&self.shared.engine);
        let mut heads = Vec::new();
        for stats in self
            .incarnations
            .iter()
            .filter_map(|&id| Some((id, engine.stats(id)?)))
        {
            let (incarnation, stats) = stats;
            // The engine's numbers, not the log's: while ticks are replayed, the log is ahead.
            for (kind, next) in [
                (StreamKind::Rows, stats.next_row_seq),
                (StreamKind::DeadLetters, stats.next_dead_letter_seq),
            ] {
                let stream = StreamId { incarnation, kind };
                let digest = self
                    .results
                    .digest_before(stream, next)?
                    .unwrap_or_default();
                heads.push(StreamHead {
                    stream,
                    next,
                    digest,
                });
            }
        }
        Ok(FeedCheckpoint {
            engine: engine.checkpoint(),
            heads,
        })
    }

    fn update_status(&self) {
        let engine = lock(&self.shared.engine);
        let stats = self.incarnations.iter();
        let stats = stats
            .filter_map(|&id| engine.stats(id).map(|stats| (id, stats)))
            .collect();
        drop(engine);
        lock(&self.shared.status).pipelines = stats;
    }
}
