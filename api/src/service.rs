//! What the routes ask of the node.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::dto::{Apply, ClusterInfo, Done, EndTicks, PipelineInfo, Readiness};
use crate::prometheus::Metric;

/// Which rows are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowsQuery {
    /// Only windows that end after this, in milliseconds since 1970.
    pub from: Option<i64>,
    /// Only windows that start before this, in milliseconds since 1970.
    pub to: Option<i64>,
    /// Fields of the group and the value each must have. The names are fields of the pipeline.
    pub groups: Vec<(String, String)>,
    /// The first row to look at: 0, or the `next` of the page before.
    pub after: u64,
    /// The greatest number of rows, from 1 to [`crate::MAX_LIMIT`].
    pub limit: usize,
}

/// Published rows, each the bytes of one JSON object without line breaks.
#[derive(Clone, Debug, Default)]
pub struct WindowsPage {
    /// In the order of their numbers.
    pub rows: Vec<Bytes>,
    /// Rows below this number are published as far as this node knows; 0: none.
    pub published: u64,
    /// The row to look at next; `None` where everything below `published` was looked at.
    pub next: Option<u64>,
}

/// Which open windows are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenQuery {
    /// The greatest number of rows, from 1 to [`crate::MAX_LIMIT`].
    pub limit: usize,
    /// Only those behind this one: the `next` of the page before.
    pub after: Option<OpenPlace>,
}

/// Which row of open windows: there are no numbers yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPlace {
    /// The end of its window, in milliseconds since 1970.
    pub end: i64,
    /// A hash of its group.
    pub group: u64,
}

/// Windows that are still open, as they stand at the end of a tick.
#[derive(Clone, Debug, Default)]
pub struct OpenPage {
    /// Each the bytes of one JSON object without line breaks; values so far.
    pub rows: Vec<Bytes>,
    /// The tick; `None` before the first.
    pub tick: Option<u64>,
    /// How far event time has come then, RFC 3339.
    pub watermark: Option<String>,
    /// The last of these rows if there are more: the service bounds what it gives, in rows and bytes.
    pub next: Option<OpenPlace>,
}

/// What an operator wants; a node that does not lead passes it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Sinks and pipelines to be so.
    Apply(Apply),
    /// A pipeline to be no more.
    RemovePipeline(String),
    /// A pipeline's rows to be held back.
    PausePipeline(String),
    /// A paused pipeline's rows to be published again.
    ResumePipeline(String),
    /// A node to be no member any more.
    RemoveMember(u16),
    /// Another one to lead: this one, or the fittest.
    Transfer(Option<u16>),
    /// A feed to stand still until it is decided what becomes of the tick that it is stuck at.
    HoldFeed(String),
    /// A held feed to go on as the log says.
    AcceptTicks(String),
    /// A held feed to go on from before the tick in dispute.
    EndTicks(String, EndTicks),
}

/// Why the node cannot answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ServiceError {
    /// There is no such pipeline: 404.
    #[error("there is no pipeline {0:?}")]
    UnknownPipeline(String),
    /// The rows asked for were deleted by retention: 410. Ask without the cursor.
    #[error("rows before {first} are no longer held here, row {asked} was asked for")]
    Gone {
        /// The oldest row held.
        first: u64,
        /// The row asked for.
        asked: u64,
    },
    /// The node cannot answer now, another may, or this one later: 503.
    #[error("{0}")]
    Unavailable(String),
    /// The command does not fit what is agreed: 409. Nothing was changed, or what the text says.
    #[error("{0}")]
    Conflict(String),
    /// A fault of the node, which its log tells in full: 500.
    #[error("{0}")]
    Internal(String),
}

/// The node behind the routes. Calls may block on the disk: the router makes them on threads made for that.
pub trait Service: Send + Sync + 'static {
    /// All pipelines, in the order of their names.
    fn pipelines(&self) -> Vec<PipelineInfo>;

    /// One pipeline; `None` if there is none of that name.
    fn pipeline(&self, name: &str) -> Option<PipelineInfo> {
        self.pipelines()
            .into_iter()
            .find(|pipeline| pipeline.name == name)
    }

    /// Whether a pipeline that the node does not know is none: it may not have heard of all yet.
    fn knows_all(&self) -> bool {
        true
    }

    /// Published rows of a pipeline.
    ///
    /// # Errors
    /// Any [`ServiceError`].
    fn windows(&self, pipeline: &str, query: &WindowsQuery) -> Result<WindowsPage, ServiceError>;

    /// Windows of a pipeline that are not closed.
    ///
    /// # Errors
    /// Any [`ServiceError`].
    fn open_windows(&self, pipeline: &str, query: &OpenQuery) -> Result<OpenPage, ServiceError>;

    /// Records of a pipeline that could not be used, from number `after` on.
    ///
    /// # Errors
    /// Any [`ServiceError`].
    fn dead_letters(
        &self,
        pipeline: &str,
        after: u64,
        limit: usize,
    ) -> Result<WindowsPage, ServiceError>;

    /// The cluster as this node sees it.
    fn cluster(&self) -> ClusterInfo;

    /// Has the cluster agree on what an operator wants; returns when that is committed and applied.
    ///
    /// # Errors
    /// Any [`ServiceError`].
    fn order(&self, _order: &Order) -> Result<Done, ServiceError> {
        Err(ServiceError::Unavailable(
            "this node takes no commands".to_owned(),
        ))
    }

    /// Has this node lead only while no other can, or like any other again.
    ///
    /// # Errors
    /// Any [`ServiceError`].
    fn drain(&self, _drained: bool) -> Result<Done, ServiceError> {
        Err(ServiceError::Unavailable(
            "this node takes no commands".to_owned(),
        ))
    }

    /// Whether this node serves, or one pipeline does here.
    ///
    /// # Errors
    /// Any [`ServiceError`].
    fn readiness(&self, pipeline: Option<&str>) -> Result<Readiness, ServiceError>;

    /// All metrics, in the order in which they are shown.
    fn metrics(&self) -> Vec<Metric>;
}
