//! Windows in a canonical text. What older programs know is written as they know it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use unisono_engine::spec::{CalendarUnit, CalendarWindows, RuleDay, WindowSpec, YearRule, Zone};

use super::{code_of, value_of};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Window {
    Fixed(Fixed),
    Calendar(Calendar),
    Sessions(Sessions),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sessions {
    session_ms: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fixed {
    size_ms: i64,
    slide_ms: i64,
    offset_ms: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Calendar {
    calendar: String,
    offset_ms: i64,
    zone: ZoneData,
}

/// A zone with its data: the proposer's, whichever database others have.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ZoneData {
    name: String,
    first_s: i64,
    changes: Vec<(i64, i64)>,
    rule: Option<Rule>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    standard_s: i64,
    summer_s: i64,
    /// Month, week, weekday, second.
    begin: [i64; 4],
    end: [i64; 4],
}

const UNITS: [(&str, CalendarUnit); 5] = [
    ("day", CalendarUnit::Day),
    ("week", CalendarUnit::Week),
    ("month", CalendarUnit::Month),
    ("quarter", CalendarUnit::Quarter),
    ("year", CalendarUnit::Year),
];

impl Window {
    pub(super) fn of(window: &WindowSpec) -> Self {
        match window {
            WindowSpec::Fixed(fixed) => Self::Fixed(Fixed {
                size_ms: fixed.size_ms(),
                slide_ms: fixed.slide_ms(),
                offset_ms: fixed.offset_ms(),
            }),
            WindowSpec::Calendar(calendar) => Self::Calendar(Calendar {
                calendar: code_of(&UNITS, &calendar.unit()),
                offset_ms: calendar.offset_ms(),
                zone: ZoneData::of(calendar.zone()),
            }),
            WindowSpec::Sessions(sessions) => Self::Sessions(Sessions {
                session_ms: sessions.gap_ms(),
            }),
        }
    }

    pub(super) fn read(&self) -> Result<WindowSpec, String> {
        match self {
            Self::Fixed(fixed) => WindowSpec::new(fixed.size_ms, fixed.slide_ms, fixed.offset_ms)
                .map_err(|error| error.to_string()),
            Self::Calendar(calendar) => {
                let unit = value_of(&UNITS, &calendar.calendar)?;
                let windows = CalendarWindows::new(unit, calendar.zone.read()?, calendar.offset_ms);
                let windows = windows.map_err(|error| error.to_string())?;
                Ok(WindowSpec::Calendar(Arc::new(windows)))
            }
            Self::Sessions(sessions) => {
                WindowSpec::sessions(sessions.session_ms).map_err(|error| error.to_string())
            }
        }
    }
}

impl ZoneData {
    pub(super) fn of(zone: &Zone) -> Self {
        let day = |day: RuleDay| [day.month, day.week, day.weekday, day.second];
        Self {
            name: zone.name().to_owned(),
            first_s: zone.first_s(),
            changes: zone.changes().to_vec(),
            rule: zone.rule().map(|rule| Rule {
                standard_s: rule.standard_s,
                summer_s: rule.summer_s,
                begin: day(rule.begin),
                end: day(rule.end),
            }),
        }
    }

    pub(super) fn read(&self) -> Result<Zone, String> {
        let day = |[month, week, weekday, second]: [i64; 4]| RuleDay {
            month,
            week,
            weekday,
            second,
        };
        let rule = self.rule.as_ref().map(|rule| YearRule {
            standard_s: rule.standard_s,
            summer_s: rule.summer_s,
            begin: day(rule.begin),
            end: day(rule.end),
        });
        let zone = Zone::new(self.name.clone(), self.first_s, self.changes.clone(), rule);
        zone.map_err(|error| error.to_string())
    }
}
