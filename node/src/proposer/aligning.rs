//! Alignment: lanes whose event time is too far ahead of the slowest one's are left out of the cut until that one has come.
//! So of lanes that differ in size or in age, what is held of open windows stays small.
//!
//! It decides which records a tick takes in, and so never which row comes of them, timers apart. A lane that is held has
//! records beyond its cut, so no tick says that it is at its end, and it never counts as silent.

use std::collections::BTreeMap;

use unisono_engine::spec::Timestamp;
use unisono_replication::command::{FeedId, FeedTick};
use unisono_replication::machine;

use crate::core::Agreed;
use crate::feed::Feed;

/// A lane that may be moved may be moved by so much at least, in bytes: else ticks would cost more than records.
const LEAST: usize = 64 << 10;
/// And by such a part of what a tick may move while nobody knows how much event time that is.
const PART: usize = 16;

/// How much event time the bytes of each lane of aligned feeds were worth lately. It is known only once they are taken in, and a
/// tick is to be no larger than what may be taken in.
#[derive(Default)]
pub(super) struct Paces(BTreeMap<FeedId, Vec<Pace>>);

#[derive(Clone, Copy, Default)]
struct Pace {
    /// Where the lane stood when bytes were counted anew.
    watermark: Option<Timestamp>,
    /// What ticks have moved since.
    bytes: usize,
    /// Milliseconds of event time a byte.
    pace: Option<f64>,
}

impl Pace {
    fn measure(&mut self, watermark: Option<Timestamp>) {
        if self.bytes == 0 && self.watermark.is_some() {
            return;
        }
        if let (Some(before), Some(now)) = (self.watermark, watermark)
            && self.bytes > 0
        {
            #[allow(clippy::cast_precision_loss, reason = "a guess at the size of a tick")]
            let pace = now.0.saturating_sub(before.0) as f64 / self.bytes as f64;
            // One tick without progress is no reason for a leap.
            self.pace = Some(pace.max(self.pace.unwrap_or(0.0) / 2.0));
        }
        (self.watermark, self.bytes) = (watermark, 0);
    }

    /// About how many bytes are worth so many milliseconds.
    fn bytes_for(&self, millis: i64, most: usize) -> usize {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a guess at the size of a tick; it saturates"
        )]
        let bytes = match self.pace {
            None => most / PART,
            Some(pace) => (millis as f64 / pace) as usize,
        };
        bytes.max(LEAST).min(most)
    }
}

impl Paces {
    /// Notes by how many bytes a tick moves the lanes.
    pub(super) fn note(&mut self, agreed: &Agreed, tick: &FeedTick) {
        let Some(feed) = agreed.feeds.get(&tick.feed) else {
            return;
        };
        let Some(paces) = self.0.get_mut(&tick.feed) else {
            return;
        };
        let (state, buffers) = (&agreed.machine.feeds()[&tick.feed], feed.lanes());
        for step in &tick.moves {
            let lane = step.lane as usize;
            let known = state.lanes.get(lane).zip(buffers.get(lane));
            let Some(((known, buffer), pace)) = known.zip(paces.get_mut(lane)) else {
                continue;
            };
            let after = buffer.backlog(step.cut);
            let bytes = buffer.backlog(known.cut).saturating_sub(after);
            pace.bytes = pace.bytes.saturating_add(bytes);
        }
    }

    /// Notes how far the lanes of a feed have come, if it is aligned and has taken in all ticks.
    pub(super) fn measure(&mut self, id: FeedId, feed: &Feed) {
        if feed.max_skew_ms().is_none() || feed.waits_since().is_some() {
            return;
        }
        let watermarks = feed.watermarks();
        let paces = self.0.entry(id).or_default();
        paces.resize_with(watermarks.len(), Pace::default);
        for (pace, watermark) in paces.iter_mut().zip(watermarks) {
            pace.measure(watermark);
        }
    }

    /// By how much the lanes of a feed may be moved: as far as they have come, here, at the end of the last tick that was taken in.
    pub(super) fn alignment(
        &self,
        state: &machine::Feed,
        (id, feed): (FeedId, &Feed),
        most: usize,
    ) -> Alignment {
        let Some(max_skew_ms) = feed.max_skew_ms() else {
            return Alignment::none(most);
        };
        let watermarks = feed.watermarks();
        let paces = self.0.get(&id).map(Vec::as_slice).unwrap_or_default();
        let lanes = state.lanes.iter().zip(feed.lanes()).enumerate();
        let lanes: Vec<Standing> = lanes
            .map(|(at, (lane, buffer))| Standing {
                watermark: watermarks.get(at).copied().flatten(),
                is_untouched: lane.fingerprint == 0,
                is_active: !lane.retired && !buffer.is_at_end(lane.cut),
                pace: paces.get(at).copied().unwrap_or_default(),
            })
            .collect();
        let is_up_to_date = feed.waits_since().is_none();
        Alignment {
            most,
            lanes: allow(&lanes, max_skew_ms, is_up_to_date, most),
        }
    }
}

/// By how many bytes each lane of a feed may be moved.
pub(super) struct Alignment {
    most: usize,
    /// Empty where lanes do not wait for each other.
    lanes: Vec<usize>,
}

impl Alignment {
    /// Every lane by as much as a tick may move.
    fn none(most: usize) -> Self {
        Self {
            most,
            lanes: Vec::new(),
        }
    }

    /// By how many bytes a lane may be moved; 0: it waits for others.
    pub(super) fn most(&self, lane: usize) -> usize {
        self.lanes.get(lane).copied().unwrap_or(self.most)
    }

    pub(super) fn holds(&self, lane: usize) -> bool {
        self.most(lane) == 0
    }

    pub(super) fn holds_any(&self) -> bool {
        self.lanes.contains(&0)
    }
}

/// How far a lane has come.
#[derive(Clone, Copy)]
struct Standing {
    watermark: Option<Timestamp>,
    /// Nothing of it was taken in yet.
    is_untouched: bool,
    /// There is more of it, or nobody knows.
    is_active: bool,
    pace: Pace,
}

/// By how many bytes each lane may be moved. The slowest active one is never held; one that has shown no time though some
/// of it was taken in has none that others could wait for.
fn allow(lanes: &[Standing], max_skew_ms: i64, is_up_to_date: bool, most: usize) -> Vec<usize> {
    let is_waited_for =
        |lane: &&Standing| lane.is_active && (lane.watermark.is_some() || lane.is_untouched);
    let waited_for = lanes.iter().filter(is_waited_for);
    // Nothing shown is before all times.
    let slowest = waited_for.map(|lane| lane.watermark).min();
    let allowed = |lane: &Standing| match (slowest, lane.watermark) {
        (None, _) => most,
        (_, None) => lane.pace.bytes_for(max_skew_ms, most),
        (Some(None), Some(_)) => 0,
        (Some(Some(slowest)), Some(watermark)) => {
            let ahead = watermark.0.saturating_sub(slowest.0).max(0);
            let room = max_skew_ms.saturating_sub(ahead);
            // What the last ticks did to it is not known yet.
            match room < 0 || (ahead > 0 && !is_up_to_date) {
                true => 0,
                false => lane.pace.bytes_for(room, most),
            }
        }
    };
    lanes.iter().map(allowed).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MOST: usize = 8 << 20;
    const PARTLY: usize = MOST / PART;

    fn at(watermark: impl Into<Option<i64>>) -> Standing {
        Standing {
            watermark: watermark.into().map(Timestamp),
            is_untouched: false,
            is_active: true,
            pace: Pace::default(),
        }
    }

    fn allowed(lanes: &[Standing]) -> Vec<usize> {
        allow(lanes, 100, true, MOST)
    }

    #[test]
    fn a_lane_too_far_ahead_waits_and_the_slowest_never_does() {
        let lanes = [at(1000), at(1100), at(1101)];
        assert_eq!(allowed(&lanes), [PARTLY, PARTLY, 0]);
        assert_eq!(allowed(&[at(i64::MIN), at(i64::MAX)]), [PARTLY, 0]);
    }

    #[test]
    fn who_has_nothing_more_is_not_waited_for() {
        let ended = Standing {
            is_active: false,
            ..at(0)
        };
        assert_eq!(allowed(&[ended, at(1000), at(1200)])[1..], [PARTLY, 0]);
        // It may go on at once when something comes, however far ahead the others are.
        assert_eq!(allowed(&[ended, at(1000)])[0], PARTLY);
        assert_eq!(allowed(&[ended, ended]), [MOST, MOST]);
    }

    #[test]
    fn what_was_not_read_yet_is_waited_for_and_what_has_no_times_is_not() {
        let untouched = Standing {
            is_untouched: true,
            ..at(None)
        };
        assert_eq!(allowed(&[untouched, at(5)]), [PARTLY, 0]);
        assert_eq!(allowed(&[untouched, untouched]), [PARTLY, PARTLY]);
        assert_eq!(allowed(&[at(None), at(5), at(200)]), [PARTLY, PARTLY, 0]);
    }

    #[test]
    fn while_the_last_ticks_are_not_taken_in_only_the_slowest_goes_on() {
        let lanes = [at(1000), at(1001), at(1001)];
        assert_eq!(allow(&lanes, 100, false, MOST), [PARTLY, 0, 0]);
    }

    #[test]
    fn a_tick_takes_about_as_much_event_time_as_is_left() {
        let mut pace = Pace::default();
        pace.measure(Some(Timestamp(1000)));
        pace.bytes = 1 << 20;
        pace.measure(Some(Timestamp(1000 + 1024)));
        assert_eq!(pace.bytes_for(512, MOST), 512 << 10);
        assert_eq!(pace.bytes_for(1, MOST), LEAST);
        assert_eq!(pace.bytes_for(i64::MAX, MOST), MOST);
        // Nothing was moved: nothing is learnt.
        pace.measure(Some(Timestamp(9000)));
        assert_eq!(pace.bytes_for(512, MOST), 512 << 10);
        // It stands for a while: not more than twice as much the next time.
        pace.bytes = 1 << 20;
        pace.measure(Some(Timestamp(1000 + 1024)));
        assert_eq!(pace.bytes_for(512, MOST), 1 << 20);
    }

    #[test]
    fn small_ticks_are_not_made_smaller() {
        assert_eq!(allow(&[at(0), at(1)], 100, true, 100), [100, 100]);
    }
}
