//! The log: recent entries in memory, readable at once; all of them in append-only files, written by one thread.

mod disk;
mod index;
mod record;
#[cfg(feature = "simulation")]
mod simulated;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use tokio::sync::{oneshot, watch};

use super::types::{Entry, LogId, TypeConfig, Vote, encode};
use crate::error::StartError;
use crate::rt;
use record::{Record, next_index};
use state::{Cached, State};
use writer::{Answer, Core, Operation};

/// A file of the log is closed when it has reached this, and removed when all its entries are purged.
const FILE_BYTES: usize = 4 << 20;
/// What one replication message carries at most, but for a single larger entry.
const MESSAGE_BYTES: usize = 4 << 20;

struct Shared {
    folder: PathBuf,
    state: Mutex<State>,
    /// Gone after the end, so that the files can be opened again while a cursor still exists. It is locked before `state`.
    core: Mutex<Option<Core>>,
    /// Nothing is being written any more.
    idle: Condvar,
    fatal: watch::Sender<Option<String>>,
    #[cfg(feature = "simulation")]
    simulated: Option<rt::simulated::Disk>,
}

impl Shared {
    /// Whether nothing here may wait: there is one thread.
    fn is_simulated(&self) -> bool {
        #[cfg(feature = "simulation")]
        if self.simulated.is_some() {
            return true;
        }
        false
    }

    fn read(&self, places: &[index::Place]) -> io::Result<Vec<Entry>> {
        #[cfg(feature = "simulation")]
        if let Some(disk) = &self.simulated {
            return simulated::read(disk, places);
        }
        disk::read(&self.folder, places)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is being written.
    fn wait(&self) -> MutexGuard<'_, State> {
        self.idle
            .wait_while(self.lock(), |state| state.busy && !self.is_simulated())
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `operation` written after all that came before; it never waits for the disk.
    fn submit(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        operation: Operation,
    ) -> io::Result<()> {
        if state.closed {
            return Err(closed());
        }
        if state.failed {
            drop(state);
            self.refuse(operation.answer);
            return Ok(());
        }
        state.waiting.push(operation);
        if !std::mem::replace(&mut state.busy, true) {
            state.busy_since = Some(rt::now());
            drop(state);
            self.write(Some(thread::current().id()));
        }
        Ok(())
    }

    fn end(&self) {
        self.lock().closed = true;
        let committed = self.wait().committed;
        let core = self.core.lock().map_or_else(
            |poisoned| poisoned.into_inner().take(),
            |mut core| core.take(),
        );
        // Its writing thread, which may want to lock it, ends when it is dropped, after it has written the mark.
        if let Some(mut core) = core {
            // A restart without it applies a little less.
            let _ = core.append_committed(committed);
        }
    }
}

/// Ends the log with its last user: the writing thread, which has the rest of it too, cannot wait for its own end.
struct User(Arc<Shared>);

impl Drop for User {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The durable log of one replica. Clones share it.
#[derive(Clone)]
pub(crate) struct LogStore {
    node_id: u64,
    user: Arc<User>,
}

impl LogStore {
    /// Opens the log in `dir`; the first failure to write comes out of `fatal`.
    pub(crate) fn open(
        dir: &Path,
        number: u16,
        fatal: watch::Sender<Option<String>>,
    ) -> Result<LogStore, StartError> {
        Self::open_with(dir, number, FILE_BYTES, fatal)
    }

    fn open_with(
        dir: &Path,
        number: u16,
        file_bytes: usize,
        fatal: watch::Sender<Option<String>>,
    ) -> Result<LogStore, StartError> {
        let opened = disk::open(dir, number, file_bytes)?;
        let marks = opened.core.marks.clone();
        let shared = Arc::new(Shared {
            folder: opened.folder.clone(),
            state: Mutex::new(State {
                last: marks.last,
                purged: marks.purged,
                committed: marks.committed,
                vote: marks.vote,
                index: opened.index,
                busy: true,
                ..State::default()
            }),
            core: Mutex::new(Some(opened.core)),
            idle: Condvar::new(),
            fatal,
            #[cfg(feature = "simulation")]
            simulated: None,
        });
        let user = Arc::new(User(Arc::clone(&shared)));
        // What a process that was killed had written is found again, but it may not have been synced. Raft takes for
        // durable what it finds.
        shared.write(Some(thread::current().id()));
        if shared.wait().failed {
            return Err(StartError::Io {
                path: opened.folder,
                cause: io::Error::other(shared.fatal.borrow().clone().unwrap_or_default()),
            });
        }
        Ok(LogStore {
            node_id: marks.node_id,
            user,
        })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.user.0
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        &self.shared().folder
    }

    pub(crate) fn node_id(&self) -> u64 {
        self.node_id
    }

    /// Whether this disk has never been part of a cluster.
    pub(crate) fn is_fresh(&self) -> bool {
        let state = self.shared().lock();
        state.last.is_none() && state.vote.is_none()
    }

    /// Index of the last purged entry.
    pub(crate) fn purged(&self) -> Option<u64> {
        self.shared().lock().purged.map(|purged| purged.index)
    }

    /// How long ago the last group became durable, and for how long the present one is being written.
    pub(crate) fn writes(&self) -> (Option<Duration>, Option<Duration>) {
        let state = self.shared().lock();
        let age = |at: Option<Instant>| at.map(rt::since);
        let writing = state.busy_since.filter(|_| state.busy);
        (age(state.written_at), age(writing))
    }

    /// Bytes of its files, and how many entries they hold. It looks at the disk.
    pub(crate) fn size(&self) -> (u64, u64) {
        let entries = {
            let state = self.shared().lock();
            state.next_index() - next_index(state.purged)
        };
        let files = std::fs::read_dir(self.folder()).into_iter().flatten();
        // One that goes meanwhile takes nothing.
        let bytes = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
        (bytes.sum(), entries)
    }

    /// The first entry that is not known to be on this disk; `None`: all are.
    pub(crate) fn first_unwritten(&self) -> Option<u64> {
        self.shared().lock().first_unwritten()
    }

    /// Takes nothing any more. What was taken before is still written.
    pub(crate) fn close(&self) {
        self.shared().lock().closed = true;
    }

    /// Closes it and waits until all is written and the files can be opened again. It waits for the disk.
    pub(crate) fn end(&self) {
        self.shared().end();
    }

    /// Entries of `range` that exist, in order and without a hole, cut where they pass `max_bytes`.
    /// Reads the disk where they are no longer in memory; whoever writes does not wait for that.
    pub(crate) fn read(&self, range: Range<u64>, max_bytes: usize) -> io::Result<Vec<Entry>> {
        loop {
            let (start, places) = {
                let state = self.shared().lock();
                let start = range.start.max(next_index(state.purged));
                let end = range.end.min(state.next_index());
                let cache_start = state.cache_start();
                if start >= end {
                    return Ok(Vec::new());
                }
                if start >= cache_start {
                    return Ok(state.cached(start..end, max_bytes));
                }
                if state.closed {
                    return Err(closed());
                }
                let on_disk = start..end.min(cache_start);
                (start, state.index.places(on_disk, max_bytes))
            };
            match self.shared().read(&places) {
                // Purged meanwhile, and its file removed.
                Err(_) if self.purged() >= Some(start) => {}
                read => return read,
            }
        }
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
        start >= self.shared().lock().cache_start()
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
        rt::blocking(read).await.map_err(io::Error::other)?
    }
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
        Ok(self.shared().lock().vote)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let state = self.shared().lock();
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
        let operation = Operation::of(&Record::Vote(*vote), Answer::Vote(done))?;
        self.shared().submit(self.shared().lock(), operation)?;
        written.await.map_err(|_| closed())??;
        self.shared().lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.shared().lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.shared().lock().committed)
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = Vec::new();
        let mut cached = Vec::new();
        for entry in entries {
            let record = Record::Entry(entry);
            let bytes = encode(&record)?;
            let (change, size) = (record.change(), bytes.len());
            records.push((change, bytes));
            if let Record::Entry(entry) = record {
                cached.push((entry, size));
            }
        }
        let mut state = self.shared().lock();
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
        state.evict();
        let answer = Answer::Append { sequence, flushed };
        // Taken under the lock: the order in memory is the order on disk.
        self.shared().submit(state, Operation { records, answer })
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let mut state = self.shared().lock();
        let operation = state.truncate_after(last)?;
        self.shared().submit(state, operation)
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let mut state = self.shared().lock();
        let mut records = Vec::new();
        if state.last < Some(upto) {
            // A peer's checkpoint. What is here is not what leads there.
            records = state.truncate_after(None)?.records;
        }
        while let Some(front) = state.cache.front() {
            if front.entry.log_id.index > upto.index {
                break;
            }
            state.cache_bytes -= front.bytes;
            state.cache.pop_front();
        }
        state.purged = state.purged.max(Some(upto));
        state.last = state.last.max(Some(upto));
        let operation = Operation::of(&Record::Purged(upto), Answer::Nobody)?;
        records.extend(operation.records);
        let answer = Answer::Nobody;
        self.shared().submit(state, Operation { records, answer })
    }
}
