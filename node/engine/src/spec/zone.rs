//! A time zone: when its clocks were and will be changed. The data is a pipeline's own, from its
//! creation on: no row depends on which database a replica has.

use crate::timestamp::{self, civil_from_days, days_from_civil};

const DAY_S: i64 = 86_400;
/// No clock is further from UTC.
const MOST_OFFSET_S: i64 = 26 * 3600;

/// A time zone.
///
/// Invariant: changes ascend within the usable times; no offset is more than 26 hours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    name: String,
    first_s: i64,
    changes: Vec<(i64, i64)>,
    rule: Option<YearRule>,
}

/// How clocks are changed each year after the last listed change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YearRule {
    /// Seconds by which clocks are ahead of UTC outside of summer time.
    pub standard_s: i64,
    /// The same in summer time.
    pub summer_s: i64,
    /// When summer time begins, on clocks that show standard time.
    pub begin: RuleDay,
    /// When it ends, on clocks that show summer time.
    pub end: RuleDay,
}

/// A day of each year and a time of that day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleDay {
    /// 1 to 12.
    pub month: i64,
    /// 1 to 5, where 5 is the last one of the month.
    pub week: i64,
    /// 0 to 6, from Sunday.
    pub weekday: i64,
    /// Seconds after midnight; may lie on another day.
    pub second: i64,
}

/// Why data makes no zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time zone's data is damaged: {0}")]
pub struct ZoneError(&'static str);

/// A span of time in which clocks are not changed.
struct Span {
    until_s: i64,
    offset_s: i64,
}

impl Zone {
    /// `first_s` is by how many seconds clocks were ahead of UTC before the first change; a change is
    /// its time, in seconds since 1970, and by how much they are ahead from then on.
    ///
    /// # Errors
    /// Changes do not ascend, or something lies beyond its bounds.
    pub fn new(
        name: String,
        first_s: i64,
        changes: Vec<(i64, i64)>,
        rule: Option<YearRule>,
    ) -> Result<Self, ZoneError> {
        let is_offset = |offset: i64| (-MOST_OFFSET_S..=MOST_OFFSET_S).contains(&offset);
        let usable = timestamp::FIRST.0.div_euclid(1000)..=timestamp::LAST.0.div_euclid(1000);
        if !is_offset(first_s) || changes.iter().any(|&(_, offset)| !is_offset(offset)) {
            return Err(ZoneError("an offset is more than 26 hours"));
        }
        if changes.iter().any(|(time, _)| !usable.contains(time)) {
            return Err(ZoneError("a change lies beyond the years 1 to 9999"));
        }
        if !changes.is_sorted_by(|one, next| one.0 < next.0) {
            return Err(ZoneError("changes do not ascend"));
        }
        let is_sound = |rule: &YearRule| {
            let offsets = [rule.standard_s, rule.summer_s];
            offsets.into_iter().all(is_offset) && rule.begin.is_sound() && rule.end.is_sound()
        };
        if !rule.as_ref().is_none_or(is_sound) {
            return Err(ZoneError("its yearly rule lies beyond its bounds"));
        }
        Ok(Self {
            name,
            first_s,
            changes,
            rule,
        })
    }

    /// Without any change of clocks, and equal to UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self {
            name: "UTC".to_owned(),
            first_s: 0,
            changes: Vec::new(),
            rule: None,
        }
    }

    /// Its name, like `Asia/Taipei`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// By how many seconds clocks were ahead of UTC before the first change.
    #[must_use]
    pub fn first_s(&self) -> i64 {
        self.first_s
    }

    /// The changes: time, and by how much clocks are ahead from then on.
    #[must_use]
    pub fn changes(&self) -> &[(i64, i64)] {
        &self.changes
    }

    /// What happens after them each year.
    #[must_use]
    pub fn rule(&self) -> Option<YearRule> {
        self.rule
    }

    /// What clocks show at a time, in milliseconds, as if they stood in UTC.
    pub(crate) fn local(&self, time: i64) -> i64 {
        let offset = self.span(time.div_euclid(1000)).offset_s;
        time.saturating_add(offset.saturating_mul(1000))
    }

    /// The first instant at which clocks show `local`, or a later time, both in milliseconds.
    pub(crate) fn first_at(&self, local: i64) -> i64 {
        let (local_s, rest) = (local.div_euclid(1000), local.rem_euclid(1000));
        let mut from = local_s.saturating_sub(MOST_OFFSET_S);
        loop {
            let span = self.span(from);
            let wanted = local_s.saturating_sub(span.offset_s);
            if wanted < span.until_s {
                // Clocks that skip it show a later time, without a fraction.
                let rest = if wanted < from { 0 } else { rest };
                return wanted.max(from).saturating_mul(1000).saturating_add(rest);
            }
            from = span.until_s;
        }
    }

    /// The span that holds a time.
    fn span(&self, time_s: i64) -> Span {
        let after = self
            .changes
            .partition_point(|(change, _)| *change <= time_s);
        let before = after.checked_sub(1).and_then(|at| self.changes.get(at));
        let listed = before.map_or(self.first_s, |&(_, offset)| offset);
        let (Some(rule), None) = (self.rule, self.changes.get(after)) else {
            return Span {
                until_s: self.changes.get(after).map_or(i64::MAX, |change| change.0),
                offset_s: listed,
            };
        };
        let last = before.map_or(i64::MIN, |change| change.0);
        let mut span = Span {
            until_s: i64::MAX,
            offset_s: listed,
        };
        let (year, ..) = civil_from_days(time_s.div_euclid(DAY_S));
        let changes = |step: i64| rule.changes_of(year.saturating_add(step));
        let ([a, b], [c, d], [e, f]) = (changes(-1), changes(0), changes(1));
        let mut yearly = [a, b, c, d, e, f];
        yearly.sort_unstable();
        for (change, offset) in yearly.into_iter().filter(|&(change, _)| change > last) {
            if change > time_s {
                span.until_s = change;
                break;
            }
            span.offset_s = offset;
        }
        span
    }
}

impl YearRule {
    fn changes_of(&self, year: i64) -> [(i64, i64); 2] {
        let begin = self.begin.second_of(year).saturating_sub(self.standard_s);
        let end = self.end.second_of(year).saturating_sub(self.summer_s);
        [(begin, self.summer_s), (end, self.standard_s)]
    }
}

impl RuleDay {
    fn is_sound(&self) -> bool {
        (1..=12).contains(&self.month)
            && (1..=5).contains(&self.week)
            && (0..=6).contains(&self.weekday)
            && self.second.saturating_abs() <= 7 * DAY_S
    }

    /// In seconds since 1970, on the clocks that it is said for.
    fn second_of(&self, year: i64) -> i64 {
        let first = days_from_civil(year, self.month, 1);
        let next = match self.month {
            12 => days_from_civil(year.saturating_add(1), 1, 1),
            month => days_from_civil(year, month.saturating_add(1), 1),
        };
        // 1970-01-01 was a Thursday.
        let weekday = first.saturating_add(4).rem_euclid(7);
        let to_first = self.weekday.saturating_sub(weekday).rem_euclid(7);
        let weeks = self.week.saturating_sub(1).saturating_mul(7);
        let mut day = first.saturating_add(to_first).saturating_add(weeks);
        if day >= next {
            day = day.saturating_sub(7);
        }
        day.saturating_mul(DAY_S).saturating_add(self.second)
    }
}
