//! The node's own way through the log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::LogError;
use crate::raft::applier::{Mark, Reach};
use crate::raft::entry::{ReadEntry, Tracker};
use crate::raft::log_store::LogStore;

/// Bytes of entries that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// A place in the log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// The entry's index in the log.
    pub index: u64,
    /// The term of the entry there.
    pub term: u64,
}

/// Reads the entries that may be read, in order, each once. For one thread.
pub struct LogCursor {
    log: LogStore,
    mark: Arc<Mark>,
    /// The index of the next entry.
    next: u64,
    read: VecDeque<ReadEntry>,
    tracker: Tracker,
}

/// What a cursor gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorEvent {
    /// The next entry; the payload is `None` for Raft's own (blank entries, memberships).
    Entry {
        /// Where it stands.
        position: Position,
        /// What was proposed.
        payload: Option<Arc<[u8]>>,
    },
    /// Nothing came in time.
    Idle,
    /// The replica is stopping.
    Closed,
}

impl LogCursor {
    pub(crate) fn new(log: LogStore, mark: Arc<Mark>, tracker: Tracker) -> Self {
        let next = tracker.next_index();
        Self {
            log,
            mark,
            next,
            read: VecDeque::new(),
            tracker,
        }
    }

    /// The next entry up to the applied mark; waits at most `timeout`.
    ///
    /// # Errors
    /// What the caller does next is in [`LogError`].
    pub fn next(&mut self, timeout: Duration) -> Result<CursorEvent, LogError> {
        if self.read.is_empty() {
            match self.mark.wait(self.next, timeout) {
                Reach::Closed => return Ok(CursorEvent::Closed),
                Reach::Nothing => return Ok(CursorEvent::Idle),
                Reach::UpTo(last) => self.read_up_to(last)?,
            }
        }
        let Some(entry) = self.read.pop_front() else {
            return Ok(CursorEvent::Idle);
        };
        self.next = entry.position.index + 1;
        self.tracker.pass(&entry);
        Ok(CursorEvent::Entry {
            position: entry.position,
            payload: entry.payload,
        })
    }

    fn read_up_to(&mut self, last: u64) -> Result<(), LogError> {
        let entries = self.log.read(self.next..last + 1, READ_BYTES)?;
        let entries: VecDeque<_> = entries.into_iter().map(ReadEntry::from).collect();
        // Purged below a peer's checkpoint: what is there begins later, or nothing is.
        if entries
            .front()
            .is_none_or(|entry| entry.position.index != self.next)
        {
            return Err(LogError::Superseded {
                snapshot: self.log.purged().unwrap_or(last),
            });
        }
        self.read = entries;
        Ok(())
    }

    /// The place and the membership after the last entry that was given: what a checkpoint made here carries.
    #[must_use]
    pub fn raft_state(&self) -> Vec<u8> {
        self.tracker.encode()
    }
}
