//! The agreed state: what the log has said so far. Pure; every replica's is the same at the same index.
//!
//! It decides whether an entry counts. A tick counts only if it builds on the last accepted entry of its feed
//! (compare-and-set), so two proposals that overlap can't both count, whatever a leader believed when it made them.

mod config;
mod feed;
mod holding;
mod lane;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::command::{
    AddLanes, Command, CreateFeed, CreatePipeline, FeedId, FrontierMoves, JoinFeeds, LaneEntry,
    RetireLanes, SinkEntry, SourceEntry, StreamKey, Ticks,
};
pub use config::{BUILTIN_SINK, Wanted};
pub use holding::{Ended, Held};
pub use lane::{Hole, Lane, Mark, Marks};

/// The agreed state at one index of the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    feeds: BTreeMap<FeedId, Feed>,
    pipelines: BTreeMap<u64, Pipeline>,
    frontier: BTreeMap<StreamKey, u64>,
    /// The cluster's random name; `None` before its first entry.
    cluster: Option<u128>,
    sinks: BTreeMap<String, SinkEntry>,
    /// Pipelines that an operator wants and that are not created yet, by name.
    wanted: BTreeMap<String, Wanted>,
    /// Names of pipelines that an operator removed and that files may still name.
    removed: BTreeSet<String>,
    /// From which number on a stream goes to the sink that it goes to now, where that is not 0.
    begins: BTreeMap<StreamKey, u64>,
}

/// What is agreed of one feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Feed {
    /// What it reads.
    pub sources: Vec<SourceEntry>,
    /// Its lanes; a lane's place here is its number.
    pub lanes: Vec<Lane>,
    /// The index of the last accepted entry: the base of the next.
    pub base: u64,
    /// Ticks accepted so far.
    pub ticks: u64,
    /// The last tick's time in milliseconds since 1970; `None` before the first.
    pub agreed_ms: Option<i64>,
    /// It stands still until it is decided what becomes of one of its ticks.
    pub held: Option<Held>,
    /// Ticks that do not count any more, the oldest first.
    pub ended: Vec<Ended>,
    /// The last tick that was in dispute, and that an operator has accepted.
    pub accepted: Option<u64>,
    /// The last entry that cannot be undone together with ticks before it: lanes retired, or another feed came.
    pub bound: u64,
}

/// A pipeline as it was created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// The feed whose records it takes in.
    pub feed: FeedId,
    /// Its name; unique among the pipelines.
    pub name: String,
    /// The name of its sink.
    pub sink: String,
    /// The checked definition, as canonical JSON.
    pub definition: String,
    /// Its rows are computed and not published.
    pub paused: bool,
}

/// What an entry did.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Nothing: the reason, for the counters.
    Void(Void),
    /// A feed begins.
    FeedCreated(FeedId),
    /// A pipeline begins.
    PipelineCreated {
        /// The index of the entry.
        incarnation: u64,
    },
    /// A feed got lanes.
    LanesAdded {
        /// The feed.
        feed: FeedId,
        /// The number of the first of them.
        first: u32,
    },
    /// Lanes of a feed hold nothing back any more.
    LanesRetired {
        /// The feed.
        feed: FeedId,
        /// Their numbers, in order.
        lanes: Vec<u32>,
    },
    /// Feeds have a tick to take in, in this order.
    Ticked(Vec<AcceptedTick>),
    /// What counts as published moved, or stayed.
    FrontierMoved,
    /// Two feeds are one.
    FeedsJoined {
        /// The feed that is gone.
        from: FeedId,
        /// The feed that its pipelines belong to now.
        into: FeedId,
    },
    /// The agreed configuration changed, and nothing that computes.
    ConfigChanged,
    /// A feed stands still.
    FeedHeld(FeedId),
    /// A feed stands still right after a state that checkpoints have.
    FeedParked(FeedId),
    /// It goes on, and what the log says counts.
    FeedReleased {
        /// The feed.
        feed: FeedId,
        /// The entry whose tick was in dispute.
        tick: u64,
    },
    /// It goes on from before a tick.
    TicksEnded(FeedId),
    /// A pipeline ends here.
    PipelineRemoved {
        /// The one that ends.
        incarnation: u64,
        /// The feed that it belonged to.
        feed: FeedId,
    },
}

/// A tick that counts.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedTick {
    /// The feed that takes it in.
    pub feed: FeedId,
    /// Agreed time in milliseconds since 1970.
    pub agreed_ms: i64,
    /// What the replicas' clocks said, in milliseconds since 1970: it judges what lies in the future.
    pub clock_ms: i64,
    /// Lanes whose cut moves, by lane.
    pub moves: Vec<AcceptedMove>,
    /// Lanes that were at their end, by lane.
    pub at_end: Vec<u32>,
    /// Lanes that hold no record for a stretch beyond their cut.
    pub holes: Vec<(u32, Hole)>,
    /// Nobody but the proposer held these cuts.
    pub alone: bool,
}

/// The records of one lane in a tick: offsets `from..to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedMove {
    /// The lane's number.
    pub lane: u32,
    /// The cut before.
    pub from: i64,
    /// The cut from now on.
    pub to: i64,
    /// The fingerprint of what the proposer read up to `to`.
    pub fingerprint: u64,
}

/// Why an entry did not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Void {
    /// Proposed under another term than it was appended in.
    Term,
    /// Built on an entry that is not the feed's last.
    Base,
    /// Names a feed, lane or pipeline that is not there, or one that already is.
    Name,
    /// Moves a lane or the time backwards.
    Backwards,
    /// Joins feeds that have not taken in the same.
    Apart,
    /// The feed is held, or is not.
    Held,
}

impl Machine {
    /// Takes in the command at `index`, appended in `term`.
    pub fn apply(&mut self, index: u64, term: u64, command: &Command) -> Effect {
        if command.term() != term {
            return Effect::Void(Void::Term);
        }
        let done = match command {
            Command::CreateFeed(command) => self.create_feed(index, command),
            Command::CreatePipeline(command) => self.create_pipeline(index, command),
            Command::AddLanes(command) => self.add_lanes(index, command),
            Command::Ticks(command) => self.tick(index, command),
            Command::Frontier(command) => Ok(self.move_frontier(command)),
            Command::JoinFeeds(command) => self.join_feeds(index, *command),
            Command::BeginCluster(command) => self.begin_cluster(*command),
            Command::SetSink(command) => self.set_sink(command),
            Command::ApplyPipeline(command) => self.apply_pipeline(command),
            Command::RemovePipeline(command) => self.remove_pipeline(command),
            Command::PausePipeline(command) => self.pause_pipeline(command),
            Command::ForgetRemoved(command) => self.forget_removed(command),
            Command::RetireLanes(command) => self.retire_lanes(index, command),
            Command::HoldFeed(command) => self.hold_feed(index, command),
            Command::ReleaseFeed(command) => self.release_feed(index, *command),
            Command::EndTicks(command) => self.end_ticks(index, command),
            Command::ParkFeed(command) => self.park_feed(index, command),
        };
        done.unwrap_or_else(Effect::Void)
    }

    fn create_feed(&mut self, index: u64, command: &CreateFeed) -> Result<Effect, Void> {
        let known = |lane: &LaneEntry| (lane.source as usize) < command.sources.len();
        if !command.lanes.iter().all(known) {
            return Err(Void::Name);
        }
        let feed = Feed {
            sources: command.sources.clone(),
            lanes: command.lanes.iter().map(Lane::new).collect(),
            base: index,
            ticks: 0,
            agreed_ms: None,
            held: None,
            ended: Vec::new(),
            accepted: None,
            bound: 0,
        };
        self.feeds.insert(FeedId(index), feed);
        Ok(Effect::FeedCreated(FeedId(index)))
    }

    fn create_pipeline(&mut self, index: u64, command: &CreatePipeline) -> Result<Effect, Void> {
        let feed = self.feeds.get(&command.feed).ok_or(Void::Name)?;
        // A pipeline that joined later would have missed records that its rows should hold.
        if feed.ticks > 0 || !self.may_be_created(command) {
            return Err(Void::Name);
        }
        self.wanted.remove(&command.name);
        let pipeline = Pipeline {
            feed: command.feed,
            name: command.name.clone(),
            sink: command.sink.clone(),
            definition: command.definition.clone(),
            paused: false,
        };
        self.pipelines.insert(index, pipeline);
        Ok(Effect::PipelineCreated { incarnation: index })
    }

    fn add_lanes(&mut self, index: u64, command: &AddLanes) -> Result<Effect, Void> {
        let feed = self.feeds.get_mut(&command.feed).ok_or(Void::Name)?;
        feed.check_base(command.base)?;
        let mut taken: BTreeSet<(u32, &str)> = feed
            .lanes
            .iter()
            .filter(|lane| !lane.retired)
            .map(|lane| (lane.source, lane.name.as_str()))
            .collect();
        for lane in &command.lanes {
            let known = (lane.source as usize) < feed.sources.len();
            if !known || !taken.insert((lane.source, &lane.name)) {
                return Err(Void::Name);
            }
        }
        let first = u32::try_from(feed.lanes.len()).map_err(|_| Void::Name)?;
        feed.lanes.extend(command.lanes.iter().map(Lane::new));
        feed.base = index;
        Ok(Effect::LanesAdded {
            feed: command.feed,
            first,
        })
    }

    /// A lane that was not at its end, as far as anybody knew, may have more: whoever says otherwise is wrong.
    fn retire_lanes(&mut self, index: u64, command: &RetireLanes) -> Result<Effect, Void> {
        let feed = self.feeds.get_mut(&command.feed).ok_or(Void::Name)?;
        feed.check_base(command.base)?;
        let mut previous = None;
        for &lane in &command.lanes {
            let known = feed.lanes.get(lane as usize).ok_or(Void::Name)?;
            if !known.ended || known.retired || previous.is_some_and(|previous| lane <= previous) {
                return Err(Void::Name);
            }
            previous = Some(lane);
        }
        for &lane in &command.lanes {
            feed.lanes[lane as usize].retired = true;
        }
        (feed.base, feed.bound) = (index, index);
        Ok(Effect::LanesRetired {
            feed: command.feed,
            lanes: command.lanes.clone(),
        })
    }

    fn tick(&mut self, index: u64, command: &Ticks) -> Result<Effect, Void> {
        let mut seen = BTreeSet::new();
        for tick in &command.feeds {
            if !seen.insert(tick.feed) {
                return Err(Void::Name);
            }
            self.feeds.get(&tick.feed).ok_or(Void::Name)?.check(tick)?;
        }
        let mut accepted = Vec::with_capacity(command.feeds.len());
        for tick in &command.feeds {
            if let Some(feed) = self.feeds.get_mut(&tick.feed) {
                accepted.push(feed.accept(index, tick));
            }
        }
        Ok(Effect::Ticked(accepted))
    }

    /// Of streams that ended, or go to another sink by now, a late word does not count.
    fn move_frontier(&mut self, command: &FrontierMoves) -> Effect {
        for &(key, next) in &command.next {
            if self.sink_of(key) != Some(&command.sink) {
                continue;
            }
            let known = self.frontier.entry(key).or_default();
            *known = next.max(*known);
        }
        Effect::FrontierMoved
    }

    /// The fingerprints need not be equal: their chains may have begun at different offsets. Those of `into` go on.
    fn join_feeds(&mut self, index: u64, command: JoinFeeds) -> Result<Effect, Void> {
        let JoinFeeds { from, into, .. } = command;
        let (Some(leaves), Some(stays)) = (self.feeds.get(&from), self.feeds.get(&into)) else {
            return Err(Void::Name);
        };
        if from == into {
            return Err(Void::Name);
        }
        leaves.check_base(command.from_base)?;
        stays.check_base(command.into_base)?;
        // Agreed time must not go back for those who come.
        if stays.agreed_ms < leaves.agreed_ms {
            return Err(Void::Backwards);
        }
        if !stays.took_in_the_same(leaves) {
            return Err(Void::Apart);
        }
        self.feeds.remove(&from);
        for pipeline in self.pipelines.values_mut() {
            if pipeline.feed == from {
                pipeline.feed = into;
            }
        }
        if let Some(stays) = self.feeds.get_mut(&into) {
            (stays.base, stays.bound) = (index, index);
        }
        Ok(Effect::FeedsJoined { from, into })
    }

    /// All feeds, by their id.
    #[must_use]
    pub fn feeds(&self) -> &BTreeMap<FeedId, Feed> {
        &self.feeds
    }

    /// All pipelines, by their incarnation.
    #[must_use]
    pub fn pipelines(&self) -> &BTreeMap<u64, Pipeline> {
        &self.pipelines
    }

    /// The pipeline of that name and its incarnation.
    #[must_use]
    pub fn pipeline_named(&self, name: &str) -> Option<(u64, &Pipeline)> {
        let found = self
            .pipelines
            .iter()
            .find(|(_, pipeline)| pipeline.name == name);
        found.map(|(&incarnation, pipeline)| (incarnation, pipeline))
    }

    /// The next number of a stream that is to be published; 0 if none ever was.
    #[must_use]
    pub fn frontier(&self, key: StreamKey) -> u64 {
        self.frontier.get(&key).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
