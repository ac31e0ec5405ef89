//! RFC 3339 and its common variations.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "fields of two and four digits, and of ranges that were checked"
)]

use super::{days_from_civil, usable};
use crate::spec::{Timestamp, Zone};

/// Up to and with the seconds: `2018-03-24T17:15:20`.
const SECONDS_END: usize = 19;
const DATE_END: usize = 10;
/// Up to and with the minutes, from the hour on.
const MINUTES_END: usize = 5;

/// Reads `2018-03-24T17:15:20.866586Z` and its common variations, which all mean UTC where no zone stands:
/// `+01:00`, `+0100`, `+01`, ` UTC`; a space for `T`; a comma before the fraction, which has any number
/// of digits; no seconds; the date alone, which is its first moment; small letters; blanks around it. A leap
/// second counts as the last millisecond before it. What is finer than a millisecond is rounded down.
/// `None` for any other text, and outside of the years 0001 to 9999.
#[must_use]
#[inline]
pub fn parse_rfc3339(text: &[u8]) -> Option<Timestamp> {
    parse_in(text, None)
}

/// The same; a text without a zone says what clocks in `zone` show.
#[inline]
pub(super) fn parse_in(text: &[u8], zone: Option<&Zone>) -> Option<Timestamp> {
    let written = as_it_should_be(text).or_else(|| as_it_may_be(text.trim_ascii()))?;
    written.time(zone)
}

/// A date and time as they stand there.
struct Written {
    /// Since 1970, of clocks that show them.
    seconds: i64,
    millis: i64,
    /// Seconds east of UTC.
    offset: Option<i64>,
}

impl Written {
    #[inline]
    fn time(self, zone: Option<&Zone>) -> Option<Timestamp> {
        let local = self.seconds * 1000 + self.millis;
        usable(Timestamp(match (self.offset, zone) {
            (None, Some(zone)) => zone.first_at(local),
            (offset, _) => local - offset.unwrap_or(0) * 1000,
        }))
    }
}

#[inline]
fn as_it_should_be(text: &[u8]) -> Option<Written> {
    let (head, rest) = text.split_first_chunk::<SECONDS_END>()?;
    let (seconds, is_leap) = civil_seconds(head)?;
    let (millis, zone) = fraction_millis(rest)?;
    let offset = match zone {
        [b'Z' | b'z'] => Some(0),
        [] => None,
        _ => Some(zone_seconds(zone)?),
    };
    let millis = if is_leap { 999 } else { millis };
    Some(Written {
        seconds,
        millis,
        offset,
    })
}

/// A date alone, no seconds, blanks, other names of UTC.
#[cold]
fn as_it_may_be(text: &[u8]) -> Option<Written> {
    let mut whole = *b"0000-00-00T00:00:00";
    let (date, rest) = text.split_at_checked(DATE_END)?;
    whole[..DATE_END].copy_from_slice(date);
    let mut rest = rest;
    if let [b'T' | b't' | b' ', time @ ..] = rest {
        let time = time.trim_ascii_start();
        let (minutes, after) = time.split_at_checked(MINUTES_END)?;
        whole[DATE_END + 1..][..MINUTES_END].copy_from_slice(minutes);
        rest = after;
        if let [b':', tens, ones, after @ ..] = after {
            whole[SECONDS_END - 2..].copy_from_slice(&[*tens, *ones]);
            rest = after;
        }
    } else if !rest.is_empty() {
        return None;
    }
    let (seconds, is_leap) = civil_seconds(&whole)?;
    let (millis, zone) = fraction_millis(rest)?;
    let zone = zone.trim_ascii_start();
    let is_utc = ["Z", "UTC", "GMT"];
    let offset = match zone {
        [] => None,
        _ if is_utc
            .iter()
            .any(|name| zone.eq_ignore_ascii_case(name.as_bytes())) =>
        {
            Some(0)
        }
        _ => Some(zone_seconds(zone)?),
    };
    let millis = if is_leap { 999 } else { millis };
    Some(Written {
        seconds,
        millis,
        offset,
    })
}

/// Seconds since 1970 of a date and time without fraction and zone, and whether it is a leap second, of which
/// they are those before it.
#[inline]
fn civil_seconds(text: &[u8; SECONDS_END]) -> Option<(i64, bool)> {
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
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second.min(59);
    Some((seconds, second == 60))
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
    let [b'.' | b',', digits @ ..] = text else {
        return Some((0, text));
    };
    let count = digits
        .iter()
        .take_while(|digit| digit.is_ascii_digit())
        .count();
    if count == 0 {
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
