//! What replicas tell each other beside Raft, several times a second.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::Core;

/// How often a node tells its status.
const EVERY: Duration = Duration::from_millis(200);
/// What a peer told is believed for so long.
pub const FRESH: Duration = Duration::from_secs(2);
/// The version of the format.
const VERSION: u8 = 1;

/// A node's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    version: u8,
    /// The index up to which it has read the agreed log.
    pub applied: u64,
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

/// Tells the status for as long as the node runs.
pub async fn tell(core: Arc<Core>) {
    loop {
        let status = NodeStatus {
            version: VERSION,
            applied: core.agreed().index,
        };
        if let Ok(bytes) = postcard::to_stdvec(&status) {
            core.replica.set_status(bytes);
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::golden;

    #[test]
    fn a_status_is_read_from_and_written_to_the_golden_bytes() {
        let status = NodeStatus {
            version: VERSION,
            applied: 300,
        };
        let bytes = golden::bytes("status", &postcard::to_stdvec(&status).unwrap());
        assert_eq!(NodeStatus::decode(&bytes), Some(status));
    }

    #[test]
    fn another_versions_status_is_not_believed() {
        for version in [0, VERSION + 1] {
            let other = NodeStatus {
                version,
                applied: 300,
            };
            assert_eq!(
                NodeStatus::decode(&postcard::to_stdvec(&other).unwrap()),
                None
            );
        }
    }
}
