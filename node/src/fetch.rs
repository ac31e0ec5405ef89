//! Fetching: one thread for each source of a feed reads its lanes ahead of the ticks, decodes, and fills their buffers.

mod buffer;
mod chunk;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub use buffer::{CutChoice, LaneBuffer, Part, TakeError};

use crate::config::{FieldSet, SourceConfig};

/// Where a lane is read from on.
#[derive(Clone, Debug)]
pub struct LaneStart {
    /// The partition's number, or the file's name.
    pub name: String,
    pub cut: i64,
    /// The fingerprint of all before the cut.
    pub fingerprint: u64,
}

/// One lane of a source, on its way to the fetcher.
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
    limit: usize,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    new_lanes: Mutex<Vec<NewLane>>,
    state: Mutex<SourceState>,
}

impl SourceFetcher {
    /// Starts to read `source`, decoding `fields` of each record, with at most about `limit` bytes waiting in each lane.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(source: SourceConfig, fields: &FieldSet, limit: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let worker = worker::Worker::new(source.clone(), fields, Arc::clone(&shared));
        let thread =
            crate::threads::spawn(crate::threads::Role::Fetch, Some(&source.name), move || {
                worker.run()
            })?;
        Ok(Self {
            shared,
            limit,
            thread: Some(thread),
        })
    }

    /// Adds a lane; its buffer fills from now on.
    pub fn add_lane(&self, start: LaneStart) -> Arc<LaneBuffer> {
        let buffer = Arc::new(LaneBuffer::new(self.limit, start.cut));
        let lane = NewLane {
            start,
            buffer: Arc::clone(&buffer),
        };
        lock(&self.shared.new_lanes).push(lane);
        buffer
    }

    /// The source's state.
    #[must_use]
    pub fn state(&self) -> SourceState {
        lock(&self.shared.state).clone()
    }
}

impl Drop for SourceFetcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a fetcher's thread panicked");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
