//! Records that are texts with a layout. Their values have no types of their own, so a value counts as what
//! it looks like: see [`Target::set`].

use std::ops::Range;

use unisono_engine::decimal::{Decimal, Prefix};
use unisono_engine::record::{Cells, Record, RecordState};
use unisono_engine::spec::{Column, Timestamp};

use super::json::BYTE_ORDER_MARK;
use super::logfmt::Logfmt;
use super::pattern::Pattern;
use super::separated::Separated;
use crate::definition::{FieldSet, Layout, TextFormat};

/// Decodes the payloads of one lane; it owns the cells.
#[derive(Clone, Debug)]
pub(super) struct TextDecoder {
    layout: Layer,
    cells: Cells,
}

#[derive(Clone, Debug)]
enum Layer {
    Separated(Separated),
    Logfmt(Logfmt),
    Pattern(Pattern),
    /// A definition that was never checked.
    Unusable,
}

/// What a payload turned out to be.
pub(super) enum Read<'a> {
    /// A record.
    Record(Record<'a>),
    /// The names of the columns.
    Header,
}

/// What a layout found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Fields,
    Header,
    /// It is not of that layout.
    Nothing,
}

impl TextDecoder {
    pub(super) fn new(fields: &FieldSet, format: &TextFormat) -> Self {
        let layout = match &format.layout {
            Layout::Separated {
                delimiter,
                quote,
                columns,
            } => Layer::Separated(Separated::new(
                fields,
                format,
                (*delimiter, *quote),
                columns,
            )),
            Layout::Logfmt => Layer::Logfmt(Logfmt::new(fields, format)),
            Layout::Regex { pattern } => {
                Pattern::new(fields, format, pattern).map_or(Layer::Unusable, Layer::Pattern)
            }
        };
        Self {
            layout,
            cells: Cells::new(fields.len()),
        }
    }

    /// Decodes one payload; `None` is a tombstone.
    pub(super) fn decode<'a>(
        &'a mut self,
        offset: i64,
        append_time: Option<Timestamp>,
        payload: Option<&'a [u8]>,
    ) -> Read<'a> {
        self.cells.clear();
        let payload = payload.map(without_edges);
        let state = match payload {
            None => RecordState::NullPayload,
            Some(text) => match self.read(text) {
                Ok(Found::Header) => return Read::Header,
                Ok(Found::Fields) => RecordState::Decoded,
                Ok(Found::Nothing) => RecordState::BadFormat,
                Err(state) => state,
            },
        };
        if state != RecordState::Decoded {
            self.cells.clear();
        }
        Read::Record(Record {
            offset,
            append_time,
            state,
            payload: payload.unwrap_or_default(),
            cells: &self.cells,
        })
    }

    fn read(&mut self, text: &[u8]) -> Result<Found, RecordState> {
        if text.iter().all(u8::is_ascii_whitespace) {
            return Err(RecordState::EmptyPayload);
        }
        if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
            return Err(RecordState::ByteOrderMark);
        }
        let text = std::str::from_utf8(text).map_err(|_| RecordState::NotUtf8)?;
        Ok(match &mut self.layout {
            Layer::Separated(separated) => separated.read(text, &mut self.cells),
            Layer::Logfmt(logfmt) => logfmt.read(text, &mut self.cells),
            Layer::Pattern(pattern) => pattern.read(text, &mut self.cells),
            Layer::Unusable => Found::Nothing,
        })
    }
}

/// Without a byte order mark and the end of its line.
fn without_edges(payload: &[u8]) -> &[u8] {
    let text = payload.strip_prefix(BYTE_ORDER_MARK).unwrap_or(payload);
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.strip_suffix(b"\r").unwrap_or(text)
}

/// A field that is used, and the columns that have its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    columns: Vec<Column>,
    /// It stays a text, whatever it looks like.
    stays_text: bool,
    nulls: Vec<Box<[u8]>>,
}

impl Target {
    /// Where the field of this name goes.
    pub(super) fn of_name(fields: &FieldSet, format: &TextFormat, name: &str) -> Self {
        let paths = fields.paths().iter().enumerate();
        let columns = paths.filter(|(_, path)| path.label() == name);
        let nulls = format.nulls.iter();
        Self {
            columns: columns.map(|(at, _)| Column(at)).collect(),
            stays_text: format.texts.iter().any(|text| text == name),
            nulls: nulls.map(|null| null.as_bytes().into()).collect(),
        }
    }

    /// Whether nobody uses it.
    pub(super) fn is_unused(&self) -> bool {
        self.columns.is_empty()
    }

    /// A value that stands in the payload as it is, without quotes: null if it is what stands for null.
    pub(super) fn set_bare(&self, text: &str, range: Range<usize>, cells: &mut Cells) {
        let value = &text.as_bytes()[range.clone()];
        if self.nulls.iter().any(|null| **null == *value) {
            return self.set_null(cells);
        }
        self.set(text, range, cells);
    }

    /// A value that stands in the payload as it is: a number if it is written as JSON writes numbers, without an
    /// exponent, and can be held exactly; true and false; else a text.
    pub(super) fn set(&self, text: &str, range: Range<usize>, cells: &mut Cells) {
        let value = &text.as_bytes()[range.clone()];
        let number = number(value).filter(|_| !self.stays_text);
        for &column in &self.columns {
            match (value, number) {
                _ if self.stays_text => cells.set_text_at(column, range.clone()),
                (_, Some(number)) => cells.set_number(column, number),
                (b"true", _) => cells.set_bool(column, true),
                (b"false", _) => cells.set_bool(column, false),
                _ => cells.set_text_at(column, range.clone()),
            }
        }
    }

    /// A value that has to be unquoted: a text.
    pub(super) fn set_with(&self, cells: &mut Cells, write: impl Fn(&mut Vec<u8>)) {
        for &column in &self.columns {
            cells.set_text_with(column, |out| {
                write(out);
                true
            });
        }
    }

    pub(super) fn set_null(&self, cells: &mut Cells) {
        for &column in &self.columns {
            cells.set_null(column);
        }
    }

    pub(super) fn set_true(&self, cells: &mut Cells) {
        for &column in &self.columns {
            cells.set_bool(column, true);
        }
    }
}

/// A number that may be an identifier as well: nothing of it may be lost.
fn number(value: &[u8]) -> Option<Decimal> {
    let is_plain = |&byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    match Decimal::parse_prefix(value) {
        Some((Prefix::Exact(number), len)) if len == value.len() => {
            value.iter().all(is_plain).then_some(number)
        }
        _ => None,
    }
}
