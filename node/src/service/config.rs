//! The agreed configuration and the files, as this node sees them.

use std::collections::BTreeMap;

use unisono_api::dto::{DriftInfo, MembersInfo, RefusedRow, RefusedRows, SinkInfo};
use unisono_engine::row::{StreamId, StreamKind};
use unisono_replication::View;

use crate::agreement::Kind;
use crate::core::{Agreed, Core};
use crate::refused::Refusals;
use crate::status;
use crate::threads::lock;

pub(super) fn members(view: &View) -> MembersInfo {
    let numbers = |numbers: &[u16]| numbers.iter().copied().map(u64::from).collect();
    MembersInfo {
        voters: numbers(&view.voters),
        learners: numbers(&view.learners),
        joint: view.joint,
    }
}

pub(super) fn sinks(core: &Core, agreed: &Agreed) -> Vec<SinkInfo> {
    let views = core.sinks.all();
    let sinks = agreed.machine.sinks().iter();
    let info = sinks.map(|(name, entry)| {
        let view = views.get(name).cloned().unwrap_or_default();
        SinkInfo {
            name: name.clone(),
            definition: entry.definition.clone(),
            trouble: view.trouble,
            notice: view.notice,
            refused: refused(agreed, &view.refused),
        }
    });
    info.collect()
}

/// What a sink refused, under the pipelines' names.
pub(super) fn refused(agreed: &Agreed, refused: &BTreeMap<StreamId, Refusals>) -> Vec<RefusedRows> {
    let of = |(stream, refusals): (&StreamId, &Refusals)| {
        let pipeline = agreed.machine.pipelines().get(&stream.incarnation.0)?;
        let last = refusals.last.iter();
        Some(RefusedRows {
            pipeline: pipeline.name.clone(),
            kind: match stream.kind {
                StreamKind::Rows => "rows".to_owned(),
                StreamKind::DeadLetters => "dead_letters".to_owned(),
            },
            count: refusals.count,
            last: last
                .map(|row| RefusedRow {
                    seq: row.seq,
                    bytes: row.bytes,
                })
                .collect(),
        })
    };
    refused.iter().filter_map(of).collect()
}

/// Only the leader tries, so only it knows.
pub(super) fn waiting(core: &Core, view: &View) -> BTreeMap<String, String> {
    match view.is_leader() {
        true => lock(&core.waiting).clone(),
        false => BTreeMap::new(),
    }
}

/// Of all nodes that were heard lately.
pub(super) fn drifts(core: &Core) -> Vec<DriftInfo> {
    let mut drifts = Vec::new();
    for (node, file) in status::files(core) {
        drifts.extend(file.drifts.into_iter().map(|drift| DriftInfo {
            node: u64::from(node),
            kind: drift.kind.name().to_owned(),
            state: drift.state.word().to_owned(),
            keys: drift.state.keys(),
            message: drift.to_string(),
            name: drift.name,
        }));
    }
    drifts
}

/// Which pipelines are to be and are not yet, and why, if this node is the one that tries. One that only a minority's files
/// have is drift, not a lack.
pub(super) fn missing(core: &Core, view: &View) -> Vec<String> {
    let votes = status::votes(core);
    let agreed = core.agreed();
    let machine = &agreed.machine;
    let of_files = votes.agreed_on(Kind::Pipeline).into_keys();
    let mut names: Vec<String> = of_files
        .filter(|name| machine.pipeline_named(name).is_none())
        .filter(|name| !machine.removed().contains(name))
        .chain(machine.wanted().keys().cloned())
        .collect();
    names.sort();
    names.dedup();
    let waiting = waiting(core, view);
    let why = |name: &String| match (waiting.get(name), view.leader) {
        (Some(reason), _) => format!(": {reason}"),
        (_, Some(leader)) if !view.is_leader() => {
            format!(": node {leader}, which leads, says why")
        }
        _ => String::new(),
    };
    let told = names.iter();
    told.map(|name| format!("pipeline {name} has not been created yet{}", why(name)))
        .collect()
}
