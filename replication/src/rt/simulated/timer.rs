//! Simulated timers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use super::with;

/// Those that are set, by their time.
#[derive(Default)]
pub(super) struct Timers {
    set: BinaryHeap<Reverse<Timer>>,
    /// Those of one time fire in the order in which they were set.
    count: u64,
}

struct Timer {
    at: u64,
    number: u64,
    waker: Waker,
    is_cancelled: Arc<AtomicBool>,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Timers {
    fn set(&mut self, at: u64, waker: Waker) -> Arc<AtomicBool> {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        self.count += 1;
        self.set.push(Reverse(Timer {
            at,
            number: self.count,
            waker,
            is_cancelled: Arc::clone(&is_cancelled),
        }));
        is_cancelled
    }

    /// Takes the first one.
    pub(super) fn next(&mut self) -> Option<(u64, Waker)> {
        loop {
            let Reverse(timer) = self.set.pop()?;
            if !timer.is_cancelled.load(Ordering::Relaxed) {
                return Some((timer.at, timer.waker));
            }
        }
    }
}

/// Waits until a moment.
#[derive(Debug)]
pub struct Sleep {
    at: u64,
    set: Option<(Waker, Arc<AtomicBool>)>,
}

impl Sleep {
    pub(super) fn until(at: u64) -> Self {
        Self { at, set: None }
    }

    fn cancel(&mut self) {
        if let Some((_, is_cancelled)) = self.set.take() {
            is_cancelled.store(true, Ordering::Relaxed);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if with(|run| run.now.get()) >= self.at {
            return Poll::Ready(());
        }
        let is_set = self.set.as_ref();
        if !is_set.is_some_and(|(waker, _)| waker.will_wake(context.waker())) {
            self.cancel();
            let waker = context.waker().clone();
            let timer = with(|run| run.timers.borrow_mut().set(self.at, waker.clone()));
            self.set = Some((waker, timer));
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}
