//! The barrier at the end of a tick: all lanes whose cut moves must have taken in their records before anything closes.
//!
//! A state machine without threads; [`super::gate`] puts a lock and a wake-up around it.

use std::collections::BTreeSet;

use crate::ingest::TakeError;

/// Which lanes of the present tick are not there yet.
#[derive(Debug, Default)]
pub struct Barrier {
    missing: BTreeSet<u32>,
    /// The first lane that cannot be had, and why.
    fault: Option<TakeError>,
}

/// How the present tick stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Some lanes are not there yet.
    Waiting,
    /// All are: windows may close.
    Complete,
    /// One will never be: the feed stops within this tick.
    Failed(TakeError),
}

impl Barrier {
    /// A tick begins for these lanes; the one before must be complete.
    pub fn begin(&mut self, lanes: impl IntoIterator<Item = u32>) {
        debug_assert!(self.missing.is_empty(), "a tick began within another");
        self.missing = lanes.into_iter().collect();
    }

    /// A lane has taken in its records, or cannot. Tells whether the tick stands differently by that.
    pub fn arrive(&mut self, lane: u32, result: Result<(), TakeError>) -> bool {
        match result {
            Ok(()) => {
                self.missing.remove(&lane);
                self.missing.is_empty()
            }
            Err(error) => {
                let is_first = self.fault.is_none();
                self.fault.get_or_insert(error);
                is_first
            }
        }
    }

    /// How the tick stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.fault {
            Some(fault) => Standing::Failed(fault.clone()),
            None if self.missing.is_empty() => Standing::Complete,
            None => Standing::Waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_complete_when_its_last_lane_is_there_in_whatever_order() {
        for order in [[0, 1, 4], [4, 1, 0], [1, 4, 0]] {
            let mut barrier = Barrier::default();
            barrier.begin([0, 1, 4]);
            for (at, lane) in order.into_iter().enumerate() {
                assert_eq!(barrier.standing(), Standing::Waiting);
                assert_eq!(barrier.arrive(lane, Ok(())), at == 2);
            }
            assert_eq!(barrier.standing(), Standing::Complete);
        }
    }

    #[test]
    fn a_tick_that_moves_no_lane_is_complete_at_once() {
        let mut barrier = Barrier::default();
        barrier.begin([]);
        assert_eq!(barrier.standing(), Standing::Complete);
    }

    #[test]
    fn a_lane_that_came_twice_does_not_stand_for_another() {
        let mut barrier = Barrier::default();
        barrier.begin([0, 1]);
        barrier.arrive(0, Ok(()));
        barrier.arrive(0, Ok(()));
        assert_eq!(barrier.standing(), Standing::Waiting);
    }

    #[test]
    fn a_fault_stays_whatever_comes_after_it() {
        let fault = TakeError::OutOfStep {
            from: 1,
            taken_to: 2,
        };
        let mut barrier = Barrier::default();
        barrier.begin([0, 1]);
        assert!(barrier.arrive(1, Err(fault.clone())));
        assert!(!barrier.arrive(1, Err(TakeError::NotYet)));
        barrier.arrive(0, Ok(()));
        assert_eq!(barrier.standing(), Standing::Failed(fault));
    }
}
