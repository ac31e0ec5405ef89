//! How long a source's answers take.

use std::collections::VecDeque;
use std::time::Duration;

/// So many answers are remembered.
const REMEMBERED: usize = 50;

/// The last answers.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The newest last.
    took: VecDeque<Duration>,
    slowest: Duration,
}

impl Answers {
    /// One more. One that is slower than all others came when an outage was over: it says nothing of how slow the source is.
    pub fn note(&mut self, took: Duration) {
        self.took.push_back(took);
        if self.took.len() > REMEMBERED {
            self.took.pop_front();
        }
        let mut most = [Duration::ZERO; 2];
        for &took in &self.took {
            if took > most[0] {
                most = [took, most[0]];
            } else {
                most[1] = most[1].max(took);
            }
        }
        self.slowest = most[1];
    }

    /// How long the slowest of them took, but for one.
    #[must_use]
    pub fn slowest(&self) -> Duration {
        self.slowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_as_slow_as_its_answers_but_for_one_that_came_after_an_outage() {
        let ms = Duration::from_millis;
        let mut answers = Answers::default();
        let mut slowest = |took: u64| {
            answers.note(ms(took));
            answers.slowest()
        };
        assert_eq!(slowest(3), ms(0));
        assert_eq!(slowest(5), ms(3));
        assert_eq!(slowest(900), ms(5));
        assert_eq!(slowest(200), ms(200));
        for _ in 0..REMEMBERED {
            slowest(2);
        }
        assert_eq!(slowest(2), ms(2));
    }
}
