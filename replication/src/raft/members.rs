//! Who belongs to the cluster: how it begins, how a node with a new disk takes its old place, and how one goes.
//!
//! Raft's membership is the agreed list of members. A change of voters has two steps, and whoever leads completes what another
//! leader left between them: in a joint membership both the old and the new voters must agree, so it must not last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::async_runtime::WatchReceiver;
use openraft::{BasicNode, ChangeMembers};
use tokio::sync::Mutex;

use super::types::Raft;
use crate::error::RemoveError;
use crate::gossip::{Gossip, Told};
use crate::identity::number_of;
use crate::rt;

/// How often members are looked at.
const EVERY: Duration = Duration::from_millis(100);
/// A learner that lacks no more entries than this votes.
const CAUGHT_UP: u64 = 100;
/// How long a change of members that somebody waits for may take.
const CHANGE: Duration = Duration::from_secs(10);

pub(crate) struct Members {
    pub(crate) raft: Raft,
    pub(crate) number: u16,
    pub(crate) node_id: u64,
    pub(crate) peers: Arc<BTreeMap<u16, String>>,
    pub(crate) gossip: Arc<Gossip>,
    /// A learner that is not heard for so long is removed.
    pub(crate) forget_learners: Duration,
    /// Held through every change: one at a time.
    pub(crate) changing: Arc<Mutex<()>>,
    /// As leader: when each learner was heard last, or first looked at.
    pub(crate) heard: BTreeMap<u64, Instant>,
}

impl Members {
    /// Looks after the members for as long as the replica runs.
    pub(crate) async fn run(mut self) {
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
            rt::sleep(EVERY).await;
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

    /// As leader: a change that was left half done is completed; nodes that are configured and not members become learners,
    /// and voters when they have caught up; learners that never came go.
    async fn reconcile(&mut self) {
        let metrics = self.raft.metrics();
        if !metrics.borrow_watched().state.is_leader() {
            self.heard.clear();
            return;
        }
        let changing = Arc::clone(&self.changing);
        let Ok(_changing) = changing.try_lock() else {
            return;
        };
        let metrics = metrics.borrow_watched().clone();
        let Some(replication) = metrics.replication else {
            return;
        };
        let membership = metrics.membership_config.membership();
        if membership.get_joint_config().len() > 1 {
            return complete(&self.raft).await;
        }
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let learners: BTreeSet<u64> = membership.learner_ids().collect();
        let fresh = self.gossip.fresh();
        if let Some(gone) = self.gone(&learners, &fresh) {
            return forget(&self.raft, gone).await;
        }
        for (number, told) in fresh {
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

    /// A learner that was not heard for long: it never came, or its disk was wiped again since.
    fn gone(&mut self, learners: &BTreeSet<u64>, fresh: &BTreeMap<u16, Told>) -> Option<u64> {
        let now = rt::now();
        self.heard.retain(|id, _| learners.contains(id));
        for &id in learners {
            let is_heard = fresh
                .get(&number_of(id))
                .is_some_and(|told| told.node_id == id);
            let heard = self.heard.entry(id).or_insert(now);
            if is_heard {
                *heard = now;
            }
        }
        let silent = |heard: &Instant| now.duration_since(*heard) >= self.forget_learners;
        let mut gone = self.heard.iter().filter(|(_, heard)| silent(heard));
        gone.next().map(|(&id, _)| id)
    }
}

/// Raft completes a change of voters only in the leader that began it.
async fn complete(raft: &Raft) {
    tracing::info!("completing a change of voters that was left half done");
    let nobody = ChangeMembers::AddVoterIds(BTreeSet::new());
    if let Err(error) = raft.change_membership(nobody, false).await {
        // Its first half is not committed yet, or the lead is lost.
        tracing::debug!(%error, "not completed yet");
    }
}

async fn forget(raft: &Raft, id: u64) {
    let number = number_of(id);
    tracing::info!(number, "a learner that is not heard of is removed");
    let gone = ChangeMembers::RemoveNodes(BTreeSet::from([id]));
    if let Err(error) = raft.change_membership(gone, false).await {
        tracing::warn!(number, %error, "it was not removed");
    }
}

/// As leader: takes a number out of the members, whatever its nodes are.
pub(crate) async fn remove(
    raft: &Raft,
    changing: &Mutex<()>,
    number: u16,
) -> Result<(), RemoveError> {
    let change = async {
        let _changing = changing.lock().await;
        remove_now(raft, number).await
    };
    let timed_out = |_| RemoveError::Unknown("it was not committed in time".to_owned());
    rt::timeout(CHANGE, change).await.map_err(timed_out)?
}

async fn remove_now(raft: &Raft, number: u16) -> Result<(), RemoveError> {
    let metrics = raft.metrics().borrow_watched().clone();
    if !metrics.state.is_leader() {
        let leader = metrics.current_leader.map(number_of);
        return Err(RemoveError::NotLeader { leader });
    }
    let membership = metrics.membership_config.membership();
    if membership.get_joint_config().len() > 1 {
        return Err(RemoveError::Changing);
    }
    let of_number = |ids: BTreeSet<u64>| {
        ids.into_iter()
            .partition::<BTreeSet<u64>, _>(|&id| number_of(id) == number)
    };
    let (voters, others) = of_number(membership.voter_ids().collect());
    let (learners, _) = of_number(membership.learner_ids().collect());
    if voters.is_empty() && learners.is_empty() {
        return Err(RemoveError::NoMember { number });
    }
    let unknown = |error: &dyn std::fmt::Display| RemoveError::Unknown(error.to_string());
    if !voters.is_empty() {
        if others.is_empty() {
            return Err(RemoveError::LastVoter { number });
        }
        let changed = raft.change_membership(others, false).await;
        changed.map_err(|error| unknown(&error))?;
    }
    if !learners.is_empty() {
        let gone = ChangeMembers::RemoveNodes(learners);
        let changed = raft.change_membership(gone, false).await;
        changed.map_err(|error| unknown(&error))?;
    }
    tracing::info!(number, "a member was removed by an operator");
    Ok(())
}

#[cfg(test)]
mod tests;
