//! What replicas tell each other beside Raft, several times a second.

mod condition;
mod decision;
mod distance;
mod fitness;
mod unpublished;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use unisono_replication::rt;

use crate::agreement::{self, Drift, FileDefinition, Votes};
use crate::core::Core;
use crate::health::Condition;
use crate::threads::lock;
pub use condition::{
    contact, disputes, feed_name, feed_troubles, give_away, has_read_log, held_by_transactions,
    hole, lag, observe, own, peers, saved, seat, stopped, waits, writing,
};
pub use decision::{feed_named, held_by_decision};
use distance::ToldDistances;
pub use distance::far_notices;
pub use fitness::watch_fitness;
pub use unpublished::{held, held_feeds, unpublished};

/// How often a node tells its status.
const EVERY: Duration = Duration::from_millis(200);
/// A drift that lasts so long is told in the log.
const LASTING: Duration = Duration::from_secs(2);
/// What a peer told is believed for so long.
pub const FRESH: Duration = Duration::from_secs(2);
/// The version of the format.
const VERSION: u8 = 4;

/// A node's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    version: u8,
    /// The index up to which it has read the agreed log.
    pub applied: u64,
    /// What its files say.
    pub files: Files,
    /// How it does.
    pub condition: Condition,
}

/// A node's files, as it tells its peers of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Its sources, sinks and pipelines.
    pub definitions: Vec<FileDefinition>,
    /// Where they are not what is agreed.
    pub drifts: Vec<Drift>,
    /// The members that they name.
    pub members: Vec<u16>,
}

impl NodeStatus {
    /// Reads a peer's status; `None` if a newer program wrote it in another way.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes)
            .ok()
            .filter(|status: &Self| status.version == VERSION)
    }
}

/// The files of this node, and those of the peers that were heard lately, by number.
#[must_use]
pub fn files(core: &Core) -> BTreeMap<u16, Files> {
    let fresh = peers(core, FRESH).into_iter();
    fresh
        .map(|(number, told)| (number, told.files))
        .chain([(core.config.node.id, own_files(core))])
        .collect()
}

/// What the voters' files have.
#[must_use]
pub fn votes(core: &Core) -> Votes {
    let voters = core.replica.view().borrow().voters.clone();
    let heard = files(core).into_iter();
    Votes::new(
        &voters,
        heard.map(|(number, file)| (number, file.definitions)),
    )
}

fn own_files(core: &Core) -> Files {
    Files {
        definitions: core.definitions.clone(),
        drifts: agreement::drift_of(&core.config, &core.agreed().machine),
        members: core.config.cluster.peers.keys().copied().collect(),
    }
}

/// Tells the status for as long as the node runs.
pub async fn tell(core: Arc<Core>) {
    let mut drifts = ToldDrifts::default();
    let mut distances = ToldDistances::default();
    loop {
        let files = own_files(&core);
        drifts.tell(&files.drifts);
        distances.tell(&core);
        observe(&core);
        let mut condition = own(&core);
        condition.score = lock(&core.health.fitness).score(condition.score, rt::now());
        let status = NodeStatus {
            version: VERSION,
            applied: core.agreed().index,
            files,
            condition,
        };
        if let Ok(bytes) = postcard::to_stdvec(&status) {
            core.replica.set_status(bytes);
        }
        rt::sleep(EVERY).await;
    }
}

/// The drifts of this node's file that there are, since when, and whether the log has a line of it.
#[derive(Default)]
struct ToldDrifts(BTreeMap<Drift, (Instant, bool)>);

impl ToldDrifts {
    /// One line for each drift that lasts, and one when it is over: what was agreed a moment later is no drift.
    fn tell(&mut self, now: &[Drift]) {
        for drift in now {
            let (since, told) = self
                .0
                .entry(drift.clone())
                .or_insert_with(|| (rt::now(), false));
            if !*told && rt::since(*since) >= LASTING {
                *told = true;
                let drift = drift.to_string();
                tracing::warn!(
                    drift,
                    "this node's file is not what is agreed; correct it, or have it agreed with unisono apply"
                );
            }
        }
        let is_there = |kind, name: &str| now.iter().any(|it| it.kind == kind && it.name == name);
        self.0.retain(|drift, (_, told)| {
            let stays = now.contains(drift);
            if !stays && *told && !is_there(drift.kind, &drift.name) {
                let (kind, name) = (drift.kind.name(), &drift.name);
                tracing::info!(kind, name, "this node's file is what is agreed");
            }
            stays
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::agreement::{DifferingKey, DriftState, Kind};
    use crate::golden;
    use crate::health::TakenOtherwise;

    #[test]
    fn a_status_is_read_from_and_written_to_the_golden_bytes() {
        let name = || "p".to_owned();
        let differing = DifferingKey {
            key: "window.size_ms".to_owned(),
            file: "1000".to_owned(),
            agreed: "2000".to_owned(),
        };
        let status = NodeStatus {
            version: VERSION,
            applied: 300,
            files: Files {
                definitions: vec![FileDefinition {
                    kind: Kind::Pipeline,
                    name: name(),
                    hash: u128::MAX / 3,
                }],
                drifts: vec![Drift {
                    kind: Kind::Pipeline,
                    name: name(),
                    state: DriftState::Differs(vec![differing]),
                }],
                members: vec![1, 2, 3],
            },
            condition: Condition {
                score: 3,
                feeds: [(7, true), (300, false)].into(),
                taken: [(7, 299)].into(),
                saved: [(7, 280)].into(),
                disputes: vec![TakenOtherwise {
                    feed: 7,
                    lane: 2,
                    from: 1000,
                    to: 1234,
                    agreed: u64::MAX,
                    cut: 1200,
                    fingerprint: 99,
                }],
            },
        };
        let bytes = golden::bytes("status-4", &postcard::to_stdvec(&status).unwrap());
        assert_eq!(NodeStatus::decode(&bytes), Some(status));
    }

    #[test]
    fn another_versions_status_is_not_believed() {
        for version in [0, VERSION + 1] {
            let other = NodeStatus {
                version,
                applied: 300,
                files: Files::default(),
                condition: Condition::default(),
            };
            assert_eq!(
                NodeStatus::decode(&postcard::to_stdvec(&other).unwrap()),
                None
            );
        }
    }
}
