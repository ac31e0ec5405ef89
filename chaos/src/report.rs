//! What a drill found, as a line for programs and a text for people.

use std::time::Duration;

use serde::Serialize;

use crate::checker::Verdict;

/// Take-over times in milliseconds, by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half of the take-overs were not slower.
    pub p50: f64,
    /// All but one in a hundred were not slower.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

impl Percentiles {
    /// `None` where there was no take-over.
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
    /// How often a leader was killed.
    pub kills: usize,
    /// From each kill to the first row by the next leader that could be read.
    pub takeovers: Vec<Duration>,
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
}

impl Report {
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
        let takeover_ms = Percentiles::of(&self.takeovers);
        let line = Line {
            windows,
            rows,
            gaps,
            duplicates,
            wrong,
            kills: self.kills,
            takeover_ms,
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
             {} orders, {windows} windows, {rows} rows compared with the input\n\
             {} leaders killed",
            self.orders, self.kills
        );
        if let Some(Percentiles { p50, p99, max }) = Percentiles::of(&self.takeovers) {
            text.push_str(&format!(
                ", next row after p50 {p50} ms, p99 {p99} ms, max {max} ms"
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
        let takeovers = millis(&[5]);
        let report = Report {
            verdict,
            kills: 1,
            takeovers,
            ..Report::default()
        };
        let expected = r#"{"windows":2,"rows":3,"gaps":0,"duplicates":0,"wrong":0,"kills":1,"takeover_ms":{"p50":5.0,"p99":5.0,"max":5.0}}"#;
        assert_eq!(report.json_line(), expected);
    }
}
