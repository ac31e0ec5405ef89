//! Whether the leader is gone: pure; the caller brings the clock and what it saw.
//!
//! Two kinds of evidence count. *Dead*: the leader's process ended its connection, and its port refuses a new one, or
//! another process answers there. *Silent*: nothing came from it for several heartbeats, where "several" follows from how
//! regular its messages were of late, so that a slow network or a crowded machine costs patience and not an election. A
//! replica that was itself not scheduled has seen no silence; and while it wakes late, again and again, it is patient: what
//! crowds its machine may crowd the leader's.

use std::time::{Duration, Instant};

use crate::lately::Lately;

/// Heartbeats that may fail to come.
const MISSED: u32 = 3;
/// No silence is borne for more heartbeats than this.
const MOST_MISSED: u32 = 12;
/// What is borne, in the largest gaps between two messages seen of late, or in the time that this replica woke late itself.
const GAPS: u32 = 3;
/// A replica that wakes later than this behind its time was not scheduled, and what came to it lies unread.
const OVERSLEPT: Duration = Duration::from_millis(30);

/// Why a leader is taken for gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Its process has ended.
    Dead,
    /// Nothing is heard of it.
    Silent,
}

/// Watches one leader at a time.
pub(crate) struct Detector {
    heartbeat: Duration,
    followed: Option<Followed>,
    /// The largest gap between two messages of a leader.
    gap: Lately,
    /// The most that this replica woke behind its time.
    late: Lately,
}

/// The leader of a term, as it is seen from here.
#[derive(Clone, Copy)]
struct Followed {
    term: u64,
    leader: u16,
    /// Its process, once that has said who it is.
    process: Option<u64>,
    /// When it was heard last.
    heard: Instant,
    dead: bool,
}

impl Detector {
    /// Watches nobody yet. `heartbeat`: how often a leader is heard at least, if all is well.
    pub(crate) fn new(heartbeat: Duration) -> Self {
        Self {
            heartbeat,
            followed: None,
            gap: Lately::default(),
            late: Lately::default(),
        }
    }

    /// This replica follows `leader` in `term`; `None`: nobody, or itself.
    pub(crate) fn follow(&mut self, term: u64, leader: Option<u16>, now: Instant) {
        let known = self.followed.as_ref();
        if known.map(|known| (known.term, known.leader)) == leader.map(|leader| (term, leader)) {
            return;
        }
        self.followed = leader.map(|leader| Followed {
            term,
            leader,
            process: None,
            heard: now,
            dead: false,
        });
    }

    /// A message of the leader of `term` came.
    pub(crate) fn heard(&mut self, term: u64, leader: u16, now: Instant) {
        let Some(followed) = self.of(term, leader) else {
            return;
        };
        let gap = now.saturating_duration_since(followed.heard);
        followed.heard = now;
        self.gap.see(gap.min(self.most()), now);
    }

    /// The process at the leader's address says who it is.
    pub(crate) fn met(&mut self, leader: u16, process: u64) {
        if let Some(followed) = self.followed.as_mut()
            && followed.leader == leader
        {
            followed.dead |= *followed.process.get_or_insert(process) != process;
        }
    }

    /// The leader's process as it has said who it is; `None` if it has not, or another one leads.
    pub(crate) fn process_of(&self, leader: u16) -> Option<u64> {
        let followed = self.followed.filter(|followed| followed.leader == leader);
        followed.and_then(|followed| followed.process)
    }

    /// The process of this replica has ended.
    pub(crate) fn ended(&mut self, number: u16) {
        if let Some(followed) = self.followed.as_mut() {
            followed.dead |= followed.leader == number;
        }
    }

    /// This replica was to look at the clock at `due`, and does now. If it slept through the time, what came meanwhile may not
    /// have been read yet.
    pub(crate) fn woke(&mut self, due: Instant, now: Instant) {
        let late = now.saturating_duration_since(due);
        self.late.see(late.min(self.most()), now);
        if late <= OVERSLEPT {
            return;
        }
        let grace = self.patience().saturating_sub(self.heartbeat);
        if let Some(followed) = self.followed.as_mut() {
            let since = now.checked_sub(grace).unwrap_or(now);
            followed.heard = followed.heard.max(since);
        }
    }

    /// The leader that is watched, with its term.
    pub(crate) fn leader(&self) -> Option<(u64, u16)> {
        self.followed
            .map(|followed| (followed.term, followed.leader))
    }

    /// When the leader of `term` was heard last.
    pub(crate) fn heard_at(&self, term: u64) -> Option<Instant> {
        let followed = self.followed.filter(|followed| followed.term == term);
        followed.map(|followed| followed.heard)
    }

    /// What speaks for the end of this leader.
    pub(crate) fn evidence(&self, term: u64, leader: u16, now: Instant) -> Option<Evidence> {
        let followed = self
            .followed
            .filter(|known| (known.term, known.leader) == (term, leader))?;
        let silence = now.saturating_duration_since(followed.heard);
        match () {
            () if followed.dead => Some(Evidence::Dead),
            () if silence >= self.patience() => Some(Evidence::Silent),
            () => None,
        }
    }

    /// When its silence, should it last, will be evidence.
    pub(crate) fn due(&self) -> Option<Instant> {
        let heard = self.followed.as_ref()?.heard;
        heard.checked_add(self.patience())
    }

    /// How long nothing may come.
    fn patience(&self) -> Duration {
        (self.heartbeat * MISSED)
            .max(self.gap.most() * GAPS)
            .max(self.late.most() * GAPS)
            .min(self.most())
    }

    fn most(&self) -> Duration {
        self.heartbeat * MOST_MISSED
    }

    fn of(&mut self, term: u64, leader: u16) -> Option<&mut Followed> {
        let followed = self.followed.as_mut();
        followed.filter(|followed| (followed.term, followed.leader) == (term, leader))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(100);

    fn following() -> (Detector, Instant) {
        let start = Instant::now();
        let mut detector = Detector::new(BEAT);
        detector.follow(7, Some(2), start);
        (detector, start)
    }

    fn heard_every(detector: &mut Detector, from: Instant, gap: Duration, times: u32) -> Instant {
        let mut now = from;
        for _ in 0..times {
            now += gap;
            detector.heard(7, 2, now);
        }
        now
    }

    #[test]
    fn silence_is_evidence_after_three_heartbeats_of_a_regular_leader() {
        let (mut detector, start) = following();
        let last = heard_every(&mut detector, start, BEAT / 4, 40);
        assert_eq!(detector.evidence(7, 2, last + BEAT * 3 - BEAT / 10), None);
        assert_eq!(detector.due(), Some(last + BEAT * 3));
        let silent = detector.evidence(7, 2, last + BEAT * 3);
        assert_eq!(silent, Some(Evidence::Silent));
    }

    #[test]
    fn a_leader_that_was_irregular_is_borne_longer_but_not_for_ever() {
        let (mut detector, start) = following();
        let last = heard_every(&mut detector, start, BEAT * 2, 5);
        assert_eq!(detector.evidence(7, 2, last + BEAT * 5), None);
        assert_eq!(
            detector.evidence(7, 2, last + BEAT * 6),
            Some(Evidence::Silent)
        );
        let last = heard_every(&mut detector, last, BEAT * 50, 3);
        assert_eq!(
            detector.evidence(7, 2, last + BEAT * 12),
            Some(Evidence::Silent)
        );
    }

    #[test]
    fn patience_comes_back_when_the_leader_is_regular_again() {
        let (mut detector, start) = following();
        let last = heard_every(&mut detector, start, BEAT * 3, 2);
        let last = heard_every(&mut detector, last, BEAT / 4, 2000);
        assert_eq!(
            detector.evidence(7, 2, last + BEAT * 3),
            Some(Evidence::Silent)
        );
    }

    #[test]
    fn only_the_leader_of_the_term_is_heard_and_judged() {
        let (mut detector, start) = following();
        let later = start + BEAT * 4;
        detector.heard(6, 2, later);
        detector.heard(7, 3, later);
        detector.ended(3);
        assert_eq!(detector.evidence(7, 2, later), Some(Evidence::Silent));
        assert_eq!(detector.evidence(6, 2, later), None);
        assert_eq!(detector.evidence(7, 3, later), None);
        detector.follow(8, Some(3), later);
        assert_eq!(
            detector.evidence(8, 3, later),
            None,
            "a new leader has its time"
        );
        detector.follow(8, None, later);
        assert_eq!((detector.due(), detector.leader()), (None, None));
    }

    #[test]
    fn an_ended_process_and_another_in_its_place_are_dead() {
        let (mut detector, start) = following();
        detector.met(2, 11);
        detector.met(2, 11);
        assert_eq!(detector.evidence(7, 2, start), None);
        detector.met(2, 12);
        assert_eq!(detector.evidence(7, 2, start), Some(Evidence::Dead));
        let (mut detector, start) = following();
        detector.ended(2);
        assert_eq!(detector.evidence(7, 2, start), Some(Evidence::Dead));
    }

    #[test]
    fn who_slept_waits_for_one_more_heartbeat() {
        let (mut detector, start) = following();
        let due = detector.due().unwrap();
        let woken = start + BEAT * 50;
        detector.woke(due, woken);
        assert_eq!(detector.evidence(7, 2, woken), None);
        assert_eq!(
            detector.evidence(7, 2, woken + BEAT),
            Some(Evidence::Silent)
        );
    }

    #[test]
    fn who_wakes_late_bears_silence_longer_until_it_wakes_in_time_again() {
        let (mut detector, start) = following();
        let last = heard_every(&mut detector, start, BEAT / 4, 40);
        let mut now = last;
        detector.woke(now - BEAT * 2, now);
        detector.heard(7, 2, now);
        assert_eq!(detector.evidence(7, 2, now + BEAT * 5), None);
        let silent = detector.evidence(7, 2, now + BEAT * 6);
        assert_eq!(silent, Some(Evidence::Silent));
        for _ in 0..200 {
            now = heard_every(&mut detector, now, BEAT / 4, 12);
            detector.woke(now, now);
        }
        assert_eq!(detector.due(), Some(now + BEAT * 3));
    }
}
