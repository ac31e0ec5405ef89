//! How well this node does. All here is pure: others bring what was seen, and the clock.

pub mod fitness;
pub mod memory;
pub mod reached;
pub mod ready;
pub mod silence;
pub mod succession;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Entries of the agreed log that one may lack and still keeps up.
pub const LAG: u64 = 200;
/// A write to the disk that takes so long hangs, for all that others know.
pub const HUNG: Duration = Duration::from_secs(2);
/// A feed whose oldest tick waits for so long stands still.
pub const STANDS: Duration = Duration::from_secs(2);

/// How a node does, as it tells its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Pipelines that it can read, confirm and publish now; as it is told to others, see `Fitness::score`.
    pub score: u32,
    /// The feeds that it knows, by the entry that created them, and whether each runs.
    pub feeds: BTreeMap<u64, bool>,
    /// How far each feed that has started there has taken in the agreed log, by the index of the last entry.
    pub taken: BTreeMap<u64, u64>,
    /// Where each feed's state stands in its last checkpoint.
    pub saved: BTreeMap<u64, u64>,
    /// What it reads otherwise than is agreed, and has read at least twice.
    pub disputes: Vec<TakenOtherwise>,
}

/// A stretch of a lane that a node reads otherwise than is agreed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TakenOtherwise {
    /// The feed, by the entry that created it.
    pub feed: u64,
    /// The lane's place in the feed.
    pub lane: u32,
    /// The first offset.
    pub from: i64,
    /// One past the last.
    pub to: i64,
    /// The fingerprint that was agreed.
    pub agreed: u64,
    /// How far its records go, up to `to`; `from` if there are none.
    pub cut: i64,
    /// Their fingerprint.
    pub fingerprint: u64,
}
