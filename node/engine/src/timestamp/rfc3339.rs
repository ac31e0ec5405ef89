//! RFC 3339 and its common variations.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "fields of two and four digits, and of ranges that were checked"
)]

use super::{days_from_civil, usable};
use crate::spec::Timestamp;

/// Up to and with the seconds: `2018-03-24T17:15:20`.
const SECONDS_END: usize = 19;

/// Reads `2018-03-24T17:15:20.866586Z`, also with `+01:00`, `+0100` or `+01`, a space for `T`, 1 to
/// 9 digits of a fraction, and without a zone, which means UTC. A leap second counts as the second
/// before it. What is finer than a millisecond is rounded down. `None` for any other text, and
/// outside of the years 0001 to 9999.
#[must_use]
#[inline]
pub fn parse_rfc3339(text: &[u8]) -> Option<Timestamp> {
    let (head, rest) = text.split_first_chunk::<SECONDS_END>()?;
    let seconds = civil_seconds(head)?;
    let (millis, zone) = fraction_millis(rest)?;
    let offset_seconds = match zone {
        [b'Z' | b'z'] | [] => 0,
        _ => zone_seconds(zone)?,
    };
    usable(Timestamp((seconds - offset_seconds) * 1000 + millis))
}

/// Seconds since 1970 of a date and time without fraction and zone.
#[inline]
fn civil_seconds(text: &[u8; SECONDS_END]) -> Option<i64> {
    let separators = text[4] == b'-'
        && text[7] == b'-'
        && matches!(text[10], b'T' | b't' | b' ')
        && text[13] == b':'
        && text[16] == b':';
    if !separators {
        return None;
    }
    let year = two(text[0], text[1])? * 100 + two(text[2], text[3])?;
    let month = two(text[5], text[6])?;
    let day = two(text[8], text[9])?;
    let hour = two(text[11], text[12])?;
    let minute = two(text[14], text[15])?;
    let second = two(text[17], text[18])?;
    let in_range = (1..=12).contains(&month)
        && day >= 1
        && (day <= 28 || day <= days_in_month(year, month))
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range {
        return None;
    }
    let days = days_from_civil(year, month, day);
    Some(days * 86_400 + hour * 3600 + minute * 60 + second.min(59))
}

#[inline]
fn two(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then_some(i64::from(tens) * 10 + i64::from(ones))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The milliseconds of a fraction, if there is one, and what follows it.
#[inline]
fn fraction_millis(text: &[u8]) -> Option<(i64, &[u8])> {
    let [b'.', digits @ ..] = text else {
        return Some((0, text));
    };
    let count = digits
        .iter()
        .take_while(|digit| digit.is_ascii_digit())
        .count();
    if !(1..=9).contains(&count) {
        return None;
    }
    let at = |index: usize| {
        let digit = if index < count {
            digits[index] - b'0'
        } else {
            0
        };
        i64::from(digit)
    };
    Some((at(0) * 100 + at(1) * 10 + at(2), &digits[count..]))
}

/// Seconds east of UTC.
fn zone_seconds(zone: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match *zone {
        [sign, h1, h2, b':', m1, m2] | [sign, h1, h2, m1, m2] => (sign, two(h1, h2)?, two(m1, m2)?),
        [sign, h1, h2] => (sign, two(h1, h2)?, 0),
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = hours * 3600 + minutes * 60;
    match sign {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}
