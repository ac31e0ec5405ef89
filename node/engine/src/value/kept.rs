//! A value of a record that is kept: a boolean, a number or a text.

use std::cmp::Ordering;

use super::{Input, NULL, TEXT_BYTES};
use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};
use crate::render::write_text;

/// One value, or none yet. The order is that of groups: nothing, false, true, numbers, texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Kept {
    #[default]
    Nothing,
    Bool(bool),
    Number(Decimal),
    /// Valid UTF-8. A vector, so that the next text takes the place of this one.
    Text(Vec<u8>),
}

// Marks in front of a kept value; a smaller one is the scale of a number.
const FALSE: u8 = 0xf0;
const TRUE: u8 = 0xf1;
const TEXT: u8 = 0xf2;
const NOTHING: u8 = u8::MAX;

impl Kept {
    /// What a value that keeps texts can keep of a record.
    #[inline]
    pub(crate) fn can_keep(input: Input<'_>) -> bool {
        match input {
            Input::Null | Input::Other => false,
            Input::Bool(_) | Input::Number(_) => true,
            Input::Text(text) => text.len() <= TEXT_BYTES,
        }
    }

    /// Keeps this instead; a text is written over the last one.
    #[inline]
    pub(crate) fn set(&mut self, input: Input<'_>) {
        match (&mut *self, input) {
            (_, Input::Null | Input::Other) => *self = Self::Nothing,
            (_, Input::Bool(value)) => *self = Self::Bool(value),
            (_, Input::Number(number)) => *self = Self::Number(number),
            (Self::Text(kept), Input::Text(text)) => {
                kept.clear();
                kept.extend_from_slice(text);
            }
            (_, Input::Text(text)) => *self = Self::Text(text.to_vec()),
        }
    }

    pub(crate) fn as_input(&self) -> Input<'_> {
        match self {
            Self::Nothing => Input::Null,
            Self::Bool(value) => Input::Bool(*value),
            Self::Number(number) => Input::Number(*number),
            Self::Text(text) => Input::Text(text),
        }
    }

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        write_input(self.as_input(), out);
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Nothing => out.byte(NOTHING),
            Self::Bool(false) => out.byte(FALSE),
            Self::Bool(true) => out.byte(TRUE),
            Self::Number(number) => {
                // A scale is at most 30.
                out.byte(u8::try_from(number.scale()).unwrap_or(NOTHING));
                out.wide_signed(number.mantissa());
            }
            Self::Text(text) => {
                out.byte(TEXT);
                out.slice(text);
            }
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match input.byte()? {
            NOTHING => Self::Nothing,
            FALSE => Self::Bool(false),
            TRUE => Self::Bool(true),
            TEXT => {
                let text = input.slice()?;
                if text.len() > TEXT_BYTES || std::str::from_utf8(text).is_err() {
                    return Err(Fault::Damaged("a kept text is damaged"));
                }
                Self::Text(text.to_vec())
            }
            scale => {
                let number = Decimal::from_parts(input.wide_signed()?, u32::from(scale));
                let damaged = |_| Fault::Damaged("a number is out of its limits");
                Self::Number(number.map_err(damaged)?)
            }
        })
    }

    pub(crate) fn heap(&self) -> usize {
        match self {
            Self::Text(text) => text.capacity(),
            Self::Nothing | Self::Bool(_) | Self::Number(_) => 0,
        }
    }
}

/// Appends a value in JSON.
pub(crate) fn write_input(input: Input<'_>, out: &mut Vec<u8>) {
    match input {
        Input::Null | Input::Other => out.extend_from_slice(NULL),
        Input::Bool(true) => out.extend_from_slice(b"true"),
        Input::Bool(false) => out.extend_from_slice(b"false"),
        Input::Number(number) => number.write_to(out),
        Input::Text(text) => write_text(&String::from_utf8_lossy(text), out),
    }
}

/// In the order of groups: false, true, numbers by value, texts by their bytes.
#[inline]
pub(crate) fn compare(left: Input<'_>, right: Input<'_>) -> Ordering {
    match (left, right) {
        (Input::Bool(left), Input::Bool(right)) => left.cmp(&right),
        (Input::Number(left), Input::Number(right)) => left.cmp(&right),
        (Input::Text(left), Input::Text(right)) => left.cmp(right),
        _ => rank(left).cmp(&rank(right)),
    }
}

fn rank(input: Input<'_>) -> u8 {
    match input {
        Input::Null => 0,
        Input::Other => 1,
        Input::Bool(_) => 2,
        Input::Number(_) => 3,
        Input::Text(_) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_value_takes_no_more_than_a_text() {
        assert_eq!(size_of::<Kept>(), size_of::<Vec<u8>>());
    }
}
