//! Rows that wait to be published lie on every replica's disk, and none of them may be dropped. When those of a pipeline take
//! more than their budget, whoever leads makes no ticks for its feed until some were published. Nothing is lost by that, and no
//! row depends on it: records wait where they are, and time without ticks counts for no timer.

use std::collections::BTreeSet;

use unisono_engine::row::Seq;
use unisono_replication::command::FeedId;

use super::held_by_decision;
use crate::core::{Agreed, Core};
use crate::ids::{key_of, streams_of};

/// About how many bytes of a pipeline's rows and dead letters wait to be published.
#[must_use]
pub fn unpublished(core: &Core, agreed: &Agreed, incarnation: u64) -> u64 {
    let bytes = streams_of(incarnation).map(|stream| {
        let frontier = Seq(agreed.machine.frontier(key_of(stream)));
        core.results.bytes_from(stream, frontier)
    });
    bytes.iter().sum()
}

/// Feeds that take in nothing more though they could: [`held`] says why.
#[must_use]
pub fn held_feeds(core: &Core, agreed: &Agreed) -> BTreeSet<FeedId> {
    let most = core.config.results.max_unpublished;
    let pipelines = agreed.machine.pipelines().iter();
    let full = pipelines.filter(|&(&id, _)| unpublished(core, agreed, id) >= most);
    let full = full.map(|(_, pipeline)| pipeline.feed);
    let feeds = agreed.machine.feeds().keys().copied();
    full.chain(feeds.filter(|&id| agreed.machine.is_held(id)))
        .collect()
}

/// Why a feed takes in nothing more though it could; `None`: it may.
#[must_use]
pub fn held(core: &Core, agreed: &Agreed, feed: FeedId) -> Option<String> {
    held_by_decision(agreed, feed).or_else(|| held_by_budget(core, agreed, feed))
}

fn held_by_budget(core: &Core, agreed: &Agreed, feed: FeedId) -> Option<String> {
    let most = core.config.results.max_unpublished;
    let pipelines = agreed.machine.pipelines().iter();
    let mut own = pipelines.filter(|(_, pipeline)| pipeline.feed == feed);
    let (incarnation, pipeline) = own.find(|&(&id, _)| unpublished(core, agreed, id) >= most)?;
    let what_to_do = match pipeline.paused {
        true => format!("resume it (unisono pipelines resume {})", pipeline.name),
        false => format!("see to its sink {}", pipeline.sink),
    };
    let mib = unpublished(core, agreed, *incarnation) >> 20;
    Some(format!(
        "rows of pipeline {} that wait to be published take {mib} MiB, and results.max_unpublished allows {} MiB: its feed takes \
         in nothing more until some were published, and loses nothing; {what_to_do}, or remove it",
        pipeline.name,
        most >> 20
    ))
}
