//! The ticks that a feed has yet to take in, as those see it who wait or judge by it: how old the oldest is, and how much
//! memory all of them hold. One feed that waits for its records never holds up the reader of the log, and with it all
//! others: when its ticks use up their memory, the feed ends here, and begins again from a checkpoint.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use unisono_replication::machine::{AcceptedMove, AcceptedTick};
use unisono_replication::rt;

use crate::threads::lock;

/// How much memory ticks may hold that wait for a feed: some hours of them. Beyond that the feed ends here.
const BYTES: usize = 256 << 20;

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Instant, usize)>,
    bytes: usize,
    /// Nobody takes ticks in any more.
    ended: bool,
}

impl Queue {
    /// Notes a tick that is handed over, if there is room for it.
    pub(super) fn enter(&self, tick: &AcceptedTick) -> bool {
        let mut state = lock(&self.state);
        if state.bytes >= BYTES && !state.ended {
            return false;
        }
        let weight = weight(tick);
        state.bytes += weight;
        state.waiting.push_back((rt::now(), weight));
        true
    }

    /// Notes that the oldest is taken in, or passed over.
    pub(super) fn leave(&self) {
        let mut state = lock(&self.state);
        if let Some((_, weight)) = state.waiting.pop_front() {
            state.bytes -= weight;
        }
    }

    /// Lets all in from now on: nobody takes ticks in any more.
    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
    }

    /// Since when the oldest waits.
    pub(super) fn since(&self) -> Option<Instant> {
        let state = lock(&self.state);
        state.waiting.front().map(|(since, _)| *since)
    }
}

fn weight(tick: &AcceptedTick) -> usize {
    size_of::<(AcceptedTick, Instant, usize)>()
        + tick.moves.len() * size_of::<AcceptedMove>()
        + tick.at_end.len() * size_of::<u32>()
}

#[cfg(test)]
mod tests {
    use unisono_replication::command::FeedId;

    use super::*;

    fn tick(lanes: u32) -> AcceptedTick {
        AcceptedTick {
            feed: FeedId(1),
            agreed_ms: 0,
            clock_ms: 0,
            moves: Vec::new(),
            at_end: (0..lanes).collect(),
            holes: Vec::new(),
            alone: false,
        }
    }

    #[test]
    fn ticks_are_taken_until_their_memory_is_used_up_and_nobody_waits() {
        let queue = Queue::default();
        let large = tick(8 << 20);
        let fills = BYTES / weight(&large) + 1;
        assert!((0..fills).all(|_| queue.enter(&large)));
        let oldest = queue.since();
        assert!(oldest.is_some() && !queue.enter(&tick(0)));
        queue.leave();
        assert!(queue.enter(&tick(0)));
        assert!(queue.since() > oldest);
        (0..fills).for_each(|_| queue.leave());
        assert_eq!((queue.since(), lock(&queue.state).bytes), (None, 0));
        assert!((0..fills).all(|_| queue.enter(&large)));
        queue.end();
        assert!(queue.enter(&large));
    }
}
