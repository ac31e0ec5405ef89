//! What is known of rows, and of feeds that are in doubt: pure; the caller brings the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use unisono_engine::row::StreamId;
use unisono_replication::command::FeedId;

/// All that is known.
#[derive(Default)]
pub(crate) struct Board {
    /// Rows below are the same on another replica.
    alike: BTreeMap<StreamId, u64>,
    doubts: BTreeMap<FeedId, Doubt>,
}

/// A feed whose rows differ from another replica's.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    pub(crate) since: Instant,
    pub(crate) stage: Stage,
    pub(crate) streams: BTreeMap<StreamId, Dispute>,
    /// These have the right state, and this replica has not.
    pub(crate) state: Option<BTreeSet<u16>>,
    /// Where the state stood that was taken from a peer last.
    pub(crate) taken: u64,
    /// When that was tried last.
    pub(crate) tried: Option<Instant>,
    /// Where the rows that differ are kept.
    pub(crate) evidence: Option<String>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The others are asked.
    Asking,
    /// There is no majority: computed again from the last checkpoint, up to this index of the log.
    Replaying(u64),
    /// Computed again, it is what it was.
    Tied,
    /// Most voters have other rows: it takes state and rows from one of them.
    Odd,
}

/// A stream whose rows differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dispute {
    /// One past a row up to which they differ.
    pub(crate) next: u64,
    /// Rows below are not in dispute, as far as is known.
    pub(crate) below: u64,
    /// Computed again here, the digest before `next` was this one.
    pub(crate) computed: Option<u128>,
}

impl Board {
    pub(crate) fn alike(&mut self, stream: StreamId, next: u64) {
        let known = self.alike.entry(stream).or_default();
        *known = next.max(*known);
    }

    /// `None`: nothing of it was compared yet.
    pub(crate) fn alike_below(&self, stream: StreamId) -> Option<u64> {
        self.alike.get(&stream).copied()
    }

    /// Keeps what is known of these streams and feeds alone.
    pub(crate) fn retain(
        &mut self,
        is_known: impl Fn(StreamId) -> bool,
        is_there: impl Fn(FeedId) -> bool,
    ) {
        self.alike.retain(|&stream, _| is_known(stream));
        for doubt in self.doubts.values_mut() {
            doubt.streams.retain(|&stream, _| is_known(stream));
        }
        self.doubts.retain(|&feed, doubt| {
            is_there(feed) && (!doubt.streams.is_empty() || doubt.state.is_some())
        });
    }

    /// Whether that is new.
    pub(crate) fn raise(
        &mut self,
        feed: FeedId,
        stream: StreamId,
        next: u64,
        now: Instant,
    ) -> bool {
        let below = self.alike_below(stream).unwrap_or(0).min(next);
        let doubt = self.doubts.entry(feed).or_insert_with(|| Doubt::new(now));
        let known = doubt.streams.get(&stream).copied();
        // A digest is of all rows before it: who differs here differs further on too.
        if known.is_none_or(|known| known.next > next && known.computed.is_none()) {
            let dispute = Dispute {
                next,
                below: known.map_or(below, |known| known.below.min(next)),
                computed: None,
            };
            doubt.streams.insert(stream, dispute);
        }
        known.is_none()
    }

    pub(crate) fn diverged(
        &mut self,
        feed: FeedId,
        stream: StreamId,
        next: u64,
        computed: u128,
        now: Instant,
    ) {
        let doubt = self.doubts.entry(feed).or_insert_with(|| Doubt::new(now));
        let dispute = Dispute {
            next,
            below: next.saturating_sub(1),
            computed: Some(computed),
        };
        doubt.streams.insert(stream, dispute);
    }

    pub(crate) fn state_is_odd(&mut self, feed: FeedId, right: BTreeSet<u16>, now: Instant) {
        let doubt = self.doubts.entry(feed).or_insert_with(|| Doubt::new(now));
        doubt.state = Some(right);
    }

    /// What is wrong with a state may show in the rows of any of its feed's streams.
    pub(crate) fn limit(&self, feed: FeedId, stream: StreamId) -> Option<u64> {
        let doubt = self.doubts.get(&feed)?;
        let below = doubt.streams.get(&stream).map(|dispute| dispute.below);
        Some(below.unwrap_or_else(|| self.alike_below(stream).unwrap_or(0)))
    }

    pub(crate) fn of(&self, feed: FeedId) -> Option<&Doubt> {
        self.doubts.get(&feed)
    }

    pub(crate) fn change(&mut self, feed: FeedId, change: impl FnOnce(&mut Doubt)) {
        self.doubts.get_mut(&feed).map(change);
    }

    pub(crate) fn clear(&mut self, feed: FeedId) {
        self.doubts.remove(&feed);
    }

    pub(crate) fn feeds(&self) -> Vec<FeedId> {
        self.doubts.keys().copied().collect()
    }
}

impl Doubt {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            stage: Stage::Asking,
            streams: BTreeMap::new(),
            state: None,
            taken: 0,
            tried: None,
            evidence: None,
        }
    }

    /// Whether what it has counts for nothing.
    pub(crate) fn is_out(&self) -> bool {
        self.stage == Stage::Odd || self.has_diverged()
    }

    /// Whether it computed something else the second time.
    pub(crate) fn has_diverged(&self) -> bool {
        self.streams
            .values()
            .any(|dispute| dispute.computed.is_some())
    }

    /// For people.
    pub(crate) fn reason(&self) -> String {
        let from = self.streams.iter().map(|(stream, dispute)| {
            let what = match stream.kind {
                unisono_engine::row::StreamKind::Rows => "rows",
                unisono_engine::row::StreamKind::DeadLetters => "dead letters",
            };
            format!(
                "{what} of pipeline {} from {} on",
                stream.incarnation.0, dispute.below
            )
        });
        let mut from = from.collect::<Vec<_>>().join(", ");
        if from.is_empty() {
            from = "the feed's state".to_owned();
        }
        let kept = self.evidence.as_deref().map_or_else(String::new, |path| {
            format!("; those that differ are kept in {path}")
        });
        match self.stage {
            Stage::Odd => format!(
                "this replica computed {from} otherwise than most others: it serves none of its feed until it has taken \
                 state and rows from one of them{kept}"
            ),
            _ if self.has_diverged() => format!(
                "computed again, {from} are not what they were: none is served before another replica tells which are \
                 right{kept}"
            ),
            Stage::Asking => format!("another replica computed {from} otherwise: all are asked"),
            Stage::Replaying(_) => format!(
                "another replica computed {from} otherwise, and there is no majority: they are computed again from the last \
                 checkpoint{kept}"
            ),
            Stage::Tied => format!(
                "another replica computed {from} otherwise, there is no majority, and computed again they are the same: \
                 nothing of them is published before a further replica can tell which are right, or one of both was started \
                 with an empty data directory{kept}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use unisono_engine::row::{Incarnation, StreamKind};

    use super::*;

    const FEED: FeedId = FeedId(3);
    const ROWS: StreamId = StreamId {
        incarnation: Incarnation(4),
        kind: StreamKind::Rows,
    };

    #[test]
    fn rows_in_dispute_begin_where_they_were_last_alike() {
        let (mut board, now) = (Board::default(), Instant::now());
        assert_eq!(
            (board.alike_below(ROWS), board.limit(FEED, ROWS)),
            (None, None)
        );
        board.alike(ROWS, 7);
        board.alike(ROWS, 5);
        assert!(board.raise(FEED, ROWS, 20, now));
        assert_eq!(board.limit(FEED, ROWS), Some(7));
        assert!(!board.raise(FEED, ROWS, 30, now));
        assert!(!board.raise(FEED, ROWS, 12, now));
        assert_eq!(board.of(FEED).map(|it| it.streams[&ROWS].next), Some(12));
        let letters = StreamId {
            kind: StreamKind::DeadLetters,
            ..ROWS
        };
        board.alike(letters, 3);
        assert_eq!(board.limit(FEED, letters), Some(3), "of the same feed");
        board.clear(FEED);
        assert_eq!(board.limit(FEED, ROWS), None);
    }

    #[test]
    fn who_computes_something_else_the_second_time_has_no_word() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.raise(FEED, ROWS, 20, now);
        assert!(board.of(FEED).is_some_and(|doubt| !doubt.is_out()));
        board.diverged(FEED, ROWS, 12, 99, now);
        assert!(board.of(FEED).is_some_and(Doubt::is_out));
        board.raise(FEED, ROWS, 5, now);
        assert_eq!(
            board.limit(FEED, ROWS),
            Some(11),
            "what was computed again is kept"
        );
        board.retain(|_| false, |_| true);
        assert!(board.feeds().is_empty());
    }
}
