//! The bytes that the agreed log takes. Beyond its budget nothing is kept below a checkpoint for peers that were away. What it
//! takes then is held by the checkpoint, by a feed that does not move anywhere: that cannot be dropped, and is said.

use std::sync::Arc;
use std::time::Duration;

use unisono_replication::rt;

use crate::core::Core;
use crate::threads::lock;

/// How long the purge may take; it is looked at again after the next checkpoint.
const WITHIN: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

/// After a checkpoint: removes what the budget does not allow, and says so where that is not enough.
pub async fn bound_log(core: &Arc<Core>) {
    let most = core.config.cluster.max_log;
    let mut bytes = size(core).await;
    if bytes > most {
        core.replica.purge_to_checkpoint().await;
        let end = rt::now() + WITHIN;
        while bytes > most && rt::now() < end {
            rt::sleep(LOOK).await;
            bytes = size(core).await;
        }
    }
    let large = (bytes > most).then_some(bytes);
    let before = std::mem::replace(&mut *lock(&core.health.large_log), large);
    if large.is_some() && before.is_none() {
        let held = lock(&core.health.held).clone();
        tracing::error!(
            bytes,
            most,
            ?held,
            "the agreed log takes more than cluster.max_log: nothing below the last checkpoint is left to remove; make the feeds              that hold it go on, or remove their pipelines"
        );
    }
    if large.is_none() && before.is_some() {
        tracing::info!(bytes, most, "the agreed log is within its budget again");
    }
}

async fn size(core: &Arc<Core>) -> u64 {
    let own = Arc::clone(core);
    let looked = rt::blocking(move || own.replica.log_size().0).await;
    looked.unwrap_or(0)
}

/// What the log takes, where that is beyond its budget.
#[must_use]
pub fn large_log(core: &Core) -> Option<String> {
    let bytes = (*lock(&core.health.large_log))?;
    let most = core.config.cluster.max_log;
    Some(format!(
        "the agreed log takes {bytes} bytes on this node's disk, and cluster.max_log is {most}: a feed that does not move holds it, \
         or the budget is less than the log takes between two checkpoints"
    ))
}
