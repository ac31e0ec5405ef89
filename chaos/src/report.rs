//! What a drill found, as a line for programs and a text for people.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::checker::Verdict;
use crate::fault::Fault;

/// After any fault rows go on within this time.
const PROMISED: Duration = Duration::from_secs(1);

/// Times in milliseconds, by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half of them were not longer.
    pub p50: f64,
    /// All but one in a hundred were not longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Percentiles {
    /// `None` of none.
    #[must_use]
    pub fn of(times: &[Duration]) -> Option<Self> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        // Nearest rank: the smallest time such that at least that share of all is not above it.
        let rank = |percent: usize| {
            let rank = (percent * sorted.len()).div_ceil(100).max(1);
            sorted
                .get(rank - 1)
                .map(|time| (time.as_secs_f64() * 10_000.0).round() / 10.0)
        };
        Some(Self {
            p50: rank(50)?,
            p99: rank(99)?,
            max: rank(100)?,
        })
    }
}

/// The outcome of a drill.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the checker found.
    pub verdict: Verdict,
    /// How long the curve stood still after each fault of its kind: from a kill to the first row by the next leader that
    /// could be read; of a leader that lived, the longest time without a row of a new window.
    pub times: BTreeMap<Fault, Vec<Duration>>,
    /// How many orders the input has.
    pub orders: u64,
    /// Orders that were too late to count, by the checker.
    pub late: u64,
}

#[derive(Serialize)]
struct Line {
    windows: usize,
    rows: usize,
    gaps: usize,
    duplicates: usize,
    wrong: usize,
    kills: usize,
    takeover_ms: Option<Percentiles>,
    unfit: BTreeMap<&'static str, Unfit>,
    over_a_second: usize,
}

/// Leaders that lived and were unfit in one way.
#[derive(Serialize)]
struct Unfit {
    leaders: usize,
    standstill_ms: Option<Percentiles>,
}

impl Report {
    /// How often rows did not go on within a second.
    #[must_use]
    pub fn over_a_second(&self) -> usize {
        let times = self.times.values().flatten();
        times.filter(|&&time| time > PROMISED).count()
    }

    fn of(&self, fault: Fault) -> &[Duration] {
        self.times.get(&fault).map_or(&[], Vec::as_slice)
    }

    /// One JSON object without a line break.
    #[must_use]
    pub fn json_line(&self) -> String {
        let Verdict {
            windows,
            rows,
            gaps,
            duplicates,
            wrong,
            ..
        } = self.verdict;
        let lived = self
            .times
            .iter()
            .filter(|(fault, _)| **fault != Fault::Kill);
        let unfit = lived.map(|(fault, times)| {
            let (leaders, standstill_ms) = (times.len(), Percentiles::of(times));
            let of = Unfit {
                leaders,
                standstill_ms,
            };
            (fault.name(), of)
        });
        let line = Line {
            windows,
            rows,
            gaps,
            duplicates,
            wrong,
            kills: self.of(Fault::Kill).len(),
            takeover_ms: Percentiles::of(self.of(Fault::Kill)),
            unfit: unfit.collect(),
            over_a_second: self.over_a_second(),
        };
        serde_json::to_string(&line).unwrap_or_default()
    }

    /// A few lines for a person, without a final line break.
    #[must_use]
    pub fn text(&self) -> String {
        let Verdict {
            windows,
            rows,
            gaps,
            duplicates,
            wrong,
            ..
        } = self.verdict;
        let headline = if self.verdict.is_clean() {
            "unbroken"
        } else {
            "BROKEN"
        };
        let mut text = format!(
            "{headline}: {gaps} gaps, {duplicates} duplicates, {wrong} wrong\n\
             {} orders, {windows} windows, {rows} rows compared with the input",
            self.orders
        );
        for (fault, times) in &self.times {
            let (count, words) = (times.len(), fault.words());
            let after = match fault {
                Fault::Kill | Fault::Drift => "next row after",
                Fault::SlowDisk | Fault::HungDisk | Fault::Blind | Fault::WrongRecord => {
                    "no new row for"
                }
            };
            let leaders = if count == 1 { "leader" } else { "leaders" };
            if let Some(Percentiles { p50, p99, max }) = Percentiles::of(times) {
                text.push_str(&format!(
                    "\n{count} {leaders} {words}: {after} p50 {p50} ms, p99 {p99} ms, max {max} ms"
                ));
            }
        }
        let over = self.over_a_second();
        if over > 0 {
            text.push_str(&format!(
                "\nSLOW: {over} times rows did not go on within a second"
            ));
        }
        for note in &self.verdict.notes {
            text.push_str("\n  ");
            text.push_str(note);
        }
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn millis(times: &[u64]) -> Vec<Duration> {
        times
            .iter()
            .map(|&time| Duration::from_millis(time))
            .collect()
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let times: Vec<u64> = (1..=200).rev().collect();
        let expected = Percentiles {
            p50: 100.0,
            p99: 198.0,
            max: 200.0,
        };
        assert_eq!(Percentiles::of(&millis(&times)), Some(expected));
        let expected = Percentiles {
            p50: 7.0,
            p99: 9.0,
            max: 9.0,
        };
        assert_eq!(Percentiles::of(&millis(&[9, 7])), Some(expected));
        assert_eq!(Percentiles::of(&[]), None);
    }

    #[test]
    fn the_line_has_the_promised_keys_in_order() {
        let verdict = Verdict {
            windows: 2,
            rows: 3,
            ..Verdict::default()
        };
        let times = [
            (Fault::Kill, millis(&[5])),
            (Fault::Blind, millis(&[400, 1001])),
        ];
        let report = Report {
            verdict,
            times: times.into(),
            ..Report::default()
        };
        let expected = concat!(
            r#"{"windows":2,"rows":3,"gaps":0,"duplicates":0,"wrong":0,"kills":1,"#,
            r#""takeover_ms":{"p50":5.0,"p99":5.0,"max":5.0},"unfit":{"blind":{"leaders":2,"#,
            r#""standstill_ms":{"p50":400.0,"p99":1001.0,"max":1001.0}}},"over_a_second":1}"#
        );
        assert_eq!(report.json_line(), expected);
        let text = report.text();
        assert!(
            text.contains("2 leaders blind to its source: no new row for p50 400 ms"),
            "{text}"
        );
        assert!(
            text.ends_with("SLOW: 1 times rows did not go on within a second"),
            "{text}"
        );
    }
}
