//! Rows that replicas computed: which are alike, and what follows where they are not.
//!
//! What is known, and who is right: pure but for the lock. [`crate::alike`] asks others, [`crate::mending`] acts.
//!
//! A row is served once another replica has the same. Where rows differ, what most voters have is right. The odd one out
//! serves nothing of that feed, keeps the rows that differ as evidence, and takes state and rows from one that is right. Where
//! there is no majority nobody publishes beyond the last row that is alike, and each computes again from its last
//! checkpoint, which compares: whoever does not get its own rows again is the one that was wrong.

mod board;
mod verdict;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;
use unisono_engine::row::{Digest, Seq, StreamId};
use unisono_replication::command::FeedId;
use unisono_replication::rt;

use crate::threads::lock;
use board::Board;
pub(crate) use board::{Dispute, Doubt, Stage};
pub use verdict::{Own, Verdict, judge};

/// What this replica knows of its rows and others'.
#[derive(Default)]
pub struct Doubts {
    board: Mutex<Board>,
    /// There is something new to see to.
    pub(crate) raised: Notify,
}

impl Doubts {
    pub(crate) fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    /// The rows below `next` are the same on another replica, or nobody else's word counts.
    pub fn alike(&self, stream: StreamId, next: u64) {
        self.board().alike(stream, next);
    }

    /// Up to `next` another replica has other rows.
    pub fn raise(&self, feed: FeedId, stream: StreamId, next: u64) {
        if self.board().raise(feed, stream, next, rt::now()) {
            let (incarnation, kind) = (stream.incarnation.0, stream.kind);
            tracing::warn!(
                feed = feed.0,
                incarnation,
                ?kind,
                below = next,
                "another replica has computed other rows: asking all"
            );
        }
        self.raised.notify_one();
    }

    /// Computed again, a row is not what it was.
    pub fn diverged(&self, feed: FeedId, stream: StreamId, seq: Seq, computed: Digest) {
        let now = rt::now();
        self.board()
            .diverged(feed, stream, seq.0 + 1, computed.0, now);
        self.raised.notify_one();
    }

    /// Most voters, these among them, have another state of the feed than this replica, though no row shows it yet.
    pub fn state_is_odd(&self, feed: FeedId, right: BTreeSet<u16>) {
        self.board().state_is_odd(feed, right, rt::now());
        self.raised.notify_one();
    }

    /// Why the replica's word on a feed counts for nothing, and its rows are not served.
    #[must_use]
    pub fn out(&self, feed: FeedId) -> Option<String> {
        let board = self.board();
        let doubt = board.of(feed).filter(|doubt| doubt.is_out())?;
        Some(doubt.reason())
    }

    /// Why a feed does not run here as it should; `None` also while others are only asked.
    #[must_use]
    pub fn trouble(&self, feed: FeedId) -> Option<String> {
        let board = self.board();
        let told = |doubt: &&Doubt| doubt.is_out() || doubt.stage != Stage::Asking;
        board.of(feed).filter(told).map(Doubt::reason)
    }

    /// Whether rows of the feed differ from another replica's, and it is not known whose are wrong.
    #[must_use]
    pub fn is_open(&self, feed: FeedId) -> bool {
        self.board().of(feed).is_some_and(|doubt| !doubt.is_out())
    }
}
