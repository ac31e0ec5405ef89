//! Rows come one by one and leave in blocks: an append of any number of rows holds one block of them.

use std::os::unix::fs::FileExt;
use std::sync::{Arc, MutexGuard};

use unisono_engine::row::{Digest, Seq};

use super::{Stream, Tail};
use crate::results::Appended;
use crate::results::error::ResultsError;
use crate::results::index::{Note, Span};
use crate::results::record::{self, MAX_JSON, RowRef};
use crate::results::segment::{Chunk, HEADER, Segment};

/// Encoded rows are written when they are so many bytes.
const BLOCK: usize = 64 * 1024;

/// Takes the rows of one append; the stream takes no others meanwhile.
pub struct Appender<'a> {
    stream: &'a Stream,
    _writer: MutexGuard<'a, ()>,
    /// The oldest row held and the first not held, when the append began.
    first: Seq,
    next: Seq,
    /// The number of the row that comes; `None` before the first one.
    expected: Option<Seq>,
    held: Held,
    block: Block,
    appended: Appended,
}

/// Rows on their way to the last segment.
struct Block {
    /// Bytes of the last segment's file; `None` before the first one.
    end: Option<u64>,
    bytes: Vec<u8>,
    notes: Vec<Note>,
    /// The digest behind the last row.
    digest: Digest,
}

/// Held rows that are read again, to be compared.
#[derive(Default)]
struct Held {
    chunk: Option<Chunk>,
    bytes: Vec<u8>,
    at: usize,
    /// The row at `at`.
    seq: Seq,
}

impl<'a> Appender<'a> {
    pub(super) fn new(stream: &'a Stream) -> Self {
        let writer = stream.lock_writer();
        let position = stream.position();
        Self {
            stream,
            _writer: writer,
            first: position.first,
            next: position.next,
            expected: None,
            held: Held::default(),
            block: Block {
                end: stream.tail().map(|tail| tail.end),
                bytes: Vec::new(),
                notes: Vec::new(),
                digest: position.digest,
            },
            appended: Appended::default(),
        }
    }

    /// Takes the next row: writes it, or compares it with the one of its number that is held.
    ///
    /// # Errors
    /// As [`crate::results::ResultsLog::append_rows`].
    pub fn push(&mut self, row: &RowRef<'_>) -> Result<(), ResultsError> {
        let expected = self.expected.unwrap_or(row.seq.min(self.next));
        if row.seq != expected {
            return Err(ResultsError::Gap {
                stream: self.stream.id,
                next: expected,
                offered: row.seq,
            });
        }
        self.expected = Some(Seq(expected.0 + 1));
        if row.seq >= self.next {
            self.block.push(self.stream, row)?;
            self.appended.written += 1;
        } else if row.seq >= self.first {
            self.held.compare(self.stream, row)?;
            self.appended.compared += 1;
        } else {
            self.appended.gone += 1;
        }
        Ok(())
    }

    /// Shows the last rows to readers.
    pub(in crate::results) fn finish(mut self) -> Result<Appended, ResultsError> {
        self.block.flush(self.stream)?;
        Ok(self.appended)
    }
}

impl Held {
    fn compare(&mut self, stream: &Stream, row: &RowRef<'_>) -> Result<(), ResultsError> {
        // A row that is not found below the end is as wrong as one with other bytes.
        let same = self.row(stream, row.seq)?.is_some_and(|held| held == *row);
        match same {
            true => Ok(()),
            false => Err(ResultsError::Diverged {
                stream: stream.id,
                seq: row.seq,
                computed: row.digest,
            }),
        }
    }

    /// Row `seq`, which is behind the one asked for before.
    fn row(&mut self, stream: &Stream, seq: Seq) -> Result<Option<RowRef<'_>>, ResultsError> {
        if self.chunk.as_ref().is_none_or(|chunk| seq >= chunk.next) {
            let Some(chunk) = stream.chunk(seq, Span::ALL) else {
                return Ok(None);
            };
            chunk.read(&mut self.bytes)?;
            (self.at, self.seq) = (0, chunk.first);
            self.chunk = Some(chunk);
        }
        let Some(chunk) = &self.chunk else {
            return Ok(None);
        };
        while self.seq < seq {
            let (_, length) = chunk.record(&self.bytes, self.at, self.seq)?;
            (self.at, self.seq) = (self.at + length, Seq(self.seq.0 + 1));
        }
        let (row, length) = chunk.record(&self.bytes, self.at, seq)?;
        (self.at, self.seq) = (self.at + length, Seq(seq.0 + 1));
        Ok(Some(row))
    }
}

impl Block {
    fn push(&mut self, stream: &Stream, row: &RowRef<'_>) -> Result<(), ResultsError> {
        stream.check_row(row, self.digest)?;
        let length = record::encoded_len(row);
        let file_bytes = self.end.unwrap_or(0);
        let holds_rows = file_bytes > HEADER as u64 || !self.bytes.is_empty();
        let full = file_bytes + self.bytes.len() as u64 + length > stream.segment_bytes;
        if self.end.is_none() || full && holds_rows {
            self.flush(stream)?;
            stream.seal_last();
            stream.begin_segment(row.seq, self.digest)?;
            self.end = Some(HEADER as u64);
        }
        record::encode(row, &mut self.bytes);
        self.notes.push(Note::of(row));
        self.digest = row.digest;
        match self.bytes.len() >= BLOCK {
            true => self.flush(stream),
            false => Ok(()),
        }
    }

    /// Writes the rows behind the last segment's end, then shows them to readers.
    fn flush(&mut self, stream: &Stream) -> Result<(), ResultsError> {
        if self.notes.is_empty() {
            return Ok(());
        }
        let Some(Tail { file, path, end }) = stream.tail() else {
            return Ok(());
        };
        if let Err(error) = file.write_all_at(&self.bytes, end) {
            // Best effort: what a full disk took of the write is cut off at the next start anyway.
            let _ = file.set_len(end);
            return Err(ResultsError::io("write to", &path)(error));
        }
        let mut state = stream.write();
        if let Some(segment) = state.segments.last_mut() {
            for &note in &self.notes {
                segment.note(note);
            }
            let behind = (segment.next(), segment.digest());
            (state.next, state.digest) = behind;
        }
        self.end = Some(end + self.bytes.len() as u64);
        self.bytes.clear();
        self.notes.clear();
        Ok(())
    }
}

impl Stream {
    /// Takes rows that are pushed one by one.
    pub(in crate::results) fn appender(&self) -> Appender<'_> {
        Appender::new(self)
    }

    pub(super) fn check_row(&self, row: &RowRef<'_>, before: Digest) -> Result<(), ResultsError> {
        let (stream, seq) = (self.id, row.seq);
        if row.json.len() > MAX_JSON {
            let bytes = row.json.len();
            return Err(ResultsError::TooLarge {
                stream,
                seq,
                bytes,
                limit: MAX_JSON,
            });
        }
        // A group outside of the row would be cut off as damage after a restart.
        let group_lies_inside = row.json.get(row.group.clone()).is_some();
        if !group_lies_inside || row.digest != before.chain(row.json) {
            return Err(ResultsError::Chain { stream, seq });
        }
        Ok(())
    }

    /// The end of the segment that takes the next row.
    fn tail(&self) -> Option<Tail> {
        let state = self.read();
        state.segments.last().map(|last| Tail {
            file: Arc::clone(last.file()),
            path: Arc::clone(last.path()),
            end: last.len(),
        })
    }

    /// Notes that the last segment is full.
    fn seal_last(&self) {
        if let Some(last) = self.read().segments.last() {
            last.seal();
        }
    }

    pub(super) fn begin_segment(&self, first: Seq, base: Digest) -> Result<(), ResultsError> {
        std::fs::create_dir_all(&self.dir).map_err(ResultsError::io("create", &self.dir))?;
        let segment = Segment::create(&self.dir, first, base)?;
        let mut state = self.write();
        (state.next, state.digest) = (first, base);
        state.segments.push(segment);
        Ok(())
    }
}
