//! Append-only NDJSON files as lanes: a lane for each file, an offset is the byte position of a
//! line's start.
//!
//! Only complete lines are given: one without its newline is still being written. What was read
//! once must stay as it was; a file that was cut short, rewritten or replaced is an error, never a
//! silent jump. A file that was renamed is still the same file.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Block, FileId, LaneTrail, OpenFile};
use crate::config::matches_pattern;
use content::Likeness;

mod content;
mod lines;
mod reader;
mod survey;

pub use lines::{LineSplitter, MAX_LINE};
pub use reader::FilesReader;
pub use survey::FilesSurvey;

/// What files of gzip begin with.
pub const GZIP: &[u8] = b"\x1f\x8b";
/// What files of zstd begin with.
pub const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Bytes of one read.
const READ: usize = 64 << 10;
/// So many of a file's first bytes, and of the last ones that were read of it, are compared whenever it has changed.
const EDGE: usize = 4096;

/// Why a lane cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileLaneError {
    /// The file cannot be opened, listed or read. Try again later, and tell the operator.
    #[error("cannot read {path}: {error}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The file is not there. Try again later, and tell the operator.
    #[error(
        "{path} is gone, and no other file of its directory is the one of which {position} bytes were read: restore it; \
         if it was read to its end it is retired by itself"
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// Bytes that were taken in of it.
        position: i64,
    },
    /// The file is too short for knowing whether it is the right one. Try again later.
    #[error(
        "{path} has {size} bytes here, but {wanted} are needed to know it for the one that the cluster reads: it is not \
         whole yet"
    )]
    NotWhole {
        /// The file.
        path: PathBuf,
        /// Its bytes now.
        size: u64,
        /// Bytes that tell.
        wanted: u64,
    },
    /// The file is shorter than what was read of it. Take nothing of it.
    #[error(
        "{path} was cut short: {size} bytes, but {position} were read; files must only grow: restore it, or give what \
         there is now another name"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its bytes now.
        size: u64,
        /// Bytes that were read of it.
        position: u64,
    },
    /// The file holds something else than what was read of it. Take nothing of it.
    #[error(
        "{path} was rewritten or replaced by another file: {what} are not those that were read; files must only grow: \
         restore it, or give what there is now another name"
    )]
    Rewritten {
        /// The file.
        path: PathBuf,
        /// Which bytes.
        what: String,
    },
    /// The file is compressed: its lines have no positions to go on from. Take nothing of it.
    #[error(
        "{path} is compressed, and live sources read plain text alone: unpack it, or keep it out of the source's pattern; \
         unisono eval reads it as it is"
    )]
    Compressed {
        /// The file.
        path: PathBuf,
    },
    /// Another file was put in the place of this one, which exists no more. See whether it is the same, only longer.
    #[error("{path} was replaced by another file after {position} bytes were read")]
    Replaced {
        /// The file.
        path: PathBuf,
        /// Bytes that were read of it.
        position: u64,
    },
}

/// What changes when somebody writes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// One file, read from a position on.
#[derive(Debug)]
pub struct FileLane {
    path: PathBuf,
    file: File,
    id: FileId,
    splitter: LineSplitter,
    buffer: Vec<u8>,
    /// The part of the buffer that was not split into lines yet.
    unsplit: Range<usize>,
    at_end: bool,
    /// As the file was when its edges were last compared.
    stamp: Stamp,
    /// The file's first bytes, as far as they were read.
    first: Vec<u8>,
    /// The last bytes that were read.
    last: Vec<u8>,
    /// It was written to without growing.
    doubtful: bool,
    /// It was not found under its path at the last look.
    away: bool,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> FileLaneError + '_ {
    |error| FileLaneError::Io {
        path: path.to_owned(),
        error,
    }
}

fn id_of(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

impl FileLane {
    /// Opens the file at `path` to read it from its beginning.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(path: &Path) -> Result<Self, FileLaneError> {
        Self::new(path, open_file(path)?, 0)
    }

    /// Opens the file at `path` to go on where a trail ends, if it is the file that left it.
    ///
    /// # Errors
    /// The file cannot be read, or is another one.
    pub fn resume(path: &Path, trail: &LaneTrail) -> Result<Self, FileLaneError> {
        let file = open_file(path)?;
        let likeness = content::compare(&file, trail).map_err(failed(path))?;
        let path_of = || path.to_owned();
        let position = u64::try_from(trail.next).unwrap_or(0);
        match likeness {
            Likeness::Same => Self::new(path, file, position),
            Likeness::Short { size, .. } if size < position => Err(FileLaneError::Truncated {
                path: path_of(),
                size,
                position,
            }),
            Likeness::Short { size, wanted } => Err(FileLaneError::NotWhole {
                path: path_of(),
                size,
                wanted,
            }),
            Likeness::Other { what } => Err(FileLaneError::Rewritten {
                path: path_of(),
                what,
            }),
        }
    }

    fn new(path: &Path, mut file: File, position: u64) -> Result<Self, FileLaneError> {
        let metadata = file.metadata().map_err(failed(path))?;
        let edge = EDGE.min(usize::try_from(position).unwrap_or(EDGE));
        let first = content::read(&file, 0, edge).map_err(failed(path))?;
        let last = content::read(&file, position - edge as u64, edge).map_err(failed(path))?;
        file.seek(SeekFrom::Start(position)).map_err(failed(path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            id: id_of(&metadata),
            splitter: LineSplitter::new(position),
            buffer: vec![0; READ],
            unsplit: 0..0,
            at_end: false,
            stamp: Stamp::of(&metadata),
            first,
            last,
            doubtful: false,
            away: false,
        })
    }

    /// Appends complete lines to `block` until it weighs `max_weight`, or the file ends. Gives how many; none means that
    /// there is no complete line beyond the last one.
    ///
    /// # Errors
    /// The file cannot be read, was cut short, rewritten, or replaced.
    pub fn read(&mut self, block: &mut Block, max_weight: usize) -> Result<usize, FileLaneError> {
        let before = block.len();
        self.at_end = false;
        while block.weight() < max_weight {
            if self.unsplit.is_empty() && !self.read_on()? {
                self.at_end = true;
                break;
            }
            let bytes = &self.buffer[self.unsplit.clone()];
            self.unsplit.start += self.splitter.feed(bytes, block, max_weight);
        }
        Ok(block.len() - before)
    }

    /// Reads the next bytes; `false` at the file's end.
    fn read_on(&mut self) -> Result<bool, FileLaneError> {
        let count = loop {
            match self.file.read(&mut self.buffer) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&self.path)(error)),
            }
        };
        // Only now, with the bytes in hand: they are the file's if what was read before is still there.
        self.check_edges()?;
        if count == 0 {
            return self.look_up().map(|()| false);
        }
        if self.splitter.read_to() == 0 && is_compressed(&self.buffer[..count]) {
            let path = self.path.clone();
            return Err(FileLaneError::Compressed { path });
        }
        self.remember(count);
        self.unsplit = 0..count;
        Ok(true)
    }

    /// Keeps the edges of what was read; the buffer holds the next `count` bytes.
    fn remember(&mut self, count: usize) {
        let bytes = &self.buffer[..count];
        if self.first.len() < EDGE && self.first.len() as u64 == self.splitter.read_to() {
            let room = EDGE - self.first.len();
            self.first.extend_from_slice(&bytes[..count.min(room)]);
        }
        self.last
            .extend_from_slice(&bytes[count.saturating_sub(EDGE)..]);
        let beyond = self.last.len().saturating_sub(EDGE);
        self.last.drain(..beyond);
    }

    /// If the file was written to: is what was read still there, as far as its edges tell?
    fn check_edges(&mut self) -> Result<(), FileLaneError> {
        let metadata = self.file.metadata().map_err(failed(&self.path))?;
        let stamp = Stamp::of(&metadata);
        if stamp == self.stamp {
            return Ok(());
        }
        let position = self.splitter.read_to();
        if stamp.size < position {
            return Err(FileLaneError::Truncated {
                path: self.path.clone(),
                size: stamp.size,
                position,
            });
        }
        let before_last = position.saturating_sub(self.last.len() as u64);
        for (from, bytes) in [(0, &self.first), (before_last, &self.last)] {
            let now = content::read(&self.file, from, bytes.len()).map_err(failed(&self.path))?;
            if now != *bytes {
                let to = from + bytes.len() as u64;
                return Err(FileLaneError::Rewritten {
                    path: self.path.clone(),
                    what: format!("bytes {from} to {to}"),
                });
            }
        }
        self.doubtful |= stamp.size <= self.stamp.size;
        self.stamp = stamp;
        Ok(())
    }

    /// If the file was written to without growing: compares all that was read, or as much as can be afforded.
    ///
    /// # Errors
    /// It holds something else now, or cannot be read.
    pub fn settle_doubt(&mut self, trail: &LaneTrail) -> Result<(), FileLaneError> {
        if !std::mem::take(&mut self.doubtful) {
            return Ok(());
        }
        match content::compare(&self.file, trail).map_err(failed(&self.path))? {
            Likeness::Same => Ok(()),
            Likeness::Short { size, .. } => Err(FileLaneError::Truncated {
                path: self.path.clone(),
                size,
                position: self.splitter.read_to(),
            }),
            Likeness::Other { what } => Err(FileLaneError::Rewritten {
                path: self.path.clone(),
                what,
            }),
        }
    }

    /// At the end of what can be read: is the file still there under its name?
    fn look_up(&mut self) -> Result<(), FileLaneError> {
        let named = match std::fs::metadata(&self.path) {
            Ok(named) => Some(id_of(&named)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&self.path)(error)),
        };
        self.away = named != Some(self.id);
        let links = self.file.metadata().map_err(failed(&self.path))?.nlink();
        // Renamed files have a name left; this one was written over by a rename.
        if named.is_some() && self.away && links == 0 {
            return Err(FileLaneError::Replaced {
                path: self.path.clone(),
                position: self.splitter.read_to(),
            });
        }
        Ok(())
    }

    /// Gives the unfinished last line as if it were complete: for files that nobody writes any
    /// more.
    pub fn finish(&mut self, block: &mut Block) {
        self.splitter.finish(block);
    }

    /// Whether the last [`FileLane::read`] came to the file's end.
    #[must_use]
    pub fn at_end(&self) -> bool {
        self.at_end
    }

    /// Whether the file holds bytes that were not read yet, by its size now.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.size()
            .is_some_and(|size| size > self.splitter.read_to())
    }

    /// Whether the file ends, by its size now, where reading has come to.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.size()
            .is_some_and(|size| size == self.splitter.read_to())
    }

    fn size(&self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.len())
    }

    /// Where the first line starts that was not given yet.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.splitter.position()
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which file it is, and its size now.
    #[must_use]
    pub fn open_file(&self) -> Option<OpenFile> {
        let size = self.size()?;
        Some(OpenFile {
            id: self.id,
            size,
            has_more: size > self.splitter.position(),
        })
    }
}

/// Whether a file that begins like this is one of gzip or zstd.
#[must_use]
pub fn is_compressed(head: &[u8]) -> bool {
    head.starts_with(GZIP) || head.starts_with(ZSTD)
}

fn open_file(path: &Path) -> Result<File, FileLaneError> {
    let file = File::open(path).map_err(failed(path))?;
    let metadata = file.metadata().map_err(failed(path))?;
    if metadata.is_dir() {
        return Err(failed(path)(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    Ok(file)
}

/// A regular file of a directory.
struct Listed {
    name: String,
    path: PathBuf,
    id: FileId,
    stamp: Stamp,
}

/// All regular files in `dir`, ordered by name.
fn list(dir: &Path) -> Result<Vec<Listed>, FileLaneError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed(dir))? {
        let path = entry.map_err(failed(dir))?.path();
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            // It went meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&path)(error)),
        };
        if metadata.is_file() {
            let name = path.file_name().unwrap_or_default();
            files.push(Listed {
                name: name.to_string_lossy().into_owned(),
                id: id_of(&metadata),
                stamp: Stamp::of(&metadata),
                path,
            });
        }
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// Those of them whose names match `pattern`.
fn list_matching(dir: &Path, pattern: &str) -> Result<Vec<Listed>, FileLaneError> {
    let mut files = list(dir)?;
    files.retain(|file| matches_pattern(pattern, &file.name));
    Ok(files)
}

#[cfg(test)]
mod tests;
