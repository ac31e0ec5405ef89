//! What openraft takes for the state machine: a mark. Applying an entry only moves it; the node reads the entries from
//! the log at its own pace, as far as the mark.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};

use super::transfer::SnapshotData;
use super::types::{
    LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig, decode_raft_state,
    encode_raft_state,
};
use crate::rt::{self, Condvar};
use crate::snapshots::{IncomingSnapshot, Snapshots};

/// Shared by openraft's state machine and the node's cursor.
pub(crate) struct Mark {
    state: Mutex<MarkState>,
    moved: Condvar,
}

#[derive(Clone, Default)]
struct MarkState {
    applied: Option<LogId>,
    membership: StoredMembership,
    /// The last checkpoint that was made here or taken from a peer.
    checkpoint: Option<SnapshotMeta>,
    closed: bool,
}

/// What a cursor finds when it looks at the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Entries up to this index may be read.
    UpTo(u64),
    /// Nothing may be read yet.
    Nothing,
    Closed,
}

impl Mark {
    /// The mark as it stands at a checkpoint, or at the log's beginning.
    pub(crate) fn new(checkpoint: Option<SnapshotMeta>) -> Self {
        let mut state = MarkState::default();
        if let Some(meta) = checkpoint {
            state.applied = meta.last_log_id;
            state.membership = meta.last_membership.clone();
            state.checkpoint = Some(meta);
        }
        Self {
            state: Mutex::new(state),
            moved: Condvar::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MarkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until an entry from index `next` on may be read, at most `timeout`.
    pub(crate) fn wait(&self, next: u64, timeout: Duration) -> Reach {
        let before = |state: &mut MarkState| {
            !state.closed && state.applied.is_none_or(|applied| applied.index < next)
        };
        let guard = self.lock();
        let waited = self
            .moved
            .wait_timeout_while(&self.state, guard, timeout, before);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        match state.applied {
            _ if state.closed => Reach::Closed,
            Some(applied) if applied.index >= next => Reach::UpTo(applied.index),
            _ => Reach::Nothing,
        }
    }

    /// Ends all waiting for ever.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.moved.notify_all();
    }

    /// Notes a checkpoint that was made here; tells whether it stands further on than the one before.
    pub(crate) fn set_checkpoint(&self, meta: SnapshotMeta) -> bool {
        let mut state = self.lock();
        let last = |meta: &SnapshotMeta| meta.last_log_id.map(|last| last.index);
        let before = state.checkpoint.as_ref().and_then(last);
        let moved = last(&meta) > before;
        // A peer's may have come meanwhile.
        if last(&meta) >= before {
            state.checkpoint = Some(meta);
        }
        moved
    }

    /// The index of the last checkpoint; 0 without one.
    pub(crate) fn checkpoint_index(&self) -> u64 {
        let state = self.lock();
        let last = state.checkpoint.as_ref().and_then(|meta| meta.last_log_id);
        last.map_or(0, |last| last.index)
    }
}

/// openraft's state machine.
#[derive(Clone)]
pub(crate) struct StateMachine {
    pub(crate) mark: Arc<Mark>,
    pub(crate) snapshots: Arc<dyn Snapshots>,
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = MadeCheckpoint;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let state = self.mark.lock();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            {
                let mut state = self.mark.lock();
                state.applied = Some(entry.log_id);
                if let EntryPayload::Membership(membership) = &entry.payload {
                    state.membership =
                        StoredMembership::new(Some(entry.log_id), membership.clone());
                }
            }
            self.mark.moved.notify_all();
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    /// A checkpoint is made before openraft is told of it: making one may fail, or be impossible for a while, and neither
    /// is a reason for Raft to stop.
    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<MadeCheckpoint> {
        self.mark.lock().checkpoint.clone().map(MadeCheckpoint)
    }

    async fn get_snapshot_builder(&mut self) -> MadeCheckpoint {
        MadeCheckpoint(self.mark.lock().checkpoint.clone().unwrap_or_default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        data: SnapshotData,
    ) -> io::Result<()> {
        let SnapshotData::Received(file) = data else {
            return Err(io::Error::other("a checkpoint that no peer has sent"));
        };
        let snapshots = Arc::clone(&self.snapshots);
        let raft = encode_raft_state(meta)?;
        let install = move || snapshots.install(IncomingSnapshot { raft, file });
        rt::blocking(install).await.map_err(io::Error::other)??;
        let mut state = self.mark.lock();
        state.applied = meta.last_log_id;
        state.membership = meta.last_membership.clone();
        state.checkpoint = Some(meta.clone());
        drop(state);
        self.mark.moved.notify_all();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let snapshots = Arc::clone(&self.snapshots);
        let current = rt::blocking(move || snapshots.current());
        let Some(stored) = current.await.map_err(io::Error::other)?? else {
            return Ok(None);
        };
        Ok(Some(Snapshot {
            meta: decode_raft_state(&stored.raft)?,
            snapshot: SnapshotData::Outgoing(stored.data),
        }))
    }
}

/// A checkpoint that is on disk already.
pub(crate) struct MadeCheckpoint(SnapshotMeta);

impl RaftSnapshotBuilder<TypeConfig> for MadeCheckpoint {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        // Only its place is used here; whoever needs the data asks for the current snapshot.
        Ok(Snapshot {
            meta: self.0.clone(),
            snapshot: SnapshotData::Kept,
        })
    }
}
