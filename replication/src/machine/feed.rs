//! One feed: whether an entry fits it, and what a tick makes of it.

use std::collections::BTreeMap;

use super::{AcceptedMove, AcceptedTick, Feed, Hole, Void};
use crate::command::FeedTick;

impl Feed {
    /// Where each of this feed's lanes is among another's, which may lack those that are retired; `None` if the two have
    /// not the same sources and lanes.
    #[must_use]
    pub fn places_in(&self, other: &Self) -> Option<Vec<Option<usize>>> {
        if self.sources != other.sources {
            return None;
        }
        let mut places: BTreeMap<_, usize> = (0..)
            .zip(&other.lanes)
            .map(|(place, lane)| (lane.key(), place))
            .collect();
        if places.len() != other.lanes.len() {
            return None;
        }
        let lanes = self.lanes.iter();
        let found: Vec<_> = lanes.map(|lane| places.remove(&lane.key())).collect();
        let mut lacking = self.lanes.iter().zip(&found);
        let fits = lacking.all(|(lane, place)| place.is_some() || lane.retired);
        (fits && places.is_empty()).then_some(found)
    }

    /// Whether both feeds have the same lanes, taken in to the same cuts.
    #[must_use]
    pub fn took_in_the_same(&self, other: &Self) -> bool {
        let Some(places) = self.places_in(other) else {
            return false;
        };
        let lanes = self.lanes.iter().zip(places);
        let mut pairs = lanes.filter_map(|(lane, place)| Some((lane, &other.lanes[place?])));
        pairs.all(|(lane, other)| lane.took_in_the_same(other))
    }

    /// Whether an entry that was built on `base` is still about this state. A held feed takes none.
    pub(super) fn check_base(&self, base: u64) -> Result<(), Void> {
        match () {
            () if self.base != base => Err(Void::Base),
            () if self.held.is_some() => Err(Void::Held),
            () => Ok(()),
        }
    }

    pub(super) fn check(&self, tick: &FeedTick) -> Result<(), Void> {
        self.check_base(tick.base)?;
        if self.agreed_ms.is_some_and(|agreed| tick.agreed_ms < agreed) {
            return Err(Void::Backwards);
        }
        let mut previous = None;
        for step in &tick.moves {
            let lane = self.lanes.get(step.lane as usize).ok_or(Void::Name)?;
            if lane.retired {
                return Err(Void::Name);
            }
            if step.cut <= lane.cut || previous.is_some_and(|previous| step.lane <= previous) {
                return Err(Void::Backwards);
            }
            previous = Some(step.lane);
        }
        self.check_empty(tick)?;
        let known = |lane: &u32| (*lane as usize) < self.lanes.len();
        if tick.at_end.iter().all(known) {
            Ok(())
        } else {
            Err(Void::Name)
        }
    }

    /// A hole lies beyond the cut that its lane has after the tick.
    fn check_empty(&self, tick: &FeedTick) -> Result<(), Void> {
        let mut previous = None;
        for hole in &tick.empty {
            let lane = self.lanes.get(hole.lane as usize).ok_or(Void::Name)?;
            let moved = tick.moves.iter().find(|step| step.lane == hole.lane);
            let cut = moved.map_or(lane.cut, |step| step.cut);
            if hole.empty_to <= cut || previous.is_some_and(|previous| hole.lane <= previous) {
                return Err(Void::Backwards);
            }
            previous = Some(hole.lane);
        }
        Ok(())
    }

    pub(super) fn accept(&mut self, index: u64, tick: &FeedTick) -> AcceptedTick {
        let mut moves = Vec::with_capacity(tick.moves.len());
        for step in &tick.moves {
            let lane = &mut self.lanes[step.lane as usize];
            moves.push(AcceptedMove {
                lane: step.lane,
                from: lane.cut,
                to: step.cut,
                fingerprint: step.fingerprint,
            });
            lane.take_in(step.cut, step.fingerprint);
        }
        for &lane in &tick.at_end {
            self.lanes[lane as usize].ended = true;
        }
        let holes = tick.empty.iter().map(|&of| {
            let lane = &mut self.lanes[of.lane as usize];
            let (from, to) = (lane.cut, of.empty_to);
            lane.hole = Hole { from, to };
            (of.lane, lane.hole)
        });
        let holes = holes.collect();
        self.base = index;
        self.ticks += 1;
        self.agreed_ms = Some(tick.agreed_ms);
        AcceptedTick {
            feed: tick.feed,
            agreed_ms: tick.agreed_ms,
            clock_ms: tick.clock_ms,
            moves,
            at_end: tick.at_end.clone(),
            holes,
            alone: tick.alone,
        }
    }
}
