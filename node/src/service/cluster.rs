//! The cluster as this node sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use unisono_api::dto::{
    CheckpointInfo, ClusterInfo, DisputeInfo, EndedInfo, FeedInfo, FeedState, LaneInfo, NodeInfo,
    PeersPortInfo, RefusedInfo, Role, SkippedInfo, StretchInfo, ToldInfo,
};
use unisono_engine::row::{Incarnation, StreamId, StreamKind};
use unisono_engine::spec::Timestamp;
use unisono_engine::timestamp;
use unisono_replication::View;
use unisono_replication::command::{Decider, FeedId};
use unisono_replication::machine::{self, Ended, Held};
use unisono_replication::rt;

use super::config;
use crate::core::{Agreed, Core};
use crate::feed::Feed;
use crate::ids::key_of;
use crate::proposer::wall_ms;
use crate::status::{self, feed_name};

pub(super) fn info(core: &Core) -> ClusterInfo {
    let view = core.replica.view().borrow().clone();
    let drifts = config::drifts(core);
    let role = own_role(core, &view);
    let known = view
        .leader
        .filter(|&leader| leader != view.number || role == Role::Leader);
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
        role,
        nodes: nodes(core, &view),
        term: view.term,
        leader: known.map(u64::from),
        tick: ticks.filter(|&ticks| ticks > 0),
        agreed_time: last.map(|last| timestamp::format(Timestamp(last))),
        lanes: lanes(&agreed),
        frontier: frontier(&agreed),
        feeds: feeds(core, &agreed),
        checkpoint: (view.snapshot > 0).then_some(CheckpointInfo {
            index: view.snapshot,
        }),
        drained: core.drained.load(Ordering::Relaxed),
        peers_port: peers_port(core),
    }
}

fn peers_port(core: &Core) -> PeersPortInfo {
    let port = core.replica.port();
    let counts = port.refused.iter();
    PeersPortInfo {
        asks_for_secret: port.asks_for_secret,
        links: port.links,
        bytes: port.bytes,
        refused: counts
            .map(|(&reason, &count)| (reason.to_owned(), count))
            .collect(),
        last_refused: port.last.map(|last| RefusedInfo {
            from: last.from.to_string(),
            reason: last.reason.to_owned(),
            message: last.text,
            seconds_ago: rt::since(last.at).as_secs(),
        }),
    }
}

fn own_role(core: &Core, view: &View) -> Role {
    let seat = status::seat(core, view);
    match view.role {
        unisono_replication::Role::Leader if seat.leads(status::contact(core)) => Role::Leader,
        // No quorum has acknowledged it of late: another one may lead.
        unisono_replication::Role::Leader => Role::Unknown,
        unisono_replication::Role::Follower => Role::Follower,
        unisono_replication::Role::Candidate => Role::Candidate,
        unisono_replication::Role::Learner => Role::Learner,
    }
}

fn nodes(core: &Core, view: &View) -> Vec<NodeInfo> {
    let own = core.config.node.id;
    let told = status::peers(core, status::FRESH).into_iter();
    let indexes: BTreeMap<u16, u64> = told
        .map(|(number, told)| (number, told.applied))
        .chain([(own, view.applied)])
        .collect();
    let front = indexes.values().copied().max().unwrap_or(0);
    let refusing = core.replica.refusing();
    let heard = core.replica.peers().into_iter();
    let ways: BTreeMap<_, _> = heard
        .filter_map(|peer| Some((peer.number, peer.round_trip?)))
        .collect();
    let node = |&number: &u16| {
        let role = match () {
            () if number == own => own_role(core, view),
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
            round_trip_us: ways
                .get(&number)
                .and_then(|way| way.as_micros().try_into().ok()),
            refuses: refusing.get(&number).cloned(),
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
        let status = agreed.feeds.get(&id).map(|feed| feed.status());
        let watermarks = status.map(|status| status.watermarks).unwrap_or_default();
        let slowest = agreed
            .feeds
            .get(&id)
            .and_then(|of| slowest(feed, of, &watermarks));
        for (index, lane) in feed.lanes.iter().enumerate() {
            if lane.retired {
                continue;
            }
            let buffer = buffers.get(index);
            let watermark = watermarks.get(index).copied().flatten();
            let trouble = buffer.and_then(|buffer| buffer.fault());
            // Of a lane that cannot be read nobody knows the end.
            let readable = buffer.filter(|_| trouble.is_none());
            let beyond = readable.and_then(|buffer| buffer.beyond(lane.cut));
            lanes.push(LaneInfo {
                feed: feed_name(agreed, id),
                source: feed.sources[lane.source as usize].name.clone(),
                lane: lane.name.clone(),
                position: lane.cut,
                empty_to: lane.hole.of(lane.cut),
                end: beyond.map(|(end, _)| end),
                lag: beyond.map(|(_, lag)| lag),
                watermark: watermark.map(timestamp::format),
                trouble,
                held_since: buffer
                    .and_then(|buffer| buffer.held_since())
                    .map(|since| timestamp::format(Timestamp(wall_ms_at(since)))),
                ahead_ms: slowest
                    .zip(watermark)
                    .map(|(slowest, own)| own.0.saturating_sub(slowest.0).max(0)),
            });
        }
    }
    lanes
}

/// How far the slowest lane has come that has more to give, if lanes of the feed wait for each other.
fn slowest(
    state: &machine::Feed,
    feed: &Feed,
    watermarks: &[Option<Timestamp>],
) -> Option<Timestamp> {
    feed.max_skew_ms()?;
    let lanes = state.lanes.iter().zip(feed.lanes()).zip(watermarks);
    let active = lanes.filter(|((lane, buffer), _)| !lane.retired && !buffer.is_at_end(lane.cut));
    active.filter_map(|(_, watermark)| *watermark).min()
}

/// This node's clock at a moment that is over.
fn wall_ms_at(moment: Instant) -> i64 {
    let age = i64::try_from(rt::since(moment).as_millis()).unwrap_or(i64::MAX);
    wall_ms().saturating_sub(age)
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

fn feeds(core: &Core, agreed: &Agreed) -> Vec<FeedInfo> {
    let info = |&id: &FeedId| {
        let stopped = status::stopped(agreed, id);
        let held = || status::held(core, agreed, id);
        let running = || held().map_or(FeedState::Running, |error| FeedState::Held { error });
        let doubted = core.doubts.trouble(id);
        let state = match (core.doubts.out(id).or(stopped), doubted) {
            (Some(error), _) => FeedState::Stopped { error },
            (None, Some(error)) => FeedState::Held { error },
            (None, None) => running(),
        };
        let feed = &agreed.machine.feeds()[&id];
        FeedInfo {
            name: feed_name(agreed, id),
            state,
            dispute: feed.held.as_ref().map(|held| dispute(feed, held)),
            ended: feed
                .ended
                .iter()
                .map(|ended| self::ended(feed, ended))
                .collect(),
        }
    };
    agreed.machine.feeds().keys().map(info).collect()
}

fn dispute(feed: &machine::Feed, held: &Held) -> DisputeInfo {
    let by = match held.by {
        Decider::Majority => "majority",
        Decider::Operator => "operator",
        Decider::Length => "length",
    };
    let stretch = held.dispute.as_ref().and_then(|dispute| {
        let lane = feed.lanes.get(dispute.lane as usize)?;
        let told = dispute.told.iter().map(|told| ToldInfo {
            node: u64::from(told.node),
            to: told.cut,
            fingerprint: format!("{:016x}", told.fingerprint),
        });
        Some(StretchInfo {
            source: feed.sources[lane.source as usize].name.clone(),
            lane: lane.name.clone(),
            from: dispute.from,
            to: dispute.to,
            agreed: format!("{:016x}", dispute.agreed),
            told: told.collect(),
        })
    });
    DisputeInfo {
        since: held.since,
        tick: held.tick,
        alone: held.alone,
        by: by.to_owned(),
        parked: held.parked,
        stretch,
    }
}

fn ended(feed: &machine::Feed, ended: &Ended) -> EndedInfo {
    let name = |lane: u32| feed.lanes.get(lane as usize).map(|lane| lane.name.clone());
    let skipped = ended.skipped.iter().map(|&(lane, from, to)| SkippedInfo {
        lane: name(lane).unwrap_or_default(),
        from,
        to,
    });
    EndedInfo {
        from: ended.from,
        at: ended.at,
        skipped: skipped.collect(),
    }
}
