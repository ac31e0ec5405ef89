//! What a simulated task leaves to whoever waits for its end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
struct Join<T> {
    value: Option<T>,
    is_gone: bool,
    waiter: Option<Waker>,
}

type Shared<T> = Arc<Mutex<Join<T>>>;

fn lock<T>(join: &Shared<T>) -> MutexGuard<'_, Join<T>> {
    join.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the waiter that the task is gone, however it went.
struct Guard<T>(Shared<T>);

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        let waiter = {
            let mut join = lock(&self.0);
            join.is_gone = true;
            join.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// Waits for a task's end. The task goes on if this is dropped.
#[derive(Debug)]
pub struct JoinHandle<T>(Shared<T>);

impl<T> JoinHandle<T> {
    pub(in crate::rt) fn is_finished(&self) -> bool {
        lock(&self.0).is_gone
    }
}

/// The task was dropped: its node was killed.
#[derive(Clone, Copy, Debug)]
pub struct Ended;

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Ended>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut join = lock(&self.0);
        if let Some(value) = join.value.take() {
            return Poll::Ready(Ok(value));
        }
        if join.is_gone {
            return Poll::Ready(Err(Ended));
        }
        join.waiter = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The future as a task, and its handle.
pub(super) fn joined<F>(future: F) -> (JoinHandle<F::Output>, impl Future<Output = ()>)
where
    F: Future<Output: Send> + Send + 'static,
{
    let shared = Arc::new(Mutex::new(Join {
        value: None,
        is_gone: false,
        waiter: None,
    }));
    let guard = Guard(Arc::clone(&shared));
    let work = async move {
        let value = future.await;
        lock(&guard.0).value = Some(value);
    };
    (JoinHandle(shared), work)
}
