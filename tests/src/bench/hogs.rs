//! What takes the processor away from all else: threads of a child process that do nothing but count.

use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How many, and for how long, for the child.
const ASKED: &str = "UNISONO_BENCH_HOG_THREADS_SECONDS";

/// They run until this is dropped, or their time is over.
pub struct Hogs(Child);

impl Hogs {
    /// Has this program, started again, run so many of them. It must call [`Self::run_if_asked`] before all else.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(threads: u64, at_most: Duration) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .env(ASKED, format!("{threads} {}", at_most.as_secs()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// Whether this process is only here for that, and has done it.
    ///
    /// # Errors
    /// It was asked for something else than two numbers.
    pub fn run_if_asked() -> Result<bool> {
        let Ok(asked) = std::env::var(ASKED) else {
            return Ok(false);
        };
        let (threads, seconds) = asked.split_once(' ').context("two numbers are asked for")?;
        let (threads, seconds): (u64, u64) = (threads.parse()?, seconds.parse()?);
        let end = Instant::now() + Duration::from_secs(seconds);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while Instant::now() < end {
                        for number in 0..1_000_000_u64 {
                            black_box(number);
                        }
                    }
                });
            }
        });
        Ok(true)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
