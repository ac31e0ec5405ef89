//! Decoded records of one lane, on their way from the decoder to the engine.
//!
//! A batch keeps the raw payloads (dead letters show an excerpt) and one cell for each record and
//! column. Text cells point into the batch's bytes, so a batch of a thousand records makes three
//! allocations, not thousands.

use std::ops::Range;

use crate::decimal::Decimal;
use crate::spec::{Column, Timestamp};

/// What one record holds in one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// The record has no such key.
    Missing,
    Null,
    Bool(bool),
    Number(Decimal),
    Text(&'a str),
    /// An array or an object, or a number outside of what [`Decimal`] holds: counted as a bad
    /// field, used as null.
    Bad,
}

/// Whether a payload could be decoded at all; all but `Decoded` become dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    Decoded,
    /// No payload: a tombstone of a compacted topic.
    NullPayload,
    EmptyPayload,
    ByteOrderMark,
    NotUtf8,
    NotJson,
    NotAnObject,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Missing,
    Null,
    Bool(bool),
    Number(Decimal),
    Text { start: u32, len: u32 },
    Bad,
}

/// What is known of a record besides its fields.
#[derive(Clone, Copy, Debug)]
pub struct RecordMeta {
    /// Position in its lane: a Kafka offset, or the byte position in a file.
    pub offset: i64,
    /// When the record was appended, where the source knows it.
    pub append_time: Option<Timestamp>,
    pub state: RecordState,
    payload_start: u32,
    payload_len: u32,
}

/// Decoded records of one lane, in the order of their offsets.
#[derive(Debug)]
pub struct RecordBatch {
    columns: usize,
    bytes: Vec<u8>,
    records: Vec<RecordMeta>,
    slots: Vec<Slot>,
}

impl RecordBatch {
    /// An empty batch of records with `columns` fields each.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        Self {
            columns,
            bytes: Vec::new(),
            records: Vec::new(),
            slots: Vec::new(),
        }
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes of payloads and texts held.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Starts the next record, with every column missing; the caller fills its cells with the
    /// `set_*` calls. A payload that would take the batch beyond 4 GiB does not occur: sources
    /// bound a batch far below.
    pub fn push(
        &mut self,
        offset: i64,
        append_time: Option<Timestamp>,
        state: RecordState,
        payload: &[u8],
    ) {
        let payload_start = position(self.bytes.len());
        self.bytes.extend_from_slice(payload);
        let payload_len = position(payload.len());
        self.records.push(RecordMeta {
            offset,
            append_time,
            state,
            payload_start,
            payload_len,
        });
        self.slots
            .resize(self.slots.len() + self.columns, Slot::Missing);
    }

    /// Changes the verdict over the last record: decoding found a fault in the midst of it. Its
    /// cells become missing.
    pub fn reject_last(&mut self, state: RecordState) {
        if let Some(last) = self.records.last_mut() {
            last.state = state;
            let first = self.slots.len() - self.columns;
            self.slots[first..].fill(Slot::Missing);
        }
    }

    fn set(&mut self, column: Column, slot: Slot) {
        debug_assert!(column.0 < self.columns && !self.records.is_empty());
        let at = self.slots.len() - self.columns + column.0;
        self.slots[at] = slot;
    }

    /// Empties a cell of the last record: its key came again, without this field.
    pub fn set_missing(&mut self, column: Column) {
        self.set(column, Slot::Missing);
    }

    /// Sets a cell of the last record to JSON's null.
    pub fn set_null(&mut self, column: Column) {
        self.set(column, Slot::Null);
    }

    /// Sets a cell of the last record to a boolean.
    pub fn set_bool(&mut self, column: Column, value: bool) {
        self.set(column, Slot::Bool(value));
    }

    /// Sets a cell of the last record to a number.
    pub fn set_number(&mut self, column: Column, value: Decimal) {
        self.set(column, Slot::Number(value));
    }

    /// Sets a cell of the last record to a text.
    pub fn set_text(&mut self, column: Column, value: &str) {
        let start = position(self.bytes.len());
        self.bytes.extend_from_slice(value.as_bytes());
        self.set(
            column,
            Slot::Text {
                start,
                len: position(value.len()),
            },
        );
    }

    /// Marks a cell of the last record as unusable.
    pub fn set_bad(&mut self, column: Column) {
        self.set(column, Slot::Bad);
    }

    /// Offset, append time and state of record `index`.
    #[must_use]
    pub fn meta(&self, index: usize) -> &RecordMeta {
        &self.records[index]
    }

    /// All records' offsets and states, in order.
    #[must_use]
    pub fn metas(&self) -> &[RecordMeta] {
        &self.records
    }

    /// The raw payload of record `index`.
    #[must_use]
    pub fn payload(&self, index: usize) -> &[u8] {
        let record = &self.records[index];
        self.slice(record.payload_start, record.payload_len)
    }

    /// The cell of record `index` in `column`.
    #[must_use]
    pub fn cell(&self, index: usize, column: Column) -> Cell<'_> {
        match self.slots[index * self.columns + column.0] {
            Slot::Missing => Cell::Missing,
            Slot::Null => Cell::Null,
            Slot::Bool(value) => Cell::Bool(value),
            Slot::Number(value) => Cell::Number(value),
            // Texts were copied from a `&str`, whole.
            Slot::Text { start, len } => {
                Cell::Text(std::str::from_utf8(self.slice(start, len)).unwrap_or_default())
            }
            Slot::Bad => Cell::Bad,
        }
    }

    /// The records whose offset is in `from..to`, as a range of indexes.
    #[must_use]
    pub fn range(&self, from: i64, to: i64) -> Range<usize> {
        let start = self.records.partition_point(|record| record.offset < from);
        let end = self.records.partition_point(|record| record.offset < to);
        start..end.max(start)
    }

    fn slice(&self, start: u32, len: u32) -> &[u8] {
        let start = start as usize;
        &self.bytes[start..start + len as usize]
    }
}

fn position(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a batch is bounded far below 4 GiB")
}
