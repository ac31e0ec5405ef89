//! CSV and its kin: a record a line, its fields one behind the other.

use unisono_engine::record::Cells;

use super::text::{Found, Target};
use crate::definition::{FieldSet, TextFormat};

/// Reads fields by their place.
#[derive(Clone, Debug)]
pub(super) struct Separated {
    delimiter: u8,
    quote: Option<u8>,
    columns: Vec<(Box<str>, Target)>,
}

/// One field of a line.
struct Field {
    /// Its text, without quotes.
    start: usize,
    end: usize,
    quoted: bool,
    /// It holds a quote that is written twice.
    doubled: bool,
}

impl Separated {
    pub(super) fn new(
        fields: &FieldSet,
        format: &TextFormat,
        (delimiter, quote): (char, Option<char>),
        columns: &[String],
    ) -> Self {
        // They are ASCII, by the check of the definition.
        let byte = |char: char| u8::try_from(char).unwrap_or(b',');
        let column = |name: &String| {
            let target = Target::of_name(fields, format, name);
            (name.as_str().into(), target)
        };
        Self {
            delimiter: byte(delimiter),
            quote: quote.map(byte),
            columns: columns.iter().map(column).collect(),
        }
    }

    /// Fills the cells. A line whose fields are the names of the columns is a header, wherever it stands.
    pub(super) fn read(&self, text: &str, cells: &mut Cells) -> Found {
        let mut at = 0;
        let mut is_header = true;
        for (place, (name, target)) in self.columns.iter().enumerate() {
            let Some(field) = self.field(text.as_bytes(), at) else {
                return Found::Nothing;
            };
            let value = field.start..field.end;
            is_header = is_header && !field.doubled && text[value.clone()] == **name;
            if !target.is_unused() {
                match (field.quoted, field.doubled) {
                    (true, true) => {
                        target.set_with(cells, |out| self.undouble(&text[value.clone()], out));
                    }
                    (true, false) => target.set(text, value, cells),
                    (false, _) if value.is_empty() => target.set_null(cells),
                    (false, _) => target.set_bare(text, value, cells),
                }
            }
            let after = field.end + usize::from(field.quoted);
            let is_last = place + 1 == self.columns.len();
            match text.as_bytes().get(after) {
                None if is_last => break,
                Some(&byte) if byte == self.delimiter && !is_last => at = after + 1,
                _ => return Found::Nothing,
            }
        }
        match is_header {
            true => Found::Header,
            false => Found::Fields,
        }
    }

    /// The field that begins at `at`; `None` where a quote has no end, or a line ends within the record.
    fn field(&self, text: &[u8], at: usize) -> Option<Field> {
        let rest = &text[at..];
        let quote = self.quote.filter(|quote| rest.first() == Some(quote));
        let Some(quote) = quote else {
            let len = memchr::memchr2(self.delimiter, b'\n', rest).unwrap_or(rest.len());
            return (rest.get(len) != Some(&b'\n')).then_some(Field {
                start: at,
                end: at + len,
                quoted: false,
                doubled: false,
            });
        };
        let (mut end, mut doubled) = (at + 1, false);
        loop {
            end += memchr::memchr(quote, text.get(end..)?)?;
            if text.get(end + 1) != Some(&quote) {
                return Some(Field {
                    start: at + 1,
                    end,
                    quoted: true,
                    doubled,
                });
            }
            doubled = true;
            end += 2;
        }
    }

    /// Appends a text in which each quote stands twice.
    fn undouble(&self, text: &str, out: &mut Vec<u8>) {
        let mut passed = false;
        for &byte in text.as_bytes() {
            passed = Some(byte) == self.quote && !passed;
            if !passed {
                out.push(byte);
            }
        }
    }
}
