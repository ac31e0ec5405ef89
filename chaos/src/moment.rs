//! Points in time as rows write them, and the one clock of a drill.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 of `2018-03-24T17:15:00Z` or `2018-03-24T17:15:00.250Z`; `None` for any other text.
#[must_use]
pub fn parse_utc(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = three(date, '-')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "000"));
    let [hour, minute, second] = three(time, ':')?;
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 59 || fraction.len() != 3 {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(seconds * 1_000 + number(fraction)?)
}

fn number(text: &str) -> Option<i64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

fn three(text: &str, separator: char) -> Option<[i64; 3]> {
    let parts: Option<Vec<i64>> = text.split(separator).map(number).collect();
    parts?.try_into().ok()
}

/// The Gregorian calendar, with the year beginning in March so that the leap day is its last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days_before_month = (153 * month + 2) / 5;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + days_before_month + day - 1 - 719_468
}

/// The wall clock at the start of a drill, carried on by the monotonic one: the generator stamps its orders with it and
/// take-overs are judged by it, so a step of the host's clock cannot make an order late or a take-over short.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_ms: i64,
}

impl Clock {
    /// Starts at the wall clock's time.
    #[must_use]
    pub fn start() -> Self {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let started_ms = i64::try_from(since_1970.as_millis()).unwrap_or(0);
        Self {
            started: Instant::now(),
            started_ms,
        }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.ms_at(Instant::now())
    }

    /// The same at another moment since the start.
    #[must_use]
    pub fn ms_at(&self, at: Instant) -> i64 {
        let elapsed = at.saturating_duration_since(self.started).as_millis();
        let elapsed = i64::try_from(elapsed).unwrap_or(0);
        self.started_ms + elapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_to_the_millisecond() {
        assert_eq!(parse_utc("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse_utc("2018-03-24T17:15:00Z"), Some(1_521_911_700_000));
        assert_eq!(
            parse_utc("2024-02-29T23:59:59.250Z"),
            Some(1_709_251_199_250)
        );
        assert_eq!(parse_utc("1969-12-31T23:59:59.999Z"), Some(-1));
    }

    #[test]
    fn another_way_of_writing_a_time_is_refused() {
        for text in [
            "2018-03-24 17:15:00Z",
            "2018-03-24T17:15:00",
            "2018-03-24T17:15Z",
            "now",
        ] {
            assert_eq!(parse_utc(text), None, "{text}");
        }
        assert_eq!(parse_utc("2018-03-24T17:15:00.25Z"), None);
        assert_eq!(parse_utc("2018-13-24T17:15:00Z"), None);
    }
}
