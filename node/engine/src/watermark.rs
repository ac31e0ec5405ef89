//! How far event time has come, of a lane and of a feed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::part::codec::{Fault, Reader, Writer};
use crate::spec::{CloseSpec, Timestamp};

/// The largest event times that one lane has shown, as many as the watermark looks back.
///
/// Invariant: at most `records` times, the least on top.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventTimes {
    largest: BinaryHeap<Reverse<i64>>,
    /// Kept beside the heap: it is read for every record.
    watermark: Option<Timestamp>,
}

impl EventTimes {
    /// The `records`-th largest event time minus `lag`; `None` before that many were shown.
    #[inline]
    pub(crate) fn watermark(&self) -> Option<Timestamp> {
        self.watermark
    }

    /// Takes in the event time of one more record.
    #[inline]
    pub(crate) fn show(&mut self, time: Timestamp, close: &CloseSpec) {
        if self.largest.len() >= close.records.max(1) {
            let Some(mut least) = self.largest.peek_mut() else {
                return;
            };
            if least.0 >= time.0 {
                return;
            }
            least.0 = time.0;
        } else {
            self.largest.push(Reverse(time.0));
        }
        self.refresh(close);
    }

    #[inline]
    fn refresh(&mut self, close: &CloseSpec) {
        let full = self.largest.len() >= close.records.max(1);
        let least = self.largest.peek().filter(|_| full);
        self.watermark = least.map(|time| Timestamp(time.0.saturating_sub(close.lag_ms)));
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        let mut times: Vec<i64> = self.largest.iter().map(|time| time.0).collect();
        times.sort_unstable();
        out.length(times.len());
        for time in times {
            out.signed(time);
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>, close: &CloseSpec) -> Result<Self, Fault> {
        let mut times = Self::default();
        let shown = input.length()?;
        if shown > close.records.max(1) as u64 {
            return Err(Fault::Damaged("a watermark looks back too far"));
        }
        for _ in 0..shown {
            times.largest.push(Reverse(input.signed()?));
        }
        times.refresh(close);
        Ok(times)
    }
}

/// One lane as the feed's watermark sees it.
pub(crate) struct LaneView {
    pub(crate) watermark: Option<Timestamp>,
    pub(crate) idle: bool,
    /// Agreed time that passed, in milliseconds, since it was first seen at its end, if it still is.
    pub(crate) seen_ms: Option<i64>,
}

impl LaneView {
    /// How far it counts as having come because enough time went by.
    pub(crate) fn timed(&self, agreed: Option<Timestamp>, close: &CloseSpec) -> Option<Timestamp> {
        let at_most_ms = close.at_most_ms?;
        self.seen_ms.filter(|&seen_ms| seen_ms >= at_most_ms)?;
        agreed.map(|agreed| Timestamp(agreed.0.saturating_sub(at_most_ms)))
    }
}

/// The watermark of a feed: the least of its lanes that are not idle; with all of them idle, agreed
/// time minus `lag`.
///
/// A lane that has been seen at its end for `at_most` has come as far as agreed time minus that, if it
/// has not shown more.
///
/// `None`, unknown, holds everything: a lane that is not idle has not shown enough, or there is no
/// lane at all. `all` is how many lanes there have been: fewer than are to be waited for hold
/// everything too.
pub(crate) fn of_feed(
    lanes: impl Iterator<Item = LaneView>,
    all: usize,
    agreed: Option<Timestamp>,
    close: &CloseSpec,
) -> Option<Timestamp> {
    if all < close.lanes {
        return None;
    }
    let mut any_lane = false;
    let mut least: Option<Timestamp> = None;
    for lane in lanes {
        any_lane = true;
        if lane.idle {
            continue;
        }
        let watermark = lane.watermark.max(lane.timed(agreed, close))?;
        least = Some(least.map_or(watermark, |other| other.min(watermark)));
    }
    match least {
        Some(watermark) => Some(watermark),
        // The minimum over nothing is unknown, never the maximum.
        None if !any_lane => None,
        None => agreed.map(|agreed| Timestamp(agreed.0.saturating_sub(close.lag_ms))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(records: usize) -> CloseSpec {
        CloseSpec {
            records,
            ..CloseSpec::default()
        }
    }

    fn shown(times: &[i64], records: usize) -> Vec<Option<i64>> {
        let mut state = EventTimes::default();
        let step = |&time: &i64| {
            state.show(Timestamp(time), &close(records));
            state.watermark().map(|time| time.0)
        };
        times.iter().map(step).collect()
    }

    #[test]
    fn the_watermark_is_a_running_maximum() {
        let expected = [Some(500), Some(500), Some(501), Some(501)];
        assert_eq!(shown(&[500, 499, 501, 498], 1), expected);
    }

    #[test]
    fn the_watermark_follows_the_nth_largest_time() {
        let expected = [None, None, Some(1), Some(2), Some(2), Some(3)];
        assert_eq!(shown(&[1, 9, 2, 3, 1, 3], 3), expected);
    }

    #[test]
    fn a_lag_larger_than_all_time_does_not_overflow() {
        let close = CloseSpec {
            lag_ms: i64::MAX,
            ..CloseSpec::default()
        };
        let mut state = EventTimes::default();
        state.show(Timestamp(-10), &close);
        assert_eq!(state.watermark(), Some(Timestamp(i64::MIN)));
    }

    #[test]
    fn the_feed_follows_its_slowest_lane_that_is_not_idle() {
        let lane = |watermark: Option<i64>, idle| LaneView {
            watermark: watermark.map(Timestamp),
            idle,
            seen_ms: None,
        };
        let of = |lanes: Vec<LaneView>| {
            of_feed(lanes.into_iter(), 0, Some(Timestamp(100)), &close(1)).map(|time| time.0)
        };
        assert_eq!(of(vec![]), None);
        assert_eq!(
            of(vec![lane(Some(7), false), lane(Some(5), false)]),
            Some(5)
        );
        assert_eq!(of(vec![lane(Some(7), false), lane(Some(5), true)]), Some(7));
        assert_eq!(of(vec![lane(Some(7), false), lane(None, false)]), None);
        assert_eq!(of(vec![lane(Some(7), false), lane(None, true)]), Some(7));
        assert_eq!(of(vec![lane(Some(7), true), lane(None, true)]), Some(100));
    }
}
