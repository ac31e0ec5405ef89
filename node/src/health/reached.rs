//! Whether a process has read the agreed log as far as it went when it joined in.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A goal that is set once, when it is known, and stays reached.
#[derive(Debug, Default)]
pub struct Reached {
    /// One more than the goal; 0: unknown.
    goal: AtomicU64,
    reached: AtomicBool,
}

impl Reached {
    /// Whether it is reached, now or before. `goal` tells it as soon as it is known, `stands` how far the process has come.
    pub fn is_reached(
        &self,
        goal: impl FnOnce() -> Option<u64>,
        stands: impl FnOnce() -> u64,
    ) -> bool {
        if self.reached.load(Ordering::Relaxed) {
            return true;
        }
        let known = self.goal.load(Ordering::Relaxed).checked_sub(1);
        let Some(goal) = known.or_else(goal) else {
            return false;
        };
        self.goal.store(goal.saturating_add(1), Ordering::Relaxed);
        let reached = stands() >= goal;
        self.reached.fetch_or(reached, Ordering::Relaxed);
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_goal_that_is_known_counts_and_once_reached_it_stays_so() {
        let reached = Reached::default();
        assert!(!reached.is_reached(|| None, || 1000), "nobody knows it yet");
        assert!(!reached.is_reached(|| Some(50), || 49));
        assert!(!reached.is_reached(|| Some(1), || 49), "it is not lowered");
        assert!(reached.is_reached(|| Some(900), || 50), "nor raised");
        assert!(reached.is_reached(|| None, || 0));
        assert!(Reached::default().is_reached(|| Some(0), || 0));
    }
}
