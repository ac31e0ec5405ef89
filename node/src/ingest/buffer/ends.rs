//! What is known of a lane's end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_replication::machine::Hole;
use unisono_replication::rt;

use super::super::read_ahead::HeldBlock;
use super::{End, FRESH, LaneBuffer};

/// What was known of the end of a lane's log counts for so long.
const END_FRESH: Duration = Duration::from_secs(3);

impl LaneBuffer {
    /// Notes what is known of the lane's end at this moment.
    pub fn set_end(&self, end: End) {
        let mut state = self.lock();
        state.at_end = end.at.map(|at| (at, rt::now()));
        state.end = end;
    }

    /// Whether nothing above `cut` can be read now, on evidence fresh enough.
    #[must_use]
    pub fn is_at_end(&self, cut: i64) -> bool {
        self.end_beyond(cut).is_some()
    }

    /// Where the lane ends, if nothing between `cut` and there can be read now, on evidence fresh enough.
    #[must_use]
    pub fn end_beyond(&self, cut: i64) -> Option<i64> {
        let state = self.lock();
        let fresh = |&(end, at): &(i64, Instant)| end >= cut && rt::since(at) < FRESH;
        let end = state.at_end.filter(fresh)?.0;
        (state.delivered_to <= cut).then_some(end)
    }

    /// Notes where the lane is agreed to hold no record.
    pub fn set_hole(&self, hole: Hole) {
        self.lock().hole = hole;
    }

    /// Where a lane that was read up to `offset` may hold a record again, as far as is agreed.
    #[must_use]
    pub fn behind_hole(&self, offset: i64) -> i64 {
        self.lock().hole.of(offset)
    }

    /// Notes where the lane's log ends, if that is known at this moment. Nothing follows from it: it is shown.
    pub fn set_log_end(&self, end: Option<i64>) {
        self.lock().log_end = end.map(|end| (end, rt::now()));
    }

    /// Where the lane's log ends, and how far that is from `cut`: `None` where that is not known of late. What is known to
    /// hold no record any more (markers of transactions) is not far.
    #[must_use]
    pub fn beyond(&self, cut: i64) -> Option<(i64, i64)> {
        let (end, at) = self.lock().log_end?;
        if rt::since(at) >= END_FRESH {
            return None;
        }
        let end = end.max(cut);
        Some((end, if self.is_at_end(cut) { 0 } else { end - cut }))
    }

    /// For how long nothing has come of the lane and its source has not answered, where that is longer than it ever takes.
    #[must_use]
    pub fn silence(&self) -> Option<Duration> {
        self.lock().end.silence()
    }

    /// For how long the lane's source was not heard of, however short that is, and how long its slowest answer of late took.
    #[must_use]
    pub fn unheard(&self) -> (Duration, Duration) {
        let end = self.lock().end;
        (end.unheard(), end.slowest())
    }

    /// Since when an open transaction has kept more of the lane from being read, if so.
    #[must_use]
    pub fn held_since(&self) -> Option<Instant> {
        self.lock().end.held_since
    }

    /// The block with the newest record in hand.
    pub(in crate::ingest) fn newest(&self) -> Option<Arc<HeldBlock>> {
        let state = self.lock();
        state.blocks.back().map(|queued| Arc::clone(&queued.block))
    }
}
