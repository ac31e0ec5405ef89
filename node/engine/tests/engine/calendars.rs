//! Windows that follow the calendar of a time zone.

use std::sync::Arc;

use unisono_engine::spec::{
    CalendarUnit, CalendarWindows, PipelineSpec, RuleDay, WindowSpec, YearRule, Zone,
};

use crate::timeline::{Player, plain};

/// One hour ahead of UTC, two from the last Sunday of March to that of October.
pub fn berlin() -> Zone {
    let last_sunday = |month, second| RuleDay {
        month,
        week: 5,
        weekday: 0,
        second,
    };
    let rule = YearRule {
        standard_s: 3600,
        summer_s: 7200,
        begin: last_sunday(3, 7200),
        end: last_sunday(10, 10_800),
    };
    Zone::new("Europe/Berlin".into(), 3600, Vec::new(), Some(rule)).unwrap()
}

pub fn calendar(spec: PipelineSpec, unit: CalendarUnit, zone: Zone) -> PipelineSpec {
    let windows = CalendarWindows::new(unit, zone, 0).unwrap();
    PipelineSpec {
        window: WindowSpec::Calendar(Arc::new(windows)),
        ..spec
    }
}

/// What the timeline gives; times are seconds since 1970.
#[track_caller]
fn check(spec: &PipelineSpec, timeline: &str, expected: &str) {
    let mut player = Player::new(spec.clone(), &["p0"]);
    player.play(timeline);
    assert_eq!(player.results(), expected);
}

#[test]
fn a_day_has_23_or_25_hours_when_clocks_change() {
    let spec = calendar(plain(), CalendarUnit::Day, berlin());
    // 2024-03-30T23:00Z to 2024-03-31T22:00Z; the first record is of the last second before.
    check(
        &spec,
        "p0@1711839599=1 p0@1711839600=2 p0@1711922399=3 p0@1711922400=4 tick finish",
        "[1711753200,1711839600) n=1 sum=1; [1711839600,1711922400) n=2 sum=5; \
         [1711922400,1712008800) n=1 sum=4",
    );
    // 2024-10-26T22:00Z to 2024-10-27T23:00Z.
    check(
        &spec,
        "p0@1729980000=1 p0@1730069999=2 p0@1730070000=3 tick finish",
        "[1729980000,1730070000) n=2 sum=3; [1730070000,1730156400) n=1 sum=3",
    );
}

#[test]
fn weeks_begin_on_monday_and_longer_windows_on_their_first_day() {
    // 2024-02-29T12:00Z, a Thursday of a leap year; 2024-07-01T00:00Z, a Monday.
    for (unit, expected) in [
        (
            CalendarUnit::Week,
            "[1708902000,1709506800) n=1 sum=1; [1719784800,1720389600) n=1 sum=2",
        ),
        (
            CalendarUnit::Month,
            "[1706742000,1709247600) n=1 sum=1; [1719784800,1722463200) n=1 sum=2",
        ),
        (
            CalendarUnit::Quarter,
            "[1704063600,1711922400) n=1 sum=1; [1719784800,1727733600) n=1 sum=2",
        ),
    ] {
        let spec = calendar(crate::timeline::grouped(), unit, berlin());
        let rows = expected.replace(") n", ") null n");
        check(&spec, "p0@1709208000=1 p0@1719792000=2 tick finish", &rows);
    }
    let spec = calendar(plain(), CalendarUnit::Year, berlin());
    check(
        &spec,
        "p0@1709208000=1 p0@1719792000=2 tick finish",
        "[1704063600,1735686000) n=2 sum=3",
    );
}

#[test]
fn a_day_without_records_gives_a_row_too_and_a_late_record_is_a_dead_letter() {
    let spec = calendar(plain(), CalendarUnit::Day, berlin());
    check(
        &spec,
        "p0@1711839600=2 p0@1712008800=3 p0@1711922399=9 p0@1712095200=1 tick",
        "[1711839600,1711922400) n=1 sum=2; [1711922400,1712008800) n=0 sum=null; \
         [1712008800,1712095200) n=1 sum=3; !late p0#2",
    );
}

#[test]
fn the_far_ends_of_time_and_broken_watermarks_are_no_overflow() {
    for unit in [CalendarUnit::Day, CalendarUnit::Year] {
        let spec = calendar(plain(), unit, berlin());
        let mut player = Player::new(spec, &["p0"]);
        player.play("p0@-62135596800=1 p0@253402300799=2 tick finish");
        let first = player.results();
        assert!(first.contains("n=1 sum=1; ") && first.ends_with("n=1 sum=2"));
    }
}
