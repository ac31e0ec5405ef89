//! Two feeds of the same sources that become one. Both have taken in the same of each lane when the entry comes, so nothing
//! but their engines, the decoders and the definitions changes: the feed that stays goes on with its own readers.
//!
//! The feed that stays waits until the other one is there too, which takes as long as that is behind on this replica; other
//! feeds go on meanwhile. State is copied once, so for a moment the pipelines' groups are in memory twice.

use std::sync::Arc;
use std::time::Duration;

use unisono_engine::FeedEngine;
use unisono_engine::row::Incarnation;
use unisono_engine::spec::PipelineSpec;
use unisono_replication::command::FeedId;
use unisono_replication::rt::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use super::runner::{Halt, Runner};
use super::{Feed, FeedCheckpoint, FeedPlan, Message, Shared};
use crate::definition::FieldSet;
use crate::ingest::SourceFetcher;
use crate::threads::Thread;
use crate::threads::lock;

/// How often a feed that waits for another looks whether it is being dropped.
const LOOK: Duration = Duration::from_millis(50);

/// The pipelines of another feed, on their way.
pub(super) struct Join {
    other: FeedId,
    /// Fails if the other feed is stopped.
    state: Receiver<FeedCheckpoint>,
    shared: Arc<Shared>,
    /// Of the joint feed.
    specs: Vec<(Incarnation, PipelineSpec)>,
    fields: FieldSet,
}

impl Feed {
    /// After all that was handed over to both so far, the other feed's pipelines go on here, as `plan` has the joint feed,
    /// and the other one ends. If it is stopped, this one stops.
    pub fn join(&self, index: u64, other: &Self, plan: FeedPlan) {
        let known = other.status().pipelines;
        lock(&self.shared.status).pipelines.extend(known);
        self.decode(&plan.fields);
        let join = Join {
            other: other.id,
            state: other.leave(),
            shared: Arc::clone(&other.shared),
            specs: plan.specs,
            fields: plan.fields,
        };
        self.send(index, Message::Join(Box::new(join)));
    }

    /// Ends the feed after all that was handed over; gives its state there, unless it is stopped.
    pub fn leave(&self) -> Receiver<FeedCheckpoint> {
        let (sender, receiver) = sync_channel(1);
        self.send(0, Message::Leave(sender));
        receiver
    }

    /// Stops the feed after all that was handed over.
    pub fn stop(&self, reason: String) {
        self.send(0, Message::Stop(reason));
    }

    /// Whether a feed that was told to leave has gone, its readers too: it can be dropped without waiting.
    pub fn has_left(&self) -> bool {
        let has_ended = self.thread.as_ref().is_none_or(Thread::is_finished);
        has_ended
            && self
                .fetchers
                .iter()
                .map(SourceFetcher::end)
                .fold(true, |all, has| all & has)
    }
}

impl Runner {
    pub(super) fn join(&mut self, join: Join) -> Result<(), Halt> {
        self.write_rows()?;
        let other = self.wait_for(&join)?;
        // The state of before is still there.
        let mut room = self.room.another();
        let joint = FeedEngine::join(&self.snapshot(), &other.snapshot, join.specs, &mut |lane| {
            room.keep_within(None, &mut [lane])
        });
        let (engine, engines) = joint.map_err(|error| {
            Halt::Fault(format!(
                "feed {} cannot join this one: {error}",
                join.other.0
            ))
        })?;
        for (lane, engine) in self.lanes.iter().zip(engines) {
            lane.lock().replace(engine, &join.fields);
        }
        self.engine = engine;
        self.update_status();
        tracing::info!(feed = self.id.0, other = join.other.0, "feeds joined");
        Ok(())
    }

    fn wait_for(&self, join: &Join) -> Result<FeedCheckpoint, Halt> {
        loop {
            match join.state.recv_timeout(LOOK) {
                Ok(state) => return Ok(state),
                Err(RecvTimeoutError::Timeout) if self.gate.is_abandoned() => {
                    return Err(Halt::Asked);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let stopped = lock(&join.shared.status).stopped.clone();
                    let why = stopped.unwrap_or_else(|| "it was ended".to_owned());
                    let other = join.other.0;
                    return Err(Halt::Fault(format!(
                        "feed {other}, whose pipelines go on in this one, is stopped: {why}"
                    )));
                }
            }
        }
    }
}
