//! What the log's files hold: records in frames, and the marks that stand at the beginning of each file.
//!
//! A frame's head has a checksum of its own. Without it a flipped bit in a length would look like an end of file in the
//! middle of a record, which is what a crash leaves behind: entries that were acknowledged would be cut off without a word.

use std::io::{self, Read, Write};

use chunked_wal::WalTypes;
use codeq::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::writer::Flushed;
use crate::raft::types::{Entry, LogId, Vote, decode, encode};

/// The version of all that the files hold: frames, records, marks, and the commands in the entries.
pub(super) const FORMAT: u32 = 3;

/// Stands before a record. It must differ from what `chunked-wal` puts before marks in more than a few bits.
const RECORD: u32 = 0x756e_6973;
/// What `chunked-wal` puts before marks.
const MARKS: u32 = chunked_wal::wal::wal_record::CHECKPOINT_RECORD_TYPE;
/// Tag, length and checksum.
const HEAD_BYTES: usize = 12;
/// The bytes at the beginning of a file which say its format.
pub(super) const FORMAT_BYTES: usize = 4 + HEAD_BYTES;

/// One thing that was written; they take effect in the order of the files.
#[derive(Serialize, Deserialize)]
pub(super) enum Record {
    Entry(Entry),
    /// What is after it is gone.
    Truncated(Option<LogId>),
    /// What is up to it is gone.
    Purged(LogId),
    Vote(Vote),
    Committed(LogId),
}

impl Record {
    pub(super) fn change(&self) -> Change {
        match self {
            Self::Entry(entry) => Change::Entry(entry.log_id),
            Self::Truncated(last) => Change::Truncated(*last),
            Self::Purged(upto) => Change::Purged(*upto),
            Self::Vote(vote) => Change::Vote(*vote),
            Self::Committed(committed) => Change::Committed(*committed),
        }
    }
}

/// What a record does to the marks and to the index.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Entry(LogId),
    Truncated(Option<LogId>),
    Purged(LogId),
    Vote(Vote),
    Committed(LogId),
}

/// What is known without reading entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marks {
    pub node_id: u64,
    pub vote: Option<Vote>,
    pub last: Option<LogId>,
    pub purged: Option<LogId>,
    pub committed: Option<LogId>,
}

impl Marks {
    pub(super) fn pass(&mut self, change: &Change) {
        match *change {
            Change::Entry(log_id) => self.last = Some(log_id),
            Change::Truncated(last) => self.last = last.max(self.purged),
            Change::Purged(upto) => {
                self.purged = Some(upto);
                self.last = self.last.max(self.purged);
            }
            Change::Vote(vote) => self.vote = Some(vote),
            Change::Committed(committed) => self.committed = Some(committed),
        }
    }
}

/// The index after `last`.
pub(super) fn next_index(last: Option<LogId>) -> u64 {
    last.map_or(0, |last| last.index + 1)
}

/// An encoded [`Record`].
#[derive(Clone, Debug)]
pub(super) struct Framed(pub Vec<u8>);

impl Framed {
    pub(super) fn record(&self) -> io::Result<Record> {
        decode(&self.0)
    }
}

impl Encode for Framed {
    fn encode<W: Write>(&self, mut to: W) -> io::Result<usize> {
        write_frame(&mut to, RECORD, &self.0)
    }

    fn type_id(&self) -> Option<u32> {
        Some(RECORD)
    }
}

impl Decode for Framed {
    fn decode<R: Read>(mut from: R) -> io::Result<Self> {
        read_frame(&mut from, RECORD).map(Self)
    }
}

impl Encode for Marks {
    fn encode<W: Write>(&self, mut to: W) -> io::Result<usize> {
        write_frame(&mut to, FORMAT, &encode(self)?)
    }
}

impl Decode for Marks {
    fn decode<R: Read>(mut from: R) -> io::Result<Self> {
        decode(&read_frame(&mut from, FORMAT)?)
    }
}

/// The types that `chunked-wal` is used with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Types;

impl WalTypes for Types {
    type Action = Framed;
    type Checkpoint = Marks;
    type Callback = Flushed;
}

/// The format that the beginning of a file names, if it is whole.
pub(super) fn format(beginning: &[u8; FORMAT_BYTES]) -> Option<u32> {
    let (kind, head) = beginning.split_first_chunk()?;
    if u32::from_be_bytes(*kind) != MARKS {
        return None;
    }
    let (tag, _) = read_head(head.first_chunk()?)?;
    Some(tag)
}

fn write_frame(to: &mut impl Write, tag: u32, body: &[u8]) -> io::Result<usize> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&tag.to_be_bytes());
    head[4..8].copy_from_slice(&length.to_be_bytes());
    let sum = crc32fast::hash(&head[..8]);
    head[8..].copy_from_slice(&sum.to_be_bytes());
    to.write_all(&head)?;
    to.write_all(body)?;
    to.write_all(&crc32fast::hash(body).to_be_bytes())?;
    Ok(HEAD_BYTES + body.len() + 4)
}

/// Tag and length, unless they are damaged.
fn read_head(head: &[u8; HEAD_BYTES]) -> Option<(u32, u32)> {
    let number = |at: usize| head[at..].first_chunk().copied().map(u32::from_be_bytes);
    let (tag, length, sum) = (number(0)?, number(4)?, number(8)?);
    (crc32fast::hash(&head[..8]) == sum).then_some((tag, length))
}

/// Ends with `UnexpectedEof` only where the file does end, whatever is damaged.
fn read_frame(from: &mut impl Read, tag: u32) -> io::Result<Vec<u8>> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut head = [0; HEAD_BYTES];
    // By parts, so that a damaged tag is told even where less than a head follows.
    from.read_exact(&mut head[..4])?;
    if head[..4] != tag.to_be_bytes() {
        return Err(damaged("this is no record"));
    }
    from.read_exact(&mut head[4..])?;
    let Some((_, length)) = read_head(&head) else {
        return Err(damaged("the head of a record is damaged"));
    };
    let mut body = Vec::new();
    let length = u64::from(length);
    if from.take(length).read_to_end(&mut body)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut sum = [0; 4];
    from.read_exact(&mut sum)?;
    if crc32fast::hash(&body).to_be_bytes() != sum {
        return Err(damaged("the checksum of a record is wrong"));
    }
    Ok(body)
}
