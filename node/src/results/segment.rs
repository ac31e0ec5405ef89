//! One append-only file of consecutive rows.
//!
//! A file begins with a header (magic with the format's version, first seq, the digest before the first row, checksum): an
//! empty stream that was reset to row 500 must still know after a restart where it stands.

mod chunk;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unisono_engine::row::{Digest, Row, Seq};

use super::error::ResultsError;
use super::index::{Index, Note, Span};
use super::record::{self, RowRef};

pub(super) use chunk::Chunk;

/// Bytes of a segment's header.
pub(super) const HEADER: usize = 40;
const MAGIC: [u8; 7] = *b"unisonR";
/// The version of the format that this program writes, and the only one that it reads.
const VERSION: u8 = b'1';

/// What was found in a segment's file.
pub(super) enum Loaded {
    /// The file is whole, or its tail was cut off (`cut`).
    Segment { segment: Segment, cut: bool },
    /// Not even the header had reached the disk, and nothing relied on it.
    Nothing,
}

/// Invariant: `file` holds, below `index.len`, a header and the records `index.first..index.next`.
#[derive(Debug)]
pub(super) struct Segment {
    path: Arc<PathBuf>,
    file: Arc<File>,
    index: Index,
}

impl Segment {
    /// Creates an empty segment in `dir`, replacing a file of that name.
    pub(super) fn create(dir: &Path, first: Seq, base: Digest) -> Result<Self, ResultsError> {
        let path = dir.join(file_name(first));
        Index::remove(&path).map_err(ResultsError::io("remove the index of", &path))?;
        let file = new_file(&path)?;
        file.write_all_at(&header(first, base), 0)
            .map_err(ResultsError::io("write to", &path))?;
        Ok(Self::empty(path, file, first, base))
    }

    fn empty(path: PathBuf, file: File, first: Seq, base: Digest) -> Self {
        Self {
            path: Arc::new(path),
            file: Arc::new(file),
            index: Index::empty(first, base, HEADER as u64),
        }
    }

    /// Opens a segment that is on disk for sure, by its index alone; `None` where that does not meet the segment's own
    /// header, its length, and the header of the segment `behind` it, so that it may be another one's.
    pub(super) fn sealed(path: &Path, first: Seq, behind: &Path) -> Option<Self> {
        let index = Index::load(path)?;
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let base = parse_header(&read_header(&file)?, first)?;
        let next_base = parse_header(&read_header(&File::open(behind).ok()?)?, index.next)?;
        let meets = (index.first, index.base) == (first, base)
            && index.digest == next_base
            && index.len == file.metadata().ok()?.len();
        meets.then(|| Self {
            path: Arc::new(path.to_path_buf()),
            file: Arc::new(file),
            index,
        })
    }

    /// Reads a segment's file, checks each record, and builds its index. What cannot be read is cut off where it lies
    /// beyond the first `durable` bytes, else it is damage.
    pub(super) fn load(path: PathBuf, first: Seq, durable: u64) -> Result<Loaded, ResultsError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(ResultsError::io("open", &path))?;
        let bytes = std::fs::read(&path).map_err(ResultsError::io("read", &path))?;
        check_version(&path, &bytes)?;
        let Some(base) = parse_header(&bytes, first) else {
            if durable > 0 {
                return Err(ResultsError::corrupt(&path, 0, "the header is not valid"));
            }
            return Ok(Loaded::Nothing);
        };
        let mut segment = Self::empty(path, file, first, base);
        let mut at = HEADER;
        while let Some((row, length)) = record::decode(&bytes[at..]) {
            let offset = at as u64;
            if row.seq != segment.next() || row.digest != segment.digest().chain(row.json) {
                let what = format!("a record does not follow the one before, row {}", row.seq.0);
                return Err(ResultsError::corrupt(&segment.path, offset, what));
            }
            segment.note(Note::of(&row));
            at += length;
        }
        let cut = at < bytes.len();
        if segment.len() < durable {
            let what = "a record is not valid, though it was on disk before";
            return Err(ResultsError::corrupt(&segment.path, segment.len(), what));
        }
        if cut {
            tracing::warn!(
                file = %segment.path.display(),
                at_byte = segment.len(),
                bytes = bytes.len() as u64 - segment.len(),
                "cut the torn end of a results segment; its rows are computed again"
            );
            segment.truncate_file()?;
        }
        Ok(Loaded::Segment { segment, cut })
    }

    /// Removes what lies behind the last whole record: what a failed write left.
    fn truncate_file(&self) -> Result<(), ResultsError> {
        self.file
            .set_len(self.len())
            .map_err(ResultsError::io("cut", &self.path))
    }

    /// Adds a record that is in the file to what readers see.
    pub(super) fn note(&mut self, note: Note) {
        self.index.note(note);
    }

    /// Writes the index beside the file: no row is added any more.
    pub(super) fn seal(&self) {
        self.index.save(&self.path);
    }

    /// The first run of records at or after row `from` that can overlap `span`.
    pub(super) fn chunk(&self, from: Seq, span: Span) -> Option<Chunk> {
        let blocks = &self.index.blocks;
        if from >= self.next() || !span.meets(self.index.span) {
            return None;
        }
        let at = blocks
            .partition_point(|block| block.first <= from)
            .saturating_sub(1);
        let found = blocks[at..]
            .iter()
            .position(|block| span.meets(block.span))?
            + at;
        let behind = blocks.get(found + 1);
        Some(Chunk {
            path: Arc::clone(&self.path),
            file: Arc::clone(&self.file),
            offset: blocks[found].offset,
            end: behind.map_or(self.len(), |block| block.offset),
            first: blocks[found].first,
            next: behind.map_or(self.next(), |block| block.first),
        })
    }

    /// Copies the rows before `next` into a new file, which takes this one's place. Readers of the old file keep it.
    pub(super) fn shortened(&self, dir: &Path, next: Seq) -> Result<Self, ResultsError> {
        let temporary = dir.join("segment.tmp");
        let file = new_file(&temporary)?;
        let path = (*self.path).clone();
        let mut short = Self::empty(path, file, self.first(), self.base());
        let mut bytes = header(self.first(), self.base()).to_vec();
        let mut from = self.first();
        while let Some(chunk) = self
            .chunk(from, Span::ALL)
            .filter(|chunk| chunk.first < next)
        {
            chunk.visit(|row| {
                if row.seq < next {
                    record::encode(&row, &mut bytes);
                    short.note(Note::of(&row));
                }
                row.seq < next
            })?;
            from = chunk.next;
        }
        short
            .file
            .write_all_at(&bytes, 0)
            .map_err(ResultsError::io("write to", &temporary))?;
        Index::remove(&self.path)
            .and_then(|()| std::fs::rename(&temporary, &*self.path))
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
        for row in rows.iter().map(RowRef::from) {
            record::encode(&row, &mut bytes);
            segment.note(Note::of(&row));
        }
        let written = segment.file.write_all_at(&bytes, 0);
        written
            .and_then(|()| segment.file.sync_data())
            .map_err(ResultsError::io("write to", &temporary))?;
        Ok(segment)
    }

    /// Gives a segment that was just written its name.
    pub(super) fn take_place(&self, dir: &Path) -> Result<(), ResultsError> {
        Index::remove(&self.path)
            .and_then(|()| std::fs::rename(dir.join("older.tmp"), &*self.path))
            .map_err(ResultsError::io("replace", &self.path))?;
        self.seal();
        Ok(())
    }

    pub(super) fn path(&self) -> &Arc<PathBuf> {
        &self.path
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The first row, held or to come.
    pub(super) fn first(&self) -> Seq {
        self.index.first
    }

    /// The first row behind it.
    pub(super) fn next(&self) -> Seq {
        self.index.next
    }

    /// The digest before its first row.
    pub(super) fn base(&self) -> Digest {
        self.index.base
    }

    /// The digest behind its last row.
    pub(super) fn digest(&self) -> Digest {
        self.index.digest
    }

    /// Bytes of header and records.
    pub(super) fn len(&self) -> u64 {
        self.index.len
    }
}

impl Note {
    /// What an index takes from `row`.
    pub(super) fn of(row: &RowRef<'_>) -> Self {
        Self {
            start: row.start.0,
            end: row.end.0,
            length: record::encoded_len(row),
            digest: row.digest,
        }
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
    bytes[..7].copy_from_slice(&MAGIC);
    bytes[7] = VERSION;
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

fn read_header(mut file: &File) -> Option<[u8; HEADER]> {
    let mut bytes = [0; HEADER];
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Another version's file may look like a torn one, but it must not be cut.
fn check_version(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    let version = bytes.strip_prefix(&MAGIC).and_then(<[u8]>::first);
    match version.filter(|&&version| version != VERSION) {
        None => Ok(()),
        Some(&found) => Err(ResultsError::Version {
            path: path.to_path_buf(),
            found: char::from(found).escape_default().to_string(),
            reads: char::from(VERSION),
        }),
    }
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
