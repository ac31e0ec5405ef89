//! Reading JSON numbers: a short way for nearly all of them, and a general one.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "digits are counted before they are multiplied; the rest are places in a text"
)]

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

impl Decimal {
    /// Reads the JSON number at the start of `text`: what it is, and how long it is. What follows
    /// it is not looked at. `None` if no valid number stands there.
    #[inline]
    #[must_use]
    pub fn parse_prefix(text: &[u8]) -> Option<(Prefix, usize)> {
        if let Some((mantissa, scale, len)) = short_prefix(text) {
            let number = Self::pack(i128::from(mantissa), scale);
            return Some((Prefix::Exact(number), len));
        }
        let (parts, rest) = split(text)?;
        Some((any_prefix(&parts), text.len() - rest.len()))
    }
}

/// Mantissa, scale and length of the number at the start of `text`, if it has at most 18 digits
/// and no exponent; `None` asks for the general way.
#[inline]
fn short_prefix(text: &[u8]) -> Option<(i64, u32, usize)> {
    let negative = *text.first()? == b'-';
    let start = usize::from(negative);
    let (integer, point) = digits(text, start, 0);
    let integer_len = point - start;
    let leading_zero = integer_len > 1 && text[start] == b'0';
    if integer_len == 0 || integer_len > SHORT_DIGITS || leading_zero {
        return None;
    }
    let next = text.get(point).copied().unwrap_or_default();
    let (mut mantissa, mut scale, mut end) = (integer, 0, point);
    if next == b'.' {
        (mantissa, end) = digits(text, point + 1, integer);
        let fraction_len = end - point - 1;
        let exponent = matches!(text.get(end), Some(b'e' | b'E'));
        if fraction_len == 0 || integer_len + fraction_len > SHORT_DIGITS || exponent {
            return None;
        }
        // At most 18.
        #[allow(clippy::cast_possible_truncation)]
        let digits_after = fraction_len as u32;
        scale = digits_after;
        while scale > 0 && mantissa.is_multiple_of(10) {
            mantissa /= 10;
            scale -= 1;
        }
    } else if matches!(next, b'e' | b'E') {
        return None;
    }
    // At most 18 digits.
    let mantissa = mantissa.cast_signed();
    Some((if negative { -mantissa } else { mantissa }, scale, end))
}

/// The digits of `text` from `at` on, appended to `value`, and where they end. More than 18 of them
/// wrap around.
#[inline]
fn digits(text: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    while let Some(chunk) = text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let (digits, count) = eight_digits(u64::from_le_bytes(*chunk));
        value = value.wrapping_mul(POWERS[count]).wrapping_add(digits);
        at += count;
        if count < 8 {
            return (value, at);
        }
    }
    while let Some(digit @ b'0'..=b'9') = text.get(at) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        at += 1;
    }
    (value, at)
}

const POWERS: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// The value of the digits that eight bytes begin with, and how many there are. All eight are
/// looked at together, each in a lane of its own.
#[inline]
fn eight_digits(bytes: u64) -> (u64, usize) {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    // A digit leaves less than ten; 0x76 lifts anything from ten on to the high bit.
    let values = bytes ^ ZEROS;
    let others = (((values & !HIGH_BITS) + 0x7676_7676_7676_7676) | values) & HIGH_BITS;
    let count = others.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // The digits move to the end; what was behind them falls out, zeros come in before them.
    let digits = values << (64 - 8 * count);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    let all = fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff;
    (all, count)
}

/// What stands at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// A number, all of it.
    Exact(Decimal),
    /// A number with more digits than can be held: rounded to 30 digits after the point, and 36 in
    /// all, half to the even digit.
    Rounded(Decimal),
    /// 10^28 or more.
    TooLarge,
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
    match split(text) {
        Some((parts, [])) => value(&parts),
        _ => Err(NumberError::Syntax),
    }
}

#[cold]
fn any_prefix(parts: &Parts<'_>) -> Prefix {
    let rounded = match value(parts) {
        Ok(number) => return Prefix::Exact(number),
        Err(NumberError::TooPrecise) => rounded(parts),
        Err(_) => None,
    };
    rounded.map_or(Prefix::TooLarge, Prefix::Rounded)
}

/// The number with as many digits as can be held, half rounded to the even one; `None` if that is
/// 10^28 or more.
fn rounded(parts: &Parts<'_>) -> Option<Decimal> {
    let digits = || {
        let all = parts.integer.iter().chain(parts.fraction);
        all.skip_while(|&&digit| digit == b'0')
            .map(|digit| digit - b'0')
    };
    let length = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 4);
    let all = length(digits().count());
    let scale = length(parts.fraction.len()).saturating_sub(parts.exponent);
    // Digits before the point and behind it; the number is below 10^28.
    let whole = all.saturating_sub(scale).max(0);
    let fraction = i64::from(MAX_SCALE).min(i64::from(MAX_DIGITS) - whole);
    let kept = all.saturating_sub(scale).saturating_add(fraction);
    let Ok(kept) = usize::try_from(kept) else {
        // Less than a tenth of the last digit.
        return Some(Decimal::ZERO);
    };
    let mantissa = digits()
        .take(kept)
        .fold(0_i128, |value, digit| value * 10 + i128::from(digit));
    let mut rest = digits().skip(kept);
    let first = rest.next().unwrap_or(0);
    let is_more = rest.any(|digit| digit > 0);
    let rounds_up = first > 5 || (first == 5 && (is_more || mantissa % 2 == 1));
    let mantissa = mantissa + i128::from(rounds_up);
    let signed = if parts.negative { -mantissa } else { mantissa };
    Decimal::from_parts(signed, u32::try_from(fraction).ok()?).ok()
}

fn value(parts: &Parts<'_>) -> Result<Decimal, NumberError> {
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

/// The number at the start of `text`, and what follows it.
fn split(text: &[u8]) -> Option<(Parts<'_>, &[u8])> {
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
    let (exponent, rest) = match rest {
        [b'e' | b'E', b'-', digits @ ..] => {
            let (exponent, rest) = exponent(digits)?;
            (-exponent, rest)
        }
        [b'e' | b'E', b'+', digits @ ..] | [b'e' | b'E', digits @ ..] => exponent(digits)?,
        _ => (0, rest),
    };
    let parts = Parts {
        negative,
        integer,
        fraction,
        exponent,
    };
    Some((parts, rest))
}

fn leading_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn exponent(digits: &[u8]) -> Option<(i64, &[u8])> {
    let (value, rest) = leading_digits(digits);
    if value.is_empty() {
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
    Some((value.iter().fold(0, step), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, rest: &str) {
        let whole = format!("{text}{rest}");
        let found = Decimal::parse_prefix(whole.as_bytes());
        match Decimal::parse(text.as_bytes()) {
            Ok(number) => assert_eq!(found, Some((Prefix::Exact(number), text.len())), "{whole}"),
            Err(NumberError::Syntax) => assert_eq!(found, None, "{whole}"),
            Err(NumberError::TooLarge) => {
                assert_eq!(found, Some((Prefix::TooLarge, text.len())), "{whole}");
            }
            Err(NumberError::TooPrecise) => {
                let is_rounded =
                    matches!(found, Some((Prefix::Rounded(_), len)) if len == text.len());
                assert!(is_rounded, "{whole}");
            }
        }
    }

    #[track_caller]
    fn check_rounded(text: &str, expected: &str) {
        let Some((Prefix::Rounded(number), _)) = Decimal::parse_prefix(text.as_bytes()) else {
            panic!("{text} is not rounded");
        };
        assert_eq!(number.to_string(), expected, "{text}");
    }

    #[test]
    fn what_has_too_many_digits_is_rounded_half_to_even() {
        let tiny = |digits: &str| format!("0.{}{digits}", "0".repeat(30 - digits.len()));
        check_rounded("5.551115123125783e-17", &tiny("55511151231258"));
        check_rounded(
            "-5.551115123125783e-17",
            &format!("-{}", tiny("55511151231258")),
        );
        check_rounded("1e-31", "0");
        check_rounded("5e-31", "0");
        check_rounded("5.0000000000000000000000000000000000001e-31", &tiny("1"));
        check_rounded("15e-31", &tiny("2"));
        check_rounded("25e-31", &tiny("2"));
        check_rounded("25.1e-31", &tiny("3"));
        check_rounded("4.9e-324", "0");
        check_rounded("1e-99999999999999999999", "0");
        check_rounded("-5e-31", "0");
        check_rounded("0.9999999999999999999999999999995", "1");
        // 36 digits in all.
        check_rounded(
            "1234567890123456789.123456789012345675",
            "1234567890123456789.12345678901234568",
        );
        check_rounded(
            "1234567890123456789.123456789012345665",
            "1234567890123456789.12345678901234566",
        );
        check_rounded(
            "9999999999999999999999999999.123456785",
            "9999999999999999999999999999.12345678",
        );
        let largest = b"9999999999999999999999999999.999999995";
        assert_eq!(
            Decimal::parse_prefix(largest),
            Some((Prefix::TooLarge, largest.len()))
        );
    }

    #[test]
    fn a_number_is_read_alike_whatever_follows_it() {
        let digits = "98765432109876543210987654321098765432109";
        for rest in [
            "",
            ",",
            "}",
            " ]       ",
            "\",\"x\":1",
            "/",
            ":",
            "\u{e4}\u{e4}\u{e4}\u{e4}",
        ] {
            for integer in 0..=32 {
                let whole = &digits[..integer];
                check(whole, rest);
                check(&format!("-{whole}"), rest);
                check(&format!("0{whole}"), rest);
                check(&format!("{whole}e3"), rest);
                check(&format!("{whole}e-"), rest);
                for fraction in 0..=32 {
                    let part = &digits[..fraction];
                    check(&format!("{whole}.{part}"), rest);
                    check(&format!("-{whole}.{part}00"), rest);
                    check(&format!("-{whole}.000{part}"), rest);
                    check(&format!("{whole}.{part}E-2"), rest);
                }
            }
        }
    }

    #[test]
    fn the_digits_that_eight_bytes_begin_with_are_counted() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                let mut bytes = *b"12345678";
                bytes[at] = byte;
                let count = bytes
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit())
                    .count();
                let expected = bytes[..count]
                    .iter()
                    .fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
                assert_eq!(eight_digits(u64::from_le_bytes(bytes)), (expected, count));
            }
        }
    }
}
