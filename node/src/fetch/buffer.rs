//! The records of one lane that were read and not yet taken in: one writer (the fetcher), one taker (the feed).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::chunk::{Chunk, Force};

/// Evidence that a lane was at its end counts for so long.
const FRESH: Duration = Duration::from_millis(1000);

/// A bounded queue of decoded records. The bound yields where a committed tick asks for more: every tick can be served.
#[derive(Debug)]
pub struct LaneBuffer {
    limit: usize,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug)]
struct State {
    chunks: VecDeque<Arc<Chunk>>,
    bytes: usize,
    /// All records below have arrived (holes left by markers and compaction among them).
    delivered_to: i64,
    /// All records below have been taken.
    taken_to: i64,
    /// The cut that the feed waits for.
    wanted: i64,
    /// Where the lane ends, and when that was known.
    at_end: Option<(i64, Instant)>,
    fault: Option<String>,
    /// Who waits for the next record to arrive.
    waiting: Option<Arc<Notify>>,
}

/// A cut that this replica could propose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutChoice {
    pub cut: i64,
    pub fingerprint: u64,
}

/// Why the records of a tick cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// Not yet: ask again.
    #[error("not delivered yet")]
    NotYet,
    /// The lane cannot be read on: stop the feed.
    #[error("{0}")]
    Fault(String),
    /// A tick was left out, or taken twice: a fault of this program. Stop the feed before a wrong row comes of it.
    #[error(
        "a tick asks for offsets from {from} on, but those up to {taken_to} were taken in: this is a fault of Unisono; \
         restart this node, and report it"
    )]
    OutOfStep { from: i64, taken_to: i64 },
    /// This replica read other records than the leader: stop the feed before they are taken in.
    #[error(
        "offsets {from} to {to} hold other records here than on the leader: the lane was truncated, recreated or \
         rewritten; restore it, or wipe this replica's data directory so that it takes a peer's state"
    )]
    OtherRecords { from: i64, to: i64 },
}

/// Records of one chunk.
pub type Part = (Arc<Chunk>, Range<usize>);

impl LaneBuffer {
    /// A buffer of at most about `limit` bytes of raw records, of a lane that is taken in up to `from`.
    #[must_use]
    pub fn new(limit: usize, from: i64) -> Self {
        let state = State {
            chunks: VecDeque::new(),
            bytes: 0,
            delivered_to: from,
            taken_to: from,
            wanted: from,
            at_end: None,
            fault: None,
            waiting: None,
        };
        Self {
            limit,
            state: Mutex::new(state),
            arrived: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock; if it did, the queue itself is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the fetcher should read on.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let state = self.lock();
        state.bytes < self.limit || state.delivered_to < state.wanted
    }

    /// Adds the next records.
    pub fn push(&self, chunk: Chunk) {
        let Some(last) = chunk.last() else { return };
        let mut state = self.lock();
        state.bytes += chunk.byte_len();
        state.delivered_to = last.next;
        state.at_end = None;
        state.chunks.push_back(Arc::new(chunk));
        let waiting = state.waiting.take();
        drop(state);
        self.arrived.notify_all();
        if let Some(waiting) = waiting {
            waiting.notify_one();
        }
    }

    /// Has `waiting` woken once, when the next records arrive. Who asks and then looks at what is here misses nothing.
    pub fn tell_next_arrival(&self, waiting: &Arc<Notify>) {
        self.lock()
            .waiting
            .get_or_insert_with(|| Arc::clone(waiting));
    }

    /// Notes whether the lane is at its end, on evidence of this moment.
    pub fn set_at_end(&self, end: Option<i64>) {
        self.lock().at_end = end.map(|end| (end, Instant::now()));
    }

    /// Notes that the lane cannot be read on.
    pub fn fail(&self, fault: String) {
        self.lock().fault = Some(fault);
        self.arrived.notify_all();
    }

    /// Why the lane cannot be read on, if so.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// The furthest cut above `from` of at most `max_bytes` of records (one record may be more): what a leader proposes.
    #[must_use]
    pub fn choose_cut(&self, from: i64, max_bytes: usize) -> Option<CutChoice> {
        let state = self.lock();
        let mut budget = max_bytes;
        let mut choice: Option<CutChoice> = None;
        for chunk in &state.chunks {
            if chunk.last().is_none_or(|last| last.next <= from) {
                continue;
            }
            let force = if choice.is_none() {
                Force::OneRecord
            } else {
                Force::Nothing
            };
            let Some((mark, bytes)) = chunk.furthest(from, budget, force) else {
                break;
            };
            choice = Some(CutChoice {
                cut: mark.next,
                fingerprint: mark.fingerprint,
            });
            budget = budget.saturating_sub(bytes);
            if Some(mark) != chunk.last() {
                break;
            }
        }
        choice
    }

    /// Whether nothing above `cut` can be read now, on evidence fresh enough.
    #[must_use]
    pub fn is_at_end(&self, cut: i64) -> bool {
        let state = self.lock();
        let fresh = |(end, at): (i64, Instant)| end >= cut && at.elapsed() < FRESH;
        state.delivered_to <= cut && state.at_end.is_some_and(fresh)
    }

    /// How many bytes wait here, and up to which offset records have arrived.
    #[must_use]
    pub fn level(&self) -> (usize, i64) {
        let state = self.lock();
        (state.bytes, state.delivered_to)
    }

    /// The records with offsets in `from..to`, whose fingerprint must be `fingerprint`; waits for them up to `timeout`.
    /// They are gone from the buffer then.
    ///
    /// # Errors
    /// What the caller does next is in [`TakeError`].
    pub fn take(
        &self,
        from: i64,
        to: i64,
        fingerprint: u64,
        timeout: Duration,
    ) -> Result<Vec<Part>, TakeError> {
        let mut state = self.lock();
        if from != state.taken_to {
            let taken_to = state.taken_to;
            return Err(TakeError::OutOfStep { from, taken_to });
        }
        state.wanted = state.wanted.max(to);
        let waiting = |state: &mut State| state.delivered_to < to && state.fault.is_none();
        let waited = self.arrived.wait_timeout_while(state, timeout, waiting);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.delivered_to < to {
            return Err(state
                .fault
                .clone()
                .map_or(TakeError::NotYet, TakeError::Fault));
        }
        let last = state
            .chunks
            .iter()
            .filter_map(|chunk| chunk.last_up_to(to))
            .next_back();
        if last.is_none_or(|last| last.next != to || last.fingerprint != fingerprint) {
            return Err(TakeError::OtherRecords { from, to });
        }
        state.taken_to = to;
        Ok(state.take(from, to))
    }
}

impl State {
    fn take(&mut self, from: i64, to: i64) -> Vec<Part> {
        let mut parts = Vec::new();
        while let Some(chunk) = self.chunks.front() {
            let range = chunk.batch.range(from, to);
            if !range.is_empty() {
                parts.push((Arc::clone(chunk), range));
            }
            if chunk.last().is_some_and(|last| last.next > to) {
                break;
            }
            self.bytes -= chunk.byte_len();
            self.chunks.pop_front();
        }
        parts
    }
}

#[cfg(test)]
mod tests;
