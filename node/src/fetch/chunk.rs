//! Some consecutive records of one lane, decoded, with what their ticks need to know of them.

use unisono_engine::record::RecordBatch;
use xxhash_rust::xxh3::xxh3_64;

use crate::source::RawRecord;

/// How many bytes of each end of a payload go into the fingerprint: enough to tell records apart, few enough to be cheap.
const END: usize = 16;

/// Decoded records and, for each, where it ends, the lane's fingerprint up to and with it, and the bytes so far.
#[derive(Debug)]
pub struct Chunk {
    pub batch: RecordBatch,
    marks: Vec<Mark>,
}

/// A place where a cut may fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The offset one past the record.
    pub next: i64,
    /// Running hash of the lane up to and with the record.
    pub fingerprint: u64,
    /// Raw bytes of the chunk's records up to and with this one.
    bytes: usize,
}

impl Chunk {
    /// An empty chunk around an empty batch.
    #[must_use]
    pub fn new(batch: RecordBatch) -> Self {
        Self {
            batch,
            marks: Vec::new(),
        }
    }

    /// Notes the record that was just decoded into the batch.
    pub fn mark(&mut self, record: &RawRecord<'_>, fingerprint: u64) {
        let bytes = self.byte_len() + record.payload.map_or(0, <[u8]>::len);
        self.marks.push(Mark {
            next: record.next,
            fingerprint,
            bytes,
        });
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Raw bytes of all records.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.marks.last().map_or(0, |mark| mark.bytes)
    }

    /// The mark of the last record.
    #[must_use]
    pub fn last(&self) -> Option<Mark> {
        self.marks.last().copied()
    }

    /// The mark of the last record that ends at or below `cut`.
    #[must_use]
    pub fn last_up_to(&self, cut: i64) -> Option<Mark> {
        let count = self.marks.partition_point(|mark| mark.next <= cut);
        count.checked_sub(1).map(|last| self.marks[last])
    }

    /// The furthest mark above `from` such that the records between are at most `budget` bytes, and their bytes; `force`
    /// takes one record even if it alone is more.
    #[must_use]
    pub fn furthest(&self, from: i64, budget: usize, force: Force) -> Option<(Mark, usize)> {
        let first = self.marks.partition_point(|mark| mark.next <= from);
        let before = first
            .checked_sub(1)
            .map_or(0, |last| self.marks[last].bytes);
        let fitting = self
            .marks
            .partition_point(|mark| mark.bytes - before.min(mark.bytes) <= budget);
        let least = if force == Force::OneRecord {
            first + 1
        } else {
            first
        };
        let count = fitting.max(least).min(self.marks.len());
        if count <= first {
            return None;
        }
        let mark = self.marks[count - 1];
        Some((mark, mark.bytes - before))
    }
}

/// Whether a cut must move by one record at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    OneRecord,
    Nothing,
}

/// The lane's fingerprint after one more record: XXH3-64 over the one before, the offset, the time, the length and both
/// ends of the payload. Replicas that read other bytes under the same offsets differ in it.
#[must_use]
pub fn fingerprint(before: u64, record: &RawRecord<'_>) -> u64 {
    let mut text = [0_u8; 32 + 2 * END];
    let payload = record.payload.unwrap_or_default();
    // A tombstone and an empty payload are different records.
    let length = record
        .payload
        .map_or(u64::MAX, |payload| payload.len() as u64);
    text[..8].copy_from_slice(&before.to_le_bytes());
    text[8..16].copy_from_slice(&record.offset.to_le_bytes());
    text[16..24].copy_from_slice(&record.append_time_ms.unwrap_or(i64::MIN).to_le_bytes());
    text[24..32].copy_from_slice(&length.to_le_bytes());
    let end = payload.len().min(END);
    text[32..32 + end].copy_from_slice(&payload[..end]);
    text[32 + END..32 + END + end].copy_from_slice(&payload[payload.len() - end..]);
    xxh3_64(&text)
}
