//! Consecutive records of one lane, as they were read: the seam between those who read and those who decode.

use std::ops::Range;

use unisono_engine::record::Stamp;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// One record as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Its position in the lane.
    pub offset: i64,
    /// The position one past it: a cut may fall there.
    pub next: i64,
    /// What it is stamped with.
    pub stamp: Stamp,
    /// `None`: a tombstone.
    pub payload: Option<&'a [u8]>,
}

/// Where a record stands, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its position in the lane.
    pub offset: i64,
    /// The position one past it: a cut may fall there.
    pub next: i64,
    /// What it is stamped with, in milliseconds since 1970; `i64::MIN`: nothing.
    pub time_ms: i64,
    /// Running hash of the lane up to and with this record; 0 until [`Block::seal`].
    pub fingerprint: u64,
    /// Where the payload begins, and [`BY_LOG`] if the log stamped it.
    place: u32,
    /// `u32::MAX`: a tombstone.
    len: u32,
}

const UNKNOWN_TIME: i64 = i64::MIN;
const TOMBSTONE: u32 = u32::MAX;
/// What a record takes beside its payload.
pub const HEAD_BYTES: usize = size_of::<Head>();
/// Positions are 32 bits wide, one of their values taken. Those who fill a block stop far below.
const MOST_BYTES: usize = (1 << 31) - 1;
/// The bit of a place that no position takes.
const BY_LOG: u32 = 1 << 31;

impl Head {
    fn new((offset, next): (i64, i64), stamp: Stamp, start: u32, len: u32) -> Self {
        let by_log = match stamp {
            Stamp::Log(_) => BY_LOG,
            Stamp::None | Stamp::Producer(_) => 0,
        };
        Self {
            offset,
            next,
            time_ms: stamp.millis().unwrap_or(UNKNOWN_TIME),
            fingerprint: 0,
            place: start | by_log,
            len,
        }
    }

    fn start(&self) -> u32 {
        self.place & !BY_LOG
    }

    fn end(&self) -> usize {
        let len = if self.len == TOMBSTONE { 0 } else { self.len };
        self.start() as usize + len as usize
    }

    #[inline]
    fn stamp(&self) -> Stamp {
        match self.time_ms {
            UNKNOWN_TIME => Stamp::None,
            time if self.place & BY_LOG != 0 => Stamp::Log(time),
            time => Stamp::Producer(time),
        }
    }
}

/// The bytes of consecutive records one after another, and a head for each. It is made once and filled many times.
#[derive(Debug, Default)]
pub struct Block {
    bytes: Vec<u8>,
    heads: Vec<Head>,
}

impl Block {
    /// Adds the lane's next record.
    ///
    /// # Panics
    /// If the block holds gigabytes: those who fill it stop long before.
    pub fn push(&mut self, offset: i64, next: i64, stamp: Stamp, payload: Option<&[u8]>) {
        let start = self.bytes.len();
        let len = payload.map_or(TOMBSTONE, |payload| {
            self.bytes.extend_from_slice(payload);
            narrow(payload.len())
        });
        let head = Head::new((offset, next), stamp, narrow(start), len);
        self.heads.push(head);
    }

    /// Adds the lane's next records, whose payloads lie among bytes that `add` appends; it tells of each its place there. Gives
    /// what `add` gives; after an error nothing is added.
    ///
    /// # Panics
    /// As [`Self::push`].
    ///
    /// # Errors
    /// Those of `add`.
    pub fn append_with<T, E>(
        &mut self,
        add: impl FnOnce(&mut Vec<u8>, &mut Heads<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (bytes, heads) = (self.bytes.len(), self.heads.len());
        let added = add(&mut self.bytes, &mut Heads(&mut self.heads));
        narrow(self.bytes.len());
        if added.is_err() {
            self.bytes.truncate(bytes);
            self.heads.truncate(heads);
        }
        added
    }

    /// Computes the fingerprints of all records, after that of the record before the first; gives that of the last.
    pub fn seal(&mut self, before: u64) -> u64 {
        let mut running = before;
        for head in &mut self.heads {
            let payload =
                (head.len != TOMBSTONE).then(|| &self.bytes[head.start() as usize..head.end()]);
            running = fingerprint(running, head.offset, head.time_ms, payload);
            head.fingerprint = running;
        }
        running
    }

    /// The record at `index`, counted from 0.
    #[must_use]
    #[inline]
    pub fn record(&self, index: usize) -> RawRecord<'_> {
        let head = &self.heads[index];
        RawRecord {
            offset: head.offset,
            next: head.next,
            stamp: head.stamp(),
            payload: (head.len != TOMBSTONE)
                .then(|| &self.bytes[head.start() as usize..head.end()]),
        }
    }

    /// The records in order.
    pub fn records(&self) -> impl Iterator<Item = RawRecord<'_>> {
        (0..self.len()).map(|index| self.record(index))
    }

    /// Where the records stand, in order.
    #[must_use]
    pub fn heads(&self) -> &[Head] {
        &self.heads
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Bytes of all payloads.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// What the first `count` records take: their payloads and heads. What limits of size are measured by, since a
    /// million records without a byte are not nothing.
    #[must_use]
    pub fn weight_of(&self, count: usize) -> usize {
        let bytes = count
            .checked_sub(1)
            .map_or(0, |last| self.heads[last].end());
        bytes + count * HEAD_BYTES
    }

    /// What all records take.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.heads.len() * HEAD_BYTES
    }

    /// All memory that the block holds, used or not.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.heads.capacity() * HEAD_BYTES
    }

    /// How many records end at or below `offset`.
    #[must_use]
    pub fn count_up_to(&self, offset: i64) -> usize {
        self.heads.partition_point(|head| head.next <= offset)
    }

    /// Adds all records of a block that follows this one, fingerprints too.
    ///
    /// # Panics
    /// As [`Self::push`].
    pub fn append(&mut self, following: &Self) {
        let base = narrow(self.bytes.len());
        narrow(self.bytes.len() + following.bytes.len());
        self.bytes.extend_from_slice(&following.bytes);
        let moved = |head: &Head| Head {
            place: head.place + base,
            ..*head
        };
        self.heads.extend(following.heads.iter().map(moved));
    }

    /// Removes the first `count` records.
    pub fn skip(&mut self, count: usize) {
        let Some(last) = count.checked_sub(1).and_then(|last| self.heads.get(last)) else {
            return;
        };
        let end = last.end();
        self.bytes.drain(..end);
        self.heads.drain(..count);
        let end = narrow(end);
        self.heads.iter_mut().for_each(|head| head.place -= end);
    }

    /// Empties it; its memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.heads.clear();
    }
}

/// Takes in where records stand.
pub struct Heads<'a>(&'a mut Vec<Head>);

impl Heads<'_> {
    /// The next record, whose payload lies there among the block's bytes; `None`: a tombstone.
    ///
    /// # Panics
    /// As [`Block::push`].
    #[inline]
    pub fn push(&mut self, offset: i64, next: i64, stamp: Stamp, payload: Option<Range<usize>>) {
        // A tombstone lies where the record before it ends.
        let end = self.0.last().map_or(0, |last| narrow(last.end()));
        let (start, len) = payload.map_or((end, TOMBSTONE), |range| {
            (narrow(range.start), narrow(range.len()))
        });
        self.0.push(Head::new((offset, next), stamp, start, len));
    }
}

fn narrow(position: usize) -> u32 {
    assert!(position <= MOST_BYTES, "a block of gigabytes");
    // It fits, by the line above.
    u32::try_from(position).unwrap_or(TOMBSTONE)
}

/// The lane's fingerprint after one more record: XXH3-64 over the one before, the record's offset, time and length, and
/// the hash of its whole payload. Replicas that read other bytes under the same offsets differ in it.
fn fingerprint(before: u64, offset: i64, time_ms: i64, payload: Option<&[u8]>) -> u64 {
    // A tombstone and an empty payload are different records.
    let (hash, length) = payload.map_or((0, u64::MAX), |payload| {
        (xxh3_64(payload), payload.len() as u64)
    });
    let mut text = [0_u8; 32];
    text[..8].copy_from_slice(&hash.to_le_bytes());
    text[8..16].copy_from_slice(&offset.to_le_bytes());
    text[16..24].copy_from_slice(&time_ms.to_le_bytes());
    text[24..].copy_from_slice(&length.to_le_bytes());
    xxh3_64_with_seed(&text, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(offset: i64, stamp: Stamp, payload: Option<&[u8]>) -> Block {
        let mut block = Block::default();
        block.push(offset, offset + 1, stamp, payload);
        block
    }

    #[test]
    fn records_come_back_as_they_were_pushed() {
        let mut block = one(7, Stamp::Producer(5), Some(b"first"));
        block.push(9, 12, Stamp::None, None);
        block.push(12, 13, Stamp::Log(-1), Some(b""));
        let mut more = one(13, Stamp::None, Some(b"fourth"));
        more.push(20, 21, Stamp::None, None);
        block.append(&more);
        let records: Vec<RawRecord<'_>> = block.records().collect();
        let record = |offset, next, stamp, payload| RawRecord {
            offset,
            next,
            stamp,
            payload,
        };
        let expected = [
            record(7, 8, Stamp::Producer(5), Some(&b"first"[..])),
            record(9, 12, Stamp::None, None),
            record(12, 13, Stamp::Log(-1), Some(&b""[..])),
            record(13, 14, Stamp::None, Some(&b"fourth"[..])),
            record(20, 21, Stamp::None, None),
        ];
        assert_eq!(records, expected);
        assert_eq!((block.len(), block.byte_len()), (5, 11));
        assert_eq!(block.weight(), 11 + 5 * HEAD_BYTES);
        assert_eq!(block.weight_of(2), 5 + 2 * HEAD_BYTES);
        assert_eq!(block.weight_of(5), block.weight());
        assert_eq!(block.count_up_to(12), 2);
        let memory = block.memory();
        assert!(memory >= block.weight());
        block.skip(0);
        assert_eq!(block.len(), 5);
        block.skip(3);
        assert_eq!(block.records().collect::<Vec<_>>(), expected[3..]);
        assert_eq!(block.byte_len(), 6);
        block.clear();
        assert_eq!((block.len(), block.memory()), (0, memory));
    }

    #[test]
    fn records_that_lie_among_other_bytes_are_the_same() {
        let mut plain = one(7, Stamp::Producer(5), Some(b"first"));
        plain.push(9, 10, Stamp::None, None);
        plain.push(10, 11, Stamp::None, Some(b"third"));
        let mut block = Block::default();
        let added: Result<usize, ()> = block.append_with(|bytes, heads| {
            bytes.extend_from_slice(b"..first..k.third..");
            heads.push(7, 8, Stamp::Producer(5), Some(2..7));
            heads.push(9, 10, Stamp::None, None);
            heads.push(10, 11, Stamp::None, Some(11..16));
            Ok(3)
        });
        assert_eq!(added, Ok(3));
        assert!(block.records().eq(plain.records()));
        assert_eq!(block.seal(1), plain.seal(1));
        let refused = block.append_with(|bytes, heads| {
            bytes.extend_from_slice(b"more");
            heads.push(11, 12, Stamp::None, Some(18..22));
            Err::<(), _>("damaged")
        });
        assert_eq!(
            (refused, block.len(), block.byte_len()),
            (Err("damaged"), 3, 18)
        );
        // What is left of it when the first ones are gone.
        block.skip(2);
        assert_eq!(
            block
                .records()
                .map(|record| record.payload)
                .collect::<Vec<_>>(),
            [Some(&b"third"[..])]
        );
        let mut more = one(11, Stamp::None, Some(b"x"));
        more.append(&block);
        assert_eq!(more.record(1).payload, Some(&b"third"[..]));
    }

    #[test]
    fn every_part_of_a_record_shows_in_the_fingerprint() {
        let long = vec![b'x'; 1000];
        let mut in_the_middle = long.clone();
        in_the_middle[500] = b'y';
        let blocks = [
            one(1, Stamp::Producer(1), Some(&long)),
            one(2, Stamp::Producer(1), Some(&long)),
            one(1, Stamp::Producer(2), Some(&long)),
            one(1, Stamp::None, Some(&long)),
            one(1, Stamp::Producer(1), Some(&long[1..])),
            one(1, Stamp::Producer(1), Some(&in_the_middle)),
            one(1, Stamp::Producer(1), Some(b"")),
            one(1, Stamp::Producer(1), None),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for mut block in blocks {
            assert!(seen.insert(block.seal(0)), "{block:?}");
            assert!(seen.insert(block.seal(1)), "{block:?}");
        }
    }

    #[test]
    fn the_fingerprint_runs_on_over_blocks() {
        let mut whole = one(0, Stamp::None, Some(b"a"));
        whole.append(&one(1, Stamp::None, Some(b"b")));
        let end = whole.seal(42);
        let mut first = one(0, Stamp::None, Some(b"a"));
        let between = first.seal(42);
        assert_eq!(between, whole.heads()[0].fingerprint);
        assert_eq!(one(1, Stamp::None, Some(b"b")).seal(between), end);
    }
}
