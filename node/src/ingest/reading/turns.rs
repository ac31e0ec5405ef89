//! Which lanes are looked at: all of them from time to time, and meanwhile those of which something came.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use unisono_replication::rt;

use super::Turn;

/// How often all lanes are looked at: the evidence of quiet ones must stay fresh.
const ALL: Duration = Duration::from_millis(100);
/// How often those that have no room: what other lanes give back does not wake the thread.
const FOR_ROOM: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct Turns {
    /// The lanes' indexes.
    lanes: Vec<usize>,
    /// They gave something at their last turn, and may have more.
    again: BTreeSet<usize>,
    /// They had no room at their last turn.
    starved: BTreeSet<usize>,
    /// When all were looked at; `None`: they are to be now.
    all: Option<Instant>,
}

impl Turns {
    pub(super) fn add(&mut self, lane: usize) {
        self.lanes.push(lane);
        self.all = None;
    }

    pub(super) fn remove(&mut self, lane: usize) {
        self.lanes.retain(|&other| other != lane);
        self.again.remove(&lane);
        self.starved.remove(&lane);
    }

    /// Something has changed by which any lane may have something.
    pub(super) fn look_at_all(&mut self) {
        self.all = None;
    }

    /// The lanes to look at. `came`: of which something came, where the source can tell.
    pub(super) fn next(&mut self, came: Option<impl Fn(usize) -> bool>) -> Vec<usize> {
        let again = std::mem::take(&mut self.again);
        let starved = std::mem::take(&mut self.starved);
        let Some(came) = came.filter(|_| !self.left().is_zero()) else {
            self.all = Some(rt::now());
            return self.lanes.clone();
        };
        let has_turn = |lane: &usize| again.contains(lane) || starved.contains(lane) || came(*lane);
        self.lanes.iter().copied().filter(has_turn).collect()
    }

    pub(super) fn note(&mut self, lane: usize, turn: &Turn) {
        match turn {
            Turn::Read | Turn::Checked => _ = self.again.insert(lane),
            Turn::NoRoom => _ = self.starved.insert(lane),
            Turn::AtEnd | Turn::Nothing => {}
        }
    }

    /// How long the thread may sleep; `None`: some lane may have more.
    pub(super) fn wait(&self) -> Option<Duration> {
        let most = if self.starved.is_empty() {
            ALL
        } else {
            FOR_ROOM
        };
        self.again.is_empty().then(|| self.left().min(most))
    }

    /// Until all are to be looked at.
    fn left(&self) -> Duration {
        self.all
            .map_or(Duration::ZERO, |at| ALL.saturating_sub(rt::since(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(turns: &mut Turns, came: &[usize]) -> Vec<usize> {
        turns.next(Some(|lane| came.contains(&lane)))
    }

    fn of_three() -> Turns {
        let mut turns = Turns::default();
        (0..3).for_each(|lane| turns.add(lane));
        assert_eq!(next(&mut turns, &[]), [0, 1, 2]);
        turns
    }

    #[test]
    fn what_gave_something_or_got_something_has_the_next_turn() {
        let mut turns = of_three();
        assert!(turns.wait().is_some());
        turns.note(2, &Turn::Read);
        turns.note(1, &Turn::AtEnd);
        assert_eq!(turns.wait(), None);
        assert_eq!(next(&mut turns, &[0]), [0, 2]);
        assert_eq!(next(&mut turns, &[]), [0; 0]);
    }

    #[test]
    fn all_have_a_turn_when_nobody_can_tell_and_when_it_is_asked_for() {
        let mut turns = of_three();
        assert_eq!(turns.next(None::<fn(usize) -> bool>), [0, 1, 2]);
        turns.look_at_all();
        assert_eq!(next(&mut turns, &[]), [0, 1, 2]);
        turns.remove(1);
        turns.add(3);
        assert_eq!(next(&mut turns, &[]), [0, 2, 3]);
    }

    #[test]
    fn a_lane_that_had_no_room_has_a_turn_soon_and_whenever_the_thread_is_woken() {
        let mut turns = of_three();
        assert!(turns.wait() > Some(FOR_ROOM));
        for _ in 0..2 {
            turns.note(1, &Turn::NoRoom);
            assert!(turns.wait() <= Some(FOR_ROOM));
            assert_eq!(next(&mut turns, &[2]), [1, 2]);
        }
        turns.note(1, &Turn::Nothing);
        assert_eq!(next(&mut turns, &[]), [0; 0]);
    }
}
