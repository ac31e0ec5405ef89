//! What can go wrong with a results log, by what the caller does next.

use std::io;
use std::path::{Path, PathBuf};

use unisono_engine::row::{Digest, Seq, StreamId, StreamKind};

/// The action that only `fsync` itself fails.
pub(super) const SYNC: &str = "sync";

/// A fault of the results log.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The operating system refused. What readers see is whole; the node stops, and goes on after a restart.
    #[error("cannot {action} {}: {source}; {}", path.display(), io_advice(source))]
    Io {
        /// What was tried, for example `write to`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's own words.
        source: io::Error,
    },
    /// Bytes that were known to be on disk are not what was written. The node must not serve them.
    #[error(
        "{} is damaged at byte {offset}: {what}; move this node's data directory away and restart, \
         it rejoins and copies its state from a peer",
        path.display()
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where the first record that cannot be read begins.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Another version of the program wrote the file.
    #[error(
        "{} has format version {found}, this program reads version {reads}: run the program that wrote it, or move this \
         node's data directory away and restart, it rejoins and copies its state from a peer",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// As the file says.
        found: String,
        /// What can be read.
        reads: char,
    },
    /// A row that exists has other bytes than the one computed now: this replica or its disk is wrong. Heal from a peer.
    #[error(
        "{} hold another row {} than the one computed now; the state of their feed is taken from a peer that has \
         either",
        describe(*stream),
        seq.0
    )]
    Diverged {
        /// The stream.
        stream: StreamId,
        /// The first row that differs.
        seq: Seq,
        /// The digest up to and with the one computed now.
        computed: Digest,
    },
    /// Rows were offered that do not follow those held. The caller skipped some, or forgot to reset the stream.
    #[error(
        "{} end before row {}, but row {} was offered; copy the missing rows from a peer",
        describe(*stream),
        next.0,
        offered.0
    )]
    Gap {
        /// The stream.
        stream: StreamId,
        /// The row that must come next.
        next: Seq,
        /// The row that came.
        offered: Seq,
    },
    /// A new row's digest does not continue the stream's. The rows come from a damaged copy, or skip the reset.
    #[error(
        "row {} offered to the {} has a digest that does not follow the one before; \
         copy the rows again, from another peer",
        seq.0,
        describe(*stream)
    )]
    Chain {
        /// The stream.
        stream: StreamId,
        /// The row.
        seq: Seq,
    },
    /// The rows asked for were deleted by retention, or were never held here. Ask a peer, or start at `first`.
    #[error("{} begin at row {}; row {} is not held here", describe(*stream), first.0, asked.0)]
    Gone {
        /// The stream.
        stream: StreamId,
        /// The oldest row held.
        first: Seq,
        /// The row asked for.
        asked: Seq,
    },
    /// A row beyond what one record may hold. The pipeline's definition makes rows that nobody can use.
    #[error("row {} of the {} has {bytes} bytes, more than the {limit} allowed", seq.0, describe(*stream))]
    TooLarge {
        /// The stream.
        stream: StreamId,
        /// The row.
        seq: Seq,
        /// Its size.
        bytes: usize,
        /// The greatest size.
        limit: usize,
    },
}

impl ResultsError {
    /// Makes a function for `map_err` that names the action and the file.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    /// Whether the disk itself failed to keep what it had taken.
    pub(super) fn is_of_sync(&self) -> bool {
        matches!(self, Self::Io { action, .. } if *action == SYNC)
    }

    pub(super) fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.to_path_buf(),
            offset,
            what: what.into(),
        }
    }
}

fn describe(stream: StreamId) -> String {
    let kind = match stream.kind {
        StreamKind::Rows => "rows",
        StreamKind::DeadLetters => "dead letters",
    };
    format!("{kind} of incarnation {}", stream.incarnation.0)
}

fn io_advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space, then restart",
        io::ErrorKind::PermissionDenied => {
            "give the node's user read and write access, then restart"
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            "set data_dir in the node's config to a directory that it can make and write"
        }
        io::ErrorKind::ReadOnlyFilesystem => "mount the file system writable, then restart",
        _ => "check the disk and its free space, then restart",
    }
}
