//! What is known of a sealed segment without reading it: a small file beside it, so that a start reads these and not all
//! rows.
//!
//! ```text
//! magic "unisonI1" | u64 first | u128 base | u64 next | u128 digest | u64 len | i64 start | i64 end
//! u32 blocks | per block: u64 first, u64 offset, i64 start, i64 end | u32 crc32 of all before
//! ```
//!
//! It is a copy of what the segment says and never synced: what is missing, damaged, of another version or does not meet
//! the segments around it is made again from its segment.

use std::path::Path;

use unisono_engine::row::{Digest, Seq};

const MAGIC: [u8; 8] = *b"unisonI1";
/// The file's extension; its stem is the segment's.
pub(super) const EXTENSION: &str = "idx";
/// An entry covers about this many bytes: a read by seq or time scans at most this much too much.
const BLOCK_BYTES: u64 = 64 * 1024;

/// What is known of a run of consecutive records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) first: Seq,
    pub(super) offset: u64,
    pub(super) span: Span,
}

/// The least start and the greatest end among rows, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub(super) fn meets(self, rows: Self) -> bool {
        // An open end must not lose a row whose time is the greatest there is.
        (rows.end > self.start || self.start == i64::MIN)
            && (rows.start < self.end || self.end == i64::MAX)
    }

    /// Whether a row from `start` to `end` ends after this span's start and starts before its end.
    pub(super) fn overlaps(self, start: i64, end: i64) -> bool {
        self.meets(Self { start, end })
    }
}

/// Where a segment's rows lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Index {
    /// The first row, held or to come, and the digest before it.
    pub(super) first: Seq,
    pub(super) base: Digest,
    /// The first row behind, and the digest before it.
    pub(super) next: Seq,
    pub(super) digest: Digest,
    /// Bytes of header and records.
    pub(super) len: u64,
    pub(super) span: Span,
    pub(super) blocks: Vec<Block>,
}

impl Index {
    /// Of a segment that has `len` bytes and no row yet.
    pub(super) fn empty(first: Seq, base: Digest, len: u64) -> Self {
        Self {
            first,
            base,
            next: first,
            digest: base,
            len,
            span: Span::EMPTY,
            blocks: Vec::new(),
        }
    }

    /// Adds a record of `length` bytes behind the last one.
    pub(super) fn note(&mut self, note: Note) {
        let full = self
            .blocks
            .last()
            .is_none_or(|block| self.len - block.offset >= BLOCK_BYTES);
        if full {
            self.blocks.push(Block {
                first: self.next,
                offset: self.len,
                span: Span::EMPTY,
            });
        }
        if let Some(block) = self.blocks.last_mut() {
            block.span.include(note.start, note.end);
        }
        self.span.include(note.start, note.end);
        self.len += note.length;
        self.next = Seq(self.next.0 + 1);
        self.digest = note.digest;
    }

    /// Writes it beside the segment at `path`. Nothing relies on it, so that it can't be written is told and no fault.
    pub(super) fn save(&self, path: &Path) {
        let path = path.with_extension(EXTENSION);
        if let Err(error) = std::fs::write(&path, self.encode()) {
            tracing::warn!(file = %path.display(), %error, "no index of a segment: the next start reads the segment");
        }
    }

    /// Reads that of the segment at `path`; `None` where there is none that can be used.
    pub(super) fn load(path: &Path) -> Option<Self> {
        Self::decode(&std::fs::read(path.with_extension(EXTENSION)).ok()?)
    }

    /// Removes that of the segment at `path`, before the segment changes.
    pub(super) fn remove(path: &Path) -> std::io::Result<()> {
        match std::fs::remove_file(path.with_extension(EXTENSION)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.first.0.to_le_bytes());
        bytes.extend(self.base.0.to_le_bytes());
        bytes.extend(self.next.0.to_le_bytes());
        bytes.extend(self.digest.0.to_le_bytes());
        bytes.extend(self.len.to_le_bytes());
        bytes.extend(self.span.start.to_le_bytes());
        bytes.extend(self.span.end.to_le_bytes());
        // A segment of some megabytes has some hundred blocks.
        bytes.extend(u32::try_from(self.blocks.len()).unwrap_or(0).to_le_bytes());
        for block in &self.blocks {
            bytes.extend(block.first.0.to_le_bytes());
            bytes.extend(block.offset.to_le_bytes());
            bytes.extend(block.span.start.to_le_bytes());
            bytes.extend(block.span.end.to_le_bytes());
        }
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut fields = Fields(body.strip_prefix(&MAGIC)?);
        let mut index = Self {
            first: Seq(fields.u64()?),
            base: Digest(fields.u128()?),
            next: Seq(fields.u64()?),
            digest: Digest(fields.u128()?),
            len: fields.u64()?,
            span: fields.span()?,
            blocks: Vec::new(),
        };
        let _count = fields.take::<4>()?;
        while !fields.0.is_empty() {
            index.blocks.push(Block {
                first: Seq(fields.u64()?),
                offset: fields.u64()?,
                span: fields.span()?,
            });
        }
        (index.encode() == bytes).then_some(index)
    }
}

/// What an index takes from a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) length: u64,
    /// The digest behind it.
    pub(super) digest: Digest,
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }

    fn span(&mut self) -> Option<Span> {
        let (start, end) = (self.take()?, self.take()?);
        let (start, end) = (i64::from_le_bytes(start), i64::from_le_bytes(end));
        Some(Span { start, end })
    }
}
