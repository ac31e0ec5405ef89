//! The log: recent entries in memory, readable at once; all of them in redb, written by one thread.

mod database;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use redb::Database;
use tokio::sync::{oneshot, watch};

use super::types::{Entry, LogId, TypeConfig, Vote, encode};
use crate::error::StartError;
use writer::{Operation, Writer};

/// Entries kept in memory beyond those that are still being written.
const CACHE_BYTES: usize = 32 << 20;
/// What one replication message carries at most, but for a single larger entry.
const MESSAGE_BYTES: usize = 4 << 20;

struct Cached {
    entry: Entry,
    bytes: usize,
    /// The append that brought it; it may leave memory once that is written.
    sequence: u64,
}

#[derive(Default)]
struct State {
    /// The newest entries without a hole; the last one is `last`.
    cache: VecDeque<Cached>,
    cache_bytes: usize,
    last: Option<LogId>,
    purged: Option<LogId>,
    committed: Option<LogId>,
    vote: Option<Vote>,
    sequence: u64,
    written: u64,
    /// Gone after the end, so that the file can be opened again while a cursor still exists.
    database: Option<Arc<Database>>,
}

impl State {
    fn next_index(&self) -> u64 {
        self.last.map_or(0, |last| last.index + 1)
    }

    fn cache_start(&self) -> u64 {
        self.cache
            .front()
            .map_or(self.next_index(), |cached| cached.entry.log_id.index)
    }

    fn evict(&mut self) {
        while self.cache_bytes > CACHE_BYTES {
            let Some(front) = self.cache.front() else {
                return;
            };
            if front.sequence > self.written {
                return;
            }
            self.cache_bytes -= front.bytes;
            self.cache.pop_front();
        }
    }
}

#[derive(Default)]
pub(super) struct Shared(Mutex<State>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self, sequence: u64) {
        let mut state = self.lock();
        state.written = sequence;
        state.evict();
    }

    fn close(&self) {
        self.lock().database = None;
    }
}

/// The durable log of one replica. Clones share it.
#[derive(Clone)]
pub(crate) struct LogStore {
    node_id: u64,
    shared: Arc<Shared>,
    operations: mpsc::Sender<Operation>,
}

impl LogStore {
    /// Opens the log in `dir` and starts its writer; the first failure to write comes out of `fatal`.
    pub(crate) fn open(
        dir: &Path,
        number: u16,
        fatal: watch::Sender<Option<String>>,
    ) -> Result<(LogStore, thread::JoinHandle<()>), StartError> {
        let (path, database, loaded) = database::open(dir, number)?;
        let database = Arc::new(database);
        let shared = Arc::new(Shared(Mutex::new(State {
            last: loaded.last,
            purged: loaded.purged,
            committed: loaded.committed,
            vote: loaded.vote,
            database: Some(Arc::clone(&database)),
            ..State::default()
        })));
        let (operations, receiver) = mpsc::channel();
        let writer = Writer {
            path,
            database,
            operations: receiver,
            shared: Arc::clone(&shared),
            last: loaded.last.map(|last| last.index),
            fatal,
        };
        let thread = thread::Builder::new()
            .name("raft-log".into())
            .spawn(move || writer.run())
            .map_err(StartError::Runtime)?;
        Ok((
            LogStore {
                node_id: loaded.node_id,
                shared,
                operations,
            },
            thread,
        ))
    }

    pub(crate) fn node_id(&self) -> u64 {
        self.node_id
    }

    /// Whether this disk has never been part of a cluster.
    pub(crate) fn is_fresh(&self) -> bool {
        let state = self.shared.lock();
        state.last.is_none() && state.vote.is_none()
    }

    /// Index of the last purged entry.
    pub(crate) fn purged(&self) -> Option<u64> {
        self.shared.lock().purged.map(|purged| purged.index)
    }

    /// Ends the writer after all that was sent before.
    pub(crate) fn close(&self) {
        self.operations.send(Operation::Close).ok();
    }

    fn send(&self, operation: Operation) -> io::Result<()> {
        self.operations.send(operation).map_err(|_| closed())
    }

    /// Entries of `range` that exist, in order and without a hole, cut where they pass `max_bytes`.
    /// Reads the disk where they are no longer in memory.
    pub(crate) fn read(&self, range: Range<u64>, max_bytes: usize) -> io::Result<Vec<Entry>> {
        let (database, on_disk) = {
            let state = self.shared.lock();
            let end = range.end.min(state.next_index());
            let cache_start = state.cache_start();
            if range.start >= end {
                return Ok(Vec::new());
            }
            if range.start >= cache_start {
                return Ok(from_cache(&state, range.start..end, max_bytes));
            }
            let database = state.database.clone().ok_or_else(closed)?;
            (database, range.start..end.min(cache_start))
        };
        database::read(&database, on_disk, max_bytes)
    }

    /// All entries of `range`, however many.
    fn read_all(&self, range: Range<u64>) -> io::Result<Vec<Entry>> {
        let mut entries = self.read(range.clone(), usize::MAX)?;
        while let Some(last) = entries.last() {
            let more = self.read(last.log_id.index + 1..range.end, usize::MAX)?;
            if more.is_empty() {
                break;
            }
            entries.extend(more);
        }
        Ok(entries)
    }

    fn in_memory(&self, start: u64) -> bool {
        start >= self.shared.lock().cache_start()
    }

    /// Reads on the spot what is in memory, elsewhere what needs the disk.
    async fn read_off_runtime(&self, range: Range<u64>, limited: bool) -> io::Result<Vec<Entry>> {
        let store = self.clone();
        let in_memory = self.in_memory(range.start);
        let read = move || match limited {
            true => store.read(range, MESSAGE_BYTES),
            false => store.read_all(range),
        };
        if in_memory {
            return read();
        }
        tokio::task::spawn_blocking(read)
            .await
            .map_err(io::Error::other)?
    }
}

fn from_cache(state: &State, range: Range<u64>, max_bytes: usize) -> Vec<Entry> {
    let skip = (range.start - state.cache_start()) as usize;
    let count = (range.end - range.start) as usize;
    let mut size = 0usize;
    let mut entries = Vec::new();
    for cached in state.cache.iter().skip(skip).take(count) {
        size = size.saturating_add(cached.bytes);
        if !entries.is_empty() && size > max_bytes {
            break;
        }
        entries.push(cached.entry.clone());
    }
    entries
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the raft log is closed")
}

fn as_range(bounds: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match bounds.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match bounds.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        self.read_off_runtime(as_range(&range), false).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read_off_runtime(start..end, true).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.lock().vote)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let state = self.shared.lock();
        Ok(LogState {
            last_purged_log_id: state.purged,
            last_log_id: state.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let (done, written) = oneshot::channel();
        self.send(Operation::Vote { vote: *vote, done })?;
        written.await.map_err(|_| closed())??;
        self.shared.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.shared.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.shared.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut encoded = Vec::new();
        let mut cached = Vec::new();
        for entry in entries {
            let bytes = encode(&entry)?;
            cached.push((entry, bytes.len()));
            encoded.push((cached[cached.len() - 1].0.log_id.index, bytes));
        }
        let mut state = self.shared.lock();
        state.sequence += 1;
        let sequence = state.sequence;
        for (entry, bytes) in cached {
            state.last = Some(entry.log_id);
            state.cache_bytes += bytes;
            state.cache.push_back(Cached {
                entry,
                bytes,
                sequence,
            });
        }
        // Sent under the lock: the order in memory is the order on disk.
        self.send(Operation::Append {
            sequence,
            entries: encoded,
            flushed,
        })?;
        state.evict();
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let first = last.map_or(0, |last| last.index + 1);
        let mut state = self.shared.lock();
        while let Some(back) = state.cache.back() {
            if back.entry.log_id.index < first {
                break;
            }
            state.cache_bytes -= back.bytes;
            state.cache.pop_back();
        }
        state.last = last.max(state.purged);
        self.send(Operation::TruncateFrom { first })
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let mut state = self.shared.lock();
        while let Some(front) = state.cache.front() {
            if front.entry.log_id.index > upto.index {
                break;
            }
            state.cache_bytes -= front.bytes;
            state.cache.pop_front();
        }
        state.purged = Some(upto);
        state.last = state.last.max(Some(upto));
        self.send(Operation::Purge { upto })
    }
}
