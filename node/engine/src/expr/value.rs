//! What an expression gives for one record, and the memory in which texts are made.

use std::cmp::Ordering;

use crate::decimal::Decimal;
use crate::record::Cell;
use crate::spec::{CompareOp, Timestamp};

/// Most bytes of texts that one expression makes of one record: replacements in replacements must
/// not fill the memory. What would be longer is null.
pub(crate) const MOST_MADE: usize = 4 << 20;
/// What is kept of that memory from record to record.
const KEPT: usize = 64 << 10;

/// Absent, null and unusable are one: null.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(Text<'a>),
    Time(Timestamp),
    /// An array or an object: there, and of no kind that anything can be done with.
    Nested,
}

/// A text, valid UTF-8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Text<'a> {
    /// It stands in the record or in the definition.
    Given(&'a [u8]),
    /// It was made: it stands in [`Work`].
    Made { start: usize, end: usize },
}

impl<'a> Value<'a> {
    #[inline]
    pub(crate) fn of_cell(cell: Cell<'a>) -> Self {
        match cell {
            Cell::Missing | Cell::Null | Cell::Bad => Self::Null,
            Cell::Bool(value) => Self::Bool(value),
            Cell::Number(value) => Self::Number(value),
            Cell::Text(value) => Self::Text(Text::Given(value)),
            Cell::Nested => Self::Nested,
        }
    }

    pub(crate) fn is_null(self) -> bool {
        self == Self::Null
    }
}

impl From<Option<Decimal>> for Value<'_> {
    fn from(number: Option<Decimal>) -> Self {
        number.map_or(Self::Null, Self::Number)
    }
}

/// The texts that are made for one record, and what went wrong on the way.
#[derive(Debug, Default)]
pub(crate) struct Work {
    made: Vec<u8>,
    spare: Vec<u8>,
    /// Something was not null, and could not be used as what it was needed for.
    pub(crate) misfit: bool,
    /// How often, by site.
    pub(crate) misfits: Vec<u64>,
}

impl Work {
    /// For an expression with so many sites.
    pub(crate) fn new(sites: usize) -> Self {
        Self {
            misfits: vec![0; sites],
            ..Self::default()
        }
    }

    /// The next expression, or the next record.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.misfit = false;
        self.made.clear();
        if self.made.capacity() > KEPT {
            self.made = Vec::new();
        }
    }

    /// Notes that a value could not be used.
    #[cold]
    pub(crate) fn miss(&mut self, site: usize) {
        self.misfit = true;
        if let Some(number) = self.misfits.get_mut(site) {
            *number = number.saturating_add(1);
        }
    }

    #[inline]
    pub(crate) fn bytes<'s>(&'s self, text: Text<'s>) -> &'s [u8] {
        match text {
            Text::Given(bytes) => bytes,
            Text::Made { start, end } => &self.made[start..end],
        }
    }

    /// The text as such: what is not UTF-8 cannot get here.
    pub(crate) fn str<'s>(&'s self, text: Text<'s>) -> &'s str {
        std::str::from_utf8(self.bytes(text)).unwrap_or_default()
    }

    /// Makes a text of what `write` appends; `None` if all texts of the record get too long.
    pub(crate) fn make<'a>(
        &mut self,
        write: impl FnOnce(&Self, &mut Limited<'_>),
    ) -> Option<Text<'a>> {
        let mut spare = std::mem::take(&mut self.spare);
        spare.clear();
        let mut out = Limited {
            room: MOST_MADE.saturating_sub(self.made.len()),
            out: &mut spare,
            full: false,
        };
        write(self, &mut out);
        let full = out.full;
        let start = self.made.len();
        if !full {
            self.made.extend_from_slice(&spare);
        }
        if spare.capacity() <= KEPT {
            self.spare = spare;
        }
        let end = self.made.len();
        (!full).then_some(Text::Made { start, end })
    }
}

/// Takes so many bytes and no more.
pub(crate) struct Limited<'a> {
    out: &'a mut Vec<u8>,
    room: usize,
    full: bool,
}

impl Limited<'_> {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.full || self.out.len().saturating_add(bytes.len()) > self.room {
            self.full = true;
        } else {
            self.out.extend_from_slice(bytes);
        }
    }

    pub(crate) fn push_char(&mut self, char: char) {
        self.push(char.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// What writes a few bytes: a number or a time.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.full {
            write(self.out);
            self.full = self.out.len() > self.room;
        }
    }
}

/// How two values compare; `None` where one is null or the kinds differ: no text is turned into a
/// number unasked.
#[inline]
pub(crate) fn compare(left: Value<'_>, right: Value<'_>, work: &Work) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(&right)),
        (Value::Number(left), Value::Number(right)) => Some(left.cmp(&right)),
        (Value::Text(left), Value::Text(right)) => Some(work.bytes(left).cmp(work.bytes(right))),
        (Value::Time(left), Value::Time(right)) => Some(left.cmp(&right)),
        _ => None,
    }
}

#[inline]
pub(crate) fn holds(op: CompareOp, ordering: Ordering) -> bool {
    match op {
        CompareOp::Eq => ordering.is_eq(),
        CompareOp::Ne => ordering.is_ne(),
        CompareOp::Lt => ordering.is_lt(),
        CompareOp::Le => ordering.is_le(),
        CompareOp::Gt => ordering.is_gt(),
        CompareOp::Ge => ordering.is_ge(),
    }
}
