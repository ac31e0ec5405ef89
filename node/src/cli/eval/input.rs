//! What `eval` reads: files, pipes and the standard input.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::cli::error::CliError;
use crate::decode::Framing;
use crate::source::Block;
use crate::source::files::{FileLane, GZIP, LineSplitter, ZSTD, is_compressed};

use super::values::Values;

const READ: usize = 64 << 10;

/// One lane's input.
pub struct Input {
    label: String,
    lines: Lines,
    ended: bool,
}

enum Lines {
    /// A file on disk: the same reader as live.
    File(FileLane),
    /// What can be read once, from its start; of compressed files what they hold.
    Stream {
        from: Box<dyn Read>,
        splitter: LineSplitter,
        buffer: Vec<u8>,
    },
    /// Of a format without lines.
    Values(Values),
}

/// Opens all inputs before any is read: a wrong name is told at once.
pub fn open_all(files: &[PathBuf], framing: Framing) -> Result<Vec<Input>, CliError> {
    let mut seen = BTreeSet::new();
    for file in files {
        if !seen.insert(file) {
            return Err(
                CliError::usage(format!("{} is named twice", file.display()))
                    .hint("its records would count twice; name it once"),
            );
        }
    }
    files
        .iter()
        .map(|file| Input::open(file, framing))
        .collect()
}

impl Input {
    fn open(path: &Path, framing: Framing) -> Result<Self, CliError> {
        let label = path.display().to_string();
        let lines = if label == "-" {
            Lines::stream(io::stdin(), framing)
                .map_err(|error| CliError::failure(format!("cannot read {label}: {error}")))?
        } else {
            let cannot = |error: io::Error| {
                CliError::usage(format!("cannot read {label}: {error}"))
                    .hint("name NDJSON files, or - for the standard input")
            };
            let kind = std::fs::metadata(path).map_err(cannot)?;
            let is_plain = kind.is_file()
                && framing == Framing::Line
                && !has_compressed_head(path).map_err(cannot)?;
            if kind.is_dir() || is_plain {
                let lane = FileLane::open(path);
                Lines::File(lane.map_err(|error| {
                    CliError::usage(error.to_string())
                        .hint("name NDJSON files, or - for the standard input")
                })?)
            } else {
                let file = File::open(path).map_err(cannot)?;
                Lines::stream(file, framing).map_err(cannot)?
            }
        };
        Ok(Self {
            label,
            lines,
            ended: false,
        })
    }

    /// The same input under another name.
    pub fn called(self, label: String) -> Self {
        Self { label, ..self }
    }

    /// The name as the user wrote it, or that of its lane.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether everything was read.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Fills the block with the next lines, about `max_bytes`; at the end of the input, its last line counts without a
    /// newline too.
    pub fn read(&mut self, block: &mut Block, max_bytes: usize) -> Result<(), CliError> {
        block.clear();
        match &mut self.lines {
            Lines::Values(values) => self.ended = values.read(&self.label, block, max_bytes)?,
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
        Ok(())
    }
}

impl Lines {
    /// What `from` gives, unpacked if it begins like gzip or zstd; several packed one after another are one.
    fn stream(from: impl Read + 'static, framing: Framing) -> io::Result<Self> {
        let mut from = BufReader::with_capacity(READ, from);
        let head = from.fill_buf()?;
        let from: Box<dyn Read> = if head.starts_with(GZIP) {
            Box::new(flate2::bufread::MultiGzDecoder::new(from))
        } else if head.starts_with(ZSTD) {
            Box::new(zstd::stream::read::Decoder::with_buffer(from)?)
        } else {
            Box::new(from)
        };
        if framing == Framing::Message {
            return Ok(Self::Values(Values::new(from)));
        }
        Ok(Self::Stream {
            from,
            splitter: LineSplitter::new(0),
            buffer: vec![0; READ],
        })
    }
}

fn has_compressed_head(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut head)?;
    Ok(is_compressed(&head))
}
