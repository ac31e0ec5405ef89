//! Ingest: one thread for each source of a feed reads its lanes ahead of the ticks, and fills their buffers with blocks.

mod buffer;
mod end;
mod fold;
mod lookout;
mod read_ahead;
mod reading;
mod surveying;
mod workers;
#[cfg(any(feature = "faults", feature = "simulation"))]
pub(crate) mod wrong;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub use buffer::{CutChoice, Disputed, LaneBuffer, Part, TakeError, Waker};
pub use fold::{FoldLane, FoldState, LaneStep};
pub use lookout::Tell;
pub use read_ahead::{HeldBlock, LaneRoom, OUTSIDE, ReadAhead};
pub use workers::Workers;

use crate::config::SourceConfig;
use crate::signal::Signal;
use crate::source::{Found, KnownLane, LaneTrail, SourceReader};
use crate::threads::{Role, Thread, lock, spawn};

/// What is to change for the thread that reads a source, in order.
enum Change {
    Add(LaneTrail, Arc<LaneBuffer>),
    /// The lane of this name that is not retired yet is.
    Retire(String),
}

/// What is known of a source's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Why it cannot be read at the moment, for people.
    pub trouble: Option<String>,
    /// What the last look at it found; empty while it cannot be looked at.
    pub found: Found,
    /// How many lanes of it were known when it was looked at, those that are retired too.
    pub known: usize,
}

/// The fetcher of one source; dropping it stops its threads.
pub struct SourceFetcher {
    shared: Arc<Shared>,
    read_ahead: Arc<ReadAhead>,
    threads: Vec<Thread>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Wakes the reading thread, whatever it waits for.
    signal: Arc<Signal>,
    /// Wakes the surveying one.
    look: Signal,
    changes: Mutex<Vec<Change>>,
    /// The lanes as the reading thread has them; `None` before it has any.
    known: Mutex<Option<Vec<KnownLane>>>,
    /// Why the source cannot even be opened.
    unopened: Mutex<Option<String>>,
    state: Mutex<SourceState>,
    /// Readers that are to be closed by a thread that may wait.
    discarded: Mutex<Vec<Box<dyn SourceReader>>>,
}

impl SourceFetcher {
    /// Starts to read `source`, as far ahead as the node's budget allows.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(source: SourceConfig, read_ahead: &Arc<ReadAhead>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let surveying = surveying::Surveying::new(source.clone(), Arc::clone(&shared));
        let name = source.name.clone();
        let reading = reading::Reading::new(source, Arc::clone(read_ahead), Arc::clone(&shared));
        let mut fetcher = Self {
            shared,
            read_ahead: Arc::clone(read_ahead),
            threads: Vec::new(),
        };
        let reading = spawn(Role::Fetch, Some(&name), move || reading.run())?;
        fetcher.threads.push(reading);
        let surveying = spawn(Role::Survey, Some(&name), move || surveying.run())?;
        fetcher.threads.push(surveying);
        Ok(fetcher)
    }

    /// Adds a lane; its buffer fills from now on, unless the lane is retired.
    pub fn add_lane(&self, trail: LaneTrail, retired: bool) -> Arc<LaneBuffer> {
        let room = LaneRoom::new(&self.read_ahead, Arc::clone(&self.shared.signal));
        let buffer = Arc::new(LaneBuffer::after(
            room,
            trail.next,
            trail.fingerprint,
            trail.marks,
        ));
        buffer.set_hole(trail.hole);
        let name = trail.name.clone();
        self.change(Change::Add(trail, Arc::clone(&buffer)));
        if retired {
            buffer.retire();
            self.change(Change::Retire(name));
        }
        buffer
    }

    /// To be called when the lane of that name has taken in its last record: it is read no more then.
    pub fn retirement(&self, name: String) -> impl FnOnce() + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.change(Change::Retire(name))
    }

    fn change(&self, change: Change) {
        self.shared.change(change);
    }

    /// Asks the threads to end, and says whether they have. Does not wait.
    pub fn end(&self) -> bool {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.signal.raise();
        self.shared.look.raise();
        self.threads.iter().all(Thread::is_finished)
    }

    /// The source's state.
    #[must_use]
    pub fn state(&self) -> SourceState {
        let mut state = lock(&self.shared.state).clone();
        if let Some(unopened) = &*lock(&self.shared.unopened) {
            state.trouble = Some(unopened.clone());
        }
        state
    }
}

impl Shared {
    fn change(&self, change: Change) {
        lock(&self.changes).push(change);
        self.signal.raise();
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for SourceFetcher {
    fn drop(&mut self) {
        self.end();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of a source panicked");
            }
        }
    }
}
