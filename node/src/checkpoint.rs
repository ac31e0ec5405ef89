//! Checkpoints: the state at one index of the agreed log, as a file and as what a peer is sent.
//!
//! The order of durability is: rows in the results log, then the checkpoint that names them, then the purge of the log
//! below it. A file is written beside its name, synced, and renamed; a damaged one is refused by its checksum, and the
//! one before it is used.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use unisono_engine::row::{Digest, Row, Seq};
use unisono_engine::spec::Timestamp;
use unisono_replication::command::{FeedId, StreamKey};
use unisono_replication::machine::Machine;
use xxhash_rust::xxh3::xxh3_128;

use crate::feed::StreamHead;
pub use crate::ids::{key_of, stream_of};

const MAGIC: &[u8; 8] = b"UNISONO\n";
/// The version of the format that this program writes, and the newest that it reads.
const VERSION: u32 = 1;
const HEADER: usize = MAGIC.len() + 4 + 16;
/// Checkpoints that are kept: the newest, and one to fall back on.
const KEEP: usize = 2;

/// The state at `index` of the agreed log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    pub index: u64,
    pub term: u64,
    /// What Raft knows at that index: log id and membership, opaque here.
    pub raft: Vec<u8>,
    pub machine: Machine,
    pub feeds: Vec<FeedState>,
}

/// One feed's part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FeedState {
    pub feed: FeedId,
    pub engine: Vec<u8>,
    pub heads: Vec<Head>,
}

/// Where a stream stood.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Head {
    pub stream: StreamKey,
    pub next: u64,
    pub digest: u128,
}

/// What a peer is sent: a checkpoint, and the rows that are not published yet at its index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parcel {
    pub checkpoint: Checkpoint,
    pub rows: Vec<StreamRows>,
}

/// Consecutive rows of one stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamRows {
    pub stream: StreamKey,
    /// The number of the first row, and the stream's digest before it.
    pub from: u64,
    pub digest_before: u128,
    pub rows: Vec<SentRow>,
}

/// A row on its way to a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentRow {
    start_ms: i64,
    end_ms: i64,
    digest: u128,
    json: Vec<u8>,
    group: (u32, u32),
}

/// What is wrong with the bytes of a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A newer program wrote it: upgrade this replica.
    #[error("it has format version {found}, this program reads up to {newest}: upgrade this node")]
    Newer { found: u32, newest: u32 },
    /// Use the one before, or a peer's.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// The bytes of a checkpoint or a parcel, with version and checksum.
///
/// # Errors
/// Never for these types; postcard's signature says so.
pub fn seal<T: Serialize>(value: &T) -> Result<Vec<u8>, CheckpointError> {
    let body = postcard::to_stdvec(value).map_err(|error| damaged(&error))?;
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&xxh3_128(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads what [`seal`] made.
///
/// # Errors
/// A newer version, or damage.
pub fn unseal<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, CheckpointError> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| damaged(&"it is no checkpoint"))?;
    let Some((version, rest)) = rest.split_first_chunk::<4>() else {
        return Err(damaged(&"it is cut short"));
    };
    let found = u32::from_le_bytes(*version);
    if found > VERSION {
        return Err(CheckpointError::Newer {
            found,
            newest: VERSION,
        });
    }
    let Some((checksum, body)) = rest.split_first_chunk::<16>() else {
        return Err(damaged(&"it is cut short"));
    };
    if xxh3_128(body) != u128::from_le_bytes(*checksum) {
        return Err(damaged(&"its checksum does not fit"));
    }
    postcard::from_bytes(body).map_err(|error| damaged(&error))
}

fn damaged(reason: &dyn std::fmt::Display) -> CheckpointError {
    CheckpointError::Damaged(reason.to_string())
}

/// The folder of a node's checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    dir: PathBuf,
}

impl CheckpointStore {
    /// Opens the folder, and makes it if it is not there.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir).map_err(|error| at(&dir, &error))?;
        Ok(Self { dir })
    }

    /// Writes a checkpoint durably, then removes the oldest beyond the two that are kept.
    ///
    /// # Errors
    /// The system's, with the path; nothing has changed then.
    pub fn save(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        let path = self
            .dir
            .join(format!("{:020}.checkpoint", checkpoint.index));
        let bytes = seal(checkpoint).map_err(io::Error::other)?;
        let unfinished = path.with_extension("unfinished");
        write_synced(&unfinished, &bytes)
            .and_then(|()| fs::rename(&unfinished, &path))
            .and_then(|()| File::open(&self.dir)?.sync_all())
            .map_err(|error| at(&path, &error))?;
        let mut files = self.files()?;
        files.truncate(files.len().saturating_sub(KEEP));
        for file in files {
            fs::remove_file(&file).map_err(|error| at(&file, &error))?;
        }
        Ok(())
    }

    /// The newest checkpoint that is whole; damaged ones are named in the log and left as evidence.
    ///
    /// # Errors
    /// The system's; a checkpoint of a newer program.
    pub fn load(&self) -> io::Result<Option<Checkpoint>> {
        for file in self.files()?.iter().rev() {
            let bytes = fs::read(file).map_err(|error| at(file, &error))?;
            match unseal(&bytes) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error @ CheckpointError::Newer { .. }) => {
                    return Err(at(file, &io::Error::other(error)));
                }
                Err(error) => {
                    let file = file.display();
                    tracing::error!(%file, %error, "checkpoint not used; trying the one before");
                }
            }
        }
        Ok(None)
    }

    /// All checkpoints, oldest first.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(|error| at(&self.dir, &error))? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "checkpoint")
            {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl From<StreamHead> for Head {
    fn from(head: StreamHead) -> Self {
        Self {
            stream: key_of(head.stream),
            next: head.next.0,
            digest: head.digest.0,
        }
    }
}

impl SentRow {
    /// The row without its number, which its place tells.
    #[must_use]
    pub fn new(row: Row) -> Self {
        // Rows are far below 4 GiB.
        let within = |at: usize| u32::try_from(at).unwrap_or(0);
        Self {
            start_ms: row.start.0,
            end_ms: row.end.0,
            digest: row.digest.0,
            group: (within(row.group.start), within(row.group.end)),
            json: row.json,
        }
    }

    /// The row with its number.
    #[must_use]
    pub fn into_row(self, seq: u64) -> Row {
        Row {
            seq: Seq(seq),
            start: Timestamp(self.start_ms),
            end: Timestamp(self.end_ms),
            digest: Digest(self.digest),
            json: self.json,
            group: self.group.0 as usize..self.group.1 as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn checkpoint(index: u64) -> Checkpoint {
        let feeds = vec![FeedState {
            feed: FeedId(3),
            engine: vec![7; 100],
            heads: vec![],
        }];
        Checkpoint {
            index,
            term: 2,
            raft: vec![1, 2],
            machine: Machine::default(),
            feeds,
        }
    }

    fn store() -> (tempfile::TempDir, CheckpointStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = CheckpointStore::open(dir.path().join("checkpoints")).unwrap();
        (dir, store)
    }

    #[test]
    fn the_newest_is_loaded_and_two_are_kept() {
        let (_dir, store) = store();
        assert!(store.load().unwrap().is_none());
        for index in [5, 900, 70] {
            store.save(&checkpoint(index)).unwrap();
        }
        assert_eq!(store.load().unwrap().unwrap().index, 900);
        assert_eq!(store.files().unwrap().len(), 2);
    }

    #[test]
    fn a_flipped_bit_and_a_torn_write_are_refused_and_the_one_before_is_used() {
        let (_dir, store) = store();
        store.save(&checkpoint(1)).unwrap();
        store.save(&checkpoint(2)).unwrap();
        let newest = store.files().unwrap().pop().unwrap();
        let whole = fs::read(&newest).unwrap();
        for at in [0, 20, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&newest, bytes).unwrap();
            assert_eq!(store.load().unwrap().unwrap().index, 1, "byte {at}");
        }
        fs::write(&newest, &whole[..whole.len() - 10]).unwrap();
        assert_eq!(store.load().unwrap().unwrap().index, 1);
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let mut bytes = seal(&checkpoint(1)).unwrap();
        bytes[MAGIC.len()] = 2;
        let error = unseal::<Checkpoint>(&bytes).unwrap_err().to_string();
        assert_eq!(
            error,
            "it has format version 2, this program reads up to 1: upgrade this node"
        );
    }
}
