//! Metrics of feeds and their lanes.

use std::collections::BTreeMap;

use unisono_api::Metric;
use unisono_replication::command::FeedId;
use unisono_replication::machine;
use unisono_replication::rt;

use super::number;
use crate::core::{Agreed, Core};
use crate::ingest::LaneBuffer;
use crate::proposer::wall_ms;
use crate::status;

pub(super) fn lanes(core: &Core, agreed: &Agreed, metrics: &mut Vec<Metric>) {
    for (id, feed) in agreed.machine.feeds() {
        let buffers = agreed
            .feeds
            .get(id)
            .map(|feed| feed.lanes())
            .unwrap_or_default();
        let lanes = feed.lanes.iter().zip(buffers);
        for (lane, buffer) in lanes.filter(|(lane, _)| !lane.retired) {
            let labelled = |metric: Metric| {
                metric
                    .label("feed", id.0)
                    .label("source", &feed.sources[lane.source as usize].name)
                    .label("lane", &lane.name)
            };
            let (waiting, _) = buffer.level();
            metrics.push(labelled(Metric::gauge(
                "unisono_lane_position",
                "The offset up to which the lane is taken in.",
                number(u64::try_from(lane.cut).unwrap_or(0)),
            )));
            metrics.push(labelled(Metric::gauge(
                "unisono_lane_waiting_bytes",
                "Bytes that were read and are not in a tick yet.",
                number(waiting as u64),
            )));
            let fault = buffer.fault();
            // What is not known is not 0: there is no such sample then.
            let beyond = buffer.beyond(lane.cut).filter(|_| fault.is_none());
            if let Some((end, lag)) = beyond {
                metrics.push(labelled(Metric::gauge(
                    "unisono_lane_end",
                    "Where the lane's log ends, as last heard from the source.",
                    number(u64::try_from(end).unwrap_or(0)),
                )));
                metrics.push(labelled(Metric::gauge(
                    "unisono_lane_lag",
                    "From the lane's position to the end of its log: offsets of a partition, bytes of a file.",
                    number(u64::try_from(lag).unwrap_or(0)),
                )));
            }
            metrics.push(labelled(Metric::gauge(
                "unisono_lane_end_known",
                "1 if the source said of late where the lane's log ends, else 0: then there is no lag to show.",
                if beyond.is_some() { 1.0 } else { 0.0 },
            )));
            metrics.push(labelled(Metric::gauge(
                "unisono_lane_held",
                "1 if the lane cannot be read on this node at the moment, else 0.",
                if fault.is_some() { 1.0 } else { 0.0 },
            )));
            metrics.push(labelled(held_by_transaction(&buffer)));
        }
        metrics.push(doubted(core, *id));
        let value = if status::stopped(agreed, *id).is_some() {
            1.0
        } else {
            0.0
        };
        let help = "1 if the feed does not run on this node, else 0.";
        metrics.push(Metric::gauge("unisono_feed_stopped", help, value).label("feed", id.0));
        decisions(*id, feed, metrics);
        if let Some(agreed_ms) = feed.agreed_ms {
            let help =
                "Agreed time minus this node's clock, in seconds; well below 0: it is behind.";
            let ahead = agreed_ms.saturating_sub(wall_ms()) as f64 / 1000.0;
            let metric = Metric::gauge("unisono_agreed_time_minus_clock_seconds", help, ahead);
            metrics.push(metric.label("feed", id.0));
        }
    }
}

fn doubted(core: &Core, feed: FeedId) -> Metric {
    let doubted = core.doubts.trouble(feed).is_some();
    let help = "1 if rows of the feed differ from another replica's, and this node's are wrong or it does not know whose are, \
                else 0.";
    Metric::gauge(
        "unisono_feed_doubted",
        help,
        if doubted { 1.0 } else { 0.0 },
    )
    .label("feed", feed.0)
}

/// What waits for an operator, and what operators decided.
fn decisions(id: FeedId, feed: &machine::Feed, metrics: &mut Vec<Metric>) {
    let held = if feed.held.is_some() { 1.0 } else { 0.0 };
    let help = "1 if the feed is held for a tick in dispute until an operator decides, else 0.";
    metrics.push(Metric::gauge("unisono_feed_held", help, held).label("feed", id.0));
    let help = "Times an operator ended ticks of the feed.";
    let ends = number(feed.ended.len() as u64);
    metrics.push(Metric::gauge("unisono_feed_ends", help, ends).label("feed", id.0));
    let mut skipped: BTreeMap<u32, u64> = BTreeMap::new();
    for &(lane, from, to) in feed.ended.iter().flat_map(|ended| &ended.skipped) {
        *skipped.entry(lane).or_default() += to.abs_diff(from);
    }
    for (lane, offsets) in skipped {
        let help = "Offsets of the lane that are never taken in, by an operator's command.";
        let metric = Metric::gauge("unisono_lane_skipped_offsets", help, number(offsets));
        let name = feed.lanes.get(lane as usize).map(|lane| lane.name.as_str());
        metrics.push(metric.label("feed", id.0).label("lane", name.unwrap_or("")));
    }
}

fn held_by_transaction(buffer: &LaneBuffer) -> Metric {
    let held = buffer.held_since().map(rt::since);
    Metric::gauge(
        "unisono_lane_held_by_transaction_seconds",
        "For how long a transaction that is open has kept what was appended from being read; 0: there is none.",
        held.unwrap_or_default().as_secs_f64(),
    )
}
