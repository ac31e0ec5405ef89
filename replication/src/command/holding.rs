//! Entries about feeds whose ticks are in dispute: one that holds the feed, and the two ways out.

use serde::{Deserialize, Serialize};

use super::{FeedId, StreamKey};
use crate::machine::Marks;

/// Who wants a feed to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decider {
    /// Most replicas read the same, and it is not what the log says.
    Majority,
    /// An operator's command.
    Operator,
    /// Nobody can lead the feed on, and the agreed log is kept for it.
    Length,
}

/// A feed makes no ticks and publishes nothing until it is decided what becomes of one of its ticks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldFeed {
    /// The proposer's term.
    pub term: u64,
    /// The feed.
    pub feed: FeedId,
    /// The feed's last accepted entry, as the proposer knew it.
    pub base: u64,
    /// The entry whose tick is in dispute.
    pub tick: u64,
    /// Where the lanes that there were stood before that tick, by lane.
    pub stands: Vec<LaneStand>,
    /// Nobody but its proposer held what that tick takes in.
    pub alone: bool,
    /// Who wants it.
    pub by: Decider,
    /// What is in dispute, as far as it is known.
    pub dispute: Option<Dispute>,
}

/// How far a lane was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStand {
    /// All records below are taken in.
    pub cut: i64,
    /// Their fingerprint.
    pub fingerprint: u64,
    /// Earlier cuts.
    pub marks: Marks,
}

/// What the log says of a stretch of a lane, and what replicas read there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispute {
    /// The lane's place in its feed.
    pub lane: u32,
    /// The first offset.
    pub from: i64,
    /// One past the last.
    pub to: i64,
    /// The fingerprint that was agreed there.
    pub agreed: u64,
    /// Those who read something else.
    pub told: Vec<Told>,
}

/// What one replica reads instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The replica.
    pub node: u16,
    /// How far its records go, within the stretch.
    pub cut: i64,
    /// Their fingerprint.
    pub fingerprint: u64,
}

/// A feed that nobody can lead on is held right after a state that replicas have in their checkpoints: the log that leads from
/// there on is kept for it no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkFeed {
    /// The proposer's term.
    pub term: u64,
    /// The feed.
    pub feed: FeedId,
    /// The feed's last accepted entry, as the proposer knew it.
    pub base: u64,
    /// The index of the log at which that state stands.
    pub state: u64,
    /// Where the lanes that there were stood there, by lane.
    pub stands: Vec<LaneStand>,
}

/// A held feed goes on, and what the log says counts: whoever reads something else takes the state of another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseFeed {
    /// The proposer's term.
    pub term: u64,
    /// The feed.
    pub feed: FeedId,
    /// The feed's last accepted entry, as the proposer knew it.
    pub base: u64,
}

/// The tick for which a feed is held, and all that came after it, are as if they had never been: the feed goes on from where
/// its lanes stood before. What was published stays, and the numbers of rows go on behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndTicks {
    /// The proposer's term.
    pub term: u64,
    /// The feed.
    pub feed: FeedId,
    /// The feed's last accepted entry, as the proposer knew it.
    pub base: u64,
    /// Lanes that do not go on where they stood but at a later offset, by lane: what lies between is never taken in.
    pub skips: Vec<(u32, i64)>,
    /// Where the streams of the feed's pipelines go on at least: behind what was published of them.
    pub streams: Vec<StreamEnd>,
}

/// How far a stream was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnd {
    /// The stream.
    pub stream: StreamKey,
    /// The number after the last row that was published.
    pub next: u64,
    /// The digest up to that row.
    pub digest: u128,
}
