//! Simulated threads: coroutines that are tasks, and give way where a thread would block.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LockResult, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::{Sleep, sleep, spawn, with};

/// How often a lock is looked at that somebody holds.
const LOOK: Duration = Duration::from_micros(200);

type Ways = Yielder<(), ()>;

thread_local! {
    /// The way back to the executor from the coroutine that runs, and who wakes it.
    static YIELDER: Cell<*const Ways> = const { Cell::new(ptr::null()) };
    static WAKER: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// A coroutine as a task.
struct Thread {
    coroutine: Coroutine<(), (), ()>,
    yielder: Rc<Cell<*const Ways>>,
}

// SAFETY: a simulation's tasks never leave the thread that it runs on; the executor's bounds are those of other executors.
unsafe impl Send for Thread {}

impl Thread {
    fn new(run: impl FnOnce() + 'static) -> Self {
        let yielder: Rc<Cell<*const Ways>> = Rc::new(Cell::new(ptr::null()));
        let own = Rc::clone(&yielder);
        let coroutine = Coroutine::new(move |ways: &Ways, ()| {
            own.set(ptr::from_ref(ways));
            YIELDER.set(own.get());
            run();
        });
        Self { coroutine, yielder }
    }
}

impl Future for Thread {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        YIELDER.set(self.yielder.get());
        WAKER.set(Some(context.waker().clone()));
        let result = self.coroutine.resume(());
        YIELDER.set(ptr::null());
        WAKER.set(None);
        match result {
            CoroutineResult::Yield(()) => Poll::Pending,
            CoroutineResult::Return(()) => Poll::Ready(()),
        }
    }
}

/// Waits for a future, in a simulated thread.
///
/// # Panics
/// It is called by a task that is no thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        let waker = WAKER.with_borrow(Clone::clone);
        let waker = waker.expect("only a thread may block");
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let yielder = YIELDER.get();
        assert!(!yielder.is_null(), "only a thread may block");
        // SAFETY: the coroutine that runs set it when it was resumed, and its yielder lives as long as it runs.
        unsafe { (*yielder).suspend(()) };
    }
}

/// Whether destructors run of a node that was killed: nobody waits any more.
fn is_dying() -> bool {
    with(|run| run.dying.get())
}

pub(in crate::rt) fn lock<T>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
            Err(TryLockError::WouldBlock) => block_on(sleep(LOOK)),
        }
    }
}

/// A thread that was started.
#[derive(Debug)]
pub struct SimulatedThread {
    has_ended: Arc<(AtomicBool, Waiters)>,
}

struct Ends(Arc<(AtomicBool, Waiters)>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
        self.0.1.wake();
    }
}

/// Starts a thread of the node that asks.
pub(in crate::rt) fn spawn_thread(run: impl FnOnce() + Send + 'static) -> SimulatedThread {
    let has_ended: Arc<(AtomicBool, Waiters)> = Arc::default();
    let ends = Ends(Arc::clone(&has_ended));
    drop(spawn(Thread::new(move || {
        let _ends = ends;
        run();
    })));
    SimulatedThread { has_ended }
}

/// Starts a thread of `node`.
pub fn spawn_thread_on(node: super::Node, run: impl FnOnce() + Send + 'static) {
    drop(super::spawn_on(node, Thread::new(run)));
}

/// Has a thread of its own do this.
pub(in crate::rt) fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> super::JoinHandle<T> {
    let output: Arc<Mutex<Option<T>>> = Arc::default();
    let slot = Arc::clone(&output);
    let thread = Thread::new(move || {
        let worked = work();
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(worked);
    });
    spawn(async move {
        thread.await;
        let worked = output.lock().unwrap_or_else(PoisonError::into_inner).take();
        worked.expect("a thread that ends has worked")
    })
}

impl SimulatedThread {
    pub(in crate::rt) fn join(&self) {
        let ended = || self.is_finished().then_some(());
        let _ = self.has_ended.1.wait(None, ended);
    }

    pub(in crate::rt) fn is_finished(&self) -> bool {
        self.has_ended.0.load(Ordering::Relaxed)
    }
}

/// Threads that wait for something to change.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<Vec<Waker>>);

impl Waiters {
    pub(in crate::rt) fn wake(&self) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.drain(..).for_each(Waker::wake);
    }

    /// Waits until `look` finds something, at most `timeout`.
    pub(in crate::rt) fn wait<T>(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = look() {
            return Some(found);
        }
        if timeout.is_some_and(|timeout| timeout.is_zero()) || is_dying() {
            return None;
        }
        block_on(Wait {
            waiters: self,
            late: timeout.map(sleep),
            look,
        })
    }

    pub(in crate::rt) fn wait_while<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        timeout: Option<Duration>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        let look = || match mutex.lock() {
            Ok(mut guard) => (!condition(&mut guard)).then_some(Ok(guard)),
            poisoned => Some(poisoned),
        };
        self.wait(timeout, look).unwrap_or_else(|| mutex.lock())
    }
}

struct Wait<'a, L> {
    waiters: &'a Waiters,
    late: Option<Sleep>,
    look: L,
}

impl<T, L: FnMut() -> Option<T>> Future for Wait<'_, L> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        // SAFETY: nothing in it is pinned: `Sleep` may be moved, and `look` is only called.
        let this = unsafe { self.get_unchecked_mut() };
        if let Some(found) = (this.look)() {
            return Poll::Ready(Some(found));
        }
        if let Some(late) = &mut this.late
            && Pin::new(late).poll(context).is_ready()
        {
            return Poll::Ready(None);
        }
        let mut waiting = this
            .waiters
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
