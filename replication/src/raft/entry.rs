//! Entries as the node's cursor reads them, and what a checkpoint must know of those it has passed.

use std::io;
use std::sync::Arc;

use openraft::EntryPayload;

use super::types::{
    Entry, SnapshotMeta, StoredMembership, decode_raft_state, encode_raft_state, position,
};
use crate::cursor::Position;

/// One entry of the log.
pub(crate) struct ReadEntry {
    pub(crate) position: Position,
    pub(crate) payload: Option<Arc<[u8]>>,
    entry: Entry,
}

impl From<Entry> for ReadEntry {
    fn from(entry: Entry) -> Self {
        let payload = match &entry.payload {
            EntryPayload::Normal(payload) => Some(Arc::clone(&payload.0)),
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        };
        Self {
            position: position(&entry.log_id),
            payload,
            entry,
        }
    }
}

/// The last entry passed, and the membership there.
#[derive(Default)]
pub(crate) struct Tracker(SnapshotMeta);

impl Tracker {
    /// At a checkpoint's place; `None`: at the log's beginning.
    pub(crate) fn at(raft: Option<&[u8]>) -> io::Result<Self> {
        raft.map_or_else(
            || Ok(Self::default()),
            |raft| decode_raft_state(raft).map(Self),
        )
    }

    /// The log begins at index 0.
    pub(crate) fn next_index(&self) -> u64 {
        self.0.last_log_id.map_or(0, |last| last.index + 1)
    }

    pub(crate) fn pass(&mut self, read: &ReadEntry) {
        let log_id = Some(read.entry.log_id);
        self.0.last_log_id = log_id;
        if let EntryPayload::Membership(membership) = &read.entry.payload {
            self.0.last_membership = StoredMembership::new(log_id, membership.clone());
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        encode_raft_state(&self.0).unwrap_or_default()
    }
}
