//! Event times: reading them as people send them, and writing them in RFC 3339.

use crate::decimal::{Decimal, power_of_ten};
use crate::record::Cell;
use crate::spec::{TimeFormat, Timestamp, Zone};

mod pattern;
mod rfc3339;

pub use pattern::{PatternError, TimePattern};
pub use rfc3339::parse_rfc3339;

/// 0001-01-01T00:00:00Z, the first usable event time.
pub const FIRST: Timestamp = Timestamp(-62_135_596_800_000);
/// 9999-12-31T23:59:59.999Z, the last usable event time.
pub const LAST: Timestamp = Timestamp(253_402_300_799_999);

/// The event time in a cell, in the given format; `None` where there is none, or none within the
/// years 0001 to 9999. A text without a zone says what clocks in `zone` show, or in UTC: the first instant at
/// which they do, or what they show next where they skip it.
///
/// Numbers given as a text are read like numbers, unless the format is one of texts. `Auto` tells the
/// unit by the magnitude: below 10^11 seconds, below 10^14 milliseconds, below 10^17 microseconds,
/// and from 10^18 to the end of 2099 nanoseconds; what lies elsewhere is no time (ticks of 100 ns since the year 1, the
/// largest number there is), nor are 0 and -1, which stand for none. What is finer than a millisecond is rounded down.
#[must_use]
#[inline]
pub fn parse(cell: Cell<'_>, format: &TimeFormat, zone: Option<&Zone>) -> Option<Timestamp> {
    match (cell, format) {
        (Cell::Text(text), TimeFormat::Rfc3339) => rfc3339::parse_in(text, zone),
        (Cell::Text(text), TimeFormat::Rfc2822) => pattern::parse_rfc2822(text),
        (Cell::Text(text), TimeFormat::Pattern(pattern)) => pattern.parse(text, zone),
        (Cell::Text(text), TimeFormat::Auto) => {
            rfc3339::parse_in(text, zone).or_else(|| match Decimal::parse(text) {
                Ok(number) => by_magnitude(number),
                Err(_) => pattern::parse_rfc2822(text),
            })
        }
        (Cell::Text(text), _) => from_number(Decimal::parse(text).ok()?, format),
        (Cell::Number(number), TimeFormat::Auto) => by_magnitude(number),
        (Cell::Number(number), _) => from_number(number, format),
        _ => None,
    }
}

fn by_magnitude(number: Decimal) -> Option<Timestamp> {
    let stands_for_none = number.scale() == 0 && matches!(number.mantissa(), -1 | 0);
    if stands_for_none {
        return None;
    }
    from_number(number, &TimeFormat::Auto)
}

/// The time, if it lies within the years 0001 to 9999.
#[must_use]
#[inline]
pub fn usable(time: Timestamp) -> Option<Timestamp> {
    (FIRST <= time && time <= LAST).then_some(time)
}

#[allow(
    clippy::arithmetic_side_effects,
    reason = "a power of ten is not zero, and a scale is at most 30"
)]
pub(crate) fn from_number(number: Decimal, format: &TimeFormat) -> Option<Timestamp> {
    let (mantissa, scale) = (number.mantissa(), number.scale());
    // What most records hold: no need to multiply or divide.
    if *format == TimeFormat::Millis && scale == 0 {
        return usable(Timestamp(i64::try_from(mantissa).ok()?));
    }
    // Milliseconds are the number times this power of ten.
    let exponent: i32 = match format {
        TimeFormat::Rfc3339 | TimeFormat::Rfc2822 | TimeFormat::Pattern(_) => return None,
        TimeFormat::Seconds => 3,
        TimeFormat::Millis => 0,
        TimeFormat::Micros => -3,
        TimeFormat::Nanos => -6,
        TimeFormat::Auto => match mantissa.unsigned_abs() / power_of_ten(scale).unsigned_abs() {
            0..100_000_000_000 => 3,
            100_000_000_000..100_000_000_000_000 => 0,
            100_000_000_000_000..100_000_000_000_000_000 => -3,
            1_000_000_000_000_000_000..4_102_444_800_000_000_000 => -6,
            _ => return None,
        },
    };
    // A scale is at most 30, so both powers fit.
    let shift = exponent - i32::try_from(scale).ok()?;
    let factor = power_of_ten(shift.unsigned_abs());
    let millis = if shift >= 0 {
        mantissa.checked_mul(factor)?
    } else {
        // The divisor is positive: this rounds down, also before 1970.
        mantissa.div_euclid(factor)
    };
    usable(Timestamp(i64::try_from(millis).ok()?))
}

/// The time in RFC 3339, in UTC: `2018-03-24T17:15:00Z`, with three digits of a fraction only where
/// it isn't zero.
#[must_use]
pub fn format(time: Timestamp) -> String {
    let mut text = Vec::with_capacity(24);
    write_to(time, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Appends the time in RFC 3339. The last windows of the year 9999 may end in the year 10000, which
/// takes five digits.
pub fn write_to(time: Timestamp, out: &mut Vec<u8>) {
    let days = time.0.div_euclid(86_400_000);
    let millis = time.0.rem_euclid(86_400_000);
    let (year, month, day) = civil_from_days(days);
    if year < 0 {
        out.push(b'-');
    }
    let year = year.unsigned_abs();
    if year > 9999 {
        out.extend_from_slice((year / 10_000).to_string().as_bytes());
    }
    write_two(year / 100 % 100, out);
    write_two(year % 100, out);
    out.push(b'-');
    write_two(month, out);
    out.push(b'-');
    write_two(day, out);
    out.push(b'T');
    let millis = millis.unsigned_abs();
    write_two(millis / 3_600_000, out);
    out.push(b':');
    write_two(millis / 60_000 % 60, out);
    out.push(b':');
    write_two(millis / 1000 % 60, out);
    if !millis.is_multiple_of(1000) {
        out.push(b'.');
        out.push(digit(millis / 100 % 10));
        write_two(millis % 100, out);
    }
    out.push(b'Z');
}

fn write_two(value: u64, out: &mut Vec<u8>) {
    out.push(digit(value / 10));
    out.push(digit(value));
}

fn digit(value: u64) -> u8 {
    b"0123456789"[(value % 10) as usize]
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar. Years start in March here,
/// so that the leap day is the last.
#[allow(
    clippy::arithmetic_side_effects,
    reason = "a year of four digits, a month and a day"
)]
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`].
#[allow(
    clippy::arithmetic_side_effects,
    reason = "a day of an era is below 146,097, and an era is a number of days by that"
)]
pub(crate) fn civil_from_days(days: i64) -> (i64, u64, u64) {
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month.unsigned_abs(), day.unsigned_abs())
}

#[cfg(test)]
mod tests;
