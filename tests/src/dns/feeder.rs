//! Produces the log in the background, in its order, at a steady pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use unisono_chaos::generator::{Target, TopicTarget};

use super::LANES;
use crate::kafka::TestBroker;

const STEP: Duration = Duration::from_millis(20);
/// Between two rounds while the log only trickles.
const TRICKLE: Duration = Duration::from_millis(200);

/// Every round gives each lane as many lines as the others, so none is silent while others go on. Ends when dropped.
pub(super) struct Feeder {
    state: Arc<State>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct State {
    sent: AtomicUsize,
    /// Up to this line the log flows at its full pace.
    released: AtomicUsize,
    dropped: AtomicBool,
}

impl Feeder {
    /// Starts to trickle; returns when every lane has a record.
    ///
    /// # Errors
    /// The broker does not take the records, or no thread can be started.
    pub(super) fn start(
        broker: &TestBroker,
        topic: &str,
        log: &'static str,
        lines_per_second: usize,
    ) -> Result<Self> {
        let mut target = TopicTarget::connect(&broker.address(), topic)?;
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let steps_per_second = 1000 / STEP.as_millis() as usize;
        let rounds = (lines_per_second / steps_per_second / LANES).max(1);
        let mut lines = log.split_inclusive('\n');
        send(&mut target, &mut lines, 1, &state)?;
        target.finish()?;
        let body = move || -> Result<()> {
            while !shared.dropped.load(Ordering::Relaxed) {
                let full =
                    shared.sent.load(Ordering::Relaxed) < shared.released.load(Ordering::Relaxed);
                let (rounds, pause) = if full { (rounds, STEP) } else { (1, TRICKLE) };
                if send(&mut target, &mut lines, rounds, &shared)? == 0 {
                    break;
                }
                std::thread::sleep(pause);
            }
            target.finish()
        };
        let thread = std::thread::Builder::new()
            .name("feeder".to_owned())
            .spawn(body)
            .context("cannot start the feeder's thread")?;
        Ok(Self {
            state,
            thread: Some(thread),
        })
    }

    /// Full pace up to this line.
    pub(super) fn release(&self, line: usize) {
        self.state.released.store(line, Ordering::Relaxed);
    }

    /// Lines produced so far.
    pub(super) fn sent(&self) -> usize {
        self.state.sent.load(Ordering::Relaxed)
    }

    /// Releases the rest and waits until the broker has all of it.
    ///
    /// # Errors
    /// What the broker did not take.
    pub(super) fn finish(mut self) -> Result<()> {
        self.release(usize::MAX);
        let thread = self.thread.take();
        let ended = thread.map(JoinHandle::join).transpose();
        ended
            .map_err(|_| anyhow!("the feeder's thread panicked"))?
            .unwrap_or(Ok(()))
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.state.dropped.store(true, Ordering::Relaxed);
    }
}

/// Produces `rounds` lines to each lane; returns how many lines there still were.
fn send(
    target: &mut TopicTarget,
    lines: &mut impl Iterator<Item = &'static str>,
    rounds: usize,
    state: &State,
) -> Result<usize> {
    let mut dealt = vec![String::new(); LANES];
    let mut count = 0;
    for (index, line) in lines.take(rounds * LANES).enumerate() {
        dealt[index % LANES].push_str(line);
        count += 1;
    }
    for (lane, lines) in dealt.iter().enumerate() {
        target.append(lane, lines)?;
    }
    state.sent.fetch_add(count, Ordering::Relaxed);
    Ok(count)
}
