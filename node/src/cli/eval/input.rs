//! What `eval` reads: files, pipes and the standard input.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::cli::error::CliError;
use crate::source::Block;
use crate::source::files::{FileLane, LineSplitter};

const READ: usize = 64 << 10;
const GZIP: &[u8] = b"\x1f\x8b";

/// One lane's input.
pub struct Input {
    label: String,
    lines: Lines,
    ended: bool,
    looks_compressed: bool,
}

enum Lines {
    /// A file on disk: the same reader as live.
    File(FileLane),
    /// What can be read once, from its start.
    Stream {
        from: Box<dyn Read>,
        splitter: LineSplitter,
        buffer: Vec<u8>,
    },
}

/// Opens all inputs before any is read: a wrong name is told at once.
pub fn open_all(files: &[PathBuf]) -> Result<Vec<Input>, CliError> {
    let mut seen = BTreeSet::new();
    for file in files {
        if !seen.insert(file) {
            return Err(
                CliError::usage(format!("{} is named twice", file.display()))
                    .hint("its records would count twice; name it once"),
            );
        }
    }
    files.iter().map(|file| Input::open(file)).collect()
}

impl Input {
    fn open(path: &Path) -> Result<Self, CliError> {
        let label = path.display().to_string();
        let lines = if label == "-" {
            Lines::stream(io::stdin())
        } else {
            let cannot = |error: io::Error| {
                CliError::usage(format!("cannot read {label}: {error}"))
                    .hint("name NDJSON files, or - for the standard input")
            };
            let kind = std::fs::metadata(path).map_err(cannot)?;
            if kind.is_file() || kind.is_dir() {
                let lane = FileLane::open(path);
                Lines::File(lane.map_err(|error| {
                    CliError::usage(error.to_string())
                        .hint("name NDJSON files, or - for the standard input")
                })?)
            } else {
                Lines::stream(File::open(path).map_err(cannot)?)
            }
        };
        Ok(Self {
            label,
            lines,
            ended: false,
            looks_compressed: false,
        })
    }

    /// The name as the user wrote it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether everything was read.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the first bytes are those of a compressed file.
    pub fn looks_compressed(&self) -> bool {
        self.looks_compressed
    }

    /// Fills the block with the next lines, about `max_bytes`; at the end of the input, its last line counts without a
    /// newline too.
    pub fn read(&mut self, block: &mut Block, max_bytes: usize) -> Result<(), CliError> {
        block.clear();
        match &mut self.lines {
            Lines::File(lane) => {
                lane.read(block, max_bytes)
                    .map_err(|e| CliError::failure(e.to_string()))?;
                if lane.at_end() {
                    lane.finish(block);
                    self.ended = true;
                }
            }
            Lines::Stream {
                from,
                splitter,
                buffer,
            } => {
                while block.weight() < max_bytes && !self.ended {
                    match from.read(buffer) {
                        Ok(0) => {
                            splitter.finish(block);
                            self.ended = true;
                        }
                        Ok(count) => {
                            splitter.feed(&buffer[..count], block, usize::MAX);
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => {
                            let message = format!("cannot read {}: {error}", self.label);
                            return Err(CliError::failure(message));
                        }
                    }
                }
            }
        }
        let first = block.records().next();
        self.looks_compressed |= first.is_some_and(|line| {
            line.offset == 0 && line.payload.is_some_and(|bytes| bytes.starts_with(GZIP))
        });
        Ok(())
    }
}

impl Lines {
    fn stream(from: impl Read + 'static) -> Self {
        Self::Stream {
            from: Box::new(from),
            splitter: LineSplitter::new(0),
            buffer: vec![0; READ],
        }
    }
}
