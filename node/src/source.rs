//! Sources: where records are read.
//!
//! A reader hands over raw records of its lanes in the order of their offsets. It never skips: where records are gone
//! or other ones than before, it gives an error, and the feed stops with it.

pub mod files;
pub mod kafka;
mod kafka_reader;

use std::time::Duration;

use crate::config::{SourceConfig, SourceKind};

/// One record as it was read.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// Its position in the lane.
    pub offset: i64,
    /// The position one past it: a cut may fall there.
    pub next: i64,
    /// When it was appended, in milliseconds since 1970, where the source knows it.
    pub append_time_ms: Option<i64>,
    /// `None`: a tombstone.
    pub payload: Option<&'a [u8]>,
}

/// Why a source cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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

    /// Hands over records that are there already, up to about `max_bytes` of them; does not wait. Returns how many.
    ///
    /// # Errors
    /// As the lane's state is.
    fn poll(
        &mut self,
        lane: usize,
        max_bytes: usize,
        on_record: &mut dyn FnMut(RawRecord<'_>),
    ) -> Result<usize, SourceError>;

    /// Waits until some lane may have something, at most `timeout`.
    fn wait(&mut self, timeout: Duration);

    /// The lane's end offset, if all below it has been handed over: on fresh evidence only, never from silence.
    fn at_end(&mut self, lane: usize) -> Option<i64>;
}

/// Opens what reads a source. Does not wait for it to be in reach.
///
/// # Errors
/// [`SourceError::Unavailable`] if even that is not possible.
pub fn open(config: &SourceConfig) -> Result<Box<dyn SourceReader>, SourceError> {
    match &config.kind {
        SourceKind::Kafka(kafka) => Ok(Box::new(kafka_reader::KafkaReader::connect(kafka)?)),
        SourceKind::Files(files) => Ok(Box::new(files::FilesReader::new(files.clone()))),
    }
}
