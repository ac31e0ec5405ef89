//! What the agreed log says: everything that decides rows and is not in the input logs.
//!
//! Commands are promises to older replicas: the first byte of an encoded command is the version of this format.

mod holding;

use serde::{Deserialize, Serialize};

pub use holding::{
    Decider, Dispute, EndTicks, HoldFeed, LaneStand, ParkFeed, ReleaseFeed, StreamEnd, Told,
};

/// The version of the format that this program writes and reads.
const VERSION: u8 = 4;

/// A feed's name in the log: the index of the entry that created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FeedId(pub u64);

/// One entry of the agreed log. Every variant carries its proposer's term: an entry that was proposed under another
/// term than the one it was appended in comes from a leader that no longer is one, and is void.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Sources begin to be read together.
    CreateFeed(CreateFeed),
    /// A pipeline begins on a feed.
    CreatePipeline(CreatePipeline),
    /// A feed gets more lanes.
    AddLanes(AddLanes),
    /// Time goes on, and records are taken in.
    Ticks(Ticks),
    /// Rows were published.
    Frontier(FrontierMoves),
    /// Two feeds become one.
    JoinFeeds(JoinFeeds),
    /// The cluster gets its name: its first entry.
    BeginCluster(BeginCluster),
    /// How a sink's rows are routed.
    SetSink(SetSink),
    /// An operator wants a pipeline to be as this says, whatever files say.
    ApplyPipeline(ApplyPipeline),
    /// An operator wants a pipeline to be no more.
    RemovePipeline(RemovePipeline),
    /// An operator holds or lets go on the publishing of a pipeline.
    PausePipeline(PausePipeline),
    /// No replica's file names these removed pipelines any more: one that does again is new.
    ForgetRemoved(ForgetRemoved),
    /// Lanes of a feed have come to their end for good.
    RetireLanes(RetireLanes),
    /// A feed stands still for a tick that is in dispute.
    HoldFeed(HoldFeed),
    /// What the log says of a held feed counts.
    ReleaseFeed(ReleaseFeed),
    /// What the log says of a held feed, from the tick in dispute on, does not count.
    EndTicks(EndTicks),
    /// A feed that nobody can lead on keeps the log no more.
    ParkFeed(ParkFeed),
}

/// A set of lanes read together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreateFeed {
    /// The proposer's term.
    pub term: u64,
    /// The sources, in the order that lanes name them by.
    pub sources: Vec<SourceEntry>,
    /// The lanes that there are at first.
    pub lanes: Vec<LaneEntry>,
}

/// A source as the cluster agreed on it; how to reach it (brokers, passwords) stays with each replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceEntry {
    /// Its name in every replica's config.
    pub name: String,
    /// The checked definition, as canonical JSON.
    pub definition: String,
}

/// One lane and where the feed begins to read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneEntry {
    /// Index into the feed's sources.
    pub source: u32,
    /// The partition's number, or the file's name.
    pub name: String,
    /// The first offset to read.
    pub start: i64,
    /// By what the source knows the lane again, whatever has its name: opaque here. Empty: it cannot tell.
    pub identity: String,
}

/// One pipeline; its incarnation is the index of this entry. A feed takes pipelines until its first tick; later ones come
/// to it by [`JoinFeeds`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreatePipeline {
    /// The proposer's term.
    pub term: u64,
    /// The feed whose records it takes in.
    pub feed: FeedId,
    /// Its name; unique among the pipelines.
    pub name: String,
    /// The name of the sink that its rows are published to.
    pub sink: String,
    /// The checked definition, as canonical JSON: what this pipeline computes, on every replica.
    pub definition: String,
}

/// Lanes that came to be at run time; they count from the next tick on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddLanes {
    /// The proposer's term.
    pub term: u64,
    /// The feed that they are read by.
    pub feed: FeedId,
    /// The feed's last accepted entry, as the proposer knew it.
    pub base: u64,
    /// The lanes, numbered on from those that there are.
    pub lanes: Vec<LaneEntry>,
}

/// Lanes that were taken in to their end and are gone since: they hold nothing back any more, and their names are free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetireLanes {
    /// The proposer's term.
    pub term: u64,
    /// The feed that read them.
    pub feed: FeedId,
    /// The feed's last accepted entry, as the proposer knew it.
    pub base: u64,
    /// The lanes' places in their feed, in order.
    pub lanes: Vec<u32>,
}

/// Two feeds that have taken in the same of the same lanes become one: the pipelines of `from` belong to `into`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinFeeds {
    /// The proposer's.
    pub term: u64,
    /// The feed that goes.
    pub from: FeedId,
    /// The feed that stays.
    pub into: FeedId,
    /// The last accepted entry of `from`, as the proposer knew it.
    pub from_base: u64,
    /// The same of `into`.
    pub into_base: u64,
}

/// The ticks of all feeds that moved. If one does not fit, the whole entry is void.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ticks {
    /// The proposer's term.
    pub term: u64,
    /// At most one tick of each feed.
    pub feeds: Vec<FeedTick>,
}

/// One tick of one feed: the agreed time, and how far each lane is taken in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeedTick {
    /// The feed that moves.
    pub feed: FeedId,
    /// The feed's last accepted entry, as the proposer knew it.
    pub base: u64,
    /// Milliseconds since 1970: what timers run on.
    pub agreed_ms: i64,
    /// What the replicas' clocks said when the tick was proposed, in milliseconds since 1970.
    pub clock_ms: i64,
    /// Nobody but the proposer held these cuts.
    pub alone: bool,
    /// Lanes whose cut moves, by lane.
    pub moves: Vec<LaneMove>,
    /// Lanes that are known to hold no record for a stretch beyond their cut, by lane.
    pub empty: Vec<LaneEmpty>,
    /// Lanes that were at their end, on fresh evidence, by lane.
    pub at_end: Vec<u32>,
}

/// The new cut of one lane: the offset one past its last record to be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneMove {
    /// The lane's place in its feed.
    pub lane: u32,
    /// One past the offset of the last record to be taken in.
    pub cut: i64,
    /// Running hash of all that the proposer read of this lane up to the cut.
    pub fingerprint: u64,
}

/// There is no record of the lane from its cut up to `empty_to`: markers of transactions and compaction leave such holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneEmpty {
    /// The lane's place in its feed.
    pub lane: u32,
    /// The first offset that may hold a record again.
    pub empty_to: i64,
}

/// Which of a pipeline's two numbered streams; its place in the log's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Windows' results.
    Rows,
    /// Records that could not be used.
    DeadLetters,
}

/// A numbered stream of a pipeline's incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamKey {
    /// The pipeline's incarnation: the index of the entry that created it.
    pub incarnation: u64,
    /// Which of its two streams.
    pub stream: Stream,
}

/// What has been published: of the built-in sink the truth, of all others a floor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontierMoves {
    /// The proposer's term.
    pub term: u64,
    /// Each stream's next number to publish.
    pub next: Vec<(StreamKey, u64)>,
    /// The sink that took the rows: what it says of streams that go elsewhere by now does not count.
    pub sink: String,
}

/// The cluster's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginCluster {
    /// The proposer's term.
    pub term: u64,
    /// Random: no other cluster has it, not even one with the same members and new disks.
    pub id: u128,
}

/// A sink as the cluster agreed on it; how to reach it (brokers, passwords) stays with each replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkEntry {
    /// What fences its publishers and where its frontier is, as canonical JSON. It never changes; a sink of another name
    /// with the same one is this sink under a new name.
    pub identity: String,
    /// All of its routing, as canonical JSON.
    pub definition: String,
    /// It has a place for dead letters; else they are served by the built-in sink.
    pub takes_dead_letters: bool,
}

/// A sink that is to be agreed, or to be routed otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSink {
    /// The proposer's term.
    pub term: u64,
    /// Its name in every replica's config.
    pub name: String,
    /// What it is from now on.
    pub sink: SinkEntry,
    /// Who wants it.
    pub by: Origin,
}

/// Who wants an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A majority of the replicas' files: counts only where nothing is agreed yet.
    Files,
    /// An operator's command: changes what is agreed.
    Operator,
}

/// A pipeline as an operator wants it. One of that name that is defined otherwise ends with this entry; the new one is
/// created by the leader as soon as its sources can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyPipeline {
    /// The proposer's term.
    pub term: u64,
    /// Its name.
    pub name: String,
    /// The name of its sink.
    pub sink: String,
    /// The checked definition, as canonical JSON.
    pub definition: String,
}

/// A pipeline that ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovePipeline {
    /// The proposer's term.
    pub term: u64,
    /// Its name.
    pub name: String,
}

/// A pipeline whose publishing is held, or goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausePipeline {
    /// The proposer's term.
    pub term: u64,
    /// Its name.
    pub name: String,
    /// It is held.
    pub paused: bool,
}

/// Names of removed pipelines that no file has any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetRemoved {
    /// The proposer's term.
    pub term: u64,
    /// The names.
    pub names: Vec<String>,
}

/// An entry that this program cannot read. It must not go on: what it skips, others would take in.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum DecodeError {
    /// Written by a newer program: upgrade this replica.
    #[error(
        "the entry has format version {found}, written by a newer Unisono; this one reads version {VERSION}: upgrade it"
    )]
    Newer { found: u8 },
    /// Written by an older program, whose log is not carried over.
    #[error(
        "the entry has format version {found}, written by an older Unisono; this one reads version {VERSION}: run the older \
         program, or stop all replicas, wipe their data directories and let them read the sources again"
    )]
    Older { found: u8 },
    /// The bytes are not a command at all: the log store is damaged.
    #[error("the entry is damaged: {0}")]
    Damaged(String),
}

impl Command {
    /// The command as bytes of a log entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = vec![VERSION];
        postcard::to_extend(self, head).expect("commands are plain data, which always encodes")
    }

    /// Reads the bytes of a log entry.
    ///
    /// # Errors
    /// Another version's format, or damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let damaged = |reason: &dyn ToString| DecodeError::Damaged(reason.to_string());
        match bytes.split_first() {
            None | Some((0, _)) => Err(damaged(&"no version byte")),
            Some((&found, _)) if found > VERSION => Err(DecodeError::Newer { found }),
            Some((&found, _)) if found < VERSION => Err(DecodeError::Older { found }),
            Some((_, body)) => match postcard::take_from_bytes(body) {
                Ok((command, [])) => Ok(command),
                Ok((_, rest)) => Err(damaged(&format!("{} bytes too many", rest.len()))),
                Err(error) => Err(damaged(&error)),
            },
        }
    }

    /// The term under which the command was proposed.
    #[must_use]
    pub fn term(&self) -> u64 {
        match self {
            Self::CreateFeed(command) => command.term,
            Self::CreatePipeline(command) => command.term,
            Self::AddLanes(command) => command.term,
            Self::Ticks(command) => command.term,
            Self::Frontier(command) => command.term,
            Self::JoinFeeds(command) => command.term,
            Self::BeginCluster(command) => command.term,
            Self::SetSink(command) => command.term,
            Self::ApplyPipeline(command) => command.term,
            Self::RemovePipeline(command) => command.term,
            Self::PausePipeline(command) => command.term,
            Self::ForgetRemoved(command) => command.term,
            Self::RetireLanes(command) => command.term,
            Self::HoldFeed(command) => command.term,
            Self::ReleaseFeed(command) => command.term,
            Self::EndTicks(command) => command.term,
            Self::ParkFeed(command) => command.term,
        }
    }
}

#[cfg(test)]
mod tests;
