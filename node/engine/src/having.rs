//! `having`: which rows are published, by what they show: a value is taken as it is written.

use crate::decimal::{Decimal, MAX_DIGITS, MAX_SCALE, NumberError};
use crate::expr::{Compiled, Work};
use crate::group::{GroupValue, split_value};
use crate::record::{Cells, Record, RecordState};
use crate::spec::{Column, Expr, PipelineSpec};
use crate::value::{self, WindowLength};

/// The condition of one pipeline, and its memory.
pub(crate) struct Having {
    compiled: Compiled,
    work: Work,
    /// The values and the fields of the group that it names, as columns of it.
    used: Vec<usize>,
    values: usize,
    groups: usize,
    cells: Cells,
    text: Vec<u8>,
}

impl Having {
    /// `None`: all rows are published.
    pub(crate) fn new(spec: &PipelineSpec) -> Option<Self> {
        let condition: &Expr = spec.having.as_ref()?;
        let mut columns = Vec::new();
        condition.columns(&mut columns);
        let mut used: Vec<usize> = columns.into_iter().map(|column| column.0).collect();
        used.sort_unstable();
        used.dedup();
        let compiled = Compiled::condition(condition);
        Some(Self {
            work: compiled.work(),
            compiled,
            used,
            values: spec.values.len(),
            groups: spec.group_by.len(),
            cells: Cells::new(spec.values.len().saturating_add(spec.group_by.len())),
            text: Vec::new(),
        })
    }

    /// Whether the row of this group with these values is published; `length` is that of its window.
    pub(crate) fn keeps(
        &mut self,
        key: &[u8],
        columns: &[value::Column],
        place: usize,
        length: WindowLength,
    ) -> bool {
        self.cells.clear();
        let values = self.used.iter().take_while(|at| **at < self.values);
        for &at in values {
            let Some(column) = columns.get(at) else {
                continue;
            };
            self.text.clear();
            column.write_to(place, length, &mut self.text);
            read_json(&self.text, Column(at), &mut self.cells);
        }
        if self.used.last().is_some_and(|last| *last >= self.values) {
            let mut rest = key;
            for at in 0..self.groups {
                let (value, after) = split_value(rest).unwrap_or((GroupValue::Null, &[]));
                rest = after;
                let column = Column(self.values.saturating_add(at));
                match value {
                    GroupValue::Null => self.cells.set_null(column),
                    GroupValue::Bool(value) => self.cells.set_bool(column, value),
                    GroupValue::Number(number) => self.cells.set_number(column, number),
                    GroupValue::Text(text) => self.cells.set_text(column, &text),
                }
            }
        }
        let record = Record {
            offset: 0,
            append_time: None,
            state: RecordState::Decoded,
            payload: b"",
            cells: &self.cells,
        };
        self.compiled.selects(&record, &mut self.work)
    }
}

/// Reads a value as rows show it into a cell.
fn read_json(text: &[u8], column: Column, cells: &mut Cells) {
    match text {
        b"null" => cells.set_null(column),
        b"true" => cells.set_bool(column, true),
        b"false" => cells.set_bool(column, false),
        [b'"', inner @ .., b'"'] => cells.set_text_with(column, |out| unescape(inner, out)),
        [b'[' | b'{', ..] => cells.set_nested(column),
        number => match read_number(number) {
            Some(number) => cells.set_number(column, number),
            None => cells.set_bad(column),
        },
    }
}

/// Sums and averages may have more digits than a condition works with: beyond its limits a number
/// is the largest there is, and digits after the point are cut.
fn read_number(text: &[u8]) -> Option<Decimal> {
    match Decimal::parse(text) {
        Ok(number) => Some(number),
        Err(NumberError::TooLarge) => {
            let most = Decimal::parse(b"9999999999999999999999999999").ok()?;
            Some(match text.first() {
                Some(b'-') => most.negate(),
                _ => most,
            })
        }
        Err(NumberError::TooPrecise) => {
            let point = text.iter().position(|byte| *byte == b'.')?;
            let whole = u32::try_from(point).ok()?;
            let digits = MAX_DIGITS.saturating_sub(whole).min(MAX_SCALE);
            let end = point.saturating_add(1).saturating_add(digits as usize);
            Decimal::parse(text.get(..end)?).ok()
        }
        Err(NumberError::Syntax) => None,
    }
}

/// Takes the escapes out that [`crate::render::write_text`] writes.
fn unescape(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'u') => {
                let mut code: u32 = 0;
                for digit in bytes.by_ref().take(4) {
                    let digit = char::from(digit).to_digit(16).unwrap_or(0);
                    code = code.saturating_mul(16).saturating_add(digit);
                }
                let Some(char) = char::from_u32(code) else {
                    return false;
                };
                out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Some(other) => out.push(other),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Cell;

    #[test]
    fn a_value_is_read_as_a_row_shows_it() {
        let mut cells = Cells::new(1);
        let mut text = Vec::new();
        crate::render::write_text("a\"b\\c\nd\u{1}é", &mut text);
        read_json(&text, Column(0), &mut cells);
        let expected = "a\"b\\c\nd\u{1}é".as_bytes();
        assert_eq!(cells.cell(Column(0), b""), Cell::Text(expected));
        for (text, expected) in [
            ("12.50", "12.5"),
            (
                "1000000000000000000000000000000",
                "9999999999999999999999999999",
            ),
            (
                "-1000000000000000000000000000000",
                "-9999999999999999999999999999",
            ),
            (
                "1234567890123456789.12345678901234567890",
                "1234567890123456789.12345678901234567",
            ),
        ] {
            let number = read_number(text.as_bytes()).map(|number| number.to_string());
            assert_eq!(number.as_deref(), Some(expected), "{text}");
        }
    }
}
