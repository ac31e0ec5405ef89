//! What the routes answer in JSON. Names here are a promise to users; fields may be added, never renamed.
//!
//! Times are RFC 3339 text in UTC, and `null` where there is none yet: a watermark before the first event is not 1970.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The answer of `/v1/pipelines`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pipelines {
    /// All pipelines, by name.
    pub pipelines: Vec<PipelineInfo>,
}

/// One pipeline as this replica sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PipelineInfo {
    /// Its name; can be used again after a deletion.
    pub name: String,
    /// The log index of its creation; never used again.
    pub incarnation: u64,
    /// The names of its sources.
    pub sources: Vec<String>,
    /// The name of its sink.
    pub sink: String,
    /// Its rows are computed, and held back from publishing, by an operator's command.
    pub paused: bool,
    /// Its windows.
    pub window: WindowInfo,
    /// The fields that a query can filter by, in the order of the definition.
    pub group_fields: Vec<String>,
    /// The number of the next row that is computed.
    pub next_seq: u64,
    /// The published frontier: the next row to publish; `null` before anything was published.
    pub published: Option<u64>,
    /// The running hash over all rows below `next_seq`, 32 hex digits.
    pub digest: String,
    /// How far event time has come.
    pub watermark: Option<String>,
    /// The end of the last window that was closed.
    pub closed_through: Option<String>,
    /// Windows that hold records and are not closed, each group counted.
    pub open_windows: u64,
    /// What was counted since the pipeline's creation: records taken in, late, dead letters by reason.
    pub counters: BTreeMap<String, u64>,
    /// What is odd about the definition, given the records since this node started: fields that no record has, values that
    /// are compared with those of another kind.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The shape of a pipeline's windows, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowInfo {
    /// The length of a window; 0 where not all have one length.
    pub size_ms: i64,
    /// The distance between two windows' starts; equal to the size where windows do not overlap.
    pub slide_ms: i64,
    /// What the windows follow where not all have one length: `day of Asia/Taipei`,
    /// `sessions that a pause of 1800000 ms ends`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// The answer of `/v1/cluster`: the cluster as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// The cluster's random id, 32 hex digits; `null` before its first entry.
    pub cluster: Option<String>,
    /// The node that answers.
    pub node: u64,
    /// The part that this node plays.
    pub role: Role,
    /// All nodes: the members, and those that this node's file names.
    pub nodes: Vec<NodeInfo>,
    /// The agreed members.
    pub members: MembersInfo,
    /// The Raft term.
    pub term: u64,
    /// The node that leads; `null` while none is known.
    pub leader: Option<u64>,
    /// The last tick this node has applied; `null` before the first.
    pub tick: Option<u64>,
    /// The agreed time of that tick.
    pub agreed_time: Option<String>,
    /// Every lane with its position.
    pub lanes: Vec<LaneInfo>,
    /// The published frontier of each pipeline.
    pub frontier: BTreeMap<String, Option<u64>>,
    /// Every feed and whether it runs.
    pub feeds: Vec<FeedInfo>,
    /// This node's last checkpoint; `null` before the first.
    pub checkpoint: Option<CheckpointInfo>,
    /// The agreed sinks but for the built-in one, by name.
    pub sinks: Vec<SinkInfo>,
    /// Where nodes' files are not what is agreed.
    pub drifts: Vec<DriftInfo>,
    /// Pipelines that are to be and are not yet, and why, as far as this node knows.
    pub waiting: BTreeMap<String, String>,
    /// Names of removed pipelines that some file may still have: they are not created again.
    pub removed: Vec<String>,
    /// This node leads only while no other can: it was drained.
    #[serde(default)]
    pub drained: bool,
    /// The port on which this node hears the others.
    #[serde(default)]
    pub peers_port: PeersPortInfo,
}

/// The port on which a node hears the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeersPortInfo {
    /// Whether a peer must know the cluster's secret.
    pub asks_for_secret: bool,
    /// Connections that are open.
    pub links: u64,
    /// Bytes of requests and answers in hand.
    pub bytes: u64,
    /// What was refused since the start, by reason: `secret`, `version`, `target`, `message`, `full`, `late`.
    pub refused: BTreeMap<String, u64>,
    /// What was refused last.
    pub last_refused: Option<RefusedInfo>,
}

/// Something that was refused at the peers' port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedInfo {
    /// Address and port that it came from.
    pub from: String,
    /// A key of `refused`.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// How long ago.
    pub seconds_ago: u64,
}

/// Who is agreed to be a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersInfo {
    /// Nodes whose votes count.
    pub voters: Vec<u64>,
    /// Nodes that catch up.
    pub learners: Vec<u64>,
    /// A change of voters is half done: old and new ones must both agree until it is completed.
    pub joint: bool,
}

/// An agreed sink as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkInfo {
    /// Its name.
    pub name: String,
    /// Its agreed routing, as JSON.
    pub definition: String,
    /// Why nothing can be published from this node; `null` if it can.
    pub trouble: Option<String>,
    /// What is to be known though publishing goes on.
    pub notice: Option<String>,
    /// Rows that it refused for their size and that were left out, as this node knew when it published last.
    #[serde(default)]
    pub refused: Vec<RefusedRows>,
}

/// Rows of a pipeline that a sink does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRows {
    /// The pipeline.
    pub pipeline: String,
    /// `rows` or `dead_letters`.
    pub kind: String,
    /// How many.
    pub count: u64,
    /// The last of them, eight at most.
    pub last: Vec<RefusedRow>,
}

/// A row that a sink does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRow {
    /// Its number.
    pub seq: u64,
    /// Its size with its key.
    pub bytes: u64,
}

/// A definition of a node's file that is not what is agreed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftInfo {
    /// The node whose file it is.
    pub node: u64,
    /// `source`, `sink` or `pipeline`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// `differs`, `absent`, `removed`, `not_agreed` or `renamed`.
    pub state: String,
    /// The keys that differ, with dots between levels.
    pub keys: Vec<String>,
    /// All of that for people.
    pub message: String,
}

/// What `/v1/admin/apply` is given: definitions as their canonical texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// Sinks.
    #[serde(default)]
    pub sinks: Vec<AppliedSink>,
    /// Pipelines.
    #[serde(default)]
    pub pipelines: Vec<AppliedPipeline>,
}

/// A sink as it is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppliedSink {
    /// Its name.
    pub name: String,
    /// Its canonical text.
    pub definition: String,
}

/// A pipeline as it is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppliedPipeline {
    /// Its name.
    pub name: String,
    /// The name of its sink.
    pub sink: String,
    /// Its canonical text.
    pub definition: String,
}

/// What `/v1/admin/transfer` is given: who is to lead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// The node's id; without it the leader chooses the fittest.
    #[serde(default)]
    pub to: Option<u16>,
}

/// What `/v1/admin/drain` is given: whether the node that is asked may lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// `true`: not while another one can; it gives the lead away now. `false`: like any other.
    pub drained: bool,
}

/// What `/v1/admin/feeds/{name}/end` is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndTicks {
    /// Lanes that go on further than where they stood; what lies between is never taken in.
    #[serde(default)]
    pub starts: Vec<LaneStart>,
}

/// Where a lane goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneStart {
    /// The partition's number or the file's name, or that behind the source's name and a slash.
    pub lane: String,
    /// The offset.
    pub offset: i64,
}

/// The answer to an operator's command, when it is committed and applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What was done, a line for each thing.
    pub done: Vec<String>,
}

/// One member of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Its number.
    pub id: u64,
    /// Where its HTTP interface is, as given in the config.
    pub address: String,
    /// What it does now.
    pub role: Role,
    /// Whether its vote counts.
    pub voter: bool,
    /// Log entries that it lacks, as the leader knows; `null` where this node cannot know.
    pub lag: Option<u64>,
    /// How long a question of the node that answers and its answer took of late, in microseconds; `null` for itself, and where none came.
    #[serde(default)]
    pub round_trip_us: Option<u64>,
    /// Why it refuses what the node that answers says to it; `null` where it does not.
    #[serde(default)]
    pub refuses: Option<String>,
}

/// What a member does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Proposes ticks and publishes.
    Leader,
    /// Computes the same and stands by.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Catches up; has no vote.
    Learner,
    /// Only votes.
    Witness,
    /// Not known to the node that answers.
    #[default]
    Unknown,
}

/// One partition or file of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneInfo {
    /// The feed that reads it.
    pub feed: String,
    /// Its source.
    pub source: String,
    /// The partition's number or the file's name.
    pub lane: String,
    /// The next offset to take in.
    pub position: i64,
    /// Offsets from `position` up to here are agreed to hold no record (markers of transactions): retention may take them.
    #[serde(default)]
    pub empty_to: i64,
    /// Where the lane's log ends, read or not, as the source said of late; `null` where it did not.
    pub end: Option<i64>,
    /// `end` minus `position`: offsets of a Kafka partition (with holes), bytes of a file; 0 where all records up to `end`
    /// were taken in; `null` where the end is not known.
    pub lag: Option<i64>,
    /// How far its event time has come.
    pub watermark: Option<String>,
    /// Why this node cannot read it at the moment; `null` where it can.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Since when, as this node saw it, a transaction that is open has kept what was appended from being read; `null` where
    /// there is none.
    #[serde(default)]
    pub held_since: Option<String>,
    /// By how many milliseconds of event time it is ahead of the slowest lane of its feed that has more to give, where lanes wait
    /// for each other: it is read on once that is `align.max_skew` or less. Not there where they don't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_ms: Option<i64>,
}

/// A set of lanes read together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedInfo {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    #[serde(flatten)]
    pub state: FeedState,
    /// What it is held for until an operator decides; not there where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispute: Option<DisputeInfo>,
    /// Ticks that an operator ended, the oldest first; not there where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<EndedInfo>,
}

/// What a feed is held for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisputeInfo {
    /// The entry of the agreed log that holds it.
    pub since: u64,
    /// The entry whose tick is in dispute.
    pub tick: u64,
    /// That tick was made alone.
    pub alone: bool,
    /// `majority`, `operator`, or `length`: the agreed log was kept for it for too long.
    pub by: String,
    /// The entry of the state that it is parked at; `null` where the log is still kept for it.
    pub parked: Option<u64>,
    /// The stretch in dispute, as far as it is known.
    pub stretch: Option<StretchInfo>,
}

/// A stretch of a lane that the log has otherwise than replicas read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StretchInfo {
    /// The lane's source.
    pub source: String,
    /// The lane.
    pub lane: String,
    /// The first offset.
    pub from: i64,
    /// One past the last.
    pub to: i64,
    /// The fingerprint in the log, 16 hex digits.
    pub agreed: String,
    /// What replicas read instead.
    pub told: Vec<ToldInfo>,
}

/// What a replica reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldInfo {
    /// The replica.
    pub node: u64,
    /// How far its records go within the stretch.
    pub to: i64,
    /// Their fingerprint, 16 hex digits.
    pub fingerprint: String,
}

/// Ticks that an operator ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedInfo {
    /// The entry of the first of them.
    pub from: u64,
    /// The entry that ended them.
    pub at: u64,
    /// What is never taken in.
    pub skipped: Vec<SkippedInfo>,
}

/// Offsets of a lane that are never taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedInfo {
    /// The lane.
    pub lane: String,
    /// The first of them.
    pub from: i64,
    /// One past the last.
    pub to: i64,
}

/// Whether a feed runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum FeedState {
    /// It takes in ticks.
    Running,
    /// It stopped and takes in nothing more until someone acts.
    Stopped {
        /// What happened, where, and what to do.
        error: String,
    },
    /// It takes in nothing more until rows that wait to be published are, or an operator decides; nothing is lost.
    Held {
        /// Why, and what to do.
        error: String,
    },
}

/// A checkpoint on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointInfo {
    /// The entry of the agreed log at which it stands.
    pub index: u64,
}

/// The answer of `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Whether this node serves.
    pub ready: bool,
    /// Why not; empty when ready.
    pub reasons: Vec<String>,
    /// What is to be known though the node serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// The answer to a request that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What failed.
    pub error: ErrorDetail,
}

/// What failed, for programs (`code`) and people (the others).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// A constant word.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do.
    pub hint: String,
}
