//! Feeds that are held for a tick in dispute, and what becomes of that tick.
//!
//! A tick that was made alone may be wrong, and its rows may be out already. When most replicas read something else, the feed
//! stands still by an entry, which remembers where the lanes stood before that tick. Two entries lead on: one says that the
//! log counts, the other that the tick and all after it do not. Then the lanes go back to where they stood, and the numbers
//! of rows go on behind all that was published: no number is ever used for a second row. Where the log counts, the lanes stay
//! where they are, and fingerprints begin anew there: who read something else below can read on all the same.

use serde::{Deserialize, Serialize};

use super::{Effect, Feed, Lane, Machine, Void};
use crate::command::{
    Decider, Dispute, EndTicks, FeedId, HoldFeed, LaneStand, ParkFeed, ReleaseFeed, Stream,
    StreamEnd, StreamKey,
};

/// So many of the last decisions are remembered for people and for replicas on their way through the log.
const REMEMBERED: usize = 64;

/// Why a feed is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The entry that holds it.
    pub since: u64,
    /// The entry whose tick is in dispute.
    pub tick: u64,
    /// Where its lanes stood before that tick, by lane.
    pub stands: Vec<LaneStand>,
    /// That tick was made alone.
    pub alone: bool,
    /// Who wanted it.
    pub by: Decider,
    /// What is in dispute, as far as it is known.
    pub dispute: Option<Dispute>,
    /// The log from this index on is kept for the feed no more: whoever goes on from before the tick has the state there.
    pub parked: Option<u64>,
}

/// Ticks that do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The entry of the first of them.
    pub from: u64,
    /// The entry that ended them.
    pub at: u64,
    /// Of which lanes nothing is taken in from where they stood up to an offset: lane, from, to.
    pub skipped: Vec<(u32, i64, i64)>,
    /// Behind what the numbers of rows go on.
    pub streams: Vec<StreamEnd>,
}

impl Ended {
    /// Whether what entry `index` says of the feed's records does not count.
    #[must_use]
    pub fn covers(&self, index: u64) -> bool {
        (self.from..self.at).contains(&index)
    }
}

impl Machine {
    pub(super) fn hold_feed(&mut self, index: u64, command: &HoldFeed) -> Result<Effect, Void> {
        let feed = self.feeds.get_mut(&command.feed).ok_or(Void::Name)?;
        feed.check_base(command.base)?;
        if command.tick > feed.base || !feed.can_have_stood(&command.stands) {
            return Err(Void::Backwards);
        }
        feed.held = Some(Held {
            since: index,
            tick: command.tick,
            stands: command.stands.clone(),
            alone: command.alone,
            by: command.by,
            dispute: command.dispute.clone(),
            parked: None,
        });
        feed.base = index;
        Ok(Effect::FeedHeld(command.feed))
    }

    /// One that is held already is held further back; what was told of its tick stays. It may be parked at another state again,
    /// where the one before was lost.
    pub(super) fn park_feed(&mut self, index: u64, command: &ParkFeed) -> Result<Effect, Void> {
        let feed = self.feeds.get_mut(&command.feed).ok_or(Void::Name)?;
        if feed.base != command.base {
            return Err(Void::Base);
        }
        // Nothing that is in dispute becomes undisputed by that.
        let disputed = feed.held.as_ref().filter(|held| held.parked.is_none());
        let too_far = disputed.is_some_and(|held| command.state >= held.tick);
        if command.state >= feed.base || too_far || !feed.can_have_stood(&command.stands) {
            return Err(Void::Backwards);
        }
        if feed.bound > command.state || feed.has_ended(command.state) {
            return Err(Void::Apart);
        }
        let held = feed.held.take();
        feed.held = Some(Held {
            since: held.as_ref().map_or(index, |held| held.since),
            tick: command.state + 1,
            stands: command.stands.clone(),
            alone: held.as_ref().is_some_and(|held| held.alone),
            by: held.as_ref().map_or(Decider::Length, |held| held.by),
            dispute: held.and_then(|held| held.dispute),
            parked: Some(command.state),
        });
        feed.base = index;
        Ok(Effect::FeedParked(command.feed))
    }

    pub(super) fn release_feed(
        &mut self,
        index: u64,
        command: ReleaseFeed,
    ) -> Result<Effect, Void> {
        let held = self.held_feed(command.feed, command.base)?;
        let tick = held.tick;
        let feed = self.feeds.get_mut(&command.feed).ok_or(Void::Name)?;
        (feed.base, feed.held, feed.accepted) = (index, None, Some(tick));
        // What replicas read of what is accepted need not lead up to its fingerprint: they are compared from here on.
        for lane in feed.lanes.iter_mut().filter(|lane| !lane.retired) {
            lane.begin_at(lane.cut);
        }
        Ok(Effect::FeedReleased {
            feed: command.feed,
            tick,
        })
    }

    /// The whole entry is checked before anything changes.
    pub(super) fn end_ticks(&mut self, index: u64, command: &EndTicks) -> Result<Effect, Void> {
        let id = command.feed;
        let held = self.held_feed(id, command.base)?.clone();
        let feed = &self.feeds[&id];
        // What came of those entries cannot be undone with the ticks around it.
        if feed.bound >= held.tick {
            return Err(Void::Apart);
        }
        let mut lanes = feed.stood(&held.stands);
        let mut skipped: Vec<(u32, i64, i64)> = Vec::new();
        for &(lane, to) in &command.skips {
            let stood = lanes.get_mut(lane as usize).ok_or(Void::Name)?;
            let is_next = skipped.last().is_none_or(|&(last, ..)| last < lane);
            if to <= stood.cut || stood.retired || !is_next {
                return Err(Void::Backwards);
            }
            skipped.push((lane, stood.cut, to));
            stood.begin_at(to);
        }
        self.check_streams(id, &command.streams)?;
        let feed = self.feeds.get_mut(&id).ok_or(Void::Name)?;
        (feed.base, feed.held, feed.lanes) = (index, None, lanes);
        if feed.ended.len() == REMEMBERED {
            feed.ended.remove(0);
        }
        feed.ended.push(Ended {
            from: held.tick,
            at: index,
            skipped,
            streams: command.streams.clone(),
        });
        Ok(Effect::TicksEnded(id))
    }

    fn held_feed(&self, feed: FeedId, base: u64) -> Result<&Held, Void> {
        let feed = self.feeds.get(&feed).ok_or(Void::Name)?;
        if feed.base != base {
            return Err(Void::Base);
        }
        feed.held.as_ref().ok_or(Void::Held)
    }

    /// All streams of the feed, each in order and behind what is known to be published.
    fn check_streams(&self, feed: FeedId, ends: &[StreamEnd]) -> Result<(), Void> {
        let pipelines = self.pipelines.iter().filter(|(_, it)| it.feed == feed);
        let streams = pipelines.flat_map(|(&incarnation, _)| {
            [Stream::Rows, Stream::DeadLetters].map(|stream| StreamKey {
                incarnation,
                stream,
            })
        });
        if !streams.eq(ends.iter().map(|end| end.stream)) {
            return Err(Void::Name);
        }
        let is_behind = |end: &StreamEnd| end.next >= self.frontier(end.stream);
        match ends.iter().all(is_behind) {
            true => Ok(()),
            false => Err(Void::Backwards),
        }
    }

    pub(super) fn is_parked(&self, feed: FeedId) -> bool {
        self.feeds
            .get(&feed)
            .is_some_and(|feed| feed.parked().is_some())
    }

    /// Whether the feed's rows are not published for now.
    #[must_use]
    pub fn is_held(&self, feed: FeedId) -> bool {
        self.feeds
            .get(&feed)
            .is_some_and(|feed| feed.held.is_some())
    }
}

impl Feed {
    fn can_have_stood(&self, stands: &[LaneStand]) -> bool {
        let mut lanes = stands.iter().zip(&self.lanes);
        let fits = lanes
            .all(|(stand, lane)| stand.cut <= lane.cut && stand.marks.start == lane.marks.start);
        fits && stands.len() <= self.lanes.len()
    }

    /// The index of the state that it is parked at.
    #[must_use]
    pub fn parked(&self) -> Option<u64> {
        self.held.as_ref().and_then(|held| held.parked)
    }

    /// Its lanes as they stood; those that came later have given nothing.
    fn stood(&self, stands: &[LaneStand]) -> Vec<Lane> {
        let mut lanes = self.lanes.clone();
        for (at, lane) in lanes.iter_mut().enumerate() {
            match stands.get(at) {
                Some(stand) => {
                    (lane.cut, lane.fingerprint) = (stand.cut, stand.fingerprint);
                    lane.marks = stand.marks;
                }
                None => lane.begin_at(lane.marks.start),
            }
            lane.ended = false;
        }
        lanes
    }

    /// Where its lanes stand.
    #[must_use]
    pub fn stands(&self) -> Vec<LaneStand> {
        let stand = |lane: &Lane| LaneStand {
            cut: lane.cut,
            fingerprint: lane.fingerprint,
            marks: lane.marks,
        };
        self.lanes.iter().map(stand).collect()
    }

    /// Whether what entry `index` says of its records does not count.
    #[must_use]
    pub fn has_ended(&self, index: u64) -> bool {
        self.ended.iter().any(|ended| ended.covers(index))
    }

    /// Whether a state of the feed at this index holds nothing that is in dispute or was ended.
    #[must_use]
    pub fn counts_at(&self, index: u64) -> bool {
        let disputed = self.held.as_ref().is_some_and(|held| index >= held.tick);
        !disputed && !self.has_ended(index)
    }
}
