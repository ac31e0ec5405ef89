//! How long the leader waited for another replica's word, as its metrics tell.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::get;

/// A histogram: how many waits were not longer than so many microseconds, and the sum of all in seconds.
#[derive(Clone, Debug)]
pub struct Waits {
    up_to: BTreeMap<u64, f64>,
    sum: f64,
}

impl Waits {
    /// Before a `tick`, or before `rows` were published, since the start of the replica that answers here.
    ///
    /// # Errors
    /// It does not answer, or knows no such waits.
    pub fn before(address: &str, what: &str) -> Result<Self> {
        let text = String::from_utf8(get(address, "/metrics")?)?;
        let (mut up_to, mut sum) = (BTreeMap::new(), None);
        for line in text
            .lines()
            .filter(|line| line.contains(&format!("of=\"{what}\"")))
        {
            let (name, value) = line.rsplit_once(' ').context("no value")?;
            let value: f64 = value.parse()?;
            if name.starts_with("unisono_confirmation_seconds_sum") {
                sum = Some(value);
            }
            let bound = name.strip_prefix("unisono_confirmation_seconds_bucket{le=\"");
            if let Some((bound, _)) = bound.and_then(|rest| rest.split_once('"')) {
                let micros = match bound {
                    "+Inf" => u64::MAX,
                    bound => (bound.parse::<f64>()? * 1e6).round() as u64,
                };
                up_to.insert(micros, value);
            }
        }
        let sum = sum.context("no unisono_confirmation_seconds among the metrics")?;
        Ok(Waits { up_to, sum })
    }

    /// Those that came later than `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (bound, count) in &mut self.up_to {
            *count -= before.up_to[bound];
        }
        self.sum -= before.sum;
        self
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.up_to.last_key_value().map_or(0.0, |(_, &count)| count)
    }

    /// Their mean in seconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum / self.count()
    }

    /// In seconds, evenly spread within a bucket; what lies beyond the last bound counts as that.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = share * self.count();
        let (mut below, mut from) = (0.0, 0);
        for (&to, &up_to) in &self.up_to {
            if up_to >= wanted && up_to > below {
                let to = if to == u64::MAX { from } else { to };
                let part = (wanted - below) / (up_to - below);
                return (from as f64 + (to - from) as f64 * part) / 1e6;
            }
            (below, from) = (up_to, if to == u64::MAX { from } else { to });
        }
        from as f64 / 1e6
    }
}
