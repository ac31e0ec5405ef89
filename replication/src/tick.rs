//! The metronome's rules: when a tick is due, and what time it says. Pure; the caller brings the clocks.

use std::time::Duration;

/// What lies in hand and is little waits for so many intervals: it is no reason for more entries.
const LITTLE_WAITS: u32 = 4;
/// A window that can close waits for this part of the interval at most: a bound on the rate of ticks.
const SOONEST: u32 = 8;
/// How much agreed time may deviate from the leader's monotonic time where it is slewed: one part in ten.
const SLEW: u32 = 10;
/// So much that agreed time is behind is made good at once, in milliseconds; more is slewed, and is an operator's concern.
pub const CATCH_UP_MS: i64 = 10_000;

/// When the leader makes a tick.
#[derive(Clone, Copy, Debug)]
pub struct Metronome {
    /// From one proposal to the next where records come as they happen.
    pub interval: Duration,
    /// And not less often than this, though nothing moved: silence would stop the timers.
    pub at_least: Duration,
}

/// What lies in hand beyond the agreed cut of a feed's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InHand {
    /// No record.
    Nothing,
    /// So few records that a tick for them costs more than they do.
    Little,
    /// Records, but not many.
    Some,
    /// Records that let a window close.
    Closing,
    /// So much that there is no point in waiting for more.
    Backlog,
}

impl Metronome {
    /// How long a feed's next tick has to wait, `since` its last one was proposed; `None`: there was none.
    #[must_use]
    pub fn due_in(&self, since: Option<Duration>, in_hand: InHand) -> Duration {
        let Some(since) = since else {
            return Duration::ZERO;
        };
        match in_hand {
            InHand::Backlog => Duration::ZERO,
            InHand::Closing => (self.interval / SOONEST).saturating_sub(since),
            InHand::Some => self.interval.saturating_sub(since),
            InHand::Little => {
                let wait = self.interval.saturating_mul(LITTLE_WAITS);
                wait.min(self.at_least).saturating_sub(since)
            }
            InHand::Nothing => self.at_least.saturating_sub(since),
        }
    }
}

/// What the proposer knows of the last tick's time.
#[derive(Clone, Copy, Debug)]
pub struct LastTick {
    /// Its agreed time, in milliseconds since 1970.
    pub agreed_ms: i64,
    /// How long ago this process proposed it, or saw it; `None`: it was before this process started.
    pub seen: Option<Duration>,
}

/// The agreed time of the next tick, in milliseconds since 1970.
///
/// It goes on with the proposer's monotonic time. Where it is behind `median_ms`, the median of the replicas' clocks, by
/// at most [`CATCH_UP_MS`], that is made good at once; any other difference is slewed by at most a tenth, so that a wrong
/// or stepped clock on one host neither freezes nor leaps it. Only where no process has measured the time since the last
/// tick (first tick ever, or all replicas were down) it is `clock_ms`, what the replicas' clocks say ([`clock_ms`]); even
/// then it does not go back.
#[must_use]
pub fn next_agreed_ms(last: Option<LastTick>, median_ms: i64, clock_ms: i64) -> i64 {
    let Some(last) = last else { return clock_ms };
    let Some(seen) = last.seen else {
        return clock_ms.max(last.agreed_ms);
    };
    let elapsed = millis(seen);
    let unslewed = last.agreed_ms.saturating_add(elapsed);
    let error = median_ms.saturating_sub(unslewed);
    if (0..=CATCH_UP_MS).contains(&error) {
        return median_ms;
    }
    let most = millis(seen / SLEW);
    unslewed.saturating_add(error.clamp(-most, most))
}

/// The median of the replicas' clocks: `own_ms` with each replica's offset from it in milliseconds (its own, 0, among
/// them). Of an even number, the mean of the middle two.
#[must_use]
pub fn median_clock_ms(own_ms: i64, mut offsets_ms: Vec<f64>) -> i64 {
    sort(&mut offsets_ms);
    let middle = offsets_ms.len() / 2;
    let offset = match offsets_ms.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => offsets_ms[middle],
        _ => f64::midpoint(offsets_ms[middle - 1], offsets_ms[middle]),
    };
    shifted(own_ms, offset)
}

/// What the replicas' clocks say, which judges what lies in the future: the second largest of those of
/// [`median_clock_ms`], so that one that is ahead decides nothing, nor does one that is behind; alone, one's own.
#[must_use]
pub fn clock_ms(own_ms: i64, mut offsets_ms: Vec<f64>) -> i64 {
    sort(&mut offsets_ms);
    let second = offsets_ms.iter().rev().nth(1).or(offsets_ms.last());
    shifted(own_ms, second.copied().unwrap_or(0.0))
}

fn sort(offsets_ms: &mut Vec<f64>) {
    offsets_ms.retain(|offset| offset.is_finite());
    offsets_ms.sort_by(f64::total_cmp);
}

fn shifted(own_ms: i64, offset: f64) -> i64 {
    // A cast from float to integer saturates, so a mad clock gives a mad but defined offset.
    own_ms.saturating_add(offset.round() as i64)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(agreed_ms: i64, seen_ms: u64) -> Option<LastTick> {
        Some(LastTick {
            agreed_ms,
            seen: Some(Duration::from_millis(seen_ms)),
        })
    }

    #[test]
    fn a_clock_an_hour_ahead_or_behind_bends_time_by_a_tenth_at_most() {
        let next = |median_ms| next_agreed_ms(after(1_000_000, 1000), median_ms, 0);
        assert_eq!(next(1_001_000), 1_001_000);
        assert_eq!(next(4_600_000), 1_001_100);
        assert_eq!(next(0), 1_000_900);
        assert_eq!(next(1_000_950), 1_000_950);
    }

    #[test]
    fn what_agreed_time_is_behind_is_made_good_at_once_up_to_ten_seconds() {
        let next = |median_ms| next_agreed_ms(after(1_000_000, 1000), median_ms, 0);
        assert_eq!(next(1_001_030), 1_001_030);
        assert_eq!(next(1_011_000), 1_011_000);
        assert_eq!(next(1_011_001), 1_001_100);
    }

    #[test]
    fn after_an_outage_of_all_the_clocks_decide_but_time_does_not_go_back() {
        let before = Some(LastTick {
            agreed_ms: 1_000_000,
            seen: None,
        });
        assert_eq!(next_agreed_ms(before, 0, 1_600_000), 1_600_000);
        assert_eq!(next_agreed_ms(before, 0, 400_000), 1_000_000);
        assert_eq!(next_agreed_ms(None, 0, 77), 77);
    }

    #[test]
    fn the_second_largest_clock_judges_the_future() {
        assert_eq!(clock_ms(5_000, vec![0.0, 3_600_000.0, 2.0]), 5_002);
        assert_eq!(clock_ms(5_000, vec![0.0, -3_600_000.0, 2.0]), 5_000);
        assert_eq!(clock_ms(5_000, vec![0.0, -10.0]), 4_990);
        assert_eq!(clock_ms(5_000, vec![0.0]), 5_000);
    }

    #[test]
    fn one_wrong_clock_among_three_does_not_move_the_median() {
        assert_eq!(median_clock_ms(5_000, vec![0.0, 3_600_000.0, 2.0]), 5_002);
        assert_eq!(median_clock_ms(5_000, vec![0.0, 10.0]), 5_005);
        assert_eq!(median_clock_ms(5_000, vec![0.0, f64::NAN]), 5_000);
    }

    #[test]
    fn a_tick_is_due_an_interval_after_the_last_proposal_or_at_once_with_a_backlog() {
        let metronome = Metronome {
            interval: Duration::from_millis(25),
            at_least: Duration::from_millis(500),
        };
        let check = |since_ms: u64, in_hand, due_ms| {
            let since = Some(Duration::from_millis(since_ms));
            let due = metronome.due_in(since, in_hand);
            assert_eq!(due, Duration::from_millis(due_ms), "{since_ms} {in_hand:?}");
        };
        check(0, InHand::Some, 25);
        check(20, InHand::Some, 5);
        check(25, InHand::Some, 0);
        check(400, InHand::Some, 0);
        check(25, InHand::Little, 75);
        check(100, InHand::Little, 0);
        check(25, InHand::Nothing, 475);
        check(500, InHand::Nothing, 0);
        check(1, InHand::Backlog, 0);
        check(4, InHand::Closing, 0);
        assert_eq!(metronome.due_in(None, InHand::Nothing), Duration::ZERO);
        let soonest = metronome.due_in(Some(Duration::ZERO), InHand::Closing);
        assert_eq!(soonest, Duration::from_micros(3_125));
    }
}
