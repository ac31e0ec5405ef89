//! Who belongs to the cluster: how it begins, and how a node with a new disk takes its old place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::BasicNode;
use openraft::async_runtime::WatchReceiver;

use super::types::Raft;
use crate::gossip::Gossip;
use crate::identity::number_of;

/// How often members are looked at.
const EVERY: Duration = Duration::from_millis(100);
/// A learner that lacks no more entries than this votes.
const CAUGHT_UP: u64 = 100;

pub(crate) struct Members {
    pub(crate) raft: Raft,
    pub(crate) number: u16,
    pub(crate) node_id: u64,
    pub(crate) peers: Arc<BTreeMap<u16, String>>,
    pub(crate) gossip: Arc<Gossip>,
}

impl Members {
    /// Looks after the members for as long as the replica runs.
    pub(crate) async fn run(self) {
        let mut initialized = false;
        loop {
            if initialized {
                self.reconcile().await;
            } else {
                // Once it is, it stays so: Raft need not be asked again and again.
                match self.raft.is_initialized().await {
                    Ok(true) => {
                        initialized = true;
                        self.gossip.set_in_cluster();
                    }
                    Ok(false) => self.begin().await,
                    Err(_) => return,
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Makes the cluster, if this is the lowest of the configured nodes, all were heard of, and none has one.
    async fn begin(&self) {
        let heard = self.gossip.fresh();
        let others = self.peers.keys().filter(|&&number| number != self.number);
        let all_fresh = others
            .clone()
            .all(|number| heard.get(number).is_some_and(|told| !told.in_cluster));
        let lowest = self.peers.keys().next() == Some(&self.number);
        if !all_fresh || !lowest {
            return;
        }
        let mut members = BTreeMap::from([(self.node_id, self.node(self.number))]);
        for number in others {
            members.insert(heard[number].node_id, self.node(*number));
        }
        tracing::info!(nodes = members.len(), "making a new cluster");
        if let Err(error) = self.raft.initialize(members).await {
            tracing::warn!(%error, "the cluster was not made");
        }
    }

    fn node(&self, number: u16) -> BasicNode {
        BasicNode::new(self.peers.get(&number).cloned().unwrap_or_default())
    }

    /// As leader: nodes that are configured and not members become learners, and voters when they have caught up.
    async fn reconcile(&self) {
        let metrics = self.raft.metrics();
        if !metrics.borrow_watched().state.is_leader() {
            return;
        }
        let metrics = metrics.borrow_watched().clone();
        let Some(replication) = metrics.replication else {
            return;
        };
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let learners: BTreeSet<u64> = membership.learner_ids().collect();
        // One change at a time; a joint membership is a change under way.
        if membership.get_joint_config().len() > 1 {
            return;
        }
        for (number, told) in self.gossip.fresh() {
            let id = told.node_id;
            if !self.peers.contains_key(&number) || voters.contains(&id) {
                continue;
            }
            if !learners.contains(&id) {
                tracing::info!(number, "a node joins as a learner");
                if let Err(error) = self.raft.add_learner(id, self.node(number), false).await {
                    tracing::warn!(number, %error, "it was not added");
                }
                return;
            }
            let matched = replication.get(&id).and_then(|matched| matched.as_ref());
            let matched = matched.map_or(0, |matched| matched.index);
            if matched + CAUGHT_UP < metrics.last_log_index.unwrap_or(0) {
                continue;
            }
            tracing::info!(number, "the learner has caught up and votes");
            let mut next: BTreeSet<u64> = voters
                .iter()
                .copied()
                .filter(|&voter| number_of(voter) != number)
                .collect();
            next.insert(id);
            if let Err(error) = self.raft.change_membership(next, false).await {
                tracing::warn!(number, %error, "its vote was not given");
            }
            return;
        }
    }
}
