//! Whether the leader gives the lead to a fitter one: pure; the caller brings the clock and the scores.
//!
//! A score is the number of pipelines that a replica can read, confirm and publish now. One that is strictly greater for a
//! while is a reason; being equal never is, so that a trouble of all moves nothing. Who failed in office is trusted with no
//! more than it could do then for some time; but among equals in that, what each can do now decides. Otherwise a leader that
//! can do nothing would stay because the others had failed shortly before it.
//!
//! On a crowded machine every replica is worse than others now and then, for a moment, and whoever leads next is as badly off. So
//! each remembers for how long it was worse and then, by itself, was not, and bears more than that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use unisono_replication::lately::Lately;

/// How long another one must be fitter.
const HELD: Duration = Duration::from_millis(300);
/// The same, in the longest moment of late, and at the most.
const MOMENTS: u32 = 3;
const MOST_HELD: Duration = Duration::from_secs(3);
/// What lasts for so long is no moment but a trouble, though it passed.
const TROUBLE: Duration = Duration::from_millis(1_500);
/// How long one that failed in office counts as no fitter than it was then.
const UNFIT: Duration = Duration::from_secs(30);

/// What one replica knows of its own and of the others' fitness.
#[derive(Debug, Default)]
pub struct Fitness {
    /// Since when others are fitter than this one, which leads.
    fitter: BTreeMap<u16, Instant>,
    /// Its score when it gave the lead away for it, and when that was.
    failed: Option<(u32, Instant)>,
    /// Since when another one can do more than this one, whoever leads.
    worse: Option<Instant>,
    /// How long that lasted of late before it passed.
    moments: Lately,
}

impl Fitness {
    /// The score to tell, where `able` pipelines seem to be well: what it is trusted with, then what it can do.
    #[must_use]
    pub fn score(&self, able: u32, now: Instant) -> u32 {
        rank(self.trusted(able, now), able)
    }

    /// Another one can do more than this one, or none can.
    fn compare(&mut self, worse: bool, now: Instant) {
        let lasted = match (worse, self.worse) {
            (true, since) => {
                self.worse = since.or(Some(now));
                Duration::ZERO
            }
            (false, since) => {
                self.worse = None;
                since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
            }
        };
        let moment = if lasted < TROUBLE {
            lasted
        } else {
            Duration::ZERO
        };
        self.moments.see(moment, now);
    }

    fn trusted(&self, able: u32, now: Instant) -> u32 {
        let failed = self.failed.filter(|(_, at)| is_within(*at, now, UNFIT));
        failed.map_or(able, |(then, _)| able.min(then))
    }

    /// Looks at the others' scores, which are fresh. Whom to hand over to, the fittest first, if it is time; `able` is as
    /// for [`Self::score`]. Those in `proven` were well for a while where this node was not: they need not be fitter for
    /// longer than a moment of late.
    pub fn look(
        &mut self,
        leads: bool,
        able: u32,
        (others, proven): (&BTreeMap<u16, u32>, &BTreeSet<u16>),
        now: Instant,
    ) -> Option<Vec<u16>> {
        self.compare(others.values().any(|&score| ability(score) > able), now);
        let own = self.score(able, now);
        let is_fitter = |number: &u16| leads && others.get(number).is_some_and(|&it| it > own);
        self.fitter.retain(|number, _| is_fitter(number));
        for &number in others.keys().filter(|number| is_fitter(number)) {
            self.fitter.entry(number).or_insert(now);
        }
        let moment = self.moments.most();
        let long = (moment * MOMENTS).clamp(HELD, MOST_HELD);
        let held = self.fitter.iter();
        let is_sure = |number, since| {
            let long = if proven.contains(number) {
                moment
            } else {
                long
            };
            !is_within(since, now, long)
        };
        let held = held.filter(|&(number, &since)| is_sure(number, since));
        let mut held: Vec<u16> = held.map(|(&number, _)| number).collect();
        if held.is_empty() {
            return None;
        }
        held.sort_by_key(|number| Reverse(others[number]));
        self.failed = Some((self.trusted(able, now), now));
        self.fitter.clear();
        Some(held)
    }
}

fn rank(trusted: u32, able: u32) -> u32 {
    let half = |count: u32| count.min(u32::from(u16::MAX));
    half(trusted) << 16 | half(able)
}

/// What the score says that one can do.
fn ability(score: u32) -> u32 {
    score & u32::from(u16::MAX)
}

fn is_within(at: Instant, now: Instant, most: Duration) -> bool {
    now.saturating_duration_since(at) < most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(of: &[(u16, u32)]) -> BTreeMap<u16, u32> {
        let told = |&(number, able): &(u16, u32)| (number, rank(able, able));
        of.iter().map(told).collect()
    }

    fn look(
        fitness: &mut Fitness,
        leads: bool,
        able: u32,
        others: &BTreeMap<u16, u32>,
        now: Instant,
    ) -> Option<Vec<u16>> {
        fitness.look(leads, able, (others, &BTreeSet::new()), now)
    }

    #[test]
    fn one_that_has_proven_it_is_waited_for_no_longer_but_must_be_fitter() {
        let (mut fitness, start) = (Fitness::default(), Instant::now());
        let others = scores(&[(2, 1), (3, 2)]);
        let proven = |numbers: &[u16]| numbers.iter().copied().collect();
        let given = fitness.look(true, 2, (&others, &proven(&[2, 3])), start);
        assert_eq!(given, None);
        let given = fitness.look(true, 1, (&others, &proven(&[2])), start);
        assert_eq!(given, None);
        let given = fitness.look(true, 1, (&others, &proven(&[2, 3])), start);
        assert_eq!(given, Some(vec![3]));
    }

    #[test]
    fn the_lead_goes_to_the_fittest_after_it_was_fitter_for_a_while() {
        let (mut fitness, start) = (Fitness::default(), Instant::now());
        let others = scores(&[(2, 2), (3, 3)]);
        let early = HELD - Duration::from_millis(1);
        assert_eq!(look(&mut fitness, true, 1, &others, start), None);
        assert_eq!(look(&mut fitness, true, 1, &others, start + early), None);
        let given = look(&mut fitness, true, 1, &others, start + HELD);
        assert_eq!(given, Some(vec![3, 2]));
    }

    #[test]
    fn an_equal_one_is_no_reason_nor_one_that_was_fitter_for_a_moment() {
        let (mut fitness, start) = (Fitness::default(), Instant::now());
        let equal = scores(&[(2, 2)]);
        assert_eq!(look(&mut fitness, true, 2, &equal, start), None);
        assert_eq!(look(&mut fitness, true, 2, &equal, start + UNFIT), None);
        let later = start + UNFIT;
        assert_eq!(look(&mut fitness, true, 1, &equal, later), None);
        assert_eq!(look(&mut fitness, true, 2, &equal, later + HELD / 2), None);
        assert_eq!(look(&mut fitness, true, 1, &equal, later + HELD), None);
    }

    #[test]
    fn who_was_worse_for_moments_bears_more_but_not_for_ever() {
        let (well, others) = (scores(&[(2, 1)]), scores(&[(2, 2)]));
        for (lasts_ms, held) in [
            (50, HELD),
            (400, Duration::from_millis(1_200)),
            (1_400, MOST_HELD),
            (1_500, HELD),
            (60_000, HELD),
        ] {
            let (mut fitness, start) = (Fitness::default(), Instant::now());
            assert_eq!(look(&mut fitness, false, 1, &others, start), None);
            let start = start + Duration::from_millis(lasts_ms);
            assert_eq!(look(&mut fitness, false, 1, &well, start), None);
            assert_eq!(look(&mut fitness, true, 1, &others, start), None);
            let early = start + held - Duration::from_millis(100);
            assert_eq!(look(&mut fitness, true, 1, &others, early), None);
            let given = look(&mut fitness, true, 1, &others, start + held);
            assert_eq!(given, Some(vec![2]), "{lasts_ms}");
        }
    }

    #[test]
    fn one_that_has_proven_it_is_waited_for_as_long_as_a_moment_of_late() {
        let (mut fitness, start) = (Fitness::default(), Instant::now());
        let (well, others) = (scores(&[(2, 1)]), scores(&[(2, 2)]));
        let later = |ms: u64| start + Duration::from_millis(ms);
        let proven: BTreeSet<u16> = [2].into();
        let mut look = |leads, others, ms| fitness.look(leads, 1, (others, &proven), later(ms));
        assert_eq!(look(false, &others, 0), None);
        assert_eq!(look(false, &well, 400), None);
        assert_eq!(look(true, &others, 500), None);
        assert_eq!(look(true, &others, 800), None);
        assert_eq!(look(true, &others, 900), Some(vec![2]));
    }

    #[test]
    fn one_that_is_not_heard_any_more_is_not_fitter() {
        let (mut fitness, start) = (Fitness::default(), Instant::now());
        let others = scores(&[(2, 2)]);
        assert_eq!(look(&mut fitness, true, 1, &others, start), None);
        assert_eq!(
            look(&mut fitness, true, 1, &scores(&[]), start + HELD / 2),
            None
        );
        assert_eq!(look(&mut fitness, true, 1, &others, start + HELD), None);
    }

    #[test]
    fn whoever_does_not_lead_gives_nothing_away() {
        let (mut fitness, start) = (Fitness::default(), Instant::now());
        let others = scores(&[(2, 2)]);
        assert_eq!(look(&mut fitness, false, 1, &others, start), None);
        assert_eq!(look(&mut fitness, false, 1, &others, start + HELD), None);
        assert_eq!(look(&mut fitness, true, 1, &others, start + HELD), None);
    }

    #[test]
    fn who_failed_in_office_counts_as_no_fitter_for_half_a_minute() {
        let (mut fitness, start) = (Fitness::default(), Instant::now());
        let others = scores(&[(2, 2)]);
        assert_eq!(look(&mut fitness, true, 0, &others, start), None);
        let given = start + HELD;
        assert!(look(&mut fitness, true, 0, &others, given).is_some());
        assert!(fitness.score(2, given + UNFIT - HELD) < rank(1, 1));
        assert_eq!(fitness.score(2, given + UNFIT), rank(2, 2));
    }

    #[test]
    fn a_leader_that_can_do_nothing_gives_way_to_one_that_failed_before_it_and_is_well() {
        let (mut failed, start) = (Fitness::default(), Instant::now());
        assert_eq!(look(&mut failed, true, 0, &scores(&[(2, 1)]), start), None);
        assert!(look(&mut failed, true, 0, &scores(&[(2, 1)]), start + HELD).is_some());
        let now = start + HELD * 2;
        let told: BTreeMap<u16, u32> = [(1, failed.score(1, now))].into();
        let mut leader = Fitness::default();
        assert_eq!(look(&mut leader, true, 1, &told, now), None);
        assert_eq!(
            look(&mut leader, true, 1, &told, now + HELD),
            None,
            "it does well"
        );
        assert_eq!(look(&mut leader, true, 0, &told, now + HELD), None);
        assert_eq!(
            look(&mut leader, true, 0, &told, now + HELD * 2),
            Some(vec![1])
        );
    }
}
