//! How well this node does. All here is pure: others bring what was seen, and the clock.

pub mod doubt;
pub mod fitness;
pub mod memory;
pub mod ready;

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
}
