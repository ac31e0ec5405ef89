//! A pipeline's windows.

use std::sync::Arc;

use unisono_engine::spec::{CalendarUnit, CalendarWindows, WindowSpec};

use crate::config::section::Section;
use crate::definition::zone_named;

pub(super) fn read_window(section: &mut Section<'_>) -> Option<WindowSpec> {
    section.require("window", "window = { size = \"1m\" }");
    let table = section.table("window")?;
    let mut window = section.section("window", table);
    if window.has("session") {
        let spec = read_sessions(&mut window);
        window.finish();
        return spec;
    }
    window.require("size", "size = \"1m\"");
    let size = window.peek_string("size");
    let spec = match size.as_deref().and_then(calendar_unit) {
        Some(unit) if window.has("time_zone") => read_calendar(&mut window, unit),
        Some(unit) if !is_duration(unit) => {
            window.string("size");
            window.problem(
                "size",
                "follows a calendar: add its time_zone, as time_zone = \"UTC\"",
            );
            None
        }
        _ if window.has("time_zone") => {
            window.string("time_zone");
            window.string("size");
            window.problem(
                "size",
                "must be 1 day, 1 week, 1 month, 1 quarter or 1 year where there is a time_zone",
            );
            None
        }
        _ => read_fixed(&mut window),
    };
    // Never there: known to whoever misspells it.
    window.string("session");
    window.finish();
    spec
}

fn read_sessions(window: &mut Section<'_>) -> Option<WindowSpec> {
    let gap = window.duration_ms("session");
    let mut is_alone = true;
    for key in ["size", "slide", "offset", "time_zone"] {
        if window.take(key).is_some() {
            is_alone = false;
            window.problem(
                key,
                "goes without session: sessions begin and end with their records; remove one of the two",
            );
        }
    }
    match WindowSpec::sessions(gap?) {
        Ok(spec) => Some(spec).filter(|_| is_alone),
        Err(error) => {
            window.problem("", error.to_string());
            None
        }
    }
}

fn calendar_unit(text: &str) -> Option<CalendarUnit> {
    let unit = text.trim().strip_prefix('1').unwrap_or(text).trim();
    Some(match unit {
        "d" | "day" => CalendarUnit::Day,
        "w" | "week" => CalendarUnit::Week,
        "month" => CalendarUnit::Month,
        "quarter" => CalendarUnit::Quarter,
        "year" => CalendarUnit::Year,
        _ => return None,
    })
}

/// Whether it is also of one length, without a calendar.
fn is_duration(unit: CalendarUnit) -> bool {
    matches!(unit, CalendarUnit::Day | CalendarUnit::Week)
}

fn read_calendar(window: &mut Section<'_>, unit: CalendarUnit) -> Option<WindowSpec> {
    window.string("size");
    let zone = window.parsed("time_zone", zone_named);
    let offset = window.duration_ms("offset").unwrap_or(0);
    if window.has("slide") {
        window.string("slide");
        window.problem(
            "slide",
            "goes without time_zone: calendar windows do not overlap; remove one of the two",
        );
    }
    match CalendarWindows::new(unit, zone?, offset) {
        Ok(windows) => Some(WindowSpec::Calendar(Arc::new(windows))),
        Err(error) => {
            window.problem("", error.to_string());
            None
        }
    }
}

fn read_fixed(window: &mut Section<'_>) -> Option<WindowSpec> {
    let size = window.duration_ms("size");
    let has_slide = window.has("slide");
    let slide = window.duration_ms("slide");
    let offset = window.duration_ms("offset").unwrap_or(0);
    let (size, slide) = match (size, slide) {
        (Some(size), None) if !has_slide => (size, size),
        (Some(size), Some(slide)) => (size, slide),
        _ => return None,
    };
    match WindowSpec::new(size, slide, offset) {
        Ok(spec) => Some(spec),
        Err(error) => {
            window.problem("", error.to_string());
            None
        }
    }
}
