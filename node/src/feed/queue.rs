//! The ticks that a feed has yet to take in, as those see it who wait or judge by it: how old the oldest is, and how much
//! memory all of them hold. One feed that waits for its records must not hold up the reader of the log, and with it all
//! others, before that is a matter of memory.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use unisono_replication::machine::{AcceptedMove, AcceptedTick};

use unisono_replication::rt::Condvar;

use crate::threads::{lock, wait_while};
use unisono_replication::rt;

/// How much memory ticks may hold that wait for a feed: some hours of them. Beyond that the reader of the log waits.
const BYTES: usize = 256 << 20;

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    shorter: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Instant, usize)>,
    bytes: usize,
    /// Nobody takes ticks in any more.
    ended: bool,
}

impl Queue {
    /// Notes a tick that is handed over; waits while too many are waiting already.
    pub(super) fn enter(&self, tick: &AcceptedTick) {
        let is_full = |state: &mut State| state.bytes >= BYTES && !state.ended;
        let mut state = wait_while((&self.shorter, &self.state), lock(&self.state), is_full);
        let weight = weight(tick);
        state.bytes += weight;
        state.waiting.push_back((rt::now(), weight));
    }

    /// Notes that the oldest is taken in, or passed over.
    pub(super) fn leave(&self) {
        let mut state = lock(&self.state);
        if let Some((_, weight)) = state.waiting.pop_front() {
            state.bytes -= weight;
        }
        drop(state);
        self.shorter.notify_one();
    }

    /// Lets all in from now on: nobody takes ticks in any more.
    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.shorter.notify_one();
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
    use std::sync::Arc;

    use unisono_replication::command::FeedId;

    use super::*;

    fn tick(lanes: u32) -> AcceptedTick {
        AcceptedTick {
            feed: FeedId(1),
            agreed_ms: 0,
            clock_ms: 0,
            moves: Vec::new(),
            at_end: (0..lanes).collect(),
        }
    }

    #[test]
    fn whoever_hands_over_waits_only_when_the_memory_is_used_up() {
        let queue = Arc::new(Queue::default());
        let large = tick(8 << 20);
        let fills = BYTES / weight(&large) + 1;
        (0..fills).for_each(|_| queue.enter(&large));
        let entering = Arc::clone(&queue);
        let waits = std::thread::spawn(move || entering.enter(&tick(0)));
        let oldest = queue.since();
        assert!(!waits.is_finished() && oldest.is_some());
        queue.leave();
        waits.join().expect("it goes on");
        assert!(queue.since() > oldest);
        (0..fills).for_each(|_| queue.leave());
        assert_eq!((queue.since(), lock(&queue.state).bytes), (None, 0));
        (0..fills).for_each(|_| queue.enter(&large));
        queue.end();
        queue.enter(&large);
    }
}
