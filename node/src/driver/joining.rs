//! A feed whose pipelines go on in another one.

use std::sync::Arc;

use unisono_replication::command::FeedId;

use super::Driver;
use crate::feed::FeedPlan;

impl Driver {
    /// Both feeds get to this entry by themselves: the driver does not wait for them.
    pub(super) fn join_feeds(&mut self, from: FeedId, into: FeedId) {
        let mut agreed = self.core.agreed_mut();
        let leaves = agreed.feeds.remove(&from);
        let refused = agreed.refused.remove(&from);
        agreed.ticked.remove(&from);
        self.created.remove(&from);
        let stays = agreed.feeds.get(&into).map(Arc::clone);
        let plan = FeedPlan::new(&agreed.machine, into, &self.core.config);
        drop(agreed);
        let unfit = match (&plan, refused) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), Some(reason)) => Some(format!(
                "feed {}, whose pipelines go on in this one, does not run here: {reason}",
                from.0
            )),
            (Ok(_), None) => None,
        };
        match (stays, &leaves, plan, unfit) {
            (Some(stays), Some(leaves), Ok(plan), None) => {
                stays.join(self.position.index, leaves, plan)
            }
            // If the feed that stays is refused here, it says why already.
            (stays, leaves, _, unfit) => {
                if let Some((stays, reason)) = stays.zip(unfit) {
                    stays.stop(reason);
                }
                if let Some(leaves) = leaves {
                    drop(leaves.leave());
                }
            }
        }
        self.leaving.extend(leaves);
    }
}
