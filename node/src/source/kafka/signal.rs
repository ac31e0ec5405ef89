//! Wakes the fetch thread when some lane has something.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A flag that stays raised until one waiter has seen it, so that a wake-up between two waits is not lost.
#[derive(Default)]
pub(super) struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Raises the flag; cheap enough for librdkafka's callbacks.
    pub(super) fn raise(&self) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits until the flag is raised, at most `timeout`, and lowers it.
    pub(super) fn wait(&self, timeout: Duration) {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut raised, _) = self
            .changed
            .wait_timeout_while(raised, timeout, |raised| !*raised)
            .unwrap_or_else(PoisonError::into_inner);
        *raised = false;
    }
}
