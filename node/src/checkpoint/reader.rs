//! Reads a checkpoint part by part.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::frame::{self, CHUNK, CheckpointError, END, Kind, MAGIC, PREFACE, Total, VERSION};
use super::{Header, PartId};

/// A checkpoint's file, open. What is read is checked; that all of it is right is known at the end, see [`Self::verify`].
pub struct CheckpointReader {
    input: BufReader<FileAt>,
    /// Bytes that are not read yet.
    rest: u64,
    header: Header,
    total: Total,
    /// A part was begun and its end was not read.
    part: Option<Part>,
    ended: bool,
}

/// The part that is read.
#[derive(Default)]
struct Part {
    chunk: Vec<u8>,
    at: usize,
    length: u64,
}

/// A file with a place of its own: readers of the same open file do not disturb each other.
struct FileAt {
    file: Arc<File>,
    at: u64,
}

impl Read for FileAt {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl CheckpointReader {
    /// Opens the checkpoint at `path`; see [`Self::of`].
    ///
    /// # Errors
    /// As there.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        Self::of(Arc::new(File::open(path)?))
    }

    /// Reads an open checkpoint's version and header, and looks whether it has an end.
    ///
    /// # Errors
    /// Another version, or damage.
    pub fn of(file: Arc<File>) -> Result<Self, CheckpointError> {
        let bytes = file.metadata()?.len();
        check_preface(&file)?;
        let mut reader = Self {
            input: BufReader::with_capacity(CHUNK, FileAt { file, at: 0 }),
            rest: bytes,
            header: Header {
                index: 0,
                term: 0,
                raft: Vec::new(),
                machine: Default::default(),
                feeds: Default::default(),
                made_at: 0,
            },
            total: Total::new(),
            part: None,
            ended: false,
        };
        check_end(&reader.input.get_ref().file, bytes)?;
        reader.take(PREFACE)?;
        let mut body = Vec::new();
        match reader.frame(&mut body)? {
            Kind::Header => {
                reader.header = postcard::from_bytes(&body).map_err(CheckpointError::damaged)?;
                Ok(reader)
            }
            other => Err(unexpected(other)),
        }
    }

    #[must_use]
    /// What the checkpoint begins with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next part; what was not read of the one before is passed over, and checked nonetheless. `None` at the end, when
    /// everything was as it was written.
    ///
    /// # Errors
    /// Damage.
    pub fn next_part(&mut self) -> Result<Option<(PartId, PartReader<'_>)>, CheckpointError> {
        while self.part.is_some() {
            self.next_chunk()?;
        }
        if self.ended {
            return Ok(None);
        }
        let mark = self.total.mark();
        let mut body = Vec::new();
        match self.frame(&mut body)? {
            Kind::Part => {
                let id = postcard::from_bytes(&body).map_err(CheckpointError::damaged)?;
                self.total.parts += 1;
                self.part = Some(Part::default());
                Ok(Some((id, PartReader(self))))
            }
            Kind::End if body == mark && self.rest == 0 => {
                self.ended = true;
                Ok(None)
            }
            Kind::End => Err(CheckpointError::damaged("its checksum does not fit")),
            other => Err(unexpected(other)),
        }
    }

    /// Reads on to the end and checks all of it.
    ///
    /// # Errors
    /// Damage.
    pub fn verify(&mut self) -> Result<(), CheckpointError> {
        while self.next_part()?.is_some() {}
        Ok(())
    }

    /// Reads the part's next chunk, or its end.
    fn next_chunk(&mut self) -> Result<(), CheckpointError> {
        let Some(mut part) = self.part.take() else {
            return Ok(());
        };
        match self.frame(&mut part.chunk)? {
            Kind::Chunk => {
                part.at = 0;
                part.length += part.chunk.len() as u64;
                self.part = Some(part);
                Ok(())
            }
            Kind::PartEnd if part.chunk == part.length.to_le_bytes() => Ok(()),
            Kind::PartEnd => Err(CheckpointError::damaged("a part has another length")),
            other => Err(unexpected(other)),
        }
    }

    /// Reads a frame; its body takes the place of what is in `body`.
    fn frame(&mut self, body: &mut Vec<u8>) -> Result<Kind, CheckpointError> {
        let begin = self.take(5)?;
        let (kind, length) = (begin[0], &begin[1..]);
        let kind = Kind::of(kind).ok_or_else(|| CheckpointError::damaged("an unknown frame"))?;
        let length = length.try_into().map(u32::from_le_bytes).unwrap_or(0) as usize;
        // Not before it is known that there is as much: a flipped bit must not ask for memory.
        let fits = (frame::frame_len(length) - 5) as u64 <= self.rest;
        if !fits || kind == Kind::Chunk && length > CHUNK {
            return Err(CheckpointError::damaged("a frame's length"));
        }
        body.resize(length, 0);
        self.input.read_exact(body).map_err(cut_short)?;
        let mut checksum = [0; 4];
        self.input.read_exact(&mut checksum).map_err(cut_short)?;
        self.rest -= length as u64 + 4;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&begin);
        hasher.update(body);
        if hasher.finalize() != u32::from_le_bytes(checksum) {
            return Err(CheckpointError::damaged("a frame's checksum does not fit"));
        }
        self.total.add(body);
        self.total.add(&checksum);
        Ok(kind)
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = vec![0; length];
        self.input.read_exact(&mut bytes).map_err(cut_short)?;
        self.rest = self.rest.saturating_sub(length as u64);
        self.total.add(&bytes);
        Ok(bytes)
    }
}

/// The bytes of one part.
pub struct PartReader<'a>(&'a mut CheckpointReader);

impl Read for PartReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(part) = &mut self.0.part else {
                return Ok(0);
            };
            let left = &part.chunk[part.at..];
            if !left.is_empty() {
                let taken = left.len().min(into.len());
                into[..taken].copy_from_slice(&left[..taken]);
                part.at += taken;
                return Ok(taken);
            }
            self.0.next_chunk()?;
        }
    }
}

fn check_preface(file: &File) -> Result<(), CheckpointError> {
    let mut preface = [0; PREFACE];
    file.read_exact_at(&mut preface, 0).map_err(cut_short)?;
    let version = preface
        .strip_prefix(MAGIC)
        .ok_or_else(|| CheckpointError::damaged("it is no checkpoint"))?;
    let version = version.try_into().map(u32::from_le_bytes).unwrap_or(0);
    frame::check_version(version, VERSION)
}

/// A write that was cut short has no end mark, or one that counts other bytes.
fn check_end(file: &File, bytes: u64) -> Result<(), CheckpointError> {
    let begin = bytes.checked_sub(END as u64);
    let begin = begin.ok_or_else(|| CheckpointError::damaged("it is cut short"))?;
    let mut found = [0; END];
    file.read_exact_at(&mut found, begin).map_err(cut_short)?;
    let mut expected = Vec::with_capacity(END);
    frame::encode(Kind::End, &found[5..END - 4], &mut expected)?;
    match expected == found && found[13..21] == begin.to_le_bytes() {
        true => Ok(()),
        false => Err(CheckpointError::damaged("it is cut short")),
    }
}

fn cut_short(error: io::Error) -> CheckpointError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => CheckpointError::damaged("it is cut short"),
        _ => CheckpointError::Io(error),
    }
}

fn unexpected(kind: Kind) -> CheckpointError {
    CheckpointError::damaged(format!("a frame where none may be: {kind:?}"))
}
