//! Copies of the sinks' frontiers in the agreed log: a floor, so that a sink that lost its own is noticed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use unisono_replication::command::{Command, FrontierMoves, StreamKey};
use unisono_replication::rt;

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
            biased;
            _ = news.changed() => {}
            _ = view.changed() => {}
            () = rt::sleep(LOOK) => {}
        }
        let Some(authority) = core.authority() else {
            continue;
        };
        for (sink, next) in moves(&core) {
            move_to(&core, &authority, sink, next).await;
        }
    }
}

async fn move_to(core: &Core, authority: &Authority, sink: String, next: Vec<(StreamKey, u64)>) {
    let command = Command::Frontier(FrontierMoves {
        term: authority.term,
        next,
        sink,
    });
    match core.replica.propose(command.encode()).await {
        Ok(position) => core.read_up_to(position.index).await,
        Err(error) => {
            core.counters.proposals_lost.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "frontier not moved");
            rt::sleep(PAUSE).await;
        }
    }
}

/// Streams whose frontier in the log is behind, by the sink that they go to.
fn moves(core: &Core) -> Vec<(String, Vec<(StreamKey, u64)>)> {
    let agreed = core.agreed();
    let machine = &agreed.machine;
    let mut moves = Vec::new();
    for (sink, next) in core.reported.all() {
        // What was published before a stream ended, or went to another sink, is no news.
        let is_news = |&(key, next): &(StreamKey, u64)| {
            machine.sink_of(key) == Some(&sink) && next > machine.frontier(key)
        };
        let next: Vec<_> = next.into_iter().filter(is_news).collect();
        if !next.is_empty() {
            moves.push((sink, next));
        }
    }
    moves
}
