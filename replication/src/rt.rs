//! What the process takes from outside: time, tasks, chance and connections.
//!
//! All of Raft and all that decides takes them from here. In a service they are tokio's and the system's. With the feature
//! `simulation`, a thread on which a simulation runs gets simulated ones instead: then all that happens follows from a seed.

pub mod mpsc;
mod net;
#[cfg(feature = "simulation")]
pub mod simulated;
pub mod thread;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::task::JoinError;

pub use net::{Listener, Stream, connect};
pub use thread::{Condvar, Handle};

/// The time of a clock that only goes forward.
#[must_use]
pub fn now() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(now) = simulated::now() {
        return now;
    }
    Instant::now()
}

/// How long ago that was, by the same clock.
#[must_use]
pub fn since(at: Instant) -> Duration {
    now().saturating_duration_since(at)
}

/// The time since 1970 by the node's own clock, right or wrong.
#[must_use]
pub fn wall() -> Duration {
    #[cfg(feature = "simulation")]
    if let Some(wall) = simulated::wall() {
        return wall;
    }
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// A number that nobody can know before.
#[must_use]
pub fn random() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(random) = simulated::random() {
        return random;
    }
    rand::random()
}

/// Runs `future` as a task of its own, on the runtime that this is called on.
pub fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return Task::Simulated(simulated::spawn(future));
    }
    Task::Real(tokio::spawn(future))
}

/// Runs what may take long or block, off the runtime.
///
/// # Errors
/// It panicked, or the runtime is ending.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)
}

/// As [`blocking`], and goes on though nobody waits for it.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return Task::Simulated(simulated::spawn_blocking(work));
    }
    Task::Real(tokio::task::spawn_blocking(work))
}

/// Waits for so long.
pub fn sleep(duration: Duration) -> Sleep {
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return Sleep::Simulated(simulated::sleep(duration));
    }
    Sleep::Real(Box::pin(tokio::time::sleep(duration)))
}

/// Waits until then.
pub fn sleep_until(at: Instant) -> Sleep {
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return Sleep::Simulated(simulated::sleep(at.saturating_duration_since(now())));
    }
    Sleep::Real(Box::pin(tokio::time::sleep_until(at.into())))
}

/// Waits for `future`, at most so long.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout {
        future: Box::pin(future),
        sleep: sleep(duration),
    }
}

/// A task that was spawned. It goes on if this is dropped.
#[derive(Debug)]
pub enum Task<T> {
    /// tokio's.
    Real(tokio::task::JoinHandle<T>),
    /// A simulation's.
    #[cfg(feature = "simulation")]
    Simulated(simulated::JoinHandle<T>),
}

impl<T> Task<T> {
    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Real(task) => task.is_finished(),
            #[cfg(feature = "simulation")]
            Self::Simulated(task) => task.is_finished(),
        }
    }
}

impl<T: Send + 'static> Future for Task<T> {
    type Output = Result<T, TaskError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Real(task) => Pin::new(task).poll(context).map_err(TaskError::from),
            #[cfg(feature = "simulation")]
            Self::Simulated(task) => Pin::new(task).poll(context).map_err(|_| TaskError::ended()),
        }
    }
}

/// Why a task has no result.
#[derive(Debug)]
pub struct TaskError {
    pub(crate) panicked: bool,
}

impl TaskError {
    #[cfg(feature = "simulation")]
    fn ended() -> Self {
        Self { panicked: false }
    }
}

impl From<JoinError> for TaskError {
    fn from(error: JoinError) -> Self {
        Self {
            panicked: error.is_panic(),
        }
    }
}

impl std::error::Error for TaskError {}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.panicked {
            true => "the task panicked",
            false => "the task was ended",
        })
    }
}

/// Made by [`sleep`].
#[derive(Debug)]
pub enum Sleep {
    /// tokio's.
    Real(Pin<Box<tokio::time::Sleep>>),
    /// A simulation's.
    #[cfg(feature = "simulation")]
    Simulated(simulated::Sleep),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.get_mut() {
            Self::Real(sleep) => sleep.as_mut().poll(context),
            #[cfg(feature = "simulation")]
            Self::Simulated(sleep) => Pin::new(sleep).poll(context),
        }
    }
}

/// Made by [`timeout`].
#[derive(Debug)]
pub struct Timeout<F> {
    future: Pin<Box<F>>,
    sleep: Sleep,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut self.sleep)
            .poll(context)
            .map(|()| Err(Elapsed))
    }
}

/// What was waited for did not come in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it took too long")]
pub struct Elapsed;
