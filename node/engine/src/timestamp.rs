//! Event times: reading them as people send them, and writing them in RFC 3339.

use crate::decimal::{Decimal, power_of_ten};
use crate::record::Cell;
use crate::spec::{TimeFormat, Timestamp};

mod rfc3339;

pub use rfc3339::parse_rfc3339;

/// 0001-01-01T00:00:00Z, the first usable event time.
pub const FIRST: Timestamp = Timestamp(-62_135_596_800_000);
/// 9999-12-31T23:59:59.999Z, the last usable event time.
pub const LAST: Timestamp = Timestamp(253_402_300_799_999);

/// The event time in a cell, in the given format; `None` where there is none, or none within the
/// years 0001 to 9999.
///
/// Numbers given as a text are read like numbers, unless the format is RFC 3339. `Auto` tells the
/// unit by the magnitude: below 10^11 seconds, below 10^14 milliseconds, below 10^17 microseconds,
/// else nanoseconds. What is finer than a millisecond is rounded down.
#[must_use]
#[inline]
pub fn parse(cell: Cell<'_>, format: TimeFormat) -> Option<Timestamp> {
    match (cell, format) {
        (Cell::Text(text), TimeFormat::Rfc3339) => parse_rfc3339(text),
        (Cell::Text(text), TimeFormat::Auto) => parse_rfc3339(text).or_else(|| {
            let number = Decimal::parse(text).ok()?;
            from_number(number, format)
        }),
        (Cell::Text(text), _) => from_number(Decimal::parse(text).ok()?, format),
        (Cell::Number(number), _) => from_number(number, format),
        _ => None,
    }
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
fn from_number(number: Decimal, format: TimeFormat) -> Option<Timestamp> {
    let (mantissa, scale) = (number.mantissa(), number.scale());
    // What most records hold: no need to multiply or divide.
    if format == TimeFormat::Millis && scale == 0 {
        return usable(Timestamp(i64::try_from(mantissa).ok()?));
    }
    // Milliseconds are the number times this power of ten.
    let exponent: i32 = match format {
        TimeFormat::Rfc3339 => return None,
        TimeFormat::Seconds => 3,
        TimeFormat::Millis => 0,
        TimeFormat::Micros => -3,
        TimeFormat::Nanos => -6,
        TimeFormat::Auto => match mantissa.unsigned_abs() / power_of_ten(scale).unsigned_abs() {
            0..100_000_000_000 => 3,
            100_000_000_000..100_000_000_000_000 => 0,
            100_000_000_000_000..100_000_000_000_000_000 => -3,
            _ => -6,
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str, format: TimeFormat) -> String {
        parse(Cell::Text(text.as_bytes()), format).map_or("none".into(), super::format)
    }

    fn number(text: &str, format: TimeFormat) -> String {
        let number = Decimal::parse(text.as_bytes()).unwrap();
        parse(Cell::Number(number), format).map_or("none".into(), super::format)
    }

    #[test]
    fn times_are_read_as_people_send_them() {
        for (text, expected) in [
            ("2018-03-24T17:15:20.866586Z", "2018-03-24T17:15:20.866Z"),
            ("2018-03-24T17:15:20Z", "2018-03-24T17:15:20Z"),
            ("2018-03-24T17:15:20.1Z", "2018-03-24T17:15:20.100Z"),
            ("2018-03-24T17:15:20.123456789Z", "2018-03-24T17:15:20.123Z"),
            ("2018-03-24t17:15:20.5z", "2018-03-24T17:15:20.500Z"),
            ("2018-03-24 17:15:20", "2018-03-24T17:15:20Z"),
            ("2018-03-24T17:15:20+01:00", "2018-03-24T16:15:20Z"),
            ("2018-03-24T17:15:20.25+0100", "2018-03-24T16:15:20.250Z"),
            ("2018-12-31T23:30:00-0130", "2019-01-01T01:00:00Z"),
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
            ("1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999Z"),
            ("2000-02-29T00:00:00Z", "2000-02-29T00:00:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(read(text, TimeFormat::Rfc3339), expected, "{text}");
            assert_eq!(read(text, TimeFormat::Auto), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "now",
            "2018-03-24",
            "2018-3-24T17:15:20Z",
            "2018-13-24T17:15:20Z",
            "2018-00-24T17:15:20Z",
            "2018-02-30T17:15:20Z",
            "1900-02-29T00:00:00Z",
            "2018-03-24T24:00:00Z",
            "2018-03-24T17:60:20Z",
            "2018-03-24T17:15:61Z",
            "2018-03-24T17:15:20.Z",
            "2018-03-24T17:15:20.1234567890Z",
            "2018-03-24T17:15:20ZZ",
            "2018-03-24T17:15:20+1",
            "2018-03-24T17:15:20+25:00",
            "2018-03-24T17:15:20+01:60",
            "0000-12-31T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "２018-03-24T17:15:20Z",
        ] {
            assert_eq!(read(text, TimeFormat::Rfc3339), "none", "{text}");
        }
    }

    #[test]
    fn a_numbers_size_tells_its_unit() {
        for text in [
            "1521911720",
            "1521911720000",
            "1521911720000000",
            "1521911720000000000",
        ] {
            assert_eq!(
                number(text, TimeFormat::Auto),
                "2018-03-24T17:15:20Z",
                "{text}"
            );
            assert_eq!(
                read(text, TimeFormat::Auto),
                "2018-03-24T17:15:20Z",
                "{text}"
            );
        }
        assert_eq!(
            number("1521911720.8665", TimeFormat::Auto),
            "2018-03-24T17:15:20.866Z"
        );
        assert_eq!(
            number("99999999999", TimeFormat::Auto),
            "5138-11-16T09:46:39Z"
        );
        assert_eq!(
            number("100000000000", TimeFormat::Auto),
            "1973-03-03T09:46:40Z"
        );
    }

    #[test]
    fn a_number_is_rounded_down_to_milliseconds() {
        assert_eq!(
            number("-0.0001", TimeFormat::Seconds),
            "1969-12-31T23:59:59.999Z"
        );
        assert_eq!(number("-1", TimeFormat::Micros), "1969-12-31T23:59:59.999Z");
        assert_eq!(
            number("1999", TimeFormat::Micros),
            "1970-01-01T00:00:00.001Z"
        );
        assert_eq!(
            number("1999999", TimeFormat::Nanos),
            "1970-01-01T00:00:00.001Z"
        );
        assert_eq!(read("1.5", TimeFormat::Seconds), "1970-01-01T00:00:01.500Z");
    }

    #[test]
    fn numbers_outside_of_the_calendar_are_no_times() {
        for text in [
            "637500000000000000",
            "9223372036854775807",
            "-9223372036854775808",
        ] {
            assert_eq!(number(text, TimeFormat::Millis), "none", "{text}");
            assert_eq!(number(text, TimeFormat::Seconds), "none", "{text}");
        }
        assert_eq!(
            number("9999999999999999999999999999", TimeFormat::Nanos),
            "none"
        );
        assert_eq!(number("1", TimeFormat::Rfc3339), "none");
        assert_eq!(parse(Cell::Missing, TimeFormat::Auto), None);
        assert_eq!(parse(Cell::Bool(true), TimeFormat::Auto), None);
        assert_eq!(parse(Cell::Bad, TimeFormat::Auto), None);
    }

    #[test]
    fn every_day_of_the_calendar_comes_back() {
        let mut days = FIRST.0 / 86_400_000;
        while days <= LAST.0 / 86_400_000 {
            let time = Timestamp(days * 86_400_000 + 3_723_004);
            assert_eq!(parse_rfc3339(format(time).as_bytes()), Some(time));
            days += 1;
        }
    }

    #[test]
    fn the_calendar_is_that_of_an_independent_library() {
        for seconds in [
            -62_135_596_800_i64,
            -1,
            0,
            951_782_400,
            1_521_911_720,
            253_402_207_200,
        ] {
            let other = jiff::Timestamp::from_second(seconds).unwrap().to_string();
            assert_eq!(format(Timestamp(seconds * 1000)), other);
        }
    }

    #[test]
    fn a_window_may_end_in_the_year_10000() {
        assert_eq!(format(Timestamp(LAST.0 + 1)), "10000-01-01T00:00:00Z");
    }
}
