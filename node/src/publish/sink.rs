//! What a sink is: `acquire` fences every older publisher and tells the frontier; `publish` is atomic, or says that it
//! was fenced or that it does not know.

pub mod builtin;
pub mod kafka;
#[cfg(feature = "simulation")]
pub mod simulated;

use std::collections::BTreeMap;
use std::time::Instant;

use unisono_engine::row::{StreamId, StreamKind};

pub use crate::refused::{Fate, Refusals, RefusedRow};

/// How far was published, and what was left out on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    /// The next number to publish of each stream. A stream that is absent was never published to this sink.
    pub streams: BTreeMap<StreamId, u64>,
    /// Rows below that the sink refused.
    pub refused: BTreeMap<StreamId, Refusals>,
}

impl Frontier {
    /// This far, and nothing was left out.
    #[must_use]
    pub fn of(streams: BTreeMap<StreamId, u64>) -> Self {
        Self {
            streams,
            refused: BTreeMap::new(),
        }
    }

    /// The next number to publish of a stream: 0 if it was never published.
    #[must_use]
    pub fn next(&self, stream: StreamId) -> u64 {
        self.streams.get(&stream).copied().unwrap_or(0)
    }
}

/// One row, or one dead letter, on its way out.
#[derive(Clone, Debug)]
pub struct PublishRow<'a> {
    /// The pipeline's name, for the header.
    pub pipeline: &'a str,
    /// The pipeline's incarnation.
    pub incarnation: u64,
    /// Its number within its stream.
    pub seq: u64,
    /// The stream's digest up to and with this row.
    pub digest: String,
    /// Which of the pipeline's two streams.
    pub kind: StreamKind,
    /// The record's key: the group as JSON, and the window where rows are corrected. Rows with the same key stay in order.
    pub key: &'a [u8],
    /// The record's value: the row as JSON.
    pub value: &'a [u8],
    /// Whether it goes there at all.
    pub fate: Fate,
}

/// How much a sink takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Rows.
    pub rows: usize,
    /// Bytes of their values.
    pub bytes: usize,
}

/// Where rows are published. Its calls block; one thread makes them. Not acquired at first.
pub trait Sink {
    /// How much one call of [`Self::publish`] may hold. `None`: the sink takes no rows, only the frontier, and that
    /// stands in the agreed log: it is the built-in one.
    fn bounds(&self) -> Option<Bounds>;

    /// Takes the sink away from every other publisher and tells how far publishing came: first the one, then the
    /// other, so that nothing can be added to what was read.
    ///
    /// # Errors
    /// [`PublishError`]; then the sink is not acquired.
    fn acquire(&mut self) -> Result<Frontier, PublishError>;

    /// Publishes rows and the frontier after them, all or nothing.
    ///
    /// # Errors
    /// After any error the sink is released; the error says what is known, and what to do.
    fn publish(
        &mut self,
        batch: &[PublishRow<'_>],
        frontier: &Frontier,
    ) -> Result<(), PublishError>;

    /// Gives the sink up. What was published stays; nothing is open.
    fn release(&mut self);

    /// Keeps connections ready, so that [`Self::acquire`] is fast. Called every few seconds, on followers too; must not
    /// wait.
    fn keep_warm(&mut self) {}

    /// When the last [`Self::acquire`] had taken the sink away from everybody else, before it read how far publishing came;
    /// `None`: it is one step.
    fn fenced_at(&self) -> Option<Instant> {
        None
    }

    /// What people should know of the sink, though publishing goes on.
    fn notice(&self) -> Option<String> {
        None
    }
}

/// Why rows are not, or may not be, published. After any of them the sink is released: acquire it again, which reads
/// back how far publishing came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum PublishError {
    /// Another publisher acquired the sink, or the sink ended a transaction that took too long. Ask the quorum who
    /// leads: if it is still us, acquire again; else stop.
    #[error("fenced: another publisher acquired the sink {sink}")]
    Fenced { sink: String },
    /// The sink may or may not have the batch. Ask the quorum who leads; acquire again and go on from the frontier
    /// that it gives.
    #[error("sink {sink}: the outcome of a transaction is unknown: {reason}")]
    Unknown { sink: String, reason: String },
    /// The sink does not have the batch; it does not answer, or could not take it now. Acquire again after a pause.
    #[error("sink {sink}: {reason}")]
    Unavailable { sink: String, reason: String },
    /// The sink refuses this row for its size, or those that went with it. If it was alone, leave it out, and say so; else
    /// publish fewer at once to learn which one it is.
    #[error(
        "sink {sink}: row {seq} of pipeline {pipeline} has {bytes} bytes, more than the broker takes; raise \
         message.max.bytes in the sink's properties, and max.message.bytes of topic {topic}"
    )]
    TooLarge {
        sink: String,
        pipeline: String,
        stream: StreamId,
        seq: u64,
        bytes: usize,
        topic: String,
        alone: bool,
    },
    /// An operator must act: the sink refuses for good, or its frontier cannot be read.
    #[error("sink {sink}: {reason}")]
    Fatal { sink: String, reason: String },
    /// The sink is another cluster's. Leave it alone, and connect anew to see whether that is still so.
    #[error("sink {sink}: {reason}")]
    Foreign { sink: String, reason: String },
}
