//! Groups: their keys as bytes that are equal where the groups are, and sort as the groups do.
//!
//! The order of groups is that of their fields, one after the other, and of one field: null first,
//! then false, true, numbers by value, texts by their bytes. A field that is absent, null or
//! unusable is null.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "parts of numbers below 10^28, and places in keys in memory"
)]

use std::borrow::Cow;

use crate::decimal::{Decimal, power_of_ten};
use crate::record::Cell;

pub(crate) mod dictionary;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const NUMBER: u8 = 3;
const TEXT: u8 = 4;

/// The number of digits of a fraction in a key: all that a [`Decimal`] has.
const FRACTION_DIGITS: u32 = 30;
/// 10^30 is less than 2^104.
const FRACTION_BYTES: usize = 13;
/// The sign's and the length's byte of a whole part that is zero.
const WHOLE_ZERO: u8 = 0x80;

/// One field of a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GroupValue<'a> {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(Cow<'a, str>),
}

/// Appends one field to a group's key.
#[inline]
pub(crate) fn push_cell(key: &mut Vec<u8>, cell: Cell<'_>) {
    match cell {
        Cell::Missing | Cell::Null | Cell::Nested | Cell::Bad => key.push(NULL),
        Cell::Bool(false) => key.push(FALSE),
        Cell::Bool(true) => key.push(TRUE),
        Cell::Number(number) => push_number(key, number),
        Cell::Text(text) => push_text(key, text),
    }
}

/// A zero byte ends the text, so that a text sorts before those that it begins; one within is
/// followed by 0xff.
#[inline]
fn push_text(key: &mut Vec<u8>, text: &[u8]) {
    key.push(TEXT);
    if text.contains(&0) {
        for &byte in text {
            key.push(byte);
            if byte == 0 {
                key.push(0xff);
            }
        }
    } else {
        key.extend_from_slice(text);
    }
    key.extend_from_slice(&[0, 0]);
}

/// The whole part, rounded down, with sign and length before it, then the fraction as thirty
/// digits, if there is one.
fn push_number(key: &mut Vec<u8>, number: Decimal) {
    key.push(NUMBER);
    let unit = power_of_ten(number.scale());
    let whole = number.mantissa().div_euclid(unit);
    let fraction = number.mantissa().rem_euclid(unit);
    let bytes = whole.to_be_bytes();
    let (filler, mark) = if whole < 0 { (0xff, -1) } else { (0, 1) };
    let skipped = bytes.iter().take_while(|&&byte| byte == filler).count();
    let significant = &bytes[skipped..];
    // At most 16 bytes: longer is larger above zero and smaller below it.
    #[allow(clippy::cast_possible_truncation)]
    let length = significant.len() as i8 * mark;
    // -1 is 0xff throughout: without a byte of its own it would look like 0.
    let below_zero = u8::from(whole < 0);
    key.push(WHOLE_ZERO.wrapping_add_signed(length) - below_zero);
    key.extend_from_slice(significant);
    if fraction == 0 {
        key.push(0);
    } else {
        key.push(1);
        let digits = fraction * power_of_ten(FRACTION_DIGITS - number.scale());
        key.extend_from_slice(&digits.to_be_bytes()[16 - FRACTION_BYTES..]);
    }
}

/// Reads the first field of a key, and gives what follows it; `None` if the key is damaged.
pub(crate) fn split_value(key: &[u8]) -> Option<(GroupValue<'_>, &[u8])> {
    let (&kind, rest) = key.split_first()?;
    match kind {
        NULL => Some((GroupValue::Null, rest)),
        FALSE => Some((GroupValue::Bool(false), rest)),
        TRUE => Some((GroupValue::Bool(true), rest)),
        NUMBER => split_number(rest),
        TEXT => split_text(rest),
        _ => None,
    }
}

fn split_text(key: &[u8]) -> Option<(GroupValue<'_>, &[u8])> {
    let end = key.iter().position(|&byte| byte == 0)?;
    // Most texts hold no zero: then they stand there as they are.
    if key.get(end + 1) == Some(&0) {
        let text = std::str::from_utf8(&key[..end]).ok()?;
        return Some((GroupValue::Text(Cow::Borrowed(text)), &key[end + 2..]));
    }
    let mut text = Vec::new();
    let mut rest = key;
    loop {
        let end = rest.iter().position(|&byte| byte == 0)?;
        text.extend_from_slice(&rest[..end]);
        let mark = *rest.get(end + 1)?;
        rest = &rest[end + 2..];
        match mark {
            0 => {
                let text = String::from_utf8(text).ok()?;
                return Some((GroupValue::Text(Cow::Owned(text)), rest));
            }
            0xff => text.push(0),
            _ => return None,
        }
    }
}

fn split_number(key: &[u8]) -> Option<(GroupValue<'_>, &[u8])> {
    let (&mark, rest) = key.split_first()?;
    let negative = mark < WHOLE_ZERO;
    let length = usize::from(if negative {
        WHOLE_ZERO - 1 - mark
    } else {
        mark - WHOLE_ZERO
    });
    let (significant, rest) = rest.split_at_checked(length)?;
    let mut bytes = [if negative { 0xff } else { 0 }; 16];
    bytes[16_usize.checked_sub(length)?..].copy_from_slice(significant);
    let whole = i128::from_be_bytes(bytes);
    let (&has_fraction, rest) = rest.split_first()?;
    if has_fraction == 0 {
        return Some((
            GroupValue::Number(Decimal::from_parts(whole, 0).ok()?),
            rest,
        ));
    }
    let (digits, rest) = rest.split_first_chunk::<FRACTION_BYTES>()?;
    let mut bytes = [0; 16];
    bytes[16 - FRACTION_BYTES..].copy_from_slice(digits);
    let mut fraction = i128::from_be_bytes(bytes);
    let mut scale = FRACTION_DIGITS;
    while scale > 0 && fraction % 10 == 0 {
        fraction /= 10;
        scale -= 1;
    }
    let mantissa = whole
        .checked_mul(power_of_ten(scale))?
        .checked_add(fraction)?;
    Some((
        GroupValue::Number(Decimal::from_parts(mantissa, scale).ok()?),
        rest,
    ))
}

/// Whether the key holds exactly `fields` fields.
pub(crate) fn is_sound(key: &[u8], fields: usize) -> bool {
    let mut rest = key;
    for _ in 0..fields {
        match split_value(rest) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text.as_bytes()).unwrap()
    }

    fn key(cell: Cell<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        push_cell(&mut key, cell);
        key
    }

    /// In the documented order.
    fn ordered() -> Vec<Cell<'static>> {
        let numbers = [
            "-9999999999999999999999999999",
            "-65536",
            "-257",
            "-256.5",
            "-256",
            "-255",
            "-2",
            "-1.5",
            "-1",
            "-0.000000000000000000000000000001",
            "0",
            "0.000000000000000000000000000001",
            "0.1",
            "0.25",
            "1",
            "1.5",
            "2",
            "255",
            "256",
            "65536",
            "2882429806056571124",
            "2882429806056571125",
            "9999999999999999999999999999",
        ];
        let texts = ["", "\0", "\0\0", "\0a", "a", "a\0", "a\0b", "ab", "b", "ä"];
        let mut cells = vec![Cell::Null, Cell::Bool(false), Cell::Bool(true)];
        cells.extend(numbers.iter().map(|text| Cell::Number(number(text))));
        cells.extend(texts.iter().map(|text| Cell::Text(text.as_bytes())));
        cells
    }

    #[test]
    fn keys_sort_as_their_values_do() {
        for pair in ordered().windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
            // A further field does not disturb that.
            let longer = |cell| [key(cell), key(Cell::Text("\u{ff}".as_bytes()))].concat();
            let shorter = |cell| [key(cell), key(Cell::Null)].concat();
            assert!(longer(pair[0]) < shorter(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn a_key_gives_its_values_back() {
        for cell in ordered() {
            let key = key(cell);
            let expected = match cell {
                Cell::Bool(value) => GroupValue::Bool(value),
                Cell::Number(value) => GroupValue::Number(value),
                Cell::Text(value) => GroupValue::Text(std::str::from_utf8(value).unwrap().into()),
                _ => GroupValue::Null,
            };
            assert_eq!(split_value(&key), Some((expected, &[][..])));
            assert!(is_sound(&key, 1));
            assert!(!is_sound(&key[..key.len() - 1], 1));
            assert!(!is_sound(&key, 2));
        }
    }

    #[test]
    fn absent_null_and_unusable_are_one_group() {
        assert_eq!(key(Cell::Missing), key(Cell::Null));
        assert_eq!(key(Cell::Bad), key(Cell::Null));
        assert_ne!(key(Cell::Text(b"")), key(Cell::Null));
        assert_ne!(key(Cell::Text(b"1")), key(Cell::Number(number("1"))));
        assert_eq!(
            key(Cell::Number(number("1.0"))),
            key(Cell::Number(number("1")))
        );
    }
}
