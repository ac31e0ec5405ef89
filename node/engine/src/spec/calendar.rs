//! Windows that follow the calendar of a time zone.

use super::{WindowError, Zone};
use crate::timestamp::{self, civil_from_days, days_from_civil};

const DAY_MS: i64 = 86_400_000;
/// Beyond the usable times by more than the longest window: what lies further is not told apart.
const FIRST: i64 = timestamp::FIRST.0 - 800 * DAY_MS;
const LAST: i64 = timestamp::LAST.0 + 800 * DAY_MS;

/// How long a calendar window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarUnit {
    /// From midnight to midnight: 23 or 25 hours where clocks change.
    Day,
    /// From Monday.
    Week,
    /// From the first of the month.
    Month,
    /// From January, April, July and October.
    Quarter,
    /// From January.
    Year,
}

/// Calendar windows of a time zone, side by side.
///
/// A window starts at the first instant at which the zone's clocks show its first midnight (moved by
/// the offset) or a later time. Where clocks skip that midnight it starts when they do; where they
/// show it twice, at the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarWindows {
    unit: CalendarUnit,
    zone: Zone,
    offset_ms: i64,
}

impl CalendarWindows {
    /// The offset, in milliseconds, moves midnight: with six hours days go from six to six.
    ///
    /// # Errors
    /// The offset is a day or more.
    pub fn new(unit: CalendarUnit, zone: Zone, offset_ms: i64) -> Result<Self, WindowError> {
        if offset_ms <= -DAY_MS || offset_ms >= DAY_MS {
            return Err(WindowError::CalendarOffset);
        }
        Ok(Self {
            unit,
            zone,
            offset_ms,
        })
    }

    /// How long a window is.
    #[must_use]
    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// Whose calendar.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// By how much midnight is moved, in milliseconds.
    #[must_use]
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms
    }

    /// Start and end of the window that holds a time, in milliseconds since 1970. Times beyond the years 1 to 9999 are
    /// taken for the first or last that is told apart.
    #[must_use]
    pub fn bounds(&self, time: i64) -> (i64, i64) {
        let time = time.clamp(FIRST, LAST);
        let number = self.number_at(time);
        (
            self.start(number),
            self.start(number.saturating_add(1))
                .max(time.saturating_add(1)),
        )
    }

    /// The end of the window so many after the one with this end.
    pub(crate) fn end_after(&self, end: i64, windows: i64) -> i64 {
        let last = end.saturating_sub(1).clamp(FIRST, LAST);
        let number = self.number_at(last).saturating_add(windows);
        self.start(number.saturating_add(1).min(self.number_at(LAST)))
    }

    fn number_at(&self, time: i64) -> i64 {
        let local = self.zone.local(time).saturating_sub(self.offset_ms);
        let mut number = self.unit.number_of(local.div_euclid(DAY_MS));
        // Clocks that go back over a midnight show the day before once more.
        while self.start(number.saturating_add(1)) <= time {
            number = number.saturating_add(1);
        }
        number
    }

    fn start(&self, number: i64) -> i64 {
        let midnight = self.unit.first_day(number).saturating_mul(DAY_MS);
        self.zone.first_at(midnight.saturating_add(self.offset_ms))
    }
}

impl CalendarUnit {
    /// Its name, like `day`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        }
    }

    /// The number of the window that holds a day, counted in days since 1970-01-01.
    fn number_of(self, day: i64) -> i64 {
        let (year, month, _) = civil_from_days(day);
        let month = i64::try_from(month).unwrap_or(1).saturating_sub(1);
        let months = year.saturating_mul(12).saturating_add(month);
        match self {
            Self::Day => day,
            // 1970-01-01 was a Thursday.
            Self::Week => day.saturating_add(3).div_euclid(7),
            Self::Month => months,
            Self::Quarter => months.div_euclid(3),
            Self::Year => year,
        }
    }

    fn first_day(self, number: i64) -> i64 {
        let of_month = |months: i64| {
            let month = months.rem_euclid(12).saturating_add(1);
            days_from_civil(months.div_euclid(12), month, 1)
        };
        match self {
            Self::Day => number,
            Self::Week => number.saturating_mul(7).saturating_sub(3),
            Self::Month => of_month(number),
            Self::Quarter => of_month(number.saturating_mul(3)),
            Self::Year => of_month(number.saturating_mul(12)),
        }
    }
}
