//! To whom a leader can give the lead, and how it does.

use std::collections::BTreeSet;

use openraft::async_runtime::WatchReceiver;

use super::{HAND_OVER, Inner, NEARLY};
use crate::error::HandOverError;
use crate::identity::number_of;
use crate::raft::types::{LogId, index_of};
use crate::rt;

impl Inner {
    /// Who of the voters has made durable what this replica, which leads, has not: its disk is at fault then, and not all.
    pub(crate) fn durable_elsewhere(&self) -> BTreeSet<u16> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let (Some(first), Some(replication)) = (self.log.first_unwritten(), metrics.replication)
        else {
            return BTreeSet::new();
        };
        let own = self.log.node_id();
        let has = |matched: Option<&LogId>| matched.is_some_and(|matched| matched.index >= first);
        let others = replication.iter().filter(|&(&id, _)| id != own);
        let durable = others.filter(|(_, matched)| has(matched.as_ref()));
        durable.map(|(&id, _)| number_of(id)).collect()
    }

    /// To the one of `preferred` that comes first, if any are named, and else to the voter that lacks least.
    pub(crate) async fn hand_over(&self, preferred: &[u16]) -> Result<(), HandOverError> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let Some(replication) = metrics.replication.filter(|_| metrics.state.is_leader()) else {
            return Err(HandOverError::NotLeader);
        };
        let heard = self.gossip.fresh();
        let voters = metrics.membership_config.membership().voter_ids();
        let is_there = |id: u64| heard.get(&number_of(id)).map(|told| told.node_id) == Some(id);
        let mut candidates = voters.filter(|&id| is_there(id)).collect::<Vec<_>>();
        candidates.sort_by_key(|id| std::cmp::Reverse(replication.get(id).copied().flatten()));
        let to = if preferred.is_empty() {
            candidates.first().copied()
        } else {
            let last = metrics.last_log_index.unwrap_or(0);
            let follows = |id: &u64| {
                let held = replication.get(id).copied().flatten();
                index_of(held.as_ref()) + NEARLY >= last
            };
            let follows = candidates.iter().filter(|id| follows(id));
            let rank = |id: u64| preferred.iter().position(|&it| it == number_of(id));
            follows
                .filter_map(|&id| Some((rank(id)?, id)))
                .min()
                .map(|(_, id)| id)
        };
        let to = to.ok_or(HandOverError::NoCandidate)?;
        let asked = self.raft.trigger().transfer_leader(to).await;
        asked.map_err(|_| HandOverError::Shutdown)?;
        let number = self.view.borrow().number;
        let mut view = self.view.clone();
        let moved = view.wait_for(|view| view.leader.is_some_and(|leader| leader != number));
        match rt::timeout(HAND_OVER, moved).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(HandOverError::Shutdown),
            Err(_) => Err(HandOverError::TimedOut { to: number_of(to) }),
        }
    }
}
