//! The cluster as this node sees it.

use std::collections::{BTreeMap, BTreeSet};

use unisono_api::dto::{
    CheckpointInfo, ClusterInfo, FeedInfo, FeedState, LaneInfo, NodeInfo, Readiness, Role,
};
use unisono_engine::row::{Incarnation, StreamId, StreamKind};
use unisono_engine::spec::Timestamp;
use unisono_engine::timestamp;
use unisono_replication::View;
use unisono_replication::command::FeedId;

use super::config;
use crate::core::{Agreed, Core};
use crate::ids::key_of;
use crate::status::NodeStatus;

pub(super) fn info(core: &Core) -> ClusterInfo {
    let view = core.replica.view().borrow().clone();
    let drifts = config::drifts(core);
    let agreed = core.agreed();
    let last = agreed
        .machine
        .feeds()
        .values()
        .filter_map(|feed| feed.agreed_ms)
        .max();
    let ticks = agreed.machine.feeds().values().map(|feed| feed.ticks).max();
    ClusterInfo {
        cluster: agreed.machine.cluster().map(|id| format!("{id:032x}")),
        members: config::members(&view),
        sinks: config::sinks(core, &agreed),
        drifts,
        waiting: config::waiting(core, &view),
        removed: agreed.machine.removed().iter().cloned().collect(),
        node: u64::from(core.config.node.id),
        role: own_role(&view),
        nodes: nodes(core, &view),
        term: view.term,
        leader: view.leader.map(u64::from),
        tick: ticks.filter(|&ticks| ticks > 0),
        agreed_time: last.map(|last| timestamp::format(Timestamp(last))),
        lanes: lanes(&agreed),
        frontier: frontier(&agreed),
        feeds: feeds(&agreed),
        checkpoint: (view.snapshot > 0).then_some(CheckpointInfo {
            index: view.snapshot,
        }),
    }
}

pub(super) fn readiness(core: &Core) -> Readiness {
    let view = core.replica.view().borrow().clone();
    let missing = config::missing(core, &view);
    let agreed = core.agreed();
    let mut reasons = Vec::new();
    if view.leader.is_none() {
        reasons.push("no leader is known".to_owned());
    }
    reasons.extend(missing);
    reasons.extend(config::sink_troubles(core));
    for feed in feeds(&agreed) {
        if let FeedState::Stopped { error } = feed.state {
            reasons.push(format!("feed {} is stopped: {error}", feed.name));
        }
    }
    for feed in agreed.feeds.values() {
        reasons.extend(
            feed.fetchers()
                .iter()
                .filter_map(|fetcher| fetcher.state().trouble),
        );
        // A lane that cannot be read holds its feed back when a tick wants more of it.
        let faults = feed.lanes().into_iter().filter_map(|lane| lane.fault());
        for fault in faults {
            if !reasons.iter().any(|reason| reason.contains(&fault)) {
                reasons.push(fault);
            }
        }
    }
    Readiness {
        ready: reasons.is_empty(),
        reasons,
    }
}

fn own_role(view: &View) -> Role {
    match view.role {
        unisono_replication::Role::Leader => Role::Leader,
        unisono_replication::Role::Follower => Role::Follower,
        unisono_replication::Role::Candidate => Role::Candidate,
        unisono_replication::Role::Learner => Role::Learner,
    }
}

fn nodes(core: &Core, view: &View) -> Vec<NodeInfo> {
    let peers = core.replica.peers();
    let own = core.config.node.id;
    let indexes: BTreeMap<u16, u64> = peers
        .iter()
        .filter(|peer| peer.received.elapsed() < crate::status::FRESH)
        .filter_map(|peer| Some((peer.number, NodeStatus::decode(&peer.status)?.applied)))
        .chain([(own, view.applied)])
        .collect();
    let front = indexes.values().copied().max().unwrap_or(0);
    let node = |&number: &u16| {
        let role = match () {
            () if number == own => own_role(view),
            () if view.leader == Some(number) => Role::Leader,
            () if view.learners.contains(&number) => Role::Learner,
            () if view.voters.contains(&number) && indexes.contains_key(&number) => Role::Follower,
            () => Role::Unknown,
        };
        NodeInfo {
            id: u64::from(number),
            address: core
                .config
                .cluster
                .http_peers
                .get(&number)
                .cloned()
                .unwrap_or_default(),
            role,
            voter: view.voters.contains(&number),
            lag: indexes.get(&number).map(|&index| front - index),
        }
    };
    let named = core.config.cluster.peers.keys();
    let members = view.voters.iter().chain(&view.learners);
    let all: BTreeSet<&u16> = named.chain(members).collect();
    all.into_iter().map(node).collect()
}

fn lanes(agreed: &Agreed) -> Vec<LaneInfo> {
    let mut lanes = Vec::new();
    for (&id, feed) in agreed.machine.feeds() {
        let buffers = agreed
            .feeds
            .get(&id)
            .map(|feed| feed.lanes())
            .unwrap_or_default();
        for (index, lane) in feed.lanes.iter().enumerate() {
            if lane.retired {
                continue;
            }
            let buffer = buffers.get(index);
            let trouble = buffer.and_then(|buffer| buffer.fault());
            // Of a lane that cannot be read nobody knows the end.
            let readable = buffer.filter(|_| trouble.is_none());
            let end = readable.map(|buffer| buffer.level().1.max(lane.cut));
            lanes.push(LaneInfo {
                feed: feed_name(agreed, id),
                source: feed.sources[lane.source as usize].name.clone(),
                lane: lane.name.clone(),
                position: lane.cut,
                end,
                lag: end.map(|end| end - lane.cut),
                watermark: None,
                trouble,
            });
        }
    }
    lanes
}

fn frontier(agreed: &Agreed) -> BTreeMap<String, Option<u64>> {
    let of = |(&incarnation, pipeline): (&u64, &unisono_replication::machine::Pipeline)| {
        let stream = StreamId {
            incarnation: Incarnation(incarnation),
            kind: StreamKind::Rows,
        };
        let next = agreed.machine.frontier(key_of(stream));
        (pipeline.name.clone(), (next > 0).then_some(next))
    };
    agreed.machine.pipelines().iter().map(of).collect()
}

fn feeds(agreed: &Agreed) -> Vec<FeedInfo> {
    let info = |&id: &FeedId| {
        let stopped = agreed
            .refused
            .get(&id)
            .cloned()
            .or_else(|| agreed.feeds.get(&id).and_then(|feed| feed.status().stopped));
        let state = stopped.map_or(FeedState::Running, |error| FeedState::Stopped { error });
        FeedInfo {
            name: feed_name(agreed, id),
            state,
        }
    };
    agreed.machine.feeds().keys().map(info).collect()
}

/// A feed is called by the sources that it reads, and its number in the log.
fn feed_name(agreed: &Agreed, id: FeedId) -> String {
    let sources = agreed.machine.feeds()[&id].sources.iter();
    let names: Vec<_> = sources.map(|source| source.name.as_str()).collect();
    format!("{}#{}", names.join("+"), id.0)
}
