//! The log's files: opening them, and reading entries from them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chunked_wal::{ChunkId, ChunkedWal, Config, Segment, StateMachine, WALRecord};
use codeq::Decode;

use super::index::{Index, Place};
use super::record::{
    Change, FORMAT, FORMAT_BYTES, Framed, Marks, Record, Types, format, next_index,
};
use super::writer::{Core, Files};
use crate::error::StartError;
use crate::identity::{new_node_id, number_of};
use crate::raft::types::Entry;

/// The folder of the log's files in the replica's folder.
const FOLDER: &str = "log";
/// The log of the versions before format 3.
const EARLIER: &str = "raft.redb";
const READ_BUFFER_BYTES: usize = 256 << 10;

/// The log as it was found.
pub(super) struct Opened {
    pub folder: PathBuf,
    pub core: Core,
    pub index: Index,
}

/// Opens or makes the log of replica `number` in `dir`. Every record is read and its checksum compared.
pub(super) fn open(dir: &Path, number: u16, file_bytes: usize) -> Result<Opened, StartError> {
    let earlier = dir.join(EARLIER);
    if earlier.exists() {
        return Err(StartError::Earlier {
            path: earlier,
            reads: FORMAT,
        });
    }
    let folder = dir.join(FOLDER);
    make(dir, &folder).map_err(|cause| unusable(&folder, cause))?;
    let config = Config {
        read_buffer_size: Some(READ_BUFFER_BYTES),
        chunk_max_size: Some(file_bytes),
        // The writer sends one group at a time, so there is never another to wait for, and nothing to hold back.
        flush_batch_wait: Some(Duration::ZERO),
        flush_batch_max_items: Some(1),
        flush_queue_max_bytes: Some(usize::MAX),
        ..Config::new(folder.display())
    };
    let lock = ChunkedWal::<Types>::acquire_lock(&config).map_err(|cause| match cause.kind() {
        io::ErrorKind::WouldBlock => StartError::InUse {
            path: folder.clone(),
        },
        _ => unusable(&folder, cause),
    })?;
    let files = files(&folder).map_err(|cause| unusable(&folder, cause))?;
    if let Some(found) = other_format(&files).map_err(|cause| unusable(&folder, cause))? {
        return Err(StartError::OtherVersion {
            path: folder,
            found,
            reads: FORMAT,
        });
    }
    check_lengths(&files).map_err(|cause| unusable(&folder, cause))?;
    let mut replay = Replay::new(number);
    let wal = ChunkedWal::open_locked(Arc::new(config), &mut replay, Arc::new(|_, _| {}), lock)
        .map_err(|cause| unusable(&folder, cause))?;
    if let Some(size) = wal.last_closed_chunk_truncated_file_size() {
        tracing::warn!(
            folder = %folder.display(), size,
            "the last record of the raft log was not wholly written and is cut off; nobody was told that it was"
        );
    }
    replay
        .check_whole()
        .map_err(|cause| damaged(&folder, cause.to_string()))?;
    let Replay { marks, index, .. } = replay;
    if number_of(marks.node_id) != number {
        return Err(StartError::WrongNumber {
            path: folder,
            stored: number_of(marks.node_id),
            configured: number,
        });
    }
    let core = Core {
        files: Files::Real(Box::new(wal)),
        marks,
    };
    Ok(Opened {
        folder,
        core,
        index,
    })
}

/// A vote must not be lost with the folder that it is in.
fn make(dir: &Path, folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    File::open(dir)?.sync_all()?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

fn damaged(folder: &Path, cause: String) -> StartError {
    StartError::Damaged {
        path: folder.to_path_buf(),
        cause,
    }
}

fn unusable(folder: &Path, cause: io::Error) -> StartError {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    match cause.kind() {
        InvalidData | InvalidInput | Other | UnexpectedEof => damaged(folder, cause.to_string()),
        _ => StartError::Io {
            path: folder.to_path_buf(),
            cause,
        },
    }
}

/// The log's files with their places in it, in order.
fn files(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        // Names of other kinds are none of ours, and `chunked-wal` passes them over too.
        if let Ok(start) = Config::parse_chunk_file_name(&file.file_name().to_string_lossy()) {
            files.push((start, file.path()));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The log's format, if it is another than this program's. Nothing else of such a log is read, and nothing written.
fn other_format(files: &[(u64, PathBuf)]) -> io::Result<Option<u32>> {
    let Some((_, first)) = files.first() else {
        return Ok(None);
    };
    let mut beginning = [0; FORMAT_BYTES];
    match File::open(first)?.read_exact_at(&mut beginning, 0) {
        Ok(()) => Ok(format(&beginning).filter(|&found| found != FORMAT)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// A crash leaves the last file alone unfinished. `chunked-wal` would panic at an empty one before it, and would take away
/// an unfinished one before one that it has taken away.
fn check_lengths(files: &[(u64, PathBuf)]) -> io::Result<()> {
    for pair in files.windows(2) {
        let [(start, path), (next, _)] = pair else {
            continue;
        };
        let length = fs::metadata(path)?.len();
        if start.checked_add(length) != Some(*next) {
            let cause = format!(
                "{} has {length} bytes where the next file says {}",
                path.display(),
                next - start
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
        }
    }
    Ok(())
}

/// A record that does not follow from those before it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Contradiction {
    #[error("a record cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("the file that begins at {0} does not follow from what is before it")]
    Marks(u64),
    #[error("entry {found} follows where entry {expected} is expected")]
    Entry { found: u64, expected: u64 },
    #[error("the entries from {from} up to {to} are missing")]
    Missing { from: u64, to: u64 },
}

/// Finds marks and places anew from what the files hold.
struct Replay {
    marks: Marks,
    index: Index,
    begun: bool,
}

impl Replay {
    /// Of a log that holds nothing yet.
    fn new(number: u16) -> Self {
        Self {
            marks: Marks {
                node_id: new_node_id(number),
                ..Marks::default()
            },
            index: Index::default(),
            begun: false,
        }
    }

    fn marks_at(&mut self, chunk: u64, marks: &Marks) -> Result<(), Contradiction> {
        if !self.begun {
            self.begun = true;
            self.marks = marks.clone();
            self.index = Index::starting_at(next_index(marks.last));
        }
        if self.marks == *marks {
            Ok(())
        } else {
            Err(Contradiction::Marks(chunk))
        }
    }

    fn record(&mut self, framed: &Framed, place: Place) -> Result<(), Contradiction> {
        if !self.begun {
            return Err(Contradiction::Marks(place.chunk));
        }
        let record = framed.record().map_err(Contradiction::Unreadable)?;
        let change = record.change();
        if let Change::Entry(log_id) = change {
            let expected = self.index.range().end;
            if log_id.index != expected {
                return Err(Contradiction::Entry {
                    found: log_id.index,
                    expected,
                });
            }
        }
        self.marks.pass(&change);
        self.index.pass(&change, place);
        Ok(())
    }

    /// Files go from the front only after what they held was purged.
    fn check_whole(&self) -> Result<(), Contradiction> {
        let held = self.index.range();
        let (from, to) = (next_index(self.marks.purged), next_index(self.marks.last));
        if held.start > from {
            return Err(Contradiction::Missing {
                from,
                to: held.start - 1,
            });
        }
        if held.end != to {
            return Err(Contradiction::Missing { from: held.end, to });
        }
        Ok(())
    }
}

impl StateMachine<Types> for Replay {
    type Error = Contradiction;

    fn apply(
        &mut self,
        record: &WALRecord<Types>,
        chunk: ChunkId,
        segment: Segment,
    ) -> Result<(), Contradiction> {
        match record {
            WALRecord::Checkpoint(marks) => self.marks_at(chunk.offset(), marks),
            WALRecord::Action(framed) => self.record(framed, place(chunk, segment)),
        }
    }

    fn checkpoint(&self) -> Marks {
        self.marks.clone()
    }
}

pub(super) fn place(chunk: ChunkId, segment: Segment) -> Place {
    Place {
        chunk: chunk.offset(),
        start: segment.offset,
        // A record has 32 bits for its length, and its frame takes less than what is left of them by any sane entry.
        length: u32::try_from(segment.size).unwrap_or(u32::MAX),
    }
}

/// Reads the entries at `places`, with one read for what lies in one file.
pub(super) fn read(folder: &Path, places: &[Place]) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(places.len());
    for places in places.chunk_by(|one, next| one.chunk == next.chunk) {
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            continue;
        };
        let path = folder.join(Config::chunk_file_name(ChunkId(first.chunk)));
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let mut bytes = vec![0; (last.end() - first.start) as usize];
        File::open(&path)
            .and_then(|file| file.read_exact_at(&mut bytes, first.start - first.chunk))
            .map_err(named)?;
        for place in places {
            let from = (place.start - first.start) as usize;
            let record = &bytes[from..from + place.length as usize];
            entries.push(entry(record).map_err(named)?);
        }
    }
    Ok(entries)
}

fn entry(record: &[u8]) -> io::Result<Entry> {
    if let WALRecord::Action(framed) = WALRecord::<Types>::decode(record)?
        && let Record::Entry(entry) = framed.record()?
    {
        return Ok(entry);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "this is no entry",
    ))
}
