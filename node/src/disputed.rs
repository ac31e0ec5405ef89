//! Finds a tick in the agreed log again, and where its feed's lanes stood before it.

use std::io;

use unisono_replication::command::{FeedId, LaneStand};
use unisono_replication::machine::{AcceptedTick, Effect};

use crate::checkpoint::{Replay, StoredCheckpoint};
use crate::core::Core;

/// Which tick is looked for.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// The one that moves a lane so.
    Move {
        /// The lane's place in the feed.
        lane: u32,
        /// The cut before.
        from: i64,
        /// The cut after.
        to: i64,
    },
    /// The first one beyond an entry.
    Beyond(u64),
}

/// A tick of the log.
#[derive(Debug)]
pub struct FoundTick {
    /// Its entry.
    pub index: u64,
    /// Nobody but its proposer held what it takes in.
    pub alone: bool,
    /// Where the lanes stood before it.
    pub stands: Vec<LaneStand>,
}

/// Looks through the log from this node's checkpoint on; `None`: there is no such tick, or not any more.
///
/// # Errors
/// The log cannot be read.
pub fn find(core: &Core, feed: FeedId, wanted: Wanted) -> io::Result<Option<FoundTick>> {
    let (end, known) = {
        let agreed = core.agreed();
        (agreed.index, agreed.machine.feeds().get(&feed).cloned())
    };
    let Some(known) = known else { return Ok(None) };
    let base = core.checkpoints.current();
    let header = base.as_ref().map(StoredCheckpoint::header);
    let mut found = None;
    let mut replay = Replay::begin(&core.replica, header)?;
    replay.read_up_to(end, |index, effect, _| {
        let Effect::Ticked(ticks) = effect else {
            return;
        };
        let tick = ticks.iter().find(|tick| tick.feed == feed);
        let is_it = |tick: &&AcceptedTick| is_wanted(tick, index, wanted);
        if let Some(tick) = tick.filter(is_it)
            && found.is_none()
            && !known.has_ended(index)
        {
            found = Some((index, tick.alone));
        }
    })?;
    let Some((index, alone)) = found else {
        return Ok(None);
    };
    let stands = stands_at(core, feed, index - 1)?;
    Ok(stands.map(|stands| FoundTick {
        index,
        alone,
        stands,
    }))
}

/// Where a feed's lanes stood at an index of the log; `None`: the log does not reach back to that.
///
/// # Errors
/// The log cannot be read.
pub fn stands_at(core: &Core, feed: FeedId, index: u64) -> io::Result<Option<Vec<LaneStand>>> {
    let base = core.checkpoints.current();
    let header = base.as_ref().map(StoredCheckpoint::header);
    if header.is_some_and(|header| header.index > index) {
        return Ok(None);
    }
    let mut replay = Replay::begin(&core.replica, header)?;
    replay.read_up_to(index, |_, _, _| {})?;
    let known = replay.machine().feeds().get(&feed);
    Ok(known.map(|known| known.stands()))
}

fn is_wanted(tick: &AcceptedTick, index: u64, wanted: Wanted) -> bool {
    match wanted {
        Wanted::Move { lane, from, to } => {
            let mut moves = tick.moves.iter();
            moves.any(|step| (step.lane, step.from, step.to) == (lane, from, to))
        }
        Wanted::Beyond(taken) => index > taken,
    }
}
