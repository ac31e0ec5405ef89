//! What the node brings: a checkpoint of its engine is the Raft snapshot.

use std::io;
use std::path::{Path, PathBuf};

/// Makes, keeps and takes in checkpoints. Calls block; they are made off the Raft runtime.
pub trait Snapshots: Send + Sync + 'static {
    /// The last checkpoint that is stored durably, for the start and for a peer that needs it. Raft waits for this call, not
    /// for its data.
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

    /// Answers what a peer's node asked over a [`crate::Line`]: small and often. Called on Raft's runtime, so it only passes
    /// the question on; whoever answers drops `reply` if it cannot.
    fn confirm(&self, _question: Vec<u8>, _reply: Reply) {}
}

/// Takes the answer to a question.
pub type Reply = Box<dyn FnOnce(Vec<u8>) + Send>;

/// Writes all that a peer needs. It may read as it goes; what it writes is sent in pieces.
pub type WriteSnapshot = Box<dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send>;

/// A checkpoint as it is stored.
pub struct StoredSnapshot {
    /// Its place in the log and the membership there, opaque.
    pub raft: Vec<u8>,
    /// All that a peer needs.
    pub data: WriteSnapshot,
}

/// A checkpoint that a peer has sent.
#[derive(Debug)]
pub struct IncomingSnapshot {
    /// Its place in the log and the membership there, opaque.
    pub raft: Vec<u8>,
    /// What the data of the peer's [`Snapshots::current`] wrote.
    pub file: ReceivedFile,
}

/// A file that is removed when this is dropped.
#[derive(Debug)]
pub struct ReceivedFile {
    path: PathBuf,
}

impl ReceivedFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ReceivedFile {
    fn drop(&mut self) {
        // What is left is removed at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}
