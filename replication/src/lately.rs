//! The largest of some durations, forgotten by halves: pure; the caller brings the clock.

use std::time::{Duration, Instant};

/// What is remembered is halved in so many seconds.
const HALF_LIFE_S: f64 = 10.0;

/// The largest duration of late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lately {
    most: Duration,
    at: Option<Instant>,
}

impl Lately {
    /// Another one was seen.
    pub fn see(&mut self, duration: Duration, now: Instant) {
        let since = self.at.map(|at| now.saturating_duration_since(at));
        let kept = 0.5_f64.powf(since.unwrap_or_default().as_secs_f64() / HALF_LIFE_S);
        self.most = self.most.mul_f64(kept).max(duration);
        self.at = Some(now);
    }

    /// The largest, as far as it is remembered.
    #[must_use]
    pub fn most(&self) -> Duration {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_counts_and_is_forgotten_by_halves() {
        let (mut lately, start) = (Lately::default(), Instant::now());
        let ms = Duration::from_millis;
        lately.see(ms(40), start);
        lately.see(ms(10), start);
        assert_eq!(lately.most(), ms(40));
        lately.see(ms(10), start + Duration::from_secs(10));
        assert_eq!(lately.most(), ms(20));
        lately.see(ms(15), start + Duration::from_secs(20));
        assert_eq!(lately.most(), ms(15));
    }
}
