//! Copies of the sinks' frontiers in the agreed log: a floor, so that a sink that lost its own is noticed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use unisono_replication::command::{Command, FrontierMoves, StreamKey};

use crate::core::{Authority, Core};

/// Without news, the frontier is looked at again after so long: whatever can move it is news.
const LOOK: Duration = Duration::from_millis(500);
/// How long after a failed proposal the next one is made.
const PAUSE: Duration = Duration::from_millis(5);

/// Copies what sinks have taken for as long as the node runs.
pub async fn run(core: Arc<Core>) {
    let mut news = core.news();
    let mut view = core.replica.view();
    loop {
        tokio::select! {
            _ = news.changed() => {}
            _ = view.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        let Some(authority) = core.authority() else {
            continue;
        };
        let next = moves(&core);
        if !next.is_empty() {
            move_to(&core, &authority, next).await;
        }
    }
}

async fn move_to(core: &Core, authority: &Authority, next: Vec<(StreamKey, u64)>) {
    let command = Command::Frontier(FrontierMoves {
        term: authority.term,
        next,
    });
    match core.replica.propose(command.encode()).await {
        Ok(position) => core.read_up_to(position.index).await,
        Err(error) => {
            core.counters.proposals_lost.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "frontier not moved");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Streams whose frontier in the log is behind.
fn moves(core: &Core) -> Vec<(StreamKey, u64)> {
    let agreed = core.agreed();
    let mut next = core.reported.all();
    next.retain(|&key, next| *next > agreed.machine.frontier(key));
    next.into_iter().collect()
}
