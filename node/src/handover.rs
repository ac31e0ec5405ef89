//! Giving the lead away, so that the next leader finds nothing open: publishers finish what they have given to their sinks,
//! and begin nothing more.

use std::time::Duration;

use unisono_replication::HandOverError;
use unisono_replication::rt;

use crate::core::Core;

/// How long what was given to a sink is waited for: one that does not answer must not keep the lead here.
const FINISH_WITHIN: Duration = Duration::from_millis(100);

/// If this node leads: makes the first of `preferred` lead that is there and lacks little, or, if none are named, the voter
/// that lacks least; waits until it does.
///
/// # Errors
/// Why not; this node may still lead then.
pub async fn hand_over(core: &Core, preferred: &[u16]) -> Result<(), HandOverError> {
    if !core.replica.view().borrow().is_leader() {
        return Err(HandOverError::NotLeader);
    }
    let _closed = core.transit.close();
    let _ = rt::timeout(FINISH_WITHIN, core.transit.is_empty()).await;
    match preferred {
        [] => core.replica.hand_over().await,
        some => core.replica.hand_over_to(some).await,
    }
}
