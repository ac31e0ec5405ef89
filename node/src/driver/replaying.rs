//! A feed that is computed again from this node's own checkpoint: rows that are here are compared.

use std::io;
use std::sync::Arc;

use unisono_replication::command::FeedId;
use unisono_replication::machine::Effect;

use super::healing::{Healed, refused};
use super::{Driver, end};
use crate::checkpoint::{Replay, StoredCheckpoint};
use crate::config::NodeConfig;
use crate::core::Core;
use crate::feed::{Feed, FeedPlan};

/// What the status says of a feed meanwhile.
const UNDER_WAY: &str =
    "its rows are in dispute: it is computed again from this node's last checkpoint";

/// A feed that was taken out.
pub struct Rewound {
    feed: FeedId,
    base: Option<StoredCheckpoint>,
    /// How far the log was read.
    read: u64,
    stopped: Option<Arc<Feed>>,
    core: Arc<Core>,
}

impl Driver {
    /// Takes a feed out that is to go on from this node's own checkpoint.
    pub(super) fn take_back(&mut self, feed: FeedId) -> io::Result<Rewound> {
        let base = self.core.checkpoints.current();
        let mut agreed = self.core.agreed_mut();
        if !agreed.machine.has_pipelines(feed)
            || self.pending.contains_key(&feed)
            || self.created.contains_key(&feed)
        {
            return Err(refused("the feed is another one by now"));
        }
        let stopped = agreed.feeds.remove(&feed);
        agreed.refused.insert(feed, UNDER_WAY.to_owned());
        Ok(Rewound {
            feed,
            base,
            read: self.position.index,
            stopped,
            core: Arc::clone(&self.core),
        })
    }
}

impl Rewound {
    /// What the feed begins again with.
    ///
    /// # Errors
    /// The checkpoint or the log cannot be read.
    pub fn begin_again(self) -> io::Result<Healed> {
        let Self { feed, base, .. } = self;
        end(self.stopped);
        let (replica, config) = (&self.core.replica, &self.core.config);
        let header = base.as_ref().map(StoredCheckpoint::header);
        let stands = header.and_then(|header| header.feeds.get(&feed).copied());
        if let Some((base, index)) = base.as_ref().zip(stands) {
            let mut replay = Replay::begin(replica, header)?;
            replay.read_up_to(index, |_, _, _| {})?;
            let plan = FeedPlan::new(replay.machine(), feed, config);
            return Ok(Healed {
                feed,
                index,
                plan: super::install::restore(plan, feed, base, &self.core.state_room)?,
                replay,
                again: true,
            });
        }
        let begin = || Replay::begin(replica, header);
        from_nothing(feed, self.read, begin, config)
    }
}

/// A feed that the checkpoint does not know begins where it began: before the first entry that moves it.
fn from_nothing(
    feed: FeedId,
    read: u64,
    begin: impl Fn() -> io::Result<Replay>,
    config: &NodeConfig,
) -> io::Result<Healed> {
    let mut first = None;
    begin()?.read_up_to(read, |index, effect, _| {
        let moves = match effect {
            Effect::Ticked(ticks) => ticks.iter().any(|tick| tick.feed == feed),
            Effect::LanesAdded { feed: id, .. } | Effect::LanesRetired { feed: id, .. } => {
                id == feed
            }
            Effect::FeedsJoined { into, .. } => into == feed,
            _ => false,
        };
        if moves {
            first.get_or_insert(index);
        }
    })?;
    let index = first.ok_or_else(|| refused("it has taken nothing in"))? - 1;
    let mut replay = begin()?;
    replay.read_up_to(index, |_, _, _| {})?;
    let plan = FeedPlan::new(replay.machine(), feed, config).map(FeedPlan::begin);
    Ok(Healed {
        feed,
        index,
        plan,
        replay,
        again: true,
    })
}
