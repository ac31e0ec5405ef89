//! One append-only file of consecutive rows, and its sparse index.
//!
//! A file begins with a header (magic, first seq, the digest before the first row, checksum): an empty stream that was
//! reset to row 500 must still know after a restart where it stands.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unisono_engine::row::{Digest, Row, Seq};

use super::error::ResultsError;
use super::record::{self, RecordView};

/// Bytes of a segment's header.
pub(super) const HEADER: usize = 40;
const MAGIC: [u8; 8] = *b"unisonR1";
/// An index entry covers about this many bytes: a read by seq or time scans at most this much too much.
const BLOCK_BYTES: u64 = 64 * 1024;

/// What is known of a run of consecutive records without reading them.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: Seq,
    offset: u64,
    span: Span,
}

/// The least start and the greatest end among rows, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    start: i64,
    end: i64,
}

impl Span {
    const EMPTY: Self = Self {
        start: i64::MAX,
        end: i64::MIN,
    };
    /// Everything: overlaps each row.
    pub(super) const ALL: Self = Self {
        start: i64::MIN,
        end: i64::MAX,
    };

    /// Times from `start` on and before `end`.
    pub(super) fn new(start: i64, end: i64) -> Self {
        Self { start, end }
    }

    fn include(&mut self, start: i64, end: i64) {
        self.start = self.start.min(start);
        self.end = self.end.max(end);
    }

    /// Whether a row within `rows` can end after this span's start and start before its end.
    fn meets(self, rows: Self) -> bool {
        // An open end must not lose a row whose time is the greatest there is.
        (rows.end > self.start || self.start == i64::MIN)
            && (rows.start < self.end || self.end == i64::MAX)
    }

    /// Whether a row from `start` to `end` ends after this span's start and starts before its end.
    pub(super) fn overlaps(self, start: i64, end: i64) -> bool {
        self.meets(Self { start, end })
    }
}

/// A run of whole records to read.
#[derive(Debug)]
pub(super) struct Chunk {
    path: Arc<PathBuf>,
    file: Arc<File>,
    offset: u64,
    end: u64,
    /// The first row in it.
    pub(super) first: Seq,
    /// The first row behind it.
    pub(super) next: Seq,
}

impl Chunk {
    /// Bytes that reading it takes.
    pub(super) fn byte_len(&self) -> u64 {
        self.end - self.offset
    }

    /// Reads it and gives each record to `visit`, until that returns `false`.
    ///
    /// # Errors
    /// The file cannot be read, or a record in it is damaged.
    pub(super) fn visit(
        &self,
        mut visit: impl FnMut(RecordView<'_>) -> bool,
    ) -> Result<(), ResultsError> {
        let length = usize::try_from(self.byte_len()).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        self.file
            .read_exact_at(&mut bytes, self.offset)
            .map_err(ResultsError::io("read", &self.path))?;
        let mut at = 0;
        while at < bytes.len() {
            let Some((view, length)) = record::decode(&bytes[at..]) else {
                let offset = self.offset + at as u64;
                return Err(ResultsError::corrupt(
                    &self.path,
                    offset,
                    "a record is not valid",
                ));
            };
            if !visit(view) {
                break;
            }
            at += length;
        }
        Ok(())
    }
}

/// What was found in a segment's file.
pub(super) enum Loaded {
    /// The file is whole, or its tail was cut off (`cut`).
    Segment {
        segment: Segment,
        digest: Digest,
        cut: bool,
    },
    /// Not even the header had reached the disk, and nothing relied on it.
    Nothing,
}

/// Invariant: `file` holds, below `len`, a header and the records `first..next`, whole and valid.
#[derive(Debug)]
pub(super) struct Segment {
    path: Arc<PathBuf>,
    file: Arc<File>,
    first: Seq,
    next: Seq,
    base: Digest,
    len: u64,
    blocks: Vec<Block>,
    span: Span,
}

impl Segment {
    /// Creates an empty segment in `dir`, replacing a file of that name.
    pub(super) fn create(dir: &Path, first: Seq, base: Digest) -> Result<Self, ResultsError> {
        let path = dir.join(file_name(first));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(ResultsError::io("create", &path))?;
        file.write_all_at(&header(first, base), 0)
            .map_err(ResultsError::io("write to", &path))?;
        Ok(Self::empty(path, file, first, base))
    }

    fn empty(path: PathBuf, file: File, first: Seq, base: Digest) -> Self {
        Self {
            path: Arc::new(path),
            file: Arc::new(file),
            first,
            next: first,
            base,
            len: HEADER as u64,
            blocks: Vec::new(),
            span: Span::EMPTY,
        }
    }

    /// Reads a segment's file and builds its index. What cannot be read is cut off where it lies beyond the first
    /// `durable` bytes, else it is damage.
    pub(super) fn load(path: PathBuf, first: Seq, durable: u64) -> Result<Loaded, ResultsError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(ResultsError::io("open", &path))?;
        let bytes = std::fs::read(&path).map_err(ResultsError::io("read", &path))?;
        let Some(base) = parse_header(&bytes, first) else {
            if durable > 0 {
                return Err(ResultsError::corrupt(&path, 0, "the header is not valid"));
            }
            return Ok(Loaded::Nothing);
        };
        let mut segment = Self::empty(path, file, first, base);
        let mut digest = base;
        let mut at = HEADER;
        while let Some((view, length)) = record::decode(&bytes[at..]) {
            let offset = at as u64;
            if view.seq != segment.next || view.digest != digest.chain(view.json) {
                let what = format!(
                    "a record does not follow the one before, row {}",
                    view.seq.0
                );
                return Err(ResultsError::corrupt(&segment.path, offset, what));
            }
            digest = view.digest;
            segment.note(view.seq, view.start.0, view.end.0, length as u64);
            at += length;
        }
        let cut = at < bytes.len();
        if segment.len < durable {
            let what = "a record is not valid, though it was on disk before";
            return Err(ResultsError::corrupt(&segment.path, segment.len, what));
        }
        if cut {
            tracing::warn!(
                file = %segment.path.display(),
                at_byte = segment.len,
                bytes = bytes.len() as u64 - segment.len,
                "cut the torn end of a results segment; its rows are computed again"
            );
            segment.truncate_file()?;
        }
        Ok(Loaded::Segment {
            segment,
            digest,
            cut,
        })
    }

    /// Removes what lies behind the last whole record: what a failed write left.
    pub(super) fn truncate_file(&self) -> Result<(), ResultsError> {
        self.file
            .set_len(self.len)
            .map_err(ResultsError::io("cut", &self.path))
    }

    /// Adds a record of `length` bytes, which is in the file, to what readers see.
    pub(super) fn note(&mut self, seq: Seq, start: i64, end: i64, length: u64) {
        let full = self
            .blocks
            .last()
            .is_none_or(|block| self.len - block.offset >= BLOCK_BYTES);
        if full {
            self.blocks.push(Block {
                first: seq,
                offset: self.len,
                span: Span::EMPTY,
            });
        }
        if let Some(block) = self.blocks.last_mut() {
            block.span.include(start, end);
        }
        self.span.include(start, end);
        self.len += length;
        self.next = Seq(seq.0 + 1);
    }

    /// The first run of records at or after row `from` that can overlap `span`.
    pub(super) fn chunk(&self, from: Seq, span: Span) -> Option<Chunk> {
        if from >= self.next || !span.meets(self.span) {
            return None;
        }
        let at = self
            .blocks
            .partition_point(|block| block.first <= from)
            .saturating_sub(1);
        let found = self.blocks[at..]
            .iter()
            .position(|block| span.meets(block.span))?
            + at;
        let behind = self.blocks.get(found + 1);
        Some(Chunk {
            path: Arc::clone(&self.path),
            file: Arc::clone(&self.file),
            offset: self.blocks[found].offset,
            end: behind.map_or(self.len, |block| block.offset),
            first: self.blocks[found].first,
            next: behind.map_or(self.next, |block| block.first),
        })
    }

    /// Copies the rows before `next` into a new file, which takes this one's place. Readers of the old file keep it.
    pub(super) fn shortened(&self, dir: &Path, next: Seq) -> Result<Self, ResultsError> {
        let temporary = dir.join("segment.tmp");
        let file = new_file(&temporary)?;
        let path = (*self.path).clone();
        let mut short = Self::empty(path, file, self.first, self.base);
        let mut bytes = header(self.first, self.base).to_vec();
        let mut from = self.first;
        while let Some(chunk) = self
            .chunk(from, Span::ALL)
            .filter(|chunk| chunk.first < next)
        {
            chunk.visit(|view| {
                if view.seq < next {
                    let row: Row = view.to_row();
                    record::encode(&row, &mut bytes);
                    short.note(row.seq, row.start.0, row.end.0, record::encoded_len(&row));
                }
                view.seq < next
            })?;
            from = chunk.next;
        }
        short
            .file
            .write_all_at(&bytes, 0)
            .map_err(ResultsError::io("write to", &temporary))?;
        std::fs::rename(&temporary, &*self.path)
            .map_err(ResultsError::io("replace", &self.path))?;
        Ok(short)
    }

    /// Writes a whole segment of `rows` under a temporary name and puts it on disk; [`Self::take_place`] names it. The caller
    /// has checked the rows.
    pub(super) fn written(dir: &Path, base: Digest, rows: &[Row]) -> Result<Self, ResultsError> {
        let first = rows.first().map_or(Seq(0), |row| row.seq);
        let temporary = dir.join("older.tmp");
        let file = new_file(&temporary)?;
        let mut segment = Self::empty(dir.join(file_name(first)), file, first, base);
        let mut bytes = header(first, base).to_vec();
        for row in rows {
            record::encode(row, &mut bytes);
            segment.note(row.seq, row.start.0, row.end.0, record::encoded_len(row));
        }
        let written = segment.file.write_all_at(&bytes, 0);
        written
            .and_then(|()| segment.file.sync_data())
            .map_err(ResultsError::io("write to", &temporary))?;
        Ok(segment)
    }

    /// Gives a segment that was just written its name.
    pub(super) fn take_place(&self, dir: &Path) -> Result<(), ResultsError> {
        std::fs::rename(dir.join("older.tmp"), &*self.path)
            .map_err(ResultsError::io("replace", &self.path))
    }

    pub(super) fn path(&self) -> &Arc<PathBuf> {
        &self.path
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The first row, held or to come.
    pub(super) fn first(&self) -> Seq {
        self.first
    }

    /// The first row behind it.
    pub(super) fn next(&self) -> Seq {
        self.next
    }

    /// The digest before its first row.
    pub(super) fn base(&self) -> Digest {
        self.base
    }

    /// Bytes of header and records.
    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

/// The name of the segment that begins with row `first`.
pub(super) fn file_name(first: Seq) -> String {
    format!("{:020}.seg", first.0)
}

/// The first row of a segment by its file's name.
pub(super) fn parse_file_name(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(".seg")?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(Seq)).flatten()
}

fn header(first: Seq, base: Digest) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&first.0.to_le_bytes());
    bytes[16..32].copy_from_slice(&base.0.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..32]);
    bytes[32..36].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn parse_header(bytes: &[u8], first: Seq) -> Option<Digest> {
    let given = bytes.get(..HEADER)?;
    let base = Digest(u128::from_le_bytes(given.get(16..32)?.try_into().ok()?));
    (given == header(first, base)).then_some(base)
}

/// An empty file to write and read; what had the name before is gone.
fn new_file(path: &Path) -> Result<File, ResultsError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(ResultsError::io("create", path))
}
