//! How long something was waited for, counted by length.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds in microseconds; what took longer is counted beyond the last.
const BOUNDS: [u64; 14] = [
    100, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 20_000, 50_000, 100_000,
];

/// A histogram of waits.
#[derive(Debug, Default)]
pub struct Waits {
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// What a histogram holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// How many took no longer than so many seconds; the last bound is infinite.
    pub up_to: Vec<(f64, u64)>,
    /// All of them together, in seconds.
    pub seconds: f64,
}

impl Waits {
    /// Counts one.
    pub fn add(&self, wait: Duration) {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS.partition_point(|&bound| bound < micros);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        let bounds = BOUNDS.iter().map(|&micros| micros as f64 / 1e6);
        let bounds = bounds.chain([f64::INFINITY]);
        let mut sum = 0;
        let up_to = bounds.zip(&self.counts).map(|(bound, count)| {
            sum += count.load(Ordering::Relaxed);
            (bound, sum)
        });
        Counted {
            up_to: up_to.collect(),
            seconds: self.micros.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_below_every_bound_that_it_does_not_exceed() {
        let waits = Waits::default();
        for micros in [100, 101, 2_000, 200_000] {
            waits.add(Duration::from_micros(micros));
        }
        let counted = waits.counted();
        assert_eq!(counted.up_to[..2], [(0.0001, 1), (0.0002, 2)]);
        assert!(counted.up_to.contains(&(0.002, 3)));
        assert_eq!(counted.up_to.last(), Some(&(f64::INFINITY, 4)));
        assert!((counted.seconds - 0.202_201).abs() < 1e-9);
    }
}
