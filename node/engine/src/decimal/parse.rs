//! Reading JSON numbers: a short way for nearly all of them, and a general one.

use super::{Decimal, MAX_DIGITS, MAX_INTEGER_DIGITS, MAX_SCALE, NumberError};

/// Digits whose value surely fits into an `i64`.
const SHORT_DIGITS: usize = 18;

/// Mantissa and scale of a number with at most 18 digits and no exponent; `None` asks for the
/// general way.
#[inline]
pub(super) fn short(text: &[u8]) -> Option<(i64, u32)> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits.len() > SHORT_DIGITS + 1 {
        return None;
    }
    let mut mantissa: i64 = 0;
    let mut point = None;
    for (at, &byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(i64::from(digit));
        } else if byte == b'.' && point.is_none() {
            point = Some(at);
        } else {
            return None;
        }
    }
    let integer_len = point.unwrap_or(digits.len());
    let fraction_len = digits.len() - integer_len - usize::from(point.is_some());
    let leading_zero = integer_len > 1 && digits[0] == b'0';
    let empty_fraction = point.is_some() && fraction_len == 0;
    if integer_len == 0
        || leading_zero
        || empty_fraction
        || integer_len + fraction_len > SHORT_DIGITS
    {
        return None;
    }
    // At most 18.
    #[allow(clippy::cast_possible_truncation)]
    let mut scale = fraction_len as u32;
    while scale > 0 && mantissa % 10 == 0 {
        mantissa /= 10;
        scale -= 1;
    }
    Some((if negative { -mantissa } else { mantissa }, scale))
}

/// The parts of a number in JSON's syntax.
struct Parts<'a> {
    negative: bool,
    integer: &'a [u8],
    fraction: &'a [u8],
    /// Saturates far beyond all limits.
    exponent: i64,
}

/// Any JSON number.
#[cold]
pub(super) fn any(text: &[u8]) -> Result<Decimal, NumberError> {
    let parts = split(text).ok_or(NumberError::Syntax)?;
    let digits = || parts.integer.iter().chain(parts.fraction);
    let total = digits().count();
    let leading_zeros = digits().take_while(|&&digit| digit == b'0').count();
    if leading_zeros == total {
        return Ok(Decimal::ZERO);
    }
    let trailing_zeros = digits().rev().take_while(|&&digit| digit == b'0').count();
    let significant = total - leading_zeros - trailing_zeros;
    // Lengths of texts in memory: far below 2^62.
    let length = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 4);
    let scale = length(parts.fraction.len())
        .saturating_sub(length(trailing_zeros))
        .saturating_sub(parts.exponent);
    if length(significant).saturating_sub(scale) > i64::from(MAX_INTEGER_DIGITS) {
        return Err(NumberError::TooLarge);
    }
    if scale > i64::from(MAX_SCALE) || significant > MAX_DIGITS as usize {
        return Err(NumberError::TooPrecise);
    }
    let mut mantissa = digits()
        .skip(leading_zeros)
        .take(significant)
        .fold(0_i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    let mut scale = scale;
    while scale < 0 {
        mantissa *= 10;
        scale += 1;
    }
    let signed = if parts.negative { -mantissa } else { mantissa };
    Ok(Decimal::pack(
        signed,
        u32::try_from(scale).unwrap_or_default(),
    ))
}

fn split(text: &[u8]) -> Option<Parts<'_>> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let (integer, rest) = leading_digits(rest);
    if integer.is_empty() || (integer.len() > 1 && integer[0] == b'0') {
        return None;
    }
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => {
            let (fraction, rest) = leading_digits(rest);
            (!fraction.is_empty()).then_some((fraction, rest))?
        }
        _ => (&rest[..0], rest),
    };
    let exponent = match rest {
        [] => 0,
        [b'e' | b'E', b'-', digits @ ..] => -exponent(digits)?,
        [b'e' | b'E', b'+', digits @ ..] | [b'e' | b'E', digits @ ..] => exponent(digits)?,
        _ => return None,
    };
    Some(Parts {
        negative,
        integer,
        fraction,
        exponent,
    })
}

fn leading_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn exponent(digits: &[u8]) -> Option<i64> {
    let (value, rest) = leading_digits(digits);
    if value.is_empty() || !rest.is_empty() {
        return None;
    }
    // Saturates at a quarter of the range, so that sums with lengths of texts cannot overflow.
    let limit = i64::MAX / 4;
    let step = |value: i64, digit: &u8| {
        value
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
            .min(limit)
    };
    Some(value.iter().fold(0, step))
}
