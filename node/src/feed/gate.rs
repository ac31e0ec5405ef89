//! The barrier as threads meet at it: workers arrive, the feed's thread waits.

use std::sync::{Mutex, MutexGuard};

use unisono_replication::rt::Condvar;

use super::barrier::{Barrier, Standing};

use crate::ingest::TakeError;
use crate::threads::{lock, wait_while};

/// A barrier that its feed waits at.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    barrier: Barrier,
    /// The feed is being dropped: nobody needs to wait any more.
    abandoned: bool,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A tick begins for these lanes.
    pub fn begin(&self, lanes: impl IntoIterator<Item = u32>) {
        self.lock().barrier.begin(lanes);
    }

    /// A lane has taken in its records, or cannot.
    pub fn arrive(&self, lane: u32, result: Result<(), TakeError>) {
        if self.lock().barrier.arrive(lane, result) {
            self.changed.notify_all();
        }
    }

    /// Ends the waiting for good.
    pub fn abandon(&self) {
        self.lock().abandoned = true;
        self.changed.notify_all();
    }

    /// Whether the feed is being dropped.
    pub fn is_abandoned(&self) -> bool {
        self.lock().abandoned
    }

    /// Waits until the tick is complete or failed; `None` if the feed is being dropped.
    pub fn wait(&self) -> Option<Standing> {
        let waiting =
            |state: &mut State| !state.abandoned && state.barrier.standing() == Standing::Waiting;
        let state = wait_while((&self.changed, &self.state), self.lock(), waiting);
        (!state.abandoned).then(|| state.barrier.standing())
    }
}
