//! Numbers that any thread changes and `/metrics` reads. A handle is looked up once; changing it takes no lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use unisono_api::{Metric, MetricKind};

/// A number that only grows. Cheap to clone; the clones are one counter.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count since the process's start.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down. Cheap to clone; the clones are one gauge.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// The value last set; 0 before.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

type Labels = Vec<(String, String)>;

#[derive(Debug)]
enum Value {
    Counter(Counter),
    Gauge(Gauge),
}

#[derive(Debug)]
struct Entry {
    help: String,
    value: Value,
}

/// All numbers of the process, by name and labels. Cheap to clone; the clones are one registry.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    entries: Arc<Mutex<BTreeMap<(String, Labels), Entry>>>,
}

impl Metrics {
    /// The counter of that name and those labels. A name that is a gauge already gives a counter that nobody sees.
    #[must_use]
    pub fn counter(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Counter {
        self.find(name, help, labels, |entry| match entry {
            Some(Value::Gauge(_)) => (Counter::default(), None),
            Some(Value::Counter(counter)) => (counter.clone(), None),
            None => {
                let counter = Counter::default();
                (counter.clone(), Some(Value::Counter(counter)))
            }
        })
    }

    /// The gauge of that name and those labels. A name that is a counter already gives a gauge that nobody sees.
    #[must_use]
    pub fn gauge(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Gauge {
        self.find(name, help, labels, |entry| match entry {
            Some(Value::Counter(_)) => (Gauge::default(), None),
            Some(Value::Gauge(gauge)) => (gauge.clone(), None),
            None => {
                let gauge = Gauge::default();
                (gauge.clone(), Some(Value::Gauge(gauge)))
            }
        })
    }

    fn find<T>(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        handle: impl FnOnce(Option<&Value>) -> (T, Option<Value>),
    ) -> T {
        let labels: Labels = labels
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        let key = (name.to_owned(), labels);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, new) = handle(entries.get(&key).map(|entry| &entry.value));
        if let Some(value) = new {
            entries.insert(
                key,
                Entry {
                    help: help.to_owned(),
                    value,
                },
            );
        }
        found
    }

    /// All values, by name and labels.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Metric> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let metric = |((name, labels), entry): (&(String, Labels), &Entry)| {
            let (kind, value) = match &entry.value {
                // Exact up to 2^53, as all numbers of the text format.
                Value::Counter(counter) => (MetricKind::Counter, counter.get() as f64),
                Value::Gauge(gauge) => (MetricKind::Gauge, gauge.get()),
            };
            let (name, help) = (name.clone(), entry.help.clone());
            Metric {
                name,
                help,
                kind,
                labels: labels.clone(),
                value,
            }
        };
        entries.iter().map(metric).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_one_name_and_labels_are_one_number() {
        let metrics = Metrics::default();
        metrics
            .counter("rows_total", "rows", &[("pipeline", "a")])
            .add(2);
        metrics
            .clone()
            .counter("rows_total", "rows", &[("pipeline", "a")])
            .add(3);
        metrics
            .counter("rows_total", "rows", &[("pipeline", "b")])
            .add(1);
        metrics.gauge("lag", "lag", &[]).set(-1.5);
        let values: Vec<_> = metrics
            .snapshot()
            .into_iter()
            .map(|metric| (metric.name, metric.value))
            .collect();
        let expected = [("lag", -1.5), ("rows_total", 5.0), ("rows_total", 1.0)];
        assert_eq!(
            values,
            expected.map(|(name, value)| (name.to_owned(), value))
        );
    }
}
