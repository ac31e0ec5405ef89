//! What a record holds for its values, as bytes that wait with it.

use crate::decimal::{Decimal, MAX_SCALE};
use crate::value::Input;

const NULL: u8 = 0;
const OTHER: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const TEXT: u8 = 4;
/// And from here on a number of the scale above.
const NUMBER: u8 = 16;

/// Appends one field.
pub(crate) fn push(input: Input<'_>, out: &mut Vec<u8>) {
    match input {
        Input::Null => out.push(NULL),
        Input::Other => out.push(OTHER),
        Input::Bool(false) => out.push(FALSE),
        Input::Bool(true) => out.push(TRUE),
        Input::Text(text) => {
            out.push(TEXT);
            push_number(text.len() as u128, out);
            out.extend_from_slice(text);
        }
        Input::Number(number) => {
            // A scale is at most 30.
            let scale = u8::try_from(number.scale()).unwrap_or(0);
            out.push(NUMBER.saturating_add(scale));
            let mantissa = number.mantissa();
            push_number(((mantissa << 1) ^ (mantissa >> 127)).cast_unsigned(), out);
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "seven bits at a time")]
fn push_number(mut number: u128, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads the first field, and gives what follows it; `None` if the bytes are damaged.
pub(crate) fn split(bytes: &[u8]) -> Option<(Input<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    Some(match tag {
        NULL => (Input::Null, rest),
        OTHER => (Input::Other, rest),
        FALSE => (Input::Bool(false), rest),
        TRUE => (Input::Bool(true), rest),
        TEXT => {
            let (len, rest) = split_number(rest)?;
            let (text, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            (Input::Text(text), rest)
        }
        _ => {
            let scale = u32::from(tag.checked_sub(NUMBER)?);
            let (number, rest) = split_number(rest)?;
            let mantissa = (number >> 1).cast_signed() ^ (number & 1).cast_signed().wrapping_neg();
            let number = (scale <= MAX_SCALE).then(|| Decimal::from_parts(mantissa, scale).ok());
            (Input::Number(number??), rest)
        }
    })
}

fn split_number(bytes: &[u8]) -> Option<(u128, &[u8])> {
    let mut number = 0_u128;
    for (at, &byte) in (0_u32..19).zip(bytes) {
        number |= u128::from(byte & 0x7f).checked_shl(at.saturating_mul(7))?;
        if byte & 0x80 == 0 {
            return Some((number, bytes.get(at as usize..)?.get(1..)?));
        }
    }
    None
}

/// Whether the bytes hold exactly so many fields, with valid texts.
pub(crate) fn is_sound(mut bytes: &[u8], fields: usize) -> bool {
    for _ in 0..fields {
        match split(bytes) {
            Some((Input::Text(text), _)) if std::str::from_utf8(text).is_err() => return false,
            Some((_, rest)) => bytes = rest,
            None => return false,
        }
    }
    bytes.is_empty()
}
