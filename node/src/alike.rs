//! What rows other replicas have, what of one's own may be served and published, and what others are told.

mod ask;
mod question;

use unisono_engine::row::StreamId;

use crate::core::{Agreed, Core};
use crate::ids::key_of;
pub use ask::others;
pub(crate) use ask::{Asked, all, first_other, one, own};
pub(crate) use question::{MOST_ROWS, Told};
pub use question::{TAG, answer};

/// Rows of a stream from here on are in dispute, as all of its feed are: they are not published.
#[must_use]
pub fn limit(core: &Core, stream: StreamId) -> Option<u64> {
    if core.doubts.board().feeds().is_empty() {
        return None;
    }
    let feed = {
        let agreed = core.agreed();
        agreed.machine.pipelines().get(&stream.incarnation.0)?.feed
    };
    core.doubts.board().limit(feed, stream)
}

/// Rows of a stream below this are published, here, and computed alike by another replica.
///
/// # Errors
/// Why none of them is served.
pub fn served(core: &Core, agreed: &Agreed, stream: StreamId) -> Result<u64, String> {
    let feed = agreed.machine.pipelines().get(&stream.incarnation.0);
    if let Some(reason) = feed.and_then(|pipeline| core.doubts.out(pipeline.feed)) {
        return Err(reason);
    }
    let frontier = agreed.machine.frontier(key_of(stream));
    let held = frontier.min(core.results.next_seq(stream).0);
    if is_alone(core) {
        return Ok(held);
    }
    match core.doubts.board().alike_below(stream) {
        Some(alike) => Ok(held.min(alike)),
        None if held == 0 => Ok(0),
        None => Err("rows are compared with another replica's first: ask again".to_owned()),
    }
}

/// Whether there is no other replica, so that there is nothing to compare with.
fn is_alone(core: &Core) -> bool {
    let voters = core.replica.view().borrow().voters.len();
    core.config.cluster.peers.len() == 1 && voters <= 1
}
