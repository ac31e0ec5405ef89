//! A feed that takes its state from a peer's checkpoint while all others go on.

use std::io;

use unisono_replication::command::FeedId;
use unisono_replication::machine::{Effect, Machine};

use super::{Driver, Part, end};
use crate::checkpoint::{Replay, take_rows};
use crate::feed::{Feed, FeedPlan};
use crate::snapshots::copy;
use crate::source::LaneTrail;

impl Driver {
    /// Puts a peer's part in the place of this node's: rows first, then a checkpoint that names them, then the feed begins
    /// there and follows the log up to where it was read. Gives the index at which the part stands.
    pub(super) fn heal(&mut self, part: Part) -> io::Result<u64> {
        let Part { feed, mut parcel } = part;
        let index = parcel.header().feeds.get(&feed).copied().unwrap_or(0);
        let base = self.store.current().ok_or_else(|| refused("there is no checkpoint here"))?;
        let known = base.header().feeds.get(&feed).copied();
        if index <= known.unwrap_or(base.header().index) || index > self.position.index {
            return Err(refused("it stands elsewhere than this node needs"));
        }
        let stopped = {
            let mut agreed = self.core.agreed_mut();
            if !agreed.machine.has_pipelines(feed) || self.pending.contains_key(&feed) {
                return Err(refused("the feed is another one by now"));
            }
            if agreed.feeds.get(&feed).is_some_and(|own| own.index() >= index) {
                return Err(refused("the feed goes on by itself"));
            }
            agreed.feeds.remove(&feed)
        };
        // It ends here: nothing else writes its rows meanwhile.
        end(stopped);
        let mut header = base.header().clone();
        header.feeds.insert(feed, index);
        header.made_at = self.position.index;
        let mut checkpoint = self.store.begin(header)?;
        copy(&base, &mut checkpoint, |other| other != feed)?;
        take_rows(&mut parcel, &self.core.results, &mut checkpoint)?;
        let stored = self.store.finish(checkpoint)?;
        let mut replay = Replay::begin(&self.core.replica, Some(stored.header()))?;
        replay.read_up_to(index, |_, _, _| {})?;
        let plan = FeedPlan::new(replay.machine(), feed, &self.core.config);
        let plan = super::install::restore(plan, feed, &stored)?;
        self.start_feed(&mut self.core.agreed_mut(), feed, plan, index);
        let healed = self.core.agreed().feeds.get(&feed).cloned();
        if let Some(healed) = healed {
            let mut changed = false;
            replay.read_up_to(self.position.index, |index, effect, machine| {
                changed |= !lead_on(&healed, index, effect, machine);
            })?;
            if changed {
                let reason = "other pipelines came to the feed, or left it, since the peer's checkpoint: it begins again \
                              with the next one";
                self.give_up(feed, reason);
            }
        }
        self.core.notify();
        Ok(index)
    }

    /// Ends a feed that cannot go on here as it is.
    pub(super) fn give_up(&mut self, id: FeedId, reason: &str) {
        tracing::error!(feed = id.0, reason, "feed ended");
        let mut agreed = self.core.agreed_mut();
        agreed.refused.insert(id, reason.to_owned());
        let ended = agreed.feeds.remove(&id);
        drop(agreed);
        if let Some(feed) = &ended {
            feed.abandon();
        }
        self.leaving.extend(ended);
    }
}

/// Hands a feed what an entry says of it; `false` if it has to begin otherwise.
fn lead_on(feed: &Feed, index: u64, effect: Effect, machine: &Machine) -> bool {
    let own = feed.id;
    match effect {
        Effect::Ticked(ticks) => {
            let mut own = ticks.into_iter().filter(|tick| tick.feed == own);
            return own.all(|tick| feed.tick(index, tick));
        }
        Effect::LanesAdded { feed: id, first } if id == own => {
            for lane in &machine.feeds()[&id].lanes[first as usize..] {
                feed.add_lane(index, lane.source as usize, LaneTrail::of(lane));
            }
        }
        Effect::LanesRetired { feed: id, lanes } if id == own => {
            for lane in lanes {
                let retired = &machine.feeds()[&id].lanes[lane as usize];
                feed.retire_lane(index, lane, retired.source as usize, retired.name.clone());
            }
        }
        Effect::FeedsJoined { into, .. } => return into != own,
        Effect::PipelineRemoved { feed: id, .. } => return id != own,
        _ => {}
    }
    true
}

fn refused(why: &str) -> io::Error {
    io::Error::other(format!("a peer's state of a feed is not taken: {why}"))
}
