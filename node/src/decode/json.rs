//! From payload to cells: strict JSON, one pass, only the fields that some pipeline uses.
//!
//! The whole payload is checked, the unused part too: whether a record counts must not depend on
//! which pipelines exist. Numbers are read from their text, exactly. Where an object has a key
//! twice, the last one counts. What nests deeper than [`MOST_DEPTH`] is refused; nothing here calls itself.
//!
//! A payload is taken as a chain of scalars with structure between them. `structure` finds the
//! way from one scalar to the next; `shape` remembers such ways and recognises them. The scalars
//! are read by the same code either way.

mod nest;
pub(super) mod paths;
pub(super) mod scan;
mod shape;
mod structure;

use unisono_engine::decimal::{Decimal, Prefix};
use unisono_engine::record::RecordState;
use unisono_engine::record::{Cells, Record};
use unisono_engine::spec::{Column, Timestamp};

use crate::definition::FieldSet;
use nest::{Nest, OUTSIDE};
use paths::Paths;
use shape::{EdgeId, Lesson, NOWHERE, START, Shapes};
use structure::{Effect, Stop, Walk};

pub use nest::MOST_DEPTH;

/// Of UTF-8. Some programs begin a file with it.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decodes the payloads of one lane; it owns the cells, and it remembers what payloads look like.
#[derive(Clone, Debug)]
pub struct JsonDecoder {
    paths: Paths,
    nest: Nest,
    shapes: Shapes,
    effects: Vec<Effect>,
    scratch: Vec<u8>,
    cells: Cells,
}

impl JsonDecoder {
    /// A decoder of these fields; its records have a column for each.
    #[must_use]
    pub fn new(fields: &FieldSet) -> Self {
        Self::with_memory(fields, Shapes::new(true))
    }

    /// A decoder that remembers nothing: it takes longer and must find the same. Tests and
    /// benchmarks compare the two.
    #[must_use]
    pub fn without_memory(fields: &FieldSet) -> Self {
        Self::with_memory(fields, Shapes::new(false))
    }

    fn with_memory(fields: &FieldSet, shapes: Shapes) -> Self {
        Self {
            paths: Paths::new(fields),
            nest: Nest::new(),
            shapes,
            effects: Vec::new(),
            scratch: Vec::new(),
            cells: Cells::new(fields.len()),
        }
    }

    /// Decodes one record; `payload` is `None` for a tombstone. What cannot be decoded is a record
    /// too, with the reason as its state and all its cells missing.
    #[inline]
    pub fn decode<'a>(
        &'a mut self,
        offset: i64,
        append_time: Option<Timestamp>,
        mut payload: Option<&'a [u8]>,
    ) -> Record<'a> {
        self.cells.clear();
        let state = match &mut payload {
            None => RecordState::NullPayload,
            Some(doc) => match self.object(doc) {
                Some(()) => RecordState::Decoded,
                None => self.look_again(doc),
            },
        };
        Record {
            offset,
            append_time,
            state,
            payload: payload.unwrap_or_default(),
            cells: &self.cells,
        }
    }

    /// Which document of its record comes next, where a record holds several.
    pub(super) fn set_element(&mut self, element: Option<u32>) {
        self.cells.set_element(element);
    }

    /// Passes over a byte order mark; what is no object then is refused.
    #[cold]
    fn look_again(&mut self, doc: &mut &[u8]) -> RecordState {
        self.nest.take_too_deep();
        if let Some(rest) = doc.strip_prefix(BYTE_ORDER_MARK) {
            *doc = rest;
        }
        self.cells.clear();
        match self.object(doc) {
            Some(()) => RecordState::Decoded,
            None => self.reject(doc),
        }
    }

    /// Fills the cells from `doc`; `None` if it is not an object of valid JSON.
    #[inline]
    fn object(&mut self, doc: &[u8]) -> Option<()> {
        let mut edge = START;
        let mut at = 0;
        loop {
            let stop = match self.shapes.follow(edge, doc, at) {
                Some(followed) => {
                    apply(followed.effects, &mut self.cells);
                    edge = followed.edge;
                    followed.stop
                }
                None => self.explore(&mut edge, doc, at)?,
            };
            match stop {
                Stop::Scalar(start, column) => {
                    at = read_scalar(doc, start, column, &mut self.cells)?;
                }
                Stop::End => return Some(()),
            }
        }
    }

    /// Walks from behind the scalar that `edge` led to, to the next one, and remembers the way.
    #[inline(never)]
    fn explore(&mut self, edge: &mut EdgeId, doc: &[u8], at: usize) -> Option<Stop> {
        let before = *edge;
        if before == START {
            if doc.get(scan::whitespace(doc, 0)) != Some(&b'{') {
                return None;
            }
            if self.shapes.is_tired() {
                self.shapes.forget();
                self.nest.forget();
            }
            self.nest.go_to(OUTSIDE);
        } else if before != NOWHERE {
            self.nest.go_to(self.shapes.context(before));
        }
        let from = self.nest.context();
        let mut walk = walk(
            &self.paths,
            &mut self.nest,
            &mut self.effects,
            &mut self.scratch,
            doc,
        );
        let stop = if before == START {
            walk.start()?
        } else {
            walk.go_on(at)?
        };
        apply(&self.effects, &mut self.cells);
        let end = match stop {
            Stop::Scalar(start, _) => start,
            Stop::End => doc.len(),
        };
        *edge = self.shapes.learn(&Lesson {
            before,
            from,
            to: self.nest.context(),
            text: &doc[at..end],
            stop,
            effects: &self.effects,
        });
        Some(stop)
    }

    /// Why `doc` is not an object of valid JSON.
    #[cold]
    fn reject(&mut self, doc: &[u8]) -> RecordState {
        self.cells.clear();
        if self.nest.take_too_deep() {
            return RecordState::TooDeep;
        }
        if doc.starts_with(b"\xff\xfe") || doc.starts_with(b"\xfe\xff") {
            return RecordState::ByteOrderMark;
        }
        let Ok(text) = std::str::from_utf8(doc) else {
            return RecordState::NotUtf8;
        };
        // An empty line of a file, with the carriage return that some programs write.
        if text.bytes().all(|byte| byte.is_ascii_whitespace()) {
            return RecordState::EmptyPayload;
        }
        let is_other = !text.trim_ascii_start().starts_with('{') && self.other_value(doc).is_some();
        match self.nest.take_too_deep() {
            true => RecordState::TooDeep,
            false if is_other => RecordState::NotAnObject,
            false => RecordState::NotJson,
        }
    }

    /// Checks a value that is not an object.
    fn other_value(&mut self, doc: &[u8]) -> Option<()> {
        self.nest.go_to(OUTSIDE);
        let mut walk = walk(
            &self.paths,
            &mut self.nest,
            &mut self.effects,
            &mut self.scratch,
            doc,
        );
        let mut stop = walk.start()?;
        while let Stop::Scalar(start, _) = stop {
            let end = read_scalar(doc, start, None, &mut self.cells)?;
            stop = walk.go_on(end)?;
        }
        Some(())
    }
}

/// A walk over `doc` from where `nest` stands.
fn walk<'a>(
    paths: &'a Paths,
    nest: &'a mut Nest,
    effects: &'a mut Vec<Effect>,
    scratch: &'a mut Vec<u8>,
    doc: &'a [u8],
) -> Walk<'a> {
    effects.clear();
    Walk {
        paths,
        nest,
        effects,
        scratch,
        doc,
    }
}

#[inline]
fn apply(effects: &[Effect], cells: &mut Cells) {
    for effect in effects {
        match *effect {
            Effect::Missing(column) => cells.set_missing(column),
            Effect::Nested(column) => cells.set_nested(column),
        }
    }
}

/// Checks the scalar at `at`, and fills the cell of `column` with it; gives where it ends.
#[inline]
fn read_scalar(doc: &[u8], at: usize, column: Option<Column>, cells: &mut Cells) -> Option<usize> {
    match *doc.get(at)? {
        b'"' => {
            let text = scan::string(doc, at + 1)?;
            if let Some(column) = column {
                let inner = at + 1..text.end;
                if text.escaped {
                    cells.set_text_with(column, |out| scan::unescape(&doc[inner], out));
                } else {
                    cells.set_text_at(column, inner);
                }
            }
            Some(text.end + 1)
        }
        b'-' | b'0'..=b'9' => match column {
            Some(column) => {
                let (number, len) = Decimal::parse_prefix(&doc[at..])?;
                match number {
                    Prefix::Exact(number) => cells.set_number(column, number),
                    Prefix::Rounded(number) => cells.set_rounded(column, number),
                    Prefix::TooLarge => cells.set_bad(column),
                }
                Some(at + len)
            }
            None => scan::number(doc, at),
        },
        _ => read_word(&doc[at..], column, cells).map(|len| at + len),
    }
}

/// Reads `null`, `true` or `false` at the start of `text`; gives its length.
fn read_word(text: &[u8], column: Option<Column>, cells: &mut Cells) -> Option<usize> {
    let (len, value) = match text {
        [b'n', b'u', b'l', b'l', ..] => (4, None),
        [b't', b'r', b'u', b'e', ..] => (4, Some(true)),
        [b'f', b'a', b'l', b's', b'e', ..] => (5, Some(false)),
        _ => return None,
    };
    match (column, value) {
        (Some(column), Some(value)) => cells.set_bool(column, value),
        (Some(column), None) => cells.set_null(column),
        (None, _) => {}
    }
    Some(len)
}

#[cfg(test)]
mod expressions;
#[cfg(test)]
pub(super) mod property;
#[cfg(test)]
mod reference;
#[cfg(test)]
pub(super) mod tests;
