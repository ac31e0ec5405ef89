//! What the node brings: a checkpoint of its engine is the Raft snapshot.

use std::io;

/// Makes, keeps and takes in checkpoints. Calls block; they are made off the Raft runtime.
pub trait Snapshots: Send + Sync + 'static {
    /// The last checkpoint that is stored durably, for the start and for a peer that needs it.
    ///
    /// # Errors
    /// It cannot be read.
    fn current(&self) -> io::Result<Option<StoredSnapshot>>;

    /// Makes a checkpoint at the engine's cursor and stores it durably. Returns its `raft` bytes, which
    /// [`crate::LogCursor::raft_state`] gave there; `None` if none can be made now.
    ///
    /// # Errors
    /// It cannot be written.
    fn build(&self) -> io::Result<Option<Vec<u8>>>;

    /// Stores a peer's checkpoint durably and has the engine load it; returns when that is done.
    ///
    /// # Errors
    /// It cannot be read or written; Raft stops then.
    fn install(&self, snapshot: IncomingSnapshot) -> io::Result<()>;

    /// Answers what a peer's node asked with [`crate::Replica::ask`]; one question at a time.
    ///
    /// # Errors
    /// It cannot be answered here; the peer may ask another one.
    fn answer(&self, _question: &[u8]) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A checkpoint as it is stored.
#[derive(Clone, Debug)]
pub struct StoredSnapshot {
    /// Its place in the log and the membership there, opaque.
    pub raft: Vec<u8>,
    /// All that a peer needs.
    pub data: Vec<u8>,
}

/// A checkpoint that a peer has sent.
#[derive(Clone, Debug)]
pub struct IncomingSnapshot {
    /// Its place in the log and the membership there, opaque.
    pub raft: Vec<u8>,
    /// What the peer's [`Snapshots::current`] gave.
    pub data: Vec<u8>,
}
