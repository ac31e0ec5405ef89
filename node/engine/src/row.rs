//! What the engine gives: numbered rows of numbered streams.

use std::fmt;
use std::ops::Range;

use crate::spec::Timestamp;

/// The log index of a pipeline's creation. A name can be reused, an incarnation can't.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The number of a row within its stream, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

/// Which of a pipeline's two numbered streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamKind {
    /// Windows' results.
    Rows,
    /// Records that could not be used, each with its lane, offset and reason.
    DeadLetters,
}

/// One numbered stream of one pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The pipeline, as it was created.
    pub incarnation: Incarnation,
    /// Which of its two streams.
    pub kind: StreamKind,
}

/// Running hash over a stream: XXH3-128 of the digest before it (16 bytes, big endian) followed by
/// the row's bytes. It finds divergence, it does not authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest after one more row.
    #[must_use]
    pub fn chain(self, row: &[u8]) -> Self {
        // In one piece it is hashed several times as fast as in two.
        const MOST: usize = 1024;
        let mut piece = [0; 16 + MOST];
        let (before, rest) = piece.split_at_mut(16);
        before.copy_from_slice(&self.0.to_be_bytes());
        if let Some(copy) = rest.get_mut(..row.len()) {
            copy.copy_from_slice(row);
            let len = row.len().saturating_add(16);
            return Self(xxhash_rust::xxh3::xxh3_128(&piece[..len]));
        }
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        hasher.update(&self.0.to_be_bytes());
        hasher.update(row);
        Self(hasher.digest128())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One row, or one dead letter, as everyone sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number within the stream.
    pub seq: Seq,
    /// The window's start; of a dead letter, 0.
    pub start: Timestamp,
    /// The window's end, not part of it; of a dead letter, 0.
    pub end: Timestamp,
    /// The stream's digest up to and with this row.
    pub digest: Digest,
    /// One JSON object without line breaks.
    pub json: Vec<u8>,
    /// Where in `json` the value of `group` lies; empty for a dead letter.
    pub group: Range<usize>,
}

/// A row whose bytes lie elsewhere: where it was rendered, or in a file that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRef<'a> {
    /// Its number within the stream.
    pub seq: Seq,
    /// The window's start; of a dead letter, 0.
    pub start: Timestamp,
    /// The window's end, not part of it; of a dead letter, 0.
    pub end: Timestamp,
    /// The stream's digest up to and with this row.
    pub digest: Digest,
    /// One JSON object without line breaks.
    pub json: &'a [u8],
    /// Where in `json` the value of `group` lies; empty for a dead letter.
    pub group: Range<usize>,
}

impl<'a> From<&'a Row> for RowRef<'a> {
    fn from(row: &'a Row) -> Self {
        Self {
            seq: row.seq,
            start: row.start,
            end: row.end,
            digest: row.digest,
            json: &row.json,
            group: row.group.clone(),
        }
    }
}

impl RowRef<'_> {
    /// The same row with bytes of its own.
    #[must_use]
    pub fn to_row(&self) -> Row {
        Row {
            seq: self.seq,
            start: self.start,
            end: self.end,
            digest: self.digest,
            json: self.json.to_vec(),
            group: self.group.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_rows_are_chained_alike() {
        for len in [0, 1, 200, 1023, 1024, 1025, 5000] {
            let row = vec![b'x'; len];
            let before = Digest(7);
            let whole = [&7_u128.to_be_bytes()[..], &row].concat();
            let expected = xxhash_rust::xxh3::xxh3_128(&whole);
            assert_eq!(before.chain(&row), Digest(expected), "{len}");
        }
    }
}
