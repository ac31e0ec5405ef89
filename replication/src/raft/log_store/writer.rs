//! Making the log durable. What is waiting is written as one group, so that a slow disk makes larger groups and not a longer
//! queue, and never blocks the Raft runtime.
//!
//! `chunked-wal` has a thread that writes and syncs. While it does, what comes is only put down in memory; when the thread
//! is done, it takes that as its next group. So a group costs one wake-up, one write and one sync. Whoever finds
//! nothing being written hands the first group over: to encode it is all that is done on Raft's thread. Files are begun and
//! removed on the writing thread.

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::{self, ThreadId};

use chunked_wal::{Callback, ChunkId, ChunkedWal, Segment, StateMachine, WAL, WALRecord};
use openraft::storage::IOFlushed;
use tokio::sync::oneshot;

use super::Shared;
use super::disk::{Contradiction, place};
use super::index::Place;
use super::record::{Change, Framed, Marks, Record, Types};
use crate::raft::types::{LogId, TypeConfig, encode};
use crate::rt;

/// What the thread is called in the table of threads.
const THREAD: &str = "raft-log";

/// Encoded records that belong together, and who waits for them.
pub(super) struct Operation {
    pub records: Vec<(Change, Vec<u8>)>,
    pub answer: Answer,
}

impl Operation {
    pub(super) fn of(record: &Record, answer: Answer) -> io::Result<Self> {
        let records = vec![(record.change(), encode(record)?)];
        Ok(Self { records, answer })
    }
}

/// Who waits until something is durable.
pub(super) enum Answer {
    Append {
        sequence: u64,
        flushed: IOFlushed<TypeConfig>,
    },
    Vote(oneshot::Sender<io::Result<()>>),
    Nobody,
}

impl Answer {
    fn give(self, result: Result<(), &io::Error>) {
        let result = result.map_err(|error| io::Error::new(error.kind(), error.to_string()));
        match self {
            Self::Append { flushed, .. } => flushed.io_completed(result),
            // Nobody listens any more if Raft is shutting down.
            Self::Vote(done) => drop(done.send(result)),
            Self::Nobody => {}
        }
    }
}

/// The files, and the marks after all that was handed over to them. Only who has set `busy` uses it.
pub(super) struct Core {
    pub files: Files,
    pub marks: Marks,
}

/// Where the log lies.
pub(super) enum Files {
    Real(Box<ChunkedWal<Types>>),
    #[cfg(feature = "simulation")]
    Simulated(crate::rt::simulated::Disk),
}

impl Files {
    fn append(&mut self, bytes: Vec<u8>) -> io::Result<Place> {
        match self {
            Self::Real(wal) => {
                wal.append(&WALRecord::Action(Framed(bytes)))?;
                Ok(place(wal.open_chunk_id(), wal.last_segment()))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(disk) => Ok(super::simulated::append(disk, bytes)),
        }
    }

    /// Has all that was appended made durable; `flushed` is told.
    fn send(&mut self, flushed: Flushed) -> io::Result<()> {
        match self {
            // It fails only if the writing thread has ended, which tells why.
            Self::Real(wal) => wal
                .send_pending(true, Some(flushed))
                .map_err(|error| wal.wait_worker_idle().err().unwrap_or(error)),
            #[cfg(feature = "simulation")]
            Self::Simulated(disk) => {
                super::simulated::sync(disk, flushed);
                Ok(())
            }
        }
    }

    /// Removes files whose entries are all purged, and begins a new one when the last is full. For when all is durable.
    fn tend(&mut self, marks: &Marks) -> io::Result<()> {
        match self {
            Self::Real(wal) => {
                let gone = wal.drain_closed_chunks_while(|at_end| at_end.last <= marks.purged);
                // Before a new file is begun: until that is synced, the marks are durable in the one before it alone.
                if !gone.is_empty() {
                    wal.send_remove_chunks(gone)?;
                }
                wal.try_close_full_chunk(marks)?;
                Ok(())
            }
            // It grows for as long as a run lasts.
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Ok(()),
        }
    }

    /// Why the writing thread has ended.
    fn end_of_thread(&self) -> Option<io::Error> {
        match self {
            Self::Real(wal) => wal.wait_worker_idle().err(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => None,
        }
    }
}

impl Core {
    fn append(&mut self, change: Change, bytes: Vec<u8>) -> io::Result<(Change, Place)> {
        let place = self.files.append(bytes)?;
        self.marks.pass(&change);
        Ok((change, place))
    }

    /// The committed mark. It goes with whatever is written, and wakes nobody: without the newest one a restart only
    /// applies a little less. It never goes beyond the entries that are on this disk.
    pub(super) fn append_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let last = self.marks.last.map(|last| last.index);
        let Some(committed) = committed.filter(|mark| Some(mark.index) <= last) else {
            return Ok(());
        };
        if self.marks.committed != Some(committed) {
            let record = Record::Committed(committed);
            self.append(record.change(), encode(&record)?)?;
        }
        Ok(())
    }

    /// To be called when all is durable.
    fn tend(&mut self) -> io::Result<()> {
        self.files.tend(&self.marks)
    }
}

/// Of what a file begins with.
impl StateMachine<Types> for Marks {
    type Error = Contradiction;

    fn apply(&mut self, _: &WALRecord<Types>, _: ChunkId, _: Segment) -> Result<(), Contradiction> {
        Ok(())
    }

    fn checkpoint(&self) -> Marks {
        self.clone()
    }
}

impl Shared {
    /// Hands over what is waiting. `busy` is set, by the caller or since before.
    pub(super) fn write(self: &Arc<Self>, sender: Option<ThreadId>) {
        let (group, committed) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.waiting), state.committed)
        };
        let mut answers = Vec::with_capacity(group.len());
        let mut changes = Vec::new();
        let mut slot = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(core) = slot.as_mut() else {
            return;
        };
        let mut result = Ok(());
        for operation in group {
            answers.push(operation.answer);
            for (change, bytes) in operation.records {
                result =
                    result.and_then(|()| core.append(change, bytes).map(|it| changes.push(it)));
            }
        }
        result = result.and_then(|()| core.append_committed(committed));
        {
            let mut state = self.lock();
            state.in_flight = answers;
            for (change, place) in changes {
                state.index.pass(&change, place);
            }
        }
        let flushed = Flushed {
            shared: Arc::clone(self),
            sender,
            answered: false,
        };
        let result = match result {
            Ok(()) => core.files.send(flushed),
            Err(error) => {
                flushed.forget();
                Err(error)
            }
        };
        drop(slot);
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    /// On the writing thread, after the sync.
    fn written(self: &Arc<Self>) {
        let (answers, first) = {
            let mut state = self.lock();
            let answers = std::mem::take(&mut state.in_flight);
            let sequences = answers.iter().filter_map(|answer| match answer {
                Answer::Append { sequence, .. } => Some(*sequence),
                _ => None,
            });
            state.written = sequences.max().unwrap_or(0).max(state.written);
            state.evict();
            state.written_at = Some(rt::now());
            (answers, !std::mem::replace(&mut state.named, true))
        };
        if first && !self.is_simulated() {
            // `chunked-wal` names it after itself. Nothing depends on the name, so a system without it will do.
            let _ = std::fs::write("/proc/thread-self/comm", THREAD);
        }
        for answer in answers {
            answer.give(Ok(()));
        }
        let tended = {
            let mut slot = self.core.lock().unwrap_or_else(PoisonError::into_inner);
            slot.as_mut().map_or(Ok(()), Core::tend)
        };
        if let Err(error) = tended {
            self.fail(&error);
            return;
        }
        let more = {
            let mut state = self.lock();
            state.busy = !state.waiting.is_empty();
            state.busy_since = Some(rt::now());
            state.busy
        };
        if more {
            self.write(None);
        } else {
            self.idle.notify_all();
        }
    }

    /// Nothing is written any more after the first failure: what the disk did with it is unknown.
    fn fail(&self, error: &io::Error) {
        let text = format!(
            "cannot write {}: {error}; free space or repair the disk, then start again",
            self.folder.display()
        );
        let told = io::Error::new(error.kind(), text.clone());
        let (in_flight, waiting) = {
            let mut state = self.lock();
            state.failed = true;
            state.busy = false;
            (
                std::mem::take(&mut state.in_flight),
                std::mem::take(&mut state.waiting),
            )
        };
        for answer in in_flight {
            answer.give(Err(&told));
        }
        for operation in waiting {
            self.refuse(operation.answer);
        }
        self.fatal.send_if_modified(|fatal| {
            let first = fatal.is_none();
            fatal.get_or_insert(text);
            first
        });
        self.idle.notify_all();
    }

    pub(super) fn refuse(&self, answer: Answer) {
        let refusal = format!("{} failed before", self.folder.display());
        answer.give(Err(&io::Error::other(refusal)));
    }
}

/// Tells what became of a group.
pub(super) struct Flushed {
    shared: Arc<Shared>,
    /// Who handed the group over, if not the writing thread.
    sender: Option<ThreadId>,
    answered: bool,
}

impl Flushed {
    fn forget(mut self) {
        self.answered = true;
    }
}

impl Callback for Flushed {
    fn send(mut self, result: io::Result<()>) {
        self.answered = true;
        match result {
            Ok(()) => self.shared.written(),
            Err(error) => self.shared.fail(&error),
        }
    }
}

impl Drop for Flushed {
    /// The writing thread drops what is left in its queue when it ends, which it does when something else failed: a new
    /// file could not be begun, an old one not be removed. It tells why to who asks.
    fn drop(&mut self) {
        // The sender itself sees that its sending failed, and has the files locked.
        if self.answered
            || self.sender == Some(thread::current().id())
            || self.shared.is_simulated()
        {
            return;
        }
        let cause = {
            let slot = self
                .shared
                .core
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            slot.as_ref().and_then(|core| core.files.end_of_thread())
        };
        let ended = || io::Error::other("its writing thread ended");
        self.shared.fail(&cause.unwrap_or_else(ended));
    }
}
