//! Sources: where records are read.
//!
//! A reader hands over raw records of its lanes in the order of their offsets. It never skips: where records are gone
//! or other ones than before, it gives an error, and the feed stops with it.

mod block;
pub mod files;
mod kafka;

use std::sync::Arc;
use std::time::Duration;

pub use block::{Block, HEAD_BYTES, Head, RawRecord};

use crate::config::{SourceConfig, SourceKind};
use crate::signal::Signal;

/// Why a source cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum SourceError {
    /// Out of reach, or not there yet. Try again; nothing is lost.
    #[error("{0}")]
    Unavailable(String),
    /// A lane's records are not those that were there. Stop the feed: only an operator, or a peer's checkpoint, helps.
    #[error("lane {lane}: {message}")]
    Lane { lane: String, message: String },
}

/// Reads the lanes of one source. Used by one thread; calls block, but not longer than they are told.
pub trait SourceReader: Send {
    /// The names of all lanes that there are now.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`].
    fn lanes(&mut self) -> Result<Vec<String>, SourceError>;

    /// The offset where a new feed begins to read that lane.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`].
    fn start(&mut self, lane: &str) -> Result<i64, SourceError>;

    /// Begins to read a lane at an offset; gives the lane's index for the other calls, counted from 0.
    ///
    /// # Errors
    /// As the lane's state is.
    fn open(&mut self, lane: &str, offset: i64) -> Result<usize, SourceError>;

    /// Appends records to `block` that are there already, until it weighs about `max_bytes` ([`Block::weight`]); does not
    /// wait. Returns how many.
    ///
    /// # Errors
    /// As the lane's state is. What was appended before is good.
    fn fill(
        &mut self,
        lane: usize,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<usize, SourceError>;

    /// Waits until some lane may have something, or the signal that it was opened with is raised; at most `timeout`.
    fn wait(&mut self, timeout: Duration);

    /// The lane's end offset, if all below it has been handed over: on fresh evidence only, never from silence.
    fn at_end(&mut self, lane: usize) -> Option<i64>;
}

/// Opens what reads a source. Does not wait for it to be in reach. A client that reads ahead by itself holds at most about
/// `share` bytes of each lane. Raising `signal` ends a [`SourceReader::wait`].
///
/// # Errors
/// [`SourceError::Unavailable`] if even that is not possible.
pub fn open(
    config: &SourceConfig,
    share: usize,
    signal: &Arc<Signal>,
) -> Result<Box<dyn SourceReader>, SourceError> {
    match &config.kind {
        SourceKind::Kafka(config) => {
            let reader = kafka::KafkaReader::connect(config, share, signal)?;
            Ok(Box::new(reader))
        }
        SourceKind::Files(config) => {
            let reader = files::FilesReader::new(config.clone(), Arc::clone(signal));
            Ok(Box::new(reader))
        }
    }
}
