//! Functions of times, in UTC.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "times lie within the years 0001 to 9999"
)]

use super::value::{Value, Work};
use crate::decimal::Decimal;
use crate::record::Cell;
use crate::spec::{TimeFormat, Timestamp};
use crate::timestamp::{self, civil_from_days, days_from_civil, usable};

const DAY_MS: i64 = 86_400_000;

/// What `date_trunc` cuts to and `extract` takes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds; taken out, with the seconds.
    Millisecond,
    /// Seconds; taken out, with their fraction.
    Second,
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
    /// Days.
    Day,
    /// Weeks from Monday; taken out, by ISO 8601.
    Week,
    /// Months.
    Month,
    /// Quarters.
    Quarter,
    /// Years.
    Year,
    /// The day of the week, Sunday is 0; only to be taken out, as all that follow.
    DayOfWeek,
    /// The day of the week, Monday is 1, Sunday 7.
    IsoDayOfWeek,
    /// The day of the year, from 1.
    DayOfYear,
    /// Seconds since 1970.
    Epoch,
}

const UNITS: [(&str, Unit); 16] = [
    ("millisecond", Unit::Millisecond),
    ("milliseconds", Unit::Millisecond),
    ("second", Unit::Second),
    ("minute", Unit::Minute),
    ("hour", Unit::Hour),
    ("day", Unit::Day),
    ("week", Unit::Week),
    ("month", Unit::Month),
    ("quarter", Unit::Quarter),
    ("year", Unit::Year),
    ("dow", Unit::DayOfWeek),
    ("dayofweek", Unit::DayOfWeek),
    ("isodow", Unit::IsoDayOfWeek),
    ("doy", Unit::DayOfYear),
    ("dayofyear", Unit::DayOfYear),
    ("epoch", Unit::Epoch),
];

impl Unit {
    /// The unit of this name, in lower case.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let found = UNITS.iter().find(|(known, _)| *known == name);
        found.map(|&(_, unit)| unit)
    }

    /// Whether times can be cut to it.
    #[must_use]
    pub fn cuts(self) -> bool {
        !matches!(
            self,
            Self::DayOfWeek | Self::IsoDayOfWeek | Self::DayOfYear | Self::Epoch
        )
    }
}

/// The time in a text or a number: as event times are read; 0 and -1 are times.
#[must_use]
pub fn parse_time(cell: Cell<'_>) -> Option<Timestamp> {
    match cell {
        Cell::Number(number) => timestamp::from_number(number, &TimeFormat::Auto),
        _ => timestamp::parse(cell, &TimeFormat::Auto, None),
    }
}

/// The value as a time; `None` where it is none.
pub(super) fn of_value(value: Value<'_>, work: &Work) -> Option<Timestamp> {
    match value {
        Value::Time(time) => Some(time),
        Value::Text(text) => parse_time(Cell::Text(work.bytes(text).trim_ascii())),
        Value::Number(number) => parse_time(Cell::Number(number)),
        _ => None,
    }
}

/// The time cut down to the unit.
pub(super) fn truncate(unit: Unit, time: Timestamp) -> Option<Timestamp> {
    let step = |step: i64| time.0 - time.0.rem_euclid(step);
    let day = time.0.div_euclid(DAY_MS);
    let (year, month, _) = civil_from_days(day);
    let month = i64::try_from(month).ok()?;
    usable(Timestamp(match unit {
        Unit::Millisecond => time.0,
        Unit::Second => step(1000),
        Unit::Minute => step(60_000),
        Unit::Hour => step(3_600_000),
        Unit::Day => step(DAY_MS),
        // 1970-01-01 was a Thursday.
        Unit::Week => (day - (day + 3).rem_euclid(7)) * DAY_MS,
        Unit::Month => days_from_civil(year, month, 1) * DAY_MS,
        Unit::Quarter => days_from_civil(year, month - (month - 1) % 3, 1) * DAY_MS,
        Unit::Year => days_from_civil(year, 1, 1) * DAY_MS,
        Unit::DayOfWeek | Unit::IsoDayOfWeek | Unit::DayOfYear | Unit::Epoch => return None,
    }))
}

/// The unit of a time as a number.
pub(super) fn extract(unit: Unit, time: Timestamp) -> Option<Decimal> {
    let day = time.0.div_euclid(DAY_MS);
    let of_day = time.0.rem_euclid(DAY_MS);
    let (year, month, of_month) = civil_from_days(day);
    let (month, of_month) = (i64::try_from(month).ok()?, i64::try_from(of_month).ok()?);
    let millis = |millis: i64| Decimal::from_parts(i128::from(millis), 3).ok();
    let whole = match unit {
        Unit::Epoch => return millis(time.0),
        Unit::Second => return millis(of_day % 60_000),
        Unit::Millisecond => of_day % 60_000,
        Unit::Minute => of_day / 60_000 % 60,
        Unit::Hour => of_day / 3_600_000,
        Unit::Day => of_month,
        Unit::Month => month,
        Unit::Quarter => (month + 2) / 3,
        Unit::Year => year,
        Unit::DayOfYear => day - days_from_civil(year, 1, 1) + 1,
        Unit::DayOfWeek => (day + 4).rem_euclid(7),
        Unit::IsoDayOfWeek => (day + 3).rem_euclid(7) + 1,
        Unit::Week => {
            // A week is the year's in which its Thursday lies.
            let thursday = day - (day + 3).rem_euclid(7) + 3;
            let (year, ..) = civil_from_days(thursday);
            (thursday - days_from_civil(year, 1, 1)) / 7 + 1
        }
    };
    Some(Decimal::from_i64(whole))
}
