//! A pipeline that ends while others of its feed go on. It happens between two ticks, the same two on every replica.
//!
//! The lanes' states are made anew without it: what it shared with others, such as the numbers of groups, is theirs alone then.

use unisono_engine::FeedEngine;
use unisono_engine::row::Incarnation;
use unisono_engine::spec::PipelineSpec;

use super::runner::{Halt, Runner};
use super::{Feed, FeedPlan, Message};
use crate::definition::FieldSet;
use crate::threads::lock;

/// A pipeline that ends.
pub(super) struct Remove {
    incarnation: Incarnation,
    /// Of the feed without it.
    specs: Vec<(Incarnation, PipelineSpec)>,
    fields: FieldSet,
}

impl Feed {
    /// After all that was handed over so far, the pipeline is no more; `plan` is the feed without it.
    pub fn remove(&self, index: u64, incarnation: Incarnation, plan: FeedPlan) {
        self.decode(&plan.fields);
        let remove = Remove {
            incarnation,
            specs: plan.specs,
            fields: plan.fields,
        };
        self.send(index, Message::Remove(Box::new(remove)));
    }

    /// Ends the feed, whose pipelines are no more, without waiting for records that it lacks: see [`Self::has_left`].
    pub fn abandon(&self) {
        self.gate.abandon();
        drop(self.leave());
    }
}

impl Runner {
    pub(super) fn remove(&mut self, remove: Remove) -> Result<(), Halt> {
        self.write_rows()?;
        let incarnation = remove.incarnation;
        // The state of before is still there.
        let mut room = self.room.another();
        let rest = FeedEngine::without(self.snapshot(), incarnation, remove.specs, &mut |lane| {
            room.keep_within(None, &mut [lane])
        });
        let (engine, engines) = rest.map_err(|error| {
            Halt::Fault(format!(
                "pipeline {} cannot be removed: {error}",
                incarnation.0
            ))
        })?;
        for (lane, engine) in self.lanes.iter().zip(engines) {
            lane.lock().replace(engine, &remove.fields);
        }
        self.engine = engine;
        lock(&self.shared.status).pipelines.remove(&incarnation);
        tracing::info!(
            feed = self.id.0,
            incarnation = incarnation.0,
            "pipeline removed"
        );
        Ok(())
    }
}
