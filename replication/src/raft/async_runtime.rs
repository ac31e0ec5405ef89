//! [`crate::rt`] as openraft wants it.

use std::io;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::{Duration, Instant};

use openraft::{AsyncRuntime, OptionalSend};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::rt::{self, Elapsed, Sleep, Task, TaskError, Timeout};

/// [`now`] as openraft wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Instant);

impl openraft::Instant for Moment {
    fn now() -> Self {
        Self(rt::now())
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, duration: Duration) {
        self.0 += duration;
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0 - duration)
    }
}

impl SubAssign<Duration> for Moment {
    fn sub_assign(&mut self, duration: Duration) {
        self.0 -= duration;
    }
}

impl Sub for Moment {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.0 - earlier.0
    }
}

/// All of this as openraft wants it.
#[derive(Debug)]
pub struct Rt;

impl AsyncRuntime for Rt {
    type JoinError = TaskError;
    type JoinHandle<T: OptionalSend + 'static> = Task<T>;
    type Sleep = Sleep;
    type Instant = Moment;
    type TimeoutError = Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = Timeout<T>;
    type ThreadLocalRng = SmallRng;

    fn spawn<T>(future: T) -> Task<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        rt::spawn(future)
    }

    fn sleep(duration: Duration) -> Sleep {
        rt::sleep(duration)
    }

    fn sleep_until(at: Moment) -> Sleep {
        rt::sleep_until(at.0)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Timeout<F> {
        rt::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(at: Moment, future: F) -> Timeout<F> {
        rt::timeout(at.0.saturating_duration_since(rt::now()), future)
    }

    fn is_panic(error: &TaskError) -> bool {
        error.panicked
    }

    fn thread_rng() -> SmallRng {
        SmallRng::seed_from_u64(rt::random())
    }

    type Mpsc = openraft_rt_tokio::TokioMpsc;
    type Watch = openraft_rt_tokio::TokioWatch;
    type Oneshot = openraft_rt_tokio::TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = openraft_rt_tokio::TokioMutex<T>;

    fn new(_threads: usize) -> Self {
        Self
    }

    fn block_on<F: Future<Output = T>, T>(&mut self, future: F) -> T {
        // For openraft's own tests alone, by its word.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime
            .expect("the system gives a runtime")
            .block_on(future)
    }

    async fn spawn_blocking<F, T>(work: F) -> io::Result<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        rt::blocking(work).await
    }
}
