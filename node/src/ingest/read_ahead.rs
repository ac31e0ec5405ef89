//! How much may be read ahead: one budget for the node, shared by all lanes of all sources, whatever their number.
//!
//! Memory is counted as it is held: the capacity of the vectors, until the last part of a block is dropped, wherever it
//! is by then. Each lane has room for one largest batch outside of the budget, so that none starves. Beyond that it may
//! take a fixed multiple of what all lanes have left: lanes that want more than there is end up with equal shares, a lane
//! alone has nearly all, and a new one always finds some.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::signal::Signal;
use crate::source::Block;
use crate::threads::lock;

/// Room of a lane outside of the budget: a largest batch, by the defaults of Kafka's brokers.
pub const OUTSIDE: usize = 1 << 20;
/// A lane may hold so many times what is left: of `n` lanes that want all, each gets `1 / (n + 1 / EAGER)` of it.
const EAGER: usize = 4;
/// The part of the budget that the clients of Kafka may fill before a block is filled.
const CLIENTS_PART: usize = 4;
/// Bounds of what a client may hold for a lane. The lower one may exceed the budget: it is a lane's room outside of it.
const CLIENT_LEAST: usize = 256 << 10;
const CLIENT_MOST: usize = 4 << 20;

/// The node's budget, and the memory of blocks that nobody holds at the moment.
#[derive(Debug)]
pub struct ReadAhead {
    /// What lanes may hold in all beyond [`OUTSIDE`] each.
    limit: usize,
    /// What clients may hold in all.
    clients: usize,
    lanes: AtomicUsize,
    /// Memory of all blocks of all lanes.
    held: AtomicUsize,
    /// The part of it beyond [`OUTSIDE`] of each lane.
    beyond: AtomicUsize,
    spare: Mutex<Spare>,
}

#[derive(Debug, Default)]
struct Spare {
    blocks: Vec<Block>,
    memory: usize,
    /// Least number of blocks since the last trimming: so many were not needed.
    unused: usize,
}

impl ReadAhead {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Arc<Self> {
        let clients = bytes / CLIENTS_PART;
        Arc::new(Self {
            limit: bytes - clients,
            clients,
            lanes: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            beyond: AtomicUsize::new(0),
            spare: Mutex::default(),
        })
    }

    /// How many bytes a source's client may hold for each of its lanes.
    #[must_use]
    pub fn client_share(&self) -> usize {
        let lanes = self.lanes.load(Ordering::Relaxed).max(1);
        (self.clients / lanes).clamp(CLIENT_LEAST, CLIENT_MOST)
    }

    /// Memory of all blocks that were pushed and not dropped.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// An empty block, with memory from one that is done with.
    #[must_use]
    pub fn block(&self) -> Block {
        let mut spare = self.spare();
        let block = spare.blocks.pop().unwrap_or_default();
        spare.memory -= block.memory();
        spare.unused = spare.unused.min(spare.blocks.len());
        block
    }

    /// Keeps a block's memory for the next one, if all memory together stays within the budget.
    pub fn recycle(&self, mut block: Block) {
        block.clear();
        let memory = block.memory();
        let mut spare = self.spare();
        if memory > 0 && self.held() + spare.memory + memory <= self.limit {
            spare.memory += memory;
            spare.blocks.push(block);
        }
    }

    /// Gives back to the system half of the memory that nobody needed since the last call.
    pub fn trim(&self) {
        let mut spare = self.spare();
        let keep = spare.blocks.len() - spare.unused.div_ceil(2);
        let dropped = spare.blocks.split_off(keep);
        spare.memory -= dropped.iter().map(Block::memory).sum::<usize>();
        spare.unused = spare.blocks.len();
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        // No code panics between two changes that belong together.
        lock(&self.spare)
    }
}

/// What one lane holds.
#[derive(Debug)]
pub struct LaneRoom {
    node: Arc<ReadAhead>,
    held: AtomicUsize,
    /// The reader found no room: it is told when there is some again.
    starved: AtomicBool,
    reader: Arc<Signal>,
    /// It is no lane any more that the budget is shared with.
    left: AtomicBool,
}

impl LaneRoom {
    /// The room of one more lane, whose reader waits for `reader`.
    #[must_use]
    pub fn new(node: &Arc<ReadAhead>, reader: Arc<Signal>) -> Arc<Self> {
        node.lanes.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            node: Arc::clone(node),
            held: AtomicUsize::new(0),
            starved: AtomicBool::new(false),
            reader,
            left: AtomicBool::new(false),
        })
    }

    /// The budget is shared with the lane no more; once.
    pub(super) fn leave(&self) {
        if !self.left.swap(true, Ordering::Relaxed) {
            self.node.lanes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the lane's bound is not reached.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let beyond = self.held().saturating_sub(OUTSIDE);
        let left = self
            .node
            .limit
            .saturating_sub(self.node.beyond.load(Ordering::SeqCst));
        beyond == 0 || beyond < left.saturating_mul(EAGER)
    }

    /// Memory of the lane's blocks.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Asks that the reader be woken when there is room.
    pub(super) fn starve(&self) {
        self.starved.store(true, Ordering::SeqCst);
        // It may have come just before.
        if self.has_room() {
            self.feed();
        }
    }

    /// Wakes the reader if it found no room.
    pub(super) fn feed(&self) {
        if self.starved.swap(false, Ordering::SeqCst) {
            self.reader.raise();
        }
    }

    fn count(&self, before: usize, after: usize) {
        let over = |held: usize| held.saturating_sub(OUTSIDE);
        let add = |counter: &AtomicUsize, from: usize, to: usize| {
            // Wraps where it grows smaller.
            counter.fetch_add(to.wrapping_sub(from), Ordering::SeqCst)
        };
        add(&self.node.held, before, after);
        let lane_before = add(&self.held, before, after);
        let lane_after = lane_before.wrapping_add(after).wrapping_sub(before);
        add(&self.node.beyond, over(lane_before), over(lane_after));
    }
}

impl Drop for LaneRoom {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A block that counts against its lane's room until it is dropped; its memory is used again then.
#[derive(Debug)]
pub struct HeldBlock {
    block: Block,
    counted: usize,
    room: Arc<LaneRoom>,
}

impl HeldBlock {
    pub(super) fn new(block: Block, room: &Arc<LaneRoom>) -> Self {
        let counted = block.memory();
        room.count(0, counted);
        Self {
            block,
            counted,
            room: Arc::clone(room),
        }
    }

    /// Adds the records of a block that follows this one.
    pub(super) fn append(&mut self, following: &Block) {
        self.block.append(following);
        let memory = self.block.memory();
        self.room.count(self.counted, memory);
        self.counted = memory;
    }
}

impl Deref for HeldBlock {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.block
    }
}

impl Drop for HeldBlock {
    fn drop(&mut self) {
        self.room.count(self.counted, 0);
        self.room.node.recycle(std::mem::take(&mut self.block));
        if self.room.has_room() {
            self.room.feed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_engine::record::Stamp;

    fn lane(node: &Arc<ReadAhead>) -> Arc<LaneRoom> {
        LaneRoom::new(node, Arc::default())
    }

    fn block(bytes: usize) -> Block {
        let mut block = Block::default();
        block.push(0, 1, Stamp::None, Some(&vec![b'x'; bytes]));
        block
    }

    /// Fills all lanes by turns until none has room.
    fn fill(lanes: &[Arc<LaneRoom>]) -> Vec<HeldBlock> {
        let mut held = Vec::new();
        loop {
            let before = held.len();
            for lane in lanes {
                if lane.has_room() {
                    held.push(HeldBlock::new(block(64 << 10), lane));
                }
            }
            if held.len() == before {
                return held;
            }
        }
    }

    #[test]
    fn lanes_share_the_budget_alike_and_a_new_one_finds_room() {
        let node = ReadAhead::new(64 << 20);
        let lanes: Vec<_> = (0..4).map(|_| lane(&node)).collect();
        let held = fill(&lanes);
        let most = lanes.iter().map(|lane| lane.held()).max().unwrap_or(0);
        let least = lanes.iter().map(|lane| lane.held()).min().unwrap_or(0);
        assert!(most - least <= 128 << 10, "{least} to {most}");
        assert!(most > (48 << 20) / 5 && node.held() <= (48 << 20) + 4 * OUTSIDE);
        let new = lane(&node);
        let more = fill(std::slice::from_ref(&new));
        assert!(new.held() > OUTSIDE);
        drop((held, more));
        assert_eq!(node.held(), 0);
        assert_eq!(node.beyond.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_hundred_lanes_keep_within_the_budget_and_their_own_rooms() {
        let node = ReadAhead::new(8 << 20);
        let lanes: Vec<_> = (0..100).map(|_| lane(&node)).collect();
        let held = fill(&lanes);
        let bound = (8 << 20) + 100 * (OUTSIDE + (128 << 10));
        assert!(node.held() < bound, "{}", node.held());
        assert!(lanes.iter().all(|lane| lane.held() >= OUTSIDE));
        drop(held);
    }

    #[test]
    fn memory_is_used_again_and_given_back_when_it_is_not() {
        let node = ReadAhead::new(64 << 20);
        let lane = lane(&node);
        drop(HeldBlock::new(block(100_000), &lane));
        let again = node.block();
        assert!(again.is_empty() && again.memory() >= 100_000);
        node.recycle(again);
        // The first call learns that it is not needed.
        node.trim();
        node.trim();
        assert_eq!(node.block().memory(), 0);
        node.recycle(block(80 << 20));
        assert_eq!(node.block().memory(), 0, "more than the budget");
    }

    #[test]
    fn a_reader_without_room_is_woken_when_there_is_some() {
        let node = ReadAhead::new(0);
        let signal = Arc::new(Signal::default());
        let lane = LaneRoom::new(&node, Arc::clone(&signal));
        let held = [
            HeldBlock::new(block(OUTSIDE), &lane),
            HeldBlock::new(block(OUTSIDE), &lane),
        ];
        assert!(!lane.has_room());
        lane.starve();
        assert!(!signal.is_raised());
        let [first, second] = held;
        drop(first);
        assert!(!signal.is_raised(), "still too much");
        drop(second);
        assert!(signal.is_raised());
    }
}
