//! Append-only NDJSON files as lanes: a lane for each file, an offset is the byte position of a
//! line's start.
//!
//! Only complete lines are given: one without its newline is still being written. What was read
//! once must stay as it was; a file that was cut short or replaced is an error, never a silent
//! jump.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Block;
use crate::config::matches_pattern;

mod lines;
mod reader;

pub use lines::{LineSplitter, MAX_LINE};
pub use reader::FilesReader;

/// Bytes of one read.
const READ: usize = 64 << 10;

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
    /// The file is shorter than what was read of it. Stop the feed.
    #[error(
        "{path} was cut short: {size} bytes, but {position} were read; files must only grow, \
         restore it or start over with a new pipeline"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its bytes now.
        size: u64,
        /// Bytes that were read of it.
        position: u64,
    },
    /// Another file stands under the name, or none. Stop the feed.
    #[error(
        "{path} was removed or replaced by another file after {position} bytes were read; files must \
         only grow, give new files new names"
    )]
    Rotated {
        /// The file.
        path: PathBuf,
        /// Bytes that were read of it.
        position: u64,
    },
    /// The offset lies within a line, so the file is not the one that was read before. Stop the
    /// feed.
    #[error(
        "{path} has no line that starts at byte {offset}: it is not the file that was read before"
    )]
    NotALineStart {
        /// The file.
        path: PathBuf,
        /// Where reading should have gone on.
        offset: u64,
    },
}

/// One file, read from a position on.
#[derive(Debug)]
pub struct FileLane {
    path: PathBuf,
    file: File,
    /// Device and inode: which file it is, whatever its name.
    identity: (u64, u64),
    splitter: LineSplitter,
    buffer: Vec<u8>,
    /// The part of the buffer that was not split into lines yet.
    unsplit: Range<usize>,
    at_end: bool,
}

impl FileLane {
    /// Opens the file at `path` to read from `from_offset` on, which is 0 or the end of a line.
    ///
    /// # Errors
    /// The file cannot be read, is shorter than that, or has no line that starts there.
    pub fn open(path: &Path, from_offset: u64) -> Result<Self, FileLaneError> {
        let failed = |error| FileLaneError::Io {
            path: path.to_owned(),
            error,
        };
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if metadata.len() < from_offset {
            let (path, size) = (path.to_owned(), metadata.len());
            return Err(FileLaneError::Truncated {
                path,
                size,
                position: from_offset,
            });
        }
        if let Some(before) = from_offset.checked_sub(1) {
            let mut byte = [0];
            file.seek(SeekFrom::Start(before)).map_err(failed)?;
            file.read_exact(&mut byte).map_err(failed)?;
            if byte != *b"\n" {
                return Err(FileLaneError::NotALineStart {
                    path: path.to_owned(),
                    offset: from_offset,
                });
            }
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            identity: (metadata.dev(), metadata.ino()),
            splitter: LineSplitter::new(from_offset),
            buffer: vec![0; READ],
            unsplit: 0..0,
            at_end: false,
        })
    }

    /// Appends complete lines to `block` until it weighs `max_weight`, or the file ends. Gives how many; none means that
    /// there is no complete line beyond the last one.
    ///
    /// # Errors
    /// The file cannot be read, was cut short, or was replaced.
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
        loop {
            match self.file.read(&mut self.buffer) {
                Ok(0) => return self.check_end().map(|()| false),
                Ok(count) => {
                    self.unsplit = 0..count;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(FileLaneError::Io {
                        path: self.path.clone(),
                        error,
                    });
                }
            }
        }
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

    /// At the end of what can be read: is it still the same file, and as long as it was?
    fn check_end(&self) -> Result<(), FileLaneError> {
        let failed = |error| FileLaneError::Io {
            path: self.path.clone(),
            error,
        };
        let position = self.splitter.read_to();
        let size = self.file.metadata().map_err(failed)?.len();
        if size < position {
            return Err(FileLaneError::Truncated {
                path: self.path.clone(),
                size,
                position,
            });
        }
        match std::fs::metadata(&self.path) {
            Ok(named) if (named.dev(), named.ino()) == self.identity => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            Ok(_) | Err(_) => Err(FileLaneError::Rotated {
                path: self.path.clone(),
                position,
            }),
        }
    }
}

/// The files in `dir` whose names match `pattern`, ordered by name.
///
/// # Errors
/// The directory cannot be listed.
pub fn list_files(dir: &Path, pattern: &str) -> Result<Vec<PathBuf>, FileLaneError> {
    let failed = |error| FileLaneError::Io {
        path: dir.to_owned(),
        error,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if matches_pattern(pattern, &name.to_string_lossy()) && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
