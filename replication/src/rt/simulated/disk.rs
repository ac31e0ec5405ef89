//! A simulated disk with one file of records. What is written is durable after a sync, and a crash loses some of the rest.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{between, sleep};

/// How often a disk that hangs is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// A disk. It outlives the processes that use it; clones share it.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    identity: Option<u64>,
    records: Vec<Arc<[u8]>>,
    /// So many of the records are durable.
    durable: usize,
    sync_micros: Range<u64>,
    hangs: bool,
}

impl Disk {
    /// An empty one, whose sync takes so many microseconds.
    #[must_use]
    pub fn new(sync_micros: Range<u64>) -> Self {
        let disk = Self::default();
        disk.lock().sync_micros = sync_micros;
        disk
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a sync takes from now on, in microseconds.
    pub fn set_sync_micros(&self, range: Range<u64>) {
        self.lock().sync_micros = range;
    }

    /// Whether nothing becomes durable from now on.
    pub fn set_hangs(&self, hangs: bool) {
        self.lock().hangs = hangs;
    }

    /// The process has ended, and perhaps the machine: of what was not durable, some of the first records are there.
    pub fn crash(&self) {
        let mut state = self.lock();
        let open = (state.records.len() - state.durable) as u64;
        let kept = usize::try_from(between(0..open + 1)).unwrap_or(0);
        let durable = state.durable + kept;
        state.records.truncate(durable);
        state.durable = durable;
    }

    /// All that was ever written is gone.
    pub fn wipe(&self) {
        let mut state = self.lock();
        state.identity = None;
        state.records.clear();
        state.durable = 0;
    }

    /// The identity that it was given at its first use.
    pub(crate) fn identity(&self, new: impl FnOnce() -> u64) -> u64 {
        *self.lock().identity.get_or_insert_with(new)
    }

    pub(crate) fn append(&self, record: Vec<u8>) -> u64 {
        let mut state = self.lock();
        state.records.push(record.into());
        state.records.len() as u64 - 1
    }

    pub(crate) fn read(&self, number: u64) -> Option<Arc<[u8]>> {
        let number = usize::try_from(number).ok()?;
        self.lock().records.get(number).cloned()
    }

    /// Returns when all that has been appended is durable.
    pub(crate) async fn sync(&self) {
        let (end, micros) = {
            let state = self.lock();
            (state.records.len(), state.sync_micros.clone())
        };
        sleep(Duration::from_micros(between(micros))).await;
        while self.lock().hangs {
            sleep(LOOK).await;
        }
        let mut state = self.lock();
        state.durable = state.durable.max(end.min(state.records.len()));
    }
}
