//! How many rows go out at once to a sink that refused some for their size: a broker refuses a whole batch of records where it
//! is too large, and does not say whether one of them is. Pure.

use std::time::{Duration, Instant};

/// How long as many as were refused are not tried again.
const MEMORY: Duration = Duration::from_secs(60);

/// The number of rows in a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrow {
    most: usize,
    /// As many were refused, then.
    refused: Option<(usize, Instant)>,
}

impl Default for Narrow {
    fn default() -> Self {
        Self {
            most: usize::MAX,
            refused: None,
        }
    }
}

impl Narrow {
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// A transaction of several rows was refused.
    pub(super) fn refused(&mut self, rows: usize, now: Instant) {
        self.most = (rows / 2).max(1);
        self.refused = Some((rows, now));
    }

    /// One was published.
    pub(super) fn published(&mut self, now: Instant) {
        let old = |(_, at): &(usize, Instant)| now.duration_since(*at) >= MEMORY;
        if self.refused.as_ref().is_some_and(old) {
            self.refused = None;
        }
        let ceiling = self.refused.map_or(usize::MAX, |(rows, _)| rows - 1);
        self.most = self.most.saturating_mul(2).min(ceiling).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_refused_is_found_in_few_steps_and_what_fits_is_kept_to() {
        let (mut narrow, now) = (Narrow::default(), Instant::now());
        assert_eq!(narrow.most(), usize::MAX);
        let mut steps = 0;
        let mut rows = 10_000;
        while rows > 1 {
            narrow.refused(rows, now);
            rows = narrow.most().min(rows);
            steps += 1;
        }
        assert_eq!((rows, steps), (1, 13));
        // 700 at once fit: as many are not passed again soon.
        narrow.refused(800, now);
        let sizes: Vec<usize> = (0..3)
            .map(|_| {
                narrow.published(now);
                narrow.most()
            })
            .collect();
        assert_eq!(sizes, [799, 799, 799]);
        narrow.published(now + MEMORY);
        assert_eq!(narrow.most(), 1598);
        narrow.refused(2, now);
        narrow.published(now);
        assert_eq!(narrow.most(), 1);
    }
}
