//! The records of one lane that were read and not yet taken in: one writer (the reading thread), one taker.

mod dispute;
mod ends;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use unisono_replication::machine::{Hole, Marks};

use super::end::End;
use super::lookout::Lookout;
use super::read_ahead::{HeldBlock, LaneRoom};
use crate::source::Block;
use crate::threads::lock;
pub use dispute::Disputed;
use dispute::other_records;

/// Evidence that a lane was at its end counts for so long.
const FRESH: Duration = Duration::from_millis(1000);
/// A block that weighs this much is full: what comes next is no longer put into it.
pub(super) const FULL: usize = 256 << 10;
/// Of a block lighter than that the records are put into the one before, so that many small ones do not hold memory for
/// large ones.
const SMALL: usize = FULL / 4;

/// A bounded queue of raw records. The bound yields where a committed tick asks for more: every tick can be served.
pub struct LaneBuffer {
    room: Arc<LaneRoom>,
    state: Mutex<State>,
    pub(super) lookout: Lookout,
}

struct State {
    blocks: VecDeque<Queued>,
    /// What all records so far weighed, those that were taken too.
    weight: u64,
    /// All records below have arrived (holes left by markers and compaction among them).
    delivered_to: i64,
    /// All records below have been taken.
    taken_to: i64,
    /// The cut that the taker waits for.
    wanted: i64,
    /// Somebody waits for it, and has not been told that it has come.
    awaited: bool,
    waker: Option<Waker>,
    /// Where the lane ends, and when that was known.
    at_end: Option<(i64, Instant)>,
    /// Where its log ends, read or not, and when that was told.
    log_end: Option<(i64, Instant)>,
    /// What else is known of it.
    end: End,
    fault: Option<String>,
    /// Other records were agreed than those that were in hand, which were dropped.
    dispute: Option<Disputed>,
    /// The reader is to read the lane again from where it was taken in, for this reason.
    again: Option<String>,
    /// The fingerprint of all that was taken, and of some cuts before.
    fingerprint: u64,
    marks: Marks,
    /// Where it is agreed to hold no record.
    hole: Hole,
    /// Who waits for records to arrive, and how many bytes of them are still to come.
    waiting: Option<(Arc<Notify>, usize)>,
}

/// A block that was not wholly taken; it has one record at least.
struct Queued {
    block: Arc<HeldBlock>,
    /// The weight of all records before it.
    before: u64,
    /// Where its last record ends.
    next: i64,
}

/// Called when a cut that was wanted has arrived.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// A cut that this replica could propose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutChoice {
    /// The offset one past the last record below it.
    pub cut: i64,
    /// The fingerprint of all records below it.
    pub fingerprint: u64,
}

/// Why the records of a tick cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum TakeError {
    /// Not yet: ask again.
    #[error("not delivered yet")]
    NotYet,
    /// A tick was left out, or taken twice: a fault of this program. Stop the feed before a wrong row comes of it.
    #[error(
        "a tick asks for offsets from {from} on, but those up to {taken_to} were taken in: this is a fault of Unisono; \
         restart this node, and report it"
    )]
    OutOfStep { from: i64, taken_to: i64 },
}

/// Records of one block: its memory is used again when the last part of it is dropped.
pub type Part = (Arc<HeldBlock>, Range<usize>);

impl fmt::Debug for LaneBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("LaneBuffer")
            .field("blocks", &state.blocks.len())
            .field("delivered_to", &state.delivered_to)
            .field("taken_to", &state.taken_to)
            .finish_non_exhaustive()
    }
}

impl LaneBuffer {
    /// A buffer within `room`, of a lane that begins at `from`.
    #[must_use]
    pub fn new(room: Arc<LaneRoom>, from: i64) -> Self {
        Self::after(room, from, 0, Marks::new(from))
    }

    /// A buffer within `room`, of a lane that is taken in up to `from`; all below has this fingerprint.
    #[must_use]
    pub fn after(room: Arc<LaneRoom>, from: i64, fingerprint: u64, marks: Marks) -> Self {
        let state = State {
            blocks: VecDeque::new(),
            weight: 0,
            delivered_to: from,
            taken_to: from,
            wanted: from,
            awaited: false,
            waker: None,
            at_end: None,
            log_end: None,
            end: End::default(),
            fault: None,
            dispute: None,
            again: None,
            fingerprint,
            marks,
            hole: Hole::default(),
            waiting: None,
        };
        Self {
            room,
            state: Mutex::new(state),
            lookout: Lookout::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Says whom to call when a cut that [`Self::take`] did not find has arrived.
    pub fn set_waker(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// Whether the reader should read on. If not, it is woken when it should.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let wanted = {
            let state = self.lock();
            state.delivered_to < state.wanted
        };
        if wanted || self.room.has_room() {
            return true;
        }
        self.room.starve();
        false
    }

    /// How much memory the lane's blocks hold, those among them that are being taken in: who holds least is served first.
    #[must_use]
    pub fn held(&self) -> usize {
        self.room.held()
    }

    /// Adds the next records, whose fingerprints are computed. Gives the block back if it can be filled again.
    pub fn push(&self, block: Block) -> Option<Block> {
        let Some(next) = block.heads().last().map(|head| head.next) else {
            return Some(block);
        };
        let sighted = self.lookout.look(&block);
        let mut state = self.lock();
        if state.again.is_some() {
            // It does not follow on what is here.
            return Some(block);
        }
        let weight = block.weight();
        let before = state.weight;
        state.weight += weight as u64;
        state.delivered_to = next;
        state.forget_end();
        let returned = if state.joins_last(&block, next) {
            Some(block)
        } else {
            let block = Arc::new(HeldBlock::new(block, &self.room));
            state.blocks.push_back(Queued {
                block,
                before,
                next,
            });
            None
        };
        let waiting = state.waiting.take_if(|(_, left)| {
            *left = left.saturating_sub(weight);
            *left == 0
        });
        if state.delivered_to >= state.wanted {
            self.wake(state);
        } else {
            drop(state);
        }
        if let Some((waiting, _)) = waiting {
            waiting.notify_one();
        }
        if let Some(tell) = sighted {
            tell();
        }
        returned
    }

    /// Has `waiting` woken once, when from now on records arrive that weigh `bytes` together (0: any), instead of when that
    /// was asked before. Who asks and then looks at what is here misses nothing.
    pub fn tell_arrival(&self, waiting: &Arc<Notify>, bytes: usize) {
        let mut state = self.lock();
        let new = || (Arc::clone(waiting), bytes);
        state.waiting.get_or_insert_with(new).1 = bytes;
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        if !std::mem::take(&mut state.awaited) {
            return;
        }
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker();
        }
    }

    /// Notes that the lane cannot be read for now. Who takes from it waits: what is wanted may still come.
    pub fn fail(&self, fault: String) {
        let mut state = self.lock();
        state.fault = Some(fault);
        state.forget_end();
        state.log_end = None;
    }

    /// Notes that the lane can be read again.
    pub fn recover(&self) {
        self.lock().fault = None;
    }

    /// Nothing more comes of the lane: what it has beyond what was taken is given up.
    pub fn retire(&self) {
        let mut state = self.lock();
        state.blocks.clear();
        state.fault = None;
        state.forget_end();
        drop(state);
        self.room.leave();
    }

    /// Why the lane cannot be read at the moment, if so.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let state = self.lock();
        let disputed = || state.dispute.map(|it| other_records(it.from, it.to));
        state.fault.clone().or_else(disputed)
    }

    /// The furthest cut above `from` of records that weigh at most `max_bytes` (one record may weigh more): what a leader
    /// proposes.
    #[must_use]
    pub fn choose_cut(&self, from: i64, max_bytes: usize) -> Option<CutChoice> {
        let state = self.lock();
        let (first, base) = state.above(from)?;
        let most = base.saturating_add(max_bytes as u64);
        // The last block of which some record may fit; the first one gives a record whatever it weighs.
        let fitting = state.blocks.partition_point(|queued| queued.before < most);
        let last = fitting.saturating_sub(1).max(first);
        let queued = &state.blocks[last];
        let heads = queued.block.heads();
        let fits = |count: usize| queued.before + queued.block.weight_of(count) as u64 <= most;
        let mut count = partition_point(heads.len(), fits);
        if last == first {
            count = count.max(queued.block.count_up_to(from) + 1);
        }
        // No record of that block fits, so the one before it is the furthest.
        let head = match count.checked_sub(1) {
            Some(index) => heads.get(index),
            None => state.blocks[last - 1].block.heads().last(),
        };
        head.map(|head| CutChoice {
            cut: head.next,
            fingerprint: head.fingerprint,
        })
    }

    /// The furthest cut up to `limit` of records in hand: where another feed may have its own.
    #[must_use]
    pub fn cut_up_to(&self, limit: i64) -> Option<CutChoice> {
        self.lock().cut_up_to(limit)
    }

    /// The fingerprint of the record in hand that ends at `cut`.
    #[must_use]
    pub fn fingerprint_at(&self, cut: i64) -> Option<u64> {
        self.lock().fingerprint_at(cut)
    }

    /// Has the lane read again from where it was taken in: what is in hand is not what the other replicas hold.
    pub fn read_again(&self, reason: &str) {
        self.lock().drop_read(reason.to_owned());
        self.room.feed();
    }

    /// Where the reader is to begin anew, with the fingerprint and the marks there, and why; once.
    #[must_use]
    pub fn take_again(&self) -> Option<(i64, u64, Marks, String)> {
        let mut state = self.lock();
        let reason = state.again.take()?;
        Some((state.taken_to, state.fingerprint, state.marks, reason))
    }

    /// What the records in hand above `from` weigh.
    #[must_use]
    pub fn backlog(&self, from: i64) -> usize {
        let state = self.lock();
        state.backlog(from)
    }

    /// How many bytes wait here, and up to which offset records have arrived.
    #[must_use]
    pub fn level(&self) -> (usize, i64) {
        let state = self.lock();
        (state.backlog(state.taken_to), state.delivered_to)
    }

    /// The records with offsets in `from..to`, whose fingerprint must be `fingerprint`; they are gone from the buffer then.
    /// Does not wait: if they are not there yet, the waker is called when they are.
    ///
    /// # Errors
    /// What the caller does next is in [`TakeError`].
    pub fn take(&self, from: i64, to: i64, fingerprint: u64) -> Result<Vec<Part>, TakeError> {
        let mut state = self.lock();
        if from != state.taken_to {
            let taken_to = state.taken_to;
            return Err(TakeError::OutOfStep { from, taken_to });
        }
        if state.delivered_to < to {
            state.wanted = state.wanted.max(to);
            state.awaited = true;
            self.room.feed();
            return Err(TakeError::NotYet);
        }
        let is_agreed = state.fingerprint_at(to) == Some(fingerprint);
        state.dispute = (!is_agreed).then(|| state.disputed(from, to, fingerprint));
        if !is_agreed {
            // They may be right next time: a file that is being restored, a memory that failed once.
            state.drop_read(other_records(from, to));
            state.wanted = state.wanted.max(to);
            state.awaited = true;
            self.room.feed();
            return Err(TakeError::NotYet);
        }
        state.taken_to = to;
        state.fingerprint = fingerprint;
        state.marks.pass(to, fingerprint);
        Ok(state.take(from, to))
    }
}

impl State {
    /// Forgets what was read and not taken.
    fn drop_read(&mut self, reason: String) {
        self.blocks.clear();
        self.delivered_to = self.taken_to;
        self.forget_end();
        self.again = Some(reason);
    }

    /// The furthest cut up to `limit` of records in hand.
    fn cut_up_to(&self, limit: i64) -> Option<CutChoice> {
        let whole = self.blocks.partition_point(|queued| queued.next <= limit);
        let partly = self.blocks.get(whole).and_then(|queued| {
            let last = queued.block.count_up_to(limit).checked_sub(1)?;
            queued.block.heads().get(last)
        });
        let head = match partly {
            Some(head) => Some(head),
            None => self.blocks[whole.checked_sub(1)?].block.heads().last(),
        };
        head.map(|head| CutChoice {
            cut: head.next,
            fingerprint: head.fingerprint,
        })
    }

    fn forget_end(&mut self) {
        (self.at_end, self.end) = (None, End::default());
    }

    /// Puts a small block's records into the last block, if nobody has a part of that and it is not full.
    fn joins_last(&mut self, block: &Block, next: i64) -> bool {
        let weight = block.weight();
        let Some(last) = self.blocks.back_mut().filter(|_| weight < SMALL) else {
            return false;
        };
        let Some(held) = Arc::get_mut(&mut last.block) else {
            return false;
        };
        if held.weight() + weight > FULL {
            return false;
        }
        held.append(block);
        last.next = next;
        true
    }

    /// The first block with a record above `from`, and the weight of all records below that.
    fn above(&self, from: i64) -> Option<(usize, u64)> {
        let first = self.blocks.partition_point(|queued| queued.next <= from);
        let queued = self.blocks.get(first)?;
        let below = queued.block.weight_of(queued.block.count_up_to(from));
        Some((first, queued.before + below as u64))
    }

    fn backlog(&self, from: i64) -> usize {
        let weight = self.above(from).map_or(0, |(_, base)| self.weight - base);
        usize::try_from(weight).unwrap_or(usize::MAX)
    }

    /// The fingerprint of the record that ends at `cut`.
    fn fingerprint_at(&self, cut: i64) -> Option<u64> {
        let index = self.blocks.partition_point(|queued| queued.next < cut);
        let block = &self.blocks.get(index)?.block;
        let last = block.count_up_to(cut).checked_sub(1)?;
        let head = &block.heads()[last];
        (head.next == cut).then_some(head.fingerprint)
    }

    fn take(&mut self, from: i64, to: i64) -> Vec<Part> {
        let mut parts = Vec::new();
        while let Some(queued) = self.blocks.front() {
            let range = queued.block.count_up_to(from)..queued.block.count_up_to(to);
            if !range.is_empty() {
                parts.push((Arc::clone(&queued.block), range));
            }
            if queued.next > to {
                break;
            }
            self.blocks.pop_front();
        }
        parts
    }
}

/// How many of `0..=len` things hold, counted from 1, where those that hold come first.
fn partition_point(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests;
