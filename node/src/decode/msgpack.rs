//! From payload to cells: MessagePack, one pass, only the fields that some pipeline uses.
//!
//! The whole payload is checked, the unused part too: whether a record counts must not depend on which
//! pipelines exist. What is decided where MessagePack says more than JSON does: see `set`.

mod token;

use std::io::Write;

use jiff::Timestamp as Instant;
use unisono_engine::decimal::{Decimal, Prefix};
use unisono_engine::record::{Cells, Record, RecordState};
use unisono_engine::spec::{Column, Timestamp};

use super::json::MOST_DEPTH;
use super::json::paths::{Child, Paths, ROOT};
use crate::definition::FieldSet;
use token::{Cursor, Token};

pub use token::{Length, length};

/// Seconds from 1970 to the year 0, where the years begin that a text can hold.
const FIRST_SECOND: i64 = -62_167_219_200;
/// What is kept of the stack's memory from payload to payload.
const KEPT_FRAMES: usize = 64;

/// Decodes the payloads of one lane; it owns the cells.
#[derive(Clone, Debug)]
pub(super) struct MessagePackDecoder {
    paths: Paths,
    open: Vec<Open>,
    /// Room for the text of a number.
    scratch: Vec<u8>,
    cells: Cells,
}

/// A map or an array of which values are to come.
#[derive(Clone, Copy, Debug)]
struct Open {
    within: Within,
    left: u32,
}

#[derive(Clone, Copy, Debug)]
enum Within {
    /// A map; its node of [`Paths`], if it is on the way to used fields.
    Map(Option<u32>),
    /// An array; the place of its next element, if that or a later one is on the way to a used field.
    Array(Option<u32>),
}

impl MessagePackDecoder {
    /// A decoder of these fields; its records have a column for each.
    pub(super) fn new(fields: &FieldSet) -> Self {
        Self {
            paths: Paths::new(fields),
            open: Vec::new(),
            scratch: Vec::new(),
            cells: Cells::new(fields.len()),
        }
    }

    /// Decodes one record; `payload` is `None` for a tombstone. What cannot be decoded is a record too, with
    /// the reason as its state and all its cells missing.
    pub(super) fn decode<'a>(
        &'a mut self,
        offset: i64,
        append_time: Option<Timestamp>,
        payload: Option<&'a [u8]>,
    ) -> Record<'a> {
        self.cells.clear();
        let state = match payload {
            None => RecordState::NullPayload,
            Some([]) => RecordState::EmptyPayload,
            Some(bytes) => self.read(bytes).err().unwrap_or(RecordState::Decoded),
        };
        if state != RecordState::Decoded {
            self.cells.clear();
        }
        Record {
            offset,
            append_time,
            state,
            payload: payload.unwrap_or_default(),
            cells: &self.cells,
        }
    }

    /// Fills the cells from a payload, which has to be one map.
    fn read(&mut self, bytes: &[u8]) -> Result<(), RecordState> {
        let mut cursor = Cursor::new(bytes);
        let broken = RecordState::BadFormat;
        self.open.clear();
        self.open.shrink_to(KEPT_FRAMES);
        let first = cursor.token().ok_or(broken)?;
        let within = match first {
            Token::Map(_) => Within::Map(Some(ROOT)),
            _ => Within::Array(None),
        };
        self.enter(&first, within)?;
        while let Some(open) = self.open.last_mut() {
            if open.left == 0 {
                self.open.pop();
                continue;
            }
            open.left -= 1;
            let child = match &mut open.within {
                Within::Map(node) => {
                    let key = cursor.token().ok_or(broken)?;
                    match (key, *node) {
                        (Token::Array(_) | Token::Map(_), _) => return Err(broken),
                        (Token::Text(key), Some(node)) => self.paths.find(node, &bytes[key]),
                        _ => None,
                    }
                }
                Within::Array(place) => {
                    let here = *place;
                    *place = here.and_then(|here| self.paths.next(here));
                    here.map(|here| self.paths.element(here))
                }
            };
            let value = cursor.token().ok_or(broken)?;
            let within = match (&value, child) {
                (Token::Map(_), child) => Within::Map(child.and_then(|child| child.inner)),
                (_, child) => Within::Array(child.and_then(|child| child.elements)),
            };
            if let Some(child) = child {
                clear_below(&self.paths, child, &mut self.cells);
                if let Some(column) = child.column {
                    set(&mut self.cells, column, &value, bytes, &mut self.scratch);
                }
            }
            self.enter(&value, within)?;
        }
        match first {
            _ if !cursor.is_at_end() => Err(broken),
            Token::Map(_) => Ok(()),
            _ => Err(RecordState::NotAnObject),
        }
    }

    /// Goes into a map or an array.
    fn enter(&mut self, value: &Token, within: Within) -> Result<(), RecordState> {
        let (Token::Array(left) | Token::Map(left)) = *value else {
            return Ok(());
        };
        if self.open.len() >= MOST_DEPTH {
            return Err(RecordState::TooDeep);
        }
        self.open.push(Open { within, left });
        Ok(())
    }
}

/// The key came before, and the last one counts: what it held is gone.
fn clear_below(paths: &Paths, child: &Child, cells: &mut Cells) {
    let elements = child
        .elements
        .map_or(&[][..], |first| paths.in_array(first));
    let below = child.inner.map_or(&[][..], |node| paths.below(node));
    for &column in elements.iter().chain(below) {
        cells.set_missing(column);
    }
}

/// Fills a cell. A float is the decimal that its shortest text says, as it would stand in JSON; one that is no
/// number cannot be used. An instant becomes a text in RFC 3339. Bytes and other extensions are there, but
/// nothing to compute with. A text that is not UTF-8 spoils its own field alone: older writers knew no bytes.
fn set(cells: &mut Cells, column: Column, value: &Token, bytes: &[u8], scratch: &mut Vec<u8>) {
    scratch.clear();
    match value {
        Token::Nil => cells.set_null(column),
        Token::Bool(value) => cells.set_bool(column, *value),
        Token::Integer(value) => match Decimal::from_parts(*value, 0) {
            Ok(number) => cells.set_number(column, number),
            Err(_) => cells.set_bad(column),
        },
        // Written with an exponent: 1e300 would have 301 digits without.
        Token::Float32(value) if write!(scratch, "{value:e}").is_ok() => {
            set_float(cells, column, scratch);
        }
        Token::Float64(value) if write!(scratch, "{value:e}").is_ok() => {
            set_float(cells, column, scratch);
        }
        Token::Text(range) => match std::str::from_utf8(&bytes[range.clone()]) {
            Ok(_) => cells.set_text_at(column, range.clone()),
            Err(_) => cells.set_bad(column),
        },
        Token::Instant { seconds, nanos } => cells.set_text_with(column, |out| {
            let within = *seconds >= FIRST_SECOND && *nanos < 1_000_000_000;
            let nanos = i32::try_from(*nanos).ok().filter(|_| within);
            let instant = nanos.and_then(|nanos| Instant::new(*seconds, nanos).ok());
            instant.is_some_and(|instant| write!(out, "{instant}").is_ok())
        }),
        Token::Opaque | Token::Array(_) | Token::Map(_) => cells.set_nested(column),
        Token::Float32(_) | Token::Float64(_) => cells.set_bad(column),
    }
}

fn set_float(cells: &mut Cells, column: Column, text: &[u8]) {
    match Decimal::parse_prefix(text) {
        Some((Prefix::Exact(number), _)) => cells.set_number(column, number),
        Some((Prefix::Rounded(number), _)) => cells.set_rounded(column, number),
        // Too large, infinite, or not a number.
        Some((Prefix::TooLarge, _)) | None => cells.set_bad(column),
    }
}

#[cfg(test)]
mod tests;
