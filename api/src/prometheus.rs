//! Metrics in Prometheus' text format, version 0.0.4.

use std::fmt::Write;

/// The content type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric's value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from 0 at the process's start. Its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How many are up to each bound, how many there are, and their sum: `_bucket`, `_count` and `_sum`.
    Histogram,
}

/// One value of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name: letters, digits, `_` and `:`.
    pub name: String,
    /// What it counts, and the unit; the first of a name is shown.
    pub help: String,
    /// What the value means; the first of a name is shown.
    pub kind: MetricKind,
    /// Names and values that tell this one from others of the name.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: f64,
}

impl Metric {
    /// A counter without labels.
    #[must_use]
    pub fn counter(name: &str, help: &str, value: f64) -> Self {
        Self::new(MetricKind::Counter, name, help, value)
    }

    /// A gauge without labels.
    #[must_use]
    pub fn gauge(name: &str, help: &str, value: f64) -> Self {
        Self::new(MetricKind::Gauge, name, help, value)
    }

    /// A histogram: how many are not above each bound, which ends with infinity, and the sum of all.
    #[must_use]
    pub fn histogram(name: &str, help: &str, up_to: &[(f64, u64)], sum: f64) -> Vec<Self> {
        let part = |suffix: &str, value| {
            Self::new(
                MetricKind::Histogram,
                &format!("{name}{suffix}"),
                help,
                value,
            )
        };
        let count = up_to.last().map_or(0, |&(_, count)| count);
        let bounds = up_to.iter();
        let buckets =
            bounds.map(|&(bound, count)| part("_bucket", count as f64).label("le", number(bound)));
        buckets
            .chain([part("_sum", sum), part("_count", count as f64)])
            .collect()
    }

    /// The name that its help and kind are shown under.
    fn family(&self) -> &str {
        let suffixes = ["_bucket", "_sum", "_count"];
        let base = suffixes
            .iter()
            .find_map(|suffix| self.name.strip_suffix(suffix));
        match self.kind {
            MetricKind::Histogram => base.unwrap_or(&self.name),
            MetricKind::Counter | MetricKind::Gauge => &self.name,
        }
    }

    fn new(kind: MetricKind, name: &str, help: &str, value: f64) -> Self {
        Self {
            name: name.to_owned(),
            help: help.to_owned(),
            kind,
            labels: Vec::new(),
            value,
        }
    }

    /// The same with one more label.
    #[must_use]
    pub fn label(mut self, name: &str, value: impl ToString) -> Self {
        self.labels.push((name.to_owned(), value.to_string()));
        self
    }
}

/// Renders `metrics`; those of one name together, as the format asks, at the place of the first.
#[must_use]
pub fn render(metrics: &[Metric]) -> String {
    let mut names: Vec<(String, Vec<&Metric>)> = Vec::new();
    for metric in metrics {
        let name = plain_name(metric.family(), true);
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, group)) => group.push(metric),
            None => names.push((name, vec![metric])),
        }
    }
    let mut text = String::new();
    for (name, group) in &names {
        let Some(first) = group.first() else { continue };
        let kind = match first.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let help = first.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a text cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for metric in group {
            let _ = writeln!(
                text,
                "{}{} {}",
                plain_name(&metric.name, true),
                labels(&metric.labels),
                number(metric.value)
            );
        }
    }
    text
}

fn labels(labels: &[(String, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escape = |value: &str| {
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    let pairs = labels
        .iter()
        .map(|(name, value)| format!("{}=\"{}\"", plain_name(name, false), escape(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 {
            "+Inf".to_owned()
        } else {
            "-Inf".to_owned()
        }
    } else {
        value.to_string()
    }
}

// One name with a dash would make a scraper refuse the whole answer.
fn plain_name(name: &str, colon_allowed: bool) -> String {
    let plain = |(at, c): (usize, char)| {
        let fits = c.is_ascii_alphabetic()
            || c == '_'
            || (c == ':' && colon_allowed)
            || (c.is_ascii_digit() && at > 0);
        if fits { c } else { '_' }
    };
    name.chars().enumerate().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_a_name_stand_together_under_one_help_and_type() {
        let text = render(&[
            Metric::counter("unisono_rows_total", "rows \\ a\nb", 3.0).label("pipeline", "a\"\\\n"),
            Metric::gauge("unisono_lag-records", "lag", f64::INFINITY),
            Metric::counter("unisono_rows_total", "other", 1e18).label("pipe-line", "b"),
        ]);
        let expected = "# HELP unisono_rows_total rows \\\\ a\\nb\n\
                        # TYPE unisono_rows_total counter\n\
                        unisono_rows_total{pipeline=\"a\\\"\\\\\\n\"} 3\n\
                        unisono_rows_total{pipe_line=\"b\"} 1000000000000000000\n\
                        # HELP unisono_lag_records lag\n\
                        # TYPE unisono_lag_records gauge\n\
                        unisono_lag_records +Inf\n";
        assert_eq!(text, expected);
    }
    #[test]
    fn a_histogram_is_one_name_with_buckets_sum_and_count() {
        let waits = Metric::histogram("wait_seconds", "w", &[(0.5, 2), (f64::INFINITY, 3)], 4.25);
        let waits: Vec<Metric> = waits
            .into_iter()
            .map(|wait| wait.label("of", "a"))
            .collect();
        let expected = "# HELP wait_seconds w\n\
                        # TYPE wait_seconds histogram\n\
                        wait_seconds_bucket{le=\"0.5\",of=\"a\"} 2\n\
                        wait_seconds_bucket{le=\"+Inf\",of=\"a\"} 3\n\
                        wait_seconds_sum{of=\"a\"} 4.25\n\
                        wait_seconds_count{of=\"a\"} 3\n";
        assert_eq!(render(&waits), expected);
    }
}
