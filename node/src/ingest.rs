//! Ingest: one thread for each source of a feed reads its lanes ahead of the ticks, and fills their buffers with blocks.

mod buffer;
mod fold;
mod read_ahead;
mod reading;
mod workers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub use buffer::{CutChoice, LaneBuffer, Part, TakeError, Waker};
pub use fold::{FoldLane, FoldState, LaneStep};
pub use read_ahead::{HeldBlock, LaneRoom, OUTSIDE, ReadAhead};
pub use workers::Workers;

use crate::config::SourceConfig;
use crate::signal::Signal;
use crate::threads::{Role, lock, spawn};

/// Where a lane is read from on.
#[derive(Clone, Debug)]
pub struct LaneStart {
    /// The partition's number, or the file's name.
    pub name: String,
    /// The offset of the first record that was not taken in.
    pub cut: i64,
    /// The fingerprint of all before the cut.
    pub fingerprint: u64,
}

/// One lane of a source, on its way to the thread that reads it.
struct NewLane {
    start: LaneStart,
    buffer: Arc<LaneBuffer>,
}

/// What is known of a source's state, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Why it cannot be read at the moment.
    pub trouble: Option<String>,
    /// Lanes that the source has now, known to the feed or not.
    pub lanes: Vec<String>,
}

/// The fetcher of one source; dropping it stops its thread.
pub struct SourceFetcher {
    shared: Arc<Shared>,
    read_ahead: Arc<ReadAhead>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Wakes the thread, whatever it waits for.
    signal: Arc<Signal>,
    new_lanes: Mutex<Vec<NewLane>>,
    state: Mutex<SourceState>,
}

impl SourceFetcher {
    /// Starts to read `source`, as far ahead as the node's budget allows.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(source: SourceConfig, read_ahead: &Arc<ReadAhead>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let reading =
            reading::Reading::new(source.clone(), Arc::clone(read_ahead), Arc::clone(&shared));
        let thread = spawn(Role::Fetch, Some(&source.name), move || reading.run())?;
        Ok(Self {
            shared,
            read_ahead: Arc::clone(read_ahead),
            thread: Some(thread),
        })
    }

    /// Adds a lane; its buffer fills from now on.
    pub fn add_lane(&self, start: LaneStart) -> Arc<LaneBuffer> {
        let room = LaneRoom::new(&self.read_ahead, Arc::clone(&self.shared.signal));
        let buffer = Arc::new(LaneBuffer::new(room, start.cut));
        let lane = NewLane {
            start,
            buffer: Arc::clone(&buffer),
        };
        lock(&self.shared.new_lanes).push(lane);
        self.shared.signal.raise();
        buffer
    }

    /// Asks the thread to end, and says whether it has. Does not wait.
    pub fn end(&self) -> bool {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.signal.raise();
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The source's state.
    #[must_use]
    pub fn state(&self) -> SourceState {
        lock(&self.shared.state).clone()
    }
}

impl Drop for SourceFetcher {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a reading thread panicked");
        }
    }
}
