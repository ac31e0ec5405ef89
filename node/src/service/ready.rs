//! What `/readyz` answers.

use std::collections::BTreeSet;

use unisono_api::dto::Readiness;
use unisono_engine::row::Incarnation;
use unisono_replication::command::FeedId;

use super::config;
use crate::core::{Agreed, Core};
use crate::health::ready::{Claims, Elsewhere, Hole, Standing};
use crate::ids::streams_of;
use crate::snapshots::large_log;
use crate::status::{self, NodeStatus};

/// Of all that this node does, or of one pipeline.
pub(super) fn readiness(core: &Core, only: Option<Incarnation>) -> Readiness {
    let reasons = claims(core, only).reasons();
    let mut notices = status::held_by_transactions(&core.agreed(), only);
    notices.extend(status::far_notices(core));
    notices.extend(large_log(core));
    Readiness {
        ready: reasons.is_empty(),
        reasons,
        notices,
    }
}

fn claims(core: &Core, only: Option<Incarnation>) -> Claims {
    status::observe(core);
    let view = core.replica.view().borrow().clone();
    let peers: Vec<_> = status::peers(core, status::FRESH).into_values().collect();
    let (seat, lag) = (status::seat(core, &view), status::lag(core, &view));
    let missing = match only {
        None => config::missing(core, &view),
        Some(_) => Vec::new(),
    };
    let agreed = core.agreed();
    let pipelines = agreed.machine.pipelines().iter();
    let pipelines = pipelines.filter(|(id, _)| only.is_none_or(|only| only.0 == **id));
    let mut claims = Claims {
        seat,
        contact: status::contact(core),
        lag,
        writing: status::writing(core),
        standing: Vec::new(),
        sinks: Vec::new(),
        unpublished: Vec::new(),
        holes: Vec::new(),
        missing,
        strict: only.is_some(),
    };
    let (mut feeds, mut sinks) = (BTreeSet::new(), BTreeSet::new());
    for (&id, pipeline) in pipelines {
        feeds.insert(pipeline.feed);
        sinks.insert(pipeline.sink.as_str());
        let name = || pipeline.name.clone();
        let holes = streams_of(id).map(|stream| status::hole(core, &agreed, stream));
        let hole = |rows| Hole {
            pipeline: name(),
            rows,
        };
        claims.holes.extend(holes.into_iter().flatten().map(hole));
        let waits = status::waits(core, id);
        claims.unpublished.extend(waits.map(|age| (name(), age)));
        // All replicas alike, as far as their budgets are: it counts for who asks for the pipeline.
        let held = status::held(core, &agreed, pipeline.feed);
        claims.standing.extend(held.map(|reason| Standing {
            reason,
            elsewhere: Elsewhere::Stands,
        }));
    }
    if only.is_none() {
        feeds.extend(agreed.machine.feeds().keys());
    }
    for feed in feeds {
        claims
            .standing
            .extend(standing(core, &agreed, &peers, feed));
    }
    let views = core.sinks.all().into_iter();
    let views = views.filter(|(name, _)| only.is_none() || sinks.contains(name.as_str()));
    claims.sinks = views.filter_map(|(_, view)| view.trouble).collect();
    claims
}

fn standing(core: &Core, agreed: &Agreed, peers: &[NodeStatus], feed: FeedId) -> Vec<Standing> {
    let told = peers
        .iter()
        .filter_map(|told| told.condition.feeds.get(&feed.0));
    let elsewhere = match told.copied().max() {
        Some(true) => Elsewhere::Runs,
        Some(false) => Elsewhere::Stands,
        None => Elsewhere::Unknown,
    };
    let troubles = status::feed_troubles(core, agreed, feed).into_iter();
    troubles
        .map(|reason| Standing { reason, elsewhere })
        .collect()
}
