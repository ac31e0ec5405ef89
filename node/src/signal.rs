//! Wakes a reading thread: when a source may have something, and when there is something else to do.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use unisono_replication::rt::Condvar;

use crate::threads::{lock, wait_timeout_while};

/// A flag that stays raised until one waiter has seen it, so that a wake-up between two waits is not lost.
#[derive(Debug, Default)]
pub struct Signal {
    raised: AtomicBool,
    waiting: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Raises the flag; cheap enough for callbacks of a client's threads: the system is asked only if somebody waits.
    pub fn raise(&self) {
        if self.raised.swap(true, Ordering::SeqCst) {
            return;
        }
        let waiting = *lock(&self.waiting);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// Whether the flag is raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// Waits until the flag is raised, at most `timeout`, and lowers it. Gives whether it was raised.
    pub fn wait(&self, timeout: Duration) -> bool {
        if !self.is_raised() {
            let mut waiting = lock(&self.waiting);
            *waiting = true;
            let lowered = |_: &mut bool| !self.is_raised();
            let mut waiting =
                wait_timeout_while((&self.changed, &self.waiting), waiting, timeout, lowered);
            *waiting = false;
        }
        self.raised.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_signal_raised_before_or_during_a_wait_ends_it() {
        let signal = Arc::new(Signal::default());
        let long = Duration::from_secs(60);
        let started = Instant::now();
        signal.raise();
        assert!(signal.wait(long));
        let other = Arc::clone(&signal);
        let thread = std::thread::spawn(move || other.raise());
        assert!(signal.wait(long) && thread.join().is_ok());
        assert!(started.elapsed() < long);
        assert!(!signal.wait(Duration::ZERO) && !signal.wait(Duration::from_millis(1)));
    }
}
