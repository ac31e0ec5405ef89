//! Times in formats of texts that others have defined: by a pattern, and those of mails. jiff reads them.

use std::sync::Arc;

use jiff::civil::{DateTime, date};
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::Offset;

use super::{days_from_civil, usable};
use crate::spec::{Timestamp, Zone};

/// A pattern like that of `strptime`, as [jiff](https://docs.rs/jiff/latest/jiff/fmt/strtime/index.html#conversion-specifications) reads
/// it: `%d/%b/%Y:%H:%M:%S %z`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimePattern(Arc<str>);

/// Why a pattern gives no times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(String);

impl TimePattern {
    /// Checks a pattern: a text that it writes must be one that it reads, with a date.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        let failed = |error: jiff::Error| PatternError(error.to_string());
        let mut sample = BrokenDownTime::from(SAMPLE);
        sample.set_offset(Some(Offset::UTC));
        sample.set_timestamp(Offset::UTC.to_timestamp(SAMPLE).ok());
        let text = sample.to_string(pattern).map_err(failed)?;
        let read = BrokenDownTime::parse(pattern, &text).map_err(failed)?;
        let date = match read.to_timestamp() {
            Ok(time) => Offset::UTC.to_datetime(time).date(),
            Err(_) => read.to_datetime().map_err(failed)?.date(),
        };
        match date == SAMPLE.date() {
            true => Ok(Self(pattern.into())),
            false => Err(PatternError(format!(
                "a date that it writes as \"{text}\" is read as {date}"
            ))),
        }
    }

    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[allow(
        clippy::arithmetic_side_effects,
        reason = "a date of four digits and a time of day, in milliseconds"
    )]
    pub(super) fn parse(&self, text: &[u8], zone: Option<&Zone>) -> Option<Timestamp> {
        let read = BrokenDownTime::parse(self.0.as_bytes(), text.trim_ascii()).ok()?;
        if let Ok(time) = read.to_timestamp() {
            return of_timestamp(time);
        }
        let local = read.to_datetime().ok()?;
        let (date, time) = (local.date(), local.time());
        let days = days_from_civil(date.year().into(), date.month().into(), date.day().into());
        let seconds = i64::from(time.hour()) * 3600
            + i64::from(time.minute()) * 60
            + i64::from(time.second());
        let millis = days * 86_400_000 + seconds * 1000 + i64::from(time.millisecond());
        usable(Timestamp(match zone {
            Some(zone) => zone.first_at(millis),
            None => millis,
        }))
    }
}

/// A moment that no field of a pattern can be mistaken at for another one.
const SAMPLE: DateTime = date(2023, 11, 25).at(17, 48, 39, 123_000_000);

pub(super) fn parse_rfc2822(text: &[u8]) -> Option<Timestamp> {
    // Cheaper than an error of the library's.
    if !text.trim_ascii().first()?.is_ascii_alphanumeric() {
        return None;
    }
    of_timestamp(
        DateTimeParser::new()
            .parse_timestamp(text.trim_ascii())
            .ok()?,
    )
}

fn of_timestamp(time: jiff::Timestamp) -> Option<Timestamp> {
    let millis = time.as_nanosecond().div_euclid(1_000_000);
    usable(Timestamp(i64::try_from(millis).ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::timestamp::format;

    fn read(pattern: &str, text: &str, zone: Option<&Zone>) -> String {
        let pattern = TimePattern::new(pattern).unwrap();
        pattern
            .parse(text.as_bytes(), zone)
            .map_or("none".into(), format)
    }

    #[test]
    fn times_of_web_logs_are_read_by_their_pattern() {
        let apache = "%d/%b/%Y:%H:%M:%S %z";
        assert_eq!(
            read(apache, "24/Mar/2018:17:15:20 +0100", None),
            "2018-03-24T16:15:20Z"
        );
        assert_eq!(read(apache, "24/Mar/2018:17:15:20", None), "none");
        assert_eq!(read(apache, "", None), "none");
        assert_eq!(read("%Y%m%d", "20180324", None), "2018-03-24T00:00:00Z");
        assert_eq!(read("%Y-%j", "2018-083", None), "2018-03-24T00:00:00Z");
        assert_eq!(read("%s", "1521911720", None), "2018-03-24T17:15:20Z");
        assert_eq!(
            read("%Y-%m-%d %H.%M.%S%.f", "2018-03-24 17.15.20.8669", None),
            "2018-03-24T17:15:20.866Z"
        );
    }

    #[test]
    fn a_pattern_that_gives_no_date_or_is_not_read_is_none() {
        for pattern in [
            "%H:%M:%S",
            "%b %d %H:%M:%S",
            "%Y-%m",
            "%Q!",
            "%",
            "",
            "2018-03-24",
            "%Y-%d-%M",
        ] {
            assert!(TimePattern::new(pattern).is_err(), "{pattern}");
        }
    }

    /// Clocks of this zone were set an hour ahead at 01:00 and back at 03:00 UTC.
    #[test]
    fn what_clocks_of_a_zone_show_is_its_first_moment() {
        let hour = 3_600;
        let changes = vec![(hour, 2 * hour), (3 * hour, hour)];
        let zone = Zone::new("test".into(), hour, changes, None).unwrap();
        let read = |text| read("%Y-%m-%d %H:%M", text, Some(&zone));
        assert_eq!(read("1970-01-01 01:30"), "1970-01-01T00:30:00Z");
        // Skipped: when they were set ahead.
        assert_eq!(read("1970-01-01 02:30"), "1970-01-01T01:00:00Z");
        assert_eq!(read("1970-01-01 03:30"), "1970-01-01T01:30:00Z");
        // Shown twice.
        assert_eq!(read("1970-01-01 04:30"), "1970-01-01T02:30:00Z");
        assert_eq!(read("1970-01-01 05:30"), "1970-01-01T04:30:00Z");
        let zoned = |text| {
            super::super::rfc3339::parse_in(text, Some(&zone))
                .map(format)
                .unwrap()
        };
        assert_eq!(zoned(b"1970-01-01T04:30:00.5"), "1970-01-01T02:30:00.500Z");
        assert_eq!(zoned(b"1970-01-01"), "1969-12-31T23:00:00Z");
        assert_eq!(zoned(b"1970-01-01T04:30:00Z"), "1970-01-01T04:30:00Z");
    }
}
