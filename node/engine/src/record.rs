//! One decoded record on its way from the decoder to the state of its lane.
//!
//! Cells borrow: a text points into the payload, or, where escapes had to be resolved, into the
//! scratch space of [`Cells`], which is used again for the next record. So a record is decoded and
//! folded without an allocation and without a copy of what it holds.

use std::ops::Range;

use crate::decimal::Decimal;
use crate::spec::{Column, Timestamp};

/// What is kept of the scratch space from record to record: one huge text must not stay in memory.
const KEPT_SCRATCH: usize = 64 * 1024;

/// Whether a payload could be decoded at all; all but `Decoded` become dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// Its cells hold what it says.
    Decoded,
    /// No payload: a tombstone of a compacted topic.
    NullPayload,
    /// A payload of no bytes.
    EmptyPayload,
    /// It begins with a byte order mark of UTF-16; that of UTF-8 is passed over.
    ByteOrderMark,
    /// Not valid UTF-8.
    NotUtf8,
    /// UTF-8, but not one JSON value.
    NotJson,
    /// A JSON value other than an object.
    NotAnObject,
    /// More bytes than the pipeline allows a record: nothing of it was looked at.
    TooLarge,
    /// Arrays and objects within each other, deeper than is read.
    TooDeep,
    /// Not what the pipeline's format asks for: a line of CSV with another number of fields, or one that
    /// the regular expression does not match.
    BadFormat,
}

/// What one record holds in one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// The record has no such key.
    Missing,
    /// The key is there, with null.
    Null,
    /// True or false.
    Bool(bool),
    /// A number, exactly as it was written.
    Number(Decimal),
    /// Valid UTF-8; the engine only compares and copies it, so it stays bytes.
    Text(&'a [u8]),
    /// An array or an object: there, but nothing to compute with.
    Nested,
    /// A text or a number outside of what can be held: counted as a bad field, used as null.
    Bad,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Missing,
    Null,
    Bool(bool),
    Number(Decimal),
    /// It had more digits than can be held.
    Rounded(Decimal),
    InPayload {
        start: u32,
        len: u32,
    },
    InScratch {
        start: u32,
        len: u32,
    },
    Nested,
    Bad,
}

/// The cells of one record; the memory serves record after record.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    slots: Vec<Slot>,
    scratch: Vec<u8>,
    /// Some number was rounded; nearly never, so that nobody need look for which.
    has_rounded: bool,
    /// The place of its document, of several in one record.
    element: Option<u32>,
}

impl Cells {
    /// Cells of `columns` columns, all missing.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        Self {
            slots: vec![Slot::Missing; columns],
            scratch: Vec::new(),
            has_rounded: false,
            element: None,
        }
    }

    /// Makes every cell missing: the next record begins.
    #[inline]
    pub fn clear(&mut self) {
        self.slots.fill(Slot::Missing);
        self.has_rounded = false;
        self.scratch.clear();
        if self.scratch.capacity() > KEPT_SCRATCH {
            self.scratch = Vec::new();
        }
    }

    /// Says which document of its record this is, where a record holds several: dead letters show it.
    #[inline]
    pub fn set_element(&mut self, element: Option<u32>) {
        self.element = element;
    }

    /// Empties a cell: its key came again, without this field.
    #[inline]
    pub fn set_missing(&mut self, column: Column) {
        self.slots[column.0] = Slot::Missing;
    }

    /// Sets a cell to JSON's null.
    #[inline]
    pub fn set_null(&mut self, column: Column) {
        self.slots[column.0] = Slot::Null;
    }

    /// Sets a cell to a boolean.
    #[inline]
    pub fn set_bool(&mut self, column: Column, value: bool) {
        self.slots[column.0] = Slot::Bool(value);
    }

    /// Sets a cell to a number.
    #[inline]
    pub fn set_number(&mut self, column: Column, value: Decimal) {
        self.slots[column.0] = Slot::Number(value);
    }

    /// Sets a cell to a number that had more digits than can be held.
    #[cold]
    pub fn set_rounded(&mut self, column: Column, value: Decimal) {
        self.slots[column.0] = Slot::Rounded(value);
        self.has_rounded = true;
    }

    /// Sets a cell to the text that stands in the payload at `range`, as it is: the caller has
    /// checked that it is valid UTF-8. Payloads are bounded far below 4 GiB.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    pub fn set_text_at(&mut self, column: Column, range: Range<usize>) {
        self.slots[column.0] = Slot::InPayload {
            start: range.start as u32,
            len: range.len() as u32,
        };
    }

    /// Sets a cell to a text that does not stand in the payload as it is.
    #[allow(clippy::cast_possible_truncation)]
    pub fn set_text(&mut self, column: Column, text: &str) {
        let start = self.scratch.len() as u32;
        self.scratch.extend_from_slice(text.as_bytes());
        self.slots[column.0] = Slot::InScratch {
            start,
            len: text.len() as u32,
        };
    }

    /// Sets a cell to a text that `write` appends to what it is given, as valid UTF-8; where it
    /// gives false, the cell is bad.
    #[allow(clippy::cast_possible_truncation)]
    pub fn set_text_with(&mut self, column: Column, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.scratch.len();
        self.slots[column.0] = if write(&mut self.scratch) {
            Slot::InScratch {
                start: start as u32,
                len: self.scratch.len().saturating_sub(start) as u32,
            }
        } else {
            self.scratch.truncate(start);
            Slot::Bad
        };
    }

    /// Marks a cell as holding an array or an object.
    #[inline]
    pub fn set_nested(&mut self, column: Column) {
        self.slots[column.0] = Slot::Nested;
    }

    /// Marks a cell as unusable.
    #[inline]
    pub fn set_bad(&mut self, column: Column) {
        self.slots[column.0] = Slot::Bad;
    }

    /// The cell in `column`; `payload` is the one that the cells were set from.
    #[must_use]
    #[inline]
    pub(crate) fn cell<'a>(&'a self, column: Column, payload: &'a [u8]) -> Cell<'a> {
        let slice = |bytes: &'a [u8], start: u32, len: u32| {
            let start = start as usize;
            &bytes[start..][..len as usize]
        };
        match self.slots[column.0] {
            Slot::Missing => Cell::Missing,
            Slot::Null => Cell::Null,
            Slot::Bool(value) => Cell::Bool(value),
            Slot::Number(value) | Slot::Rounded(value) => Cell::Number(value),
            Slot::InPayload { start, len } => Cell::Text(slice(payload, start, len)),
            Slot::InScratch { start, len } => Cell::Text(slice(&self.scratch, start, len)),
            Slot::Nested => Cell::Nested,
            Slot::Bad => Cell::Bad,
        }
    }
}

/// The time that a record is stamped with, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// It has none.
    #[default]
    None,
    /// By who produced it: nobody knows by which clock.
    Producer(i64),
    /// By the log, when it was appended.
    Log(i64),
}

impl Stamp {
    /// Whoever stamped it.
    #[must_use]
    pub fn millis(self) -> Option<i64> {
        match self {
            Self::None => None,
            Self::Producer(millis) | Self::Log(millis) => Some(millis),
        }
    }

    /// When the record was appended, if the log says so.
    #[must_use]
    #[inline]
    pub fn append_time(self) -> Option<Timestamp> {
        match self {
            Self::Log(millis) => Some(Timestamp(millis)),
            Self::None | Self::Producer(_) => None,
        }
    }
}

/// One record: where it stands, its payload, and its cells.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Position in its lane: a Kafka offset, or the byte position in a file.
    pub offset: i64,
    /// When the record was appended, where the log stamps it.
    pub append_time: Option<Timestamp>,
    /// Whether the payload could be decoded.
    pub state: RecordState,
    /// The raw payload: dead letters show an excerpt. Empty for a tombstone.
    pub payload: &'a [u8],
    /// Those that were set from this very payload.
    pub cells: &'a Cells,
}

impl<'a> Record<'a> {
    /// The cell in `column`.
    #[must_use]
    #[inline]
    pub fn cell(&self, column: Column) -> Cell<'a> {
        self.cells.cell(column, self.payload)
    }

    /// Which document it is, of several in one record.
    pub(crate) fn element(&self) -> Option<u32> {
        self.cells.element
    }

    /// Whether any of its numbers was rounded.
    #[inline]
    pub(crate) fn has_rounded(&self) -> bool {
        self.cells.has_rounded
    }

    /// Whether the number in `column` was rounded.
    pub(crate) fn is_rounded(&self, column: Column) -> bool {
        matches!(self.cells.slots[column.0], Slot::Rounded(_))
    }
}
