//! What is known of the log without the disk: the newest entries, the marks, and the groups on their way.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Instant;

use super::index::Index;
use super::record::{Record, next_index};
use super::writer::{Answer, Operation};
use crate::raft::types::{Entry, LogId, Vote};

/// Entries kept in memory beyond those that are still being written.
const CACHE_BYTES: usize = 16 << 20;

pub(super) struct Cached {
    pub entry: Entry,
    pub bytes: usize,
    /// The append that brought it; it may leave memory once that is written.
    pub sequence: u64,
}

/// What the log holds, as Raft sees it, and what is on its way to the disk.
#[derive(Default)]
pub(super) struct State {
    /// The newest entries without a hole; the last one is `last`.
    pub cache: VecDeque<Cached>,
    pub cache_bytes: usize,
    pub last: Option<LogId>,
    pub purged: Option<LogId>,
    pub committed: Option<LogId>,
    pub vote: Option<Vote>,
    pub sequence: u64,
    pub written: u64,
    /// Of what is handed over to the files: all that is written, and what is being written.
    pub index: Index,
    /// What comes while a group is being written: the next group.
    pub waiting: Vec<Operation>,
    /// Who waits for the group that is being written.
    pub in_flight: Vec<Answer>,
    /// Whether a group is being handed over or written.
    pub busy: bool,
    /// Since when that group is.
    pub busy_since: Option<Instant>,
    /// When the last group was durable.
    pub written_at: Option<Instant>,
    pub failed: bool,
    pub closed: bool,
    /// The writing thread has its name.
    pub named: bool,
}

impl State {
    pub(super) fn next_index(&self) -> u64 {
        next_index(self.last)
    }

    pub(super) fn cache_start(&self) -> u64 {
        self.cache
            .front()
            .map_or(self.next_index(), |cached| cached.entry.log_id.index)
    }

    /// The first entry that is not known to be on this disk; `None`: all are.
    pub(super) fn first_unwritten(&self) -> Option<u64> {
        let written = self
            .cache
            .partition_point(|cached| cached.sequence <= self.written);
        self.cache
            .get(written)
            .map(|cached| cached.entry.log_id.index)
    }

    pub(super) fn evict(&mut self) {
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

    /// Forgets what is after `last`, but never what is purged.
    pub(super) fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<Operation> {
        let last = last.max(self.purged);
        let end = next_index(last);
        while let Some(back) = self
            .cache
            .pop_back_if(|back| back.entry.log_id.index >= end)
        {
            self.cache_bytes -= back.bytes;
        }
        self.last = last;
        Operation::of(&Record::Truncated(last), Answer::Nobody)
    }

    /// Entries of `range`, all of which are in memory, until one more would pass `max_bytes`.
    pub(super) fn cached(&self, range: Range<u64>, max_bytes: usize) -> Vec<Entry> {
        let skip = (range.start - self.cache_start()) as usize;
        let count = (range.end - range.start) as usize;
        let mut size = 0usize;
        let mut entries = Vec::new();
        for cached in self.cache.iter().skip(skip).take(count) {
            size = size.saturating_add(cached.bytes);
            if !entries.is_empty() && size > max_bytes {
                break;
            }
            entries.push(cached.entry.clone());
        }
        entries
    }
}
