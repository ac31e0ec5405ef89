//! Whether a silent source is silent for this node alone: pure; the caller brings the clock and what others say.

use std::time::{Duration, Instant};

/// Quiet lanes are asked for ten times a second; what was not heard of for longer is silent.
const DOUBTED: Duration = Duration::from_millis(150);
/// Between two replicas of which both are well, the last word of a source can differ by two questions.
const APART: Duration = Duration::from_millis(250);
/// Where answers take their time, so many times as long as the slowest of late.
const PATIENCE: u32 = 3;

/// A source was not heard of for longer than is usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    since: Instant,
    /// How much later others must have heard of it.
    apart: Duration,
}

impl Silence {
    /// The silence of a source that was not heard of for `age`, and whose slowest answer of late took so long; `None`: that
    /// happens.
    #[must_use]
    pub fn of(age: Duration, slowest: Duration, now: Instant) -> Option<Self> {
        let since = now.checked_sub(age).filter(|_| age >= DOUBTED)?;
        Some(Self {
            since,
            apart: APART.max(slowest * PATIENCE),
        })
    }

    /// Whether one who was asked then, and had not heard of the source for so long, had heard of it so much later that the
    /// source is well. When its answer was made is not known: no earlier than it was asked.
    #[must_use]
    pub fn is_confirmed(&self, asked: Instant, unheard: Duration) -> bool {
        let heard = asked.checked_sub(unheard);
        heard.is_some_and(|heard| heard.saturating_duration_since(self.since) >= self.apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn confirmed(age: u64, slowest: u64, theirs: u64) -> Option<bool> {
        let now = Instant::now() + Duration::from_secs(60);
        let silence = Silence::of(ms(age), ms(slowest), now)?;
        Some(silence.is_confirmed(now, ms(theirs)))
    }

    #[test]
    fn what_was_heard_of_lately_is_no_doubt() {
        assert_eq!(confirmed(149, 1, 0), None);
        assert_eq!(confirmed(150, 1, 0), Some(false));
    }

    #[test]
    fn a_source_that_is_silent_for_everybody_confirms_no_doubt_however_long_it_lasts() {
        for age in [150, 250, 600, 5_000] {
            for apart in [0, 100, 200] {
                assert_eq!(
                    confirmed(age, 5, age - apart.min(age)),
                    Some(false),
                    "{age}"
                );
            }
        }
    }

    #[test]
    fn a_source_that_another_one_heard_of_meanwhile_confirms_it() {
        assert_eq!(confirmed(250, 5, 0), Some(true));
        assert_eq!(confirmed(300, 5, 50), Some(true));
        assert_eq!(confirmed(300, 5, 51), Some(false));
    }

    #[test]
    fn a_source_whose_answers_take_long_is_given_three_of_them() {
        assert_eq!(confirmed(599, 200, 0), Some(false));
        assert_eq!(confirmed(600, 200, 0), Some(true));
    }
}
