//! Record batches of format 2, read where they lie, and what an aborted transaction left among them.
//!
//! The format: <https://kafka.apache.org/documentation/#recordbatch>.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use unisono_engine::record::Stamp;

use super::compression::{Compression, Decompressor};

/// What a batch has before its records.
const HEAD: usize = 61;
/// What comes before that which the length counts.
const BEFORE_LENGTH: usize = 12;
/// Where the bytes begin that the checksum covers.
const COVERED: usize = 21;
const MAGIC: usize = 16;

/// Why a batch cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum BatchError {
    /// Its bytes are not what was written: the broker's disk, its memory, or the way.
    #[error("the batch at offset {offset} is damaged: {what}")]
    Damaged { offset: i64, what: String },
    /// It was written for brokers before 0.11.
    #[error(
        "the batch at offset {offset} has the old message format {magic}, which only reader = \"librdkafka\" reads"
    )]
    Old { offset: i64, magic: u8 },
    /// Small as it is, it holds too much.
    #[error("the batch at offset {offset} holds more than {most} bytes when decompressed")]
    TooLarge { offset: i64, most: usize },
}

/// One batch.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    base_offset: i64,
    leader_epoch: i32,
    attributes: i16,
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    count: i32,
    whole: &'a [u8],
}

/// Where a record stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Its position in the partition.
    pub offset: i64,
    /// What it is stamped with.
    pub stamp: Stamp,
    /// Its payload; `None`: a tombstone.
    pub payload: Option<Range<usize>>,
}

fn be<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

impl<'a> Batch<'a> {
    /// The first batch of `bytes` and its length; `None` if it is cut off, as the last one of an answer may be.
    pub fn first(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, BatchError> {
        if bytes.len() < HEAD {
            return Ok(None);
        }
        let offset = i64::from_be_bytes(be(bytes, 0));
        let magic = bytes[MAGIC];
        if magic < 2 {
            return Err(BatchError::Old { offset, magic });
        }
        let length = i32::from_be_bytes(be(bytes, 8));
        let known = usize::try_from(length).ok();
        let Some(end) = known
            .map(|length| BEFORE_LENGTH + length)
            .filter(|end| *end >= HEAD && magic == 2)
        else {
            let what = format!("format {magic}, {length} bytes");
            return Err(BatchError::Damaged { offset, what });
        };
        if end > bytes.len() {
            return Ok(None);
        }
        let whole = &bytes[..end];
        let batch = Self {
            base_offset: offset,
            leader_epoch: i32::from_be_bytes(be(whole, 12)),
            attributes: i16::from_be_bytes(be(whole, COVERED)),
            last_offset_delta: i32::from_be_bytes(be(whole, 23)),
            base_timestamp: i64::from_be_bytes(be(whole, 27)),
            max_timestamp: i64::from_be_bytes(be(whole, 35)),
            producer_id: i64::from_be_bytes(be(whole, 43)),
            count: i32::from_be_bytes(be(whole, 57)),
            whole,
        };
        Ok(Some((batch, end)))
    }

    /// One past its last record, those included that compaction removed.
    pub fn next_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
            .saturating_add(1)
    }

    fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    /// Whether its bytes are those that were written.
    pub fn verify(&self) -> Result<(), BatchError> {
        let said = u32::from_be_bytes(be(self.whole, 17));
        let found = crc32c::crc32c(&self.whole[COVERED..]);
        if found == said {
            return Ok(());
        }
        Err(self.damaged(&format!("its checksum is {found:08x}, not {said:08x}")))
    }

    fn damaged(&self, what: &str) -> BatchError {
        BatchError::Damaged {
            offset: self.base_offset,
            what: what.to_owned(),
        }
    }

    /// Appends its bytes, decompressed, to `bytes`, and gives each of its records from the offset `from` on, by its place
    /// there. Gives how many. After an error some may have been given.
    pub fn read(
        &self,
        from: i64,
        decompressor: &mut Decompressor,
        bytes: &mut Vec<u8>,
        mut each: impl FnMut(Located),
    ) -> Result<usize, BatchError> {
        let start = bytes.len();
        let packed = &self.whole[HEAD..];
        match Compression::of(self.attributes) {
            Some(Compression::None) => bytes.extend_from_slice(packed),
            Some(compression) => {
                let unpacked = decompressor.append(compression, packed, bytes);
                unpacked.map_err(|error| error.of_batch(self.base_offset))?;
            }
            None => return Err(self.damaged("its compression is unknown")),
        }
        let mut walk = Walk {
            bytes: &bytes[..],
            at: start,
        };
        let appended = (self.attributes & 0x08 != 0).then_some(self.max_timestamp);
        let mut given = 0;
        for _ in 0..self.count {
            let record = walk
                .record(self.base_offset, self.base_timestamp)
                .ok_or_else(|| self.damaged("a record is cut short"))?;
            if record.offset < from {
                continue;
            }
            let stamp = match (appended, record.timestamp) {
                (Some(time), _) => Stamp::Log(time),
                (None, -1) => Stamp::None,
                (None, time) => Stamp::Producer(time),
            };
            each(Located {
                offset: record.offset,
                stamp,
                payload: record.value,
            });
            given += 1;
        }
        Ok(given)
    }

    /// Of a control batch: whether it ends a transaction that was aborted.
    fn is_abort(&self) -> bool {
        let mut walk = Walk {
            bytes: self.whole,
            at: HEAD,
        };
        let record = walk.record(self.base_offset, self.base_timestamp);
        // Its key: a version, and a kind of which 0 is an abort.
        let key = record.and_then(|record| self.whole.get(record.key?));
        key.is_some_and(|key| key.len() >= 4 && key[2..4] == [0, 0])
    }
}

/// How far the whole batches of an answer reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Their bytes.
    pub length: usize,
    /// One past their last record.
    pub next: i64,
    /// The leader's epoch that appended the last one.
    pub epoch: i32,
}

/// The extent of the whole batches; `None` if there is none.
pub fn extent(bytes: &[u8]) -> Result<Option<Extent>, BatchError> {
    let mut extent = None;
    let mut at = 0;
    while let Some((batch, length)) = Batch::first(&bytes[at..])? {
        at += length;
        extent = Some(Extent {
            length: at,
            next: batch.next_offset(),
            epoch: batch.leader_epoch,
        });
    }
    Ok(extent)
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

struct Record {
    offset: i64,
    timestamp: i64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
}

impl Walk<'_> {
    #[inline]
    fn varint(&mut self) -> Option<i64> {
        let mut raw = 0_u64;
        let mut shift = 0;
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            raw |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((raw >> 1) as i64 ^ -((raw & 1) as i64));
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    #[inline]
    fn field(&mut self, end: usize) -> Option<Option<Range<usize>>> {
        let length = self.varint()?;
        if length < 0 {
            return Some(None);
        }
        let from = self.at;
        self.at = from
            .checked_add(usize::try_from(length).ok()?)
            .filter(|to| *to <= end)?;
        Some(Some(from..self.at))
    }

    #[inline]
    fn record(&mut self, base_offset: i64, base_timestamp: i64) -> Option<Record> {
        let length = usize::try_from(self.varint()?).ok()?;
        let end = self.at.checked_add(length)?;
        if end > self.bytes.len() {
            return None;
        }
        // Its attributes, of which none is in use.
        self.at += 1;
        let timestamp = base_timestamp.checked_add(self.varint()?)?;
        let offset = base_offset.checked_add(self.varint()?)?;
        let key = self.field(end)?;
        let value = self.field(end)?;
        if self.at > end {
            return None;
        }
        // What follows are headers.
        self.at = end;
        Some(Record {
            offset,
            timestamp,
            key,
            value,
        })
    }
}

/// Which batches of an answer belong to transactions that were aborted. An answer names all that reach into it, so nothing
/// is kept from one to the next.
#[derive(Clone, Debug, Default)]
pub struct Aborted {
    /// Where transactions begin, and by which producers.
    begins: BTreeMap<i64, Vec<i64>>,
    open: HashSet<i64>,
}

impl Aborted {
    /// From pairs of a producer's id and the first offset of a transaction of it.
    pub fn new(list: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut aborted = Self::default();
        for (producer, first) in list {
            aborted.begins.entry(first).or_default().push(producer);
        }
        aborted
    }

    /// Whether the batch's records count. To be asked of each batch, in order.
    pub fn admits(&mut self, batch: &Batch<'_>) -> bool {
        while let Some(begin) = self.begins.first_entry() {
            if *begin.key() >= batch.next_offset() {
                break;
            }
            self.open.extend(begin.remove());
        }
        if batch.is_control() {
            if batch.is_abort() {
                self.open.remove(&batch.producer_id);
            }
            return false;
        }
        !(batch.is_transactional() && self.open.contains(&batch.producer_id))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
#[cfg(test)]
pub(super) use tests::{large_batch, plain_batch};
