//! A pipeline that ends, and with the last one its feed.

use unisono_engine::row::Incarnation;
use unisono_replication::command::FeedId;

use super::Driver;
use crate::feed::FeedPlan;

impl Driver {
    /// The feed gets to this entry by itself: the driver does not wait for it.
    pub(super) fn remove_pipeline(&mut self, incarnation: u64, id: FeedId) {
        let mut agreed = self.core.agreed_mut();
        agreed.read_definitions();
        if agreed.machine.feeds().contains_key(&id) {
            // One that has not started yet starts without it.
            if let Some(feed) = agreed.feeds.get(&id) {
                match FeedPlan::new(&agreed.machine, id, &self.core.config) {
                    Ok(plan) => feed.remove(self.position.index, Incarnation(incarnation), plan),
                    Err(error) => feed.stop(error.to_string()),
                }
            }
        } else {
            self.created.remove(&id);
            self.pending.remove(&id);
            agreed.refused.remove(&id);
            agreed.ticked.remove(&id);
            let ended = agreed.feeds.remove(&id);
            if let Some(feed) = &ended {
                feed.abandon();
            }
            self.leaving.extend(ended);
        }
        drop(agreed);
        self.core.notify();
    }
}
