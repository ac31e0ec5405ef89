//! Feeds that are held until an operator decides, for people.

use unisono_replication::command::{Decider, Dispute, FeedId};
use unisono_replication::machine;

use super::feed_name;
use crate::core::Agreed;

/// The feed that people call by its name, or by its number alone.
#[must_use]
pub fn feed_named(agreed: &Agreed, name: &str) -> Option<FeedId> {
    let mut feeds = agreed.machine.feeds().keys();
    let is_it = |id: &&FeedId| feed_name(agreed, **id) == name || id.0.to_string() == name;
    feeds.find(is_it).copied()
}

/// Why a feed is held by an agreed entry; `None`: it is not.
#[must_use]
pub fn held_by_decision(agreed: &Agreed, id: FeedId) -> Option<String> {
    let feed = agreed.machine.feeds().get(&id)?;
    let held = feed.held.as_ref()?;
    let name = feed_name(agreed, id);
    let alone = if held.alone {
        ", which was made alone,"
    } else {
        ""
    };
    let (tick, since) = (held.tick, held.since);
    let what = match (&held.dispute, held.by) {
        (Some(dispute), _) => told(feed, dispute),
        (None, Decider::Majority) => "takes in what most replicas do not read".to_owned(),
        (None, Decider::Operator) => "was held by an operator".to_owned(),
        (None, Decider::Length) => "could be led on by nobody".to_owned(),
    };
    let parked = match held.parked {
        Some(state) => format!(
            " (parked at its state of entry {state}: the log from there on is kept no more)"
        ),
        None => String::new(),
    };
    Some(format!(
        "feed {name} is held since entry {since} of the agreed log: its tick of entry {tick}{alone} {what}{parked}; it takes in nothing more \
         and publishes nothing until an operator decides: unisono feeds accept {name} if the log is right, unisono feeds end {name} \
         if that tick and all after it are to be dropped"
    ))
}

fn told(feed: &machine::Feed, dispute: &Dispute) -> String {
    let Dispute {
        lane,
        from,
        to,
        agreed,
        ..
    } = dispute;
    let lane = feed.lanes.get(*lane as usize);
    let lane = lane.map_or("?", |lane| lane.name.as_str());
    let nodes: Vec<String> = dispute.told.iter().map(|it| it.node.to_string()).collect();
    let nodes = nodes.join(" and ");
    let first = dispute.told.first();
    let (cut, read) = first.map_or((*from, 0), |told| (told.cut, told.fingerprint));
    format!(
        "takes in offsets {from} to {to} of lane {lane} with fingerprint {agreed:016x}, and node {nodes} read other records there \
         (up to {cut}, fingerprint {read:016x})"
    )
}
