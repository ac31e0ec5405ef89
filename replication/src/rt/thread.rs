//! Threads, and all on which they wait. In a simulation each is a coroutine, which gives way wherever it would block.

use std::io;
use std::sync::{LockResult, Mutex, MutexGuard};
use std::time::Duration;

#[cfg(feature = "simulation")]
use super::simulated;

/// A thread that was started.
#[derive(Debug)]
pub enum Thread {
    /// The system's.
    Real(std::thread::JoinHandle<()>),
    /// A simulation's.
    #[cfg(feature = "simulation")]
    Simulated(simulated::SimulatedThread),
}

/// Starts a thread of that name.
///
/// # Errors
/// The system has no thread left.
pub fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return Ok(Thread::Simulated(simulated::spawn_thread(run)));
    }
    std::thread::Builder::new()
        .name(name)
        .spawn(run)
        .map(Thread::Real)
}

impl Thread {
    /// Waits for its end.
    ///
    /// # Errors
    /// It panicked.
    pub fn join(self) -> std::thread::Result<()> {
        match self {
            Self::Real(thread) => thread.join(),
            #[cfg(feature = "simulation")]
            Self::Simulated(thread) => {
                thread.join();
                Ok(())
            }
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Real(thread) => thread.is_finished(),
            #[cfg(feature = "simulation")]
            Self::Simulated(thread) => thread.is_finished(),
        }
    }
}

/// The thread rests for so long.
pub fn sleep(duration: Duration) {
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return simulated::block_on(simulated::sleep(duration));
    }
    std::thread::sleep(duration);
}

/// Runs a future on a runtime of this thread alone; what it spawned ends with it.
///
/// # Errors
/// The system gives no runtime.
pub fn run<T>(future: impl Future<Output = T>) -> io::Result<T> {
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return Ok(simulated::block_on(future));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let output = runtime.block_on(future);
    // What it handed to other threads may still be busy.
    runtime.shutdown_background();
    Ok(output)
}

/// Locks. In a simulation whoever finds it locked gives way: its holder may wait for something.
///
/// # Errors
/// A thread panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return simulated::lock(mutex);
    }
    mutex.lock()
}

/// A runtime of tasks, as threads use it.
#[derive(Clone, Debug)]
pub enum Handle {
    /// tokio's.
    Real(tokio::runtime::Handle),
    /// A simulation's: of the node whose task it is.
    #[cfg(feature = "simulation")]
    Simulated,
}

impl Handle {
    /// The one that this is called on.
    ///
    /// # Panics
    /// It is called on none.
    #[must_use]
    pub fn current() -> Self {
        #[cfg(feature = "simulation")]
        if simulated::is_active() {
            return Self::Simulated;
        }
        Self::Real(tokio::runtime::Handle::current())
    }

    /// Waits for a future, on a thread that is not the runtime's.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        match self {
            Self::Real(handle) => handle.block_on(future),
            #[cfg(feature = "simulation")]
            Self::Simulated => simulated::block_on(future),
        }
    }

    /// Runs a future as a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            // Nobody waits for its end.
            Self::Real(handle) => drop(handle.spawn(task)),
            #[cfg(feature = "simulation")]
            Self::Simulated => drop(simulated::spawn(task)),
        }
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar {
    real: std::sync::Condvar,
    #[cfg(feature = "simulation")]
    waiters: simulated::Waiters,
}

impl Condvar {
    /// Wakes one who waits.
    pub fn notify_one(&self) {
        self.real.notify_one();
        #[cfg(feature = "simulation")]
        self.waiters.wake();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.real.notify_all();
        #[cfg(feature = "simulation")]
        self.waiters.wake();
    }

    /// Waits for as long as `condition` holds. `guard` is one of `mutex`.
    ///
    /// # Errors
    /// A thread panicked while it held the lock.
    pub fn wait_while<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        #[cfg(feature = "simulation")]
        if simulated::is_active() {
            drop(guard);
            return self.waiters.wait_while(mutex, None, condition);
        }
        let _ = mutex;
        self.real.wait_while(guard, condition)
    }

    /// As [`Self::wait_while`], at most so long.
    ///
    /// # Errors
    /// A thread panicked while it held the lock.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        #[cfg(feature = "simulation")]
        if simulated::is_active() {
            drop(guard);
            return self.waiters.wait_while(mutex, Some(timeout), condition);
        }
        let _ = mutex;
        match self.real.wait_timeout_while(guard, timeout, condition) {
            Ok((guard, _)) => Ok(guard),
            Err(poisoned) => Err(std::sync::PoisonError::new(poisoned.into_inner().0)),
        }
    }
}
