//! Sources: where records are read.
//!
//! A reader hands over raw records of its lanes in the order of their offsets. It never skips: where records are gone
//! or other ones than before, it gives an error, and the feed stops with it.

mod block;
pub mod files;
mod kafka;
#[cfg(feature = "simulation")]
pub mod simulated;
mod survey;

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_replication::machine::{self, Hole, Marks};

pub use block::{Block, HEAD_BYTES, Head, RawRecord};
pub use survey::{Found, FoundLane, KnownLane, SourceSurvey, survey};

use crate::config::{KafkaReader, SourceConfig, SourceKind};
pub use crate::kafka::source::Unanswered;
use crate::signal::Signal;

/// Why a source cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum SourceError {
    /// Out of reach, or not there yet. Try again; nothing is lost.
    #[error("{0}")]
    Unavailable(String),
    /// A lane's records are not those that were there. Take nothing of it, and wake somebody; try again, for what was
    /// there may be restored.
    #[error("lane {lane}: {message}")]
    Lane { lane: String, message: String },
    /// The same, where what is to be read next is not there: retention took it, or it never was.
    #[error("lane {lane}: {message}")]
    Gone { lane: String, message: String },
}

/// A lane as far as it was read: where to go on, and by what it is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneTrail {
    /// The partition's number, or the file's name.
    pub name: String,
    /// By what the source knows it, whatever has its name now; empty: the source could not tell.
    pub identity: String,
    /// The offset of the first record that was not read.
    pub next: i64,
    /// The fingerprint of all records below.
    pub fingerprint: u64,
    /// Offsets further below, with their fingerprints.
    pub marks: Marks,
    /// Where it is agreed to hold no record.
    pub hole: Hole,
}

impl LaneTrail {
    /// The trail of a lane that is taken in as far as is agreed.
    #[must_use]
    pub fn of(lane: &machine::Lane) -> Self {
        Self {
            name: lane.name.clone(),
            identity: lane.identity.clone(),
            next: lane.cut,
            fingerprint: lane.fingerprint,
            marks: lane.marks,
            hole: lane.hole,
        }
    }

    /// The trail of a lane that nothing was read of.
    #[must_use]
    pub fn new(name: &str, start: i64, identity: &str) -> Self {
        Self {
            name: name.to_owned(),
            identity: identity.to_owned(),
            next: start,
            fingerprint: 0,
            marks: Marks::new(start),
            hole: Hole::default(),
        }
    }

    /// The same trail before its last records; `None` if nothing was read.
    #[must_use]
    pub fn before_last(&self) -> Option<Self> {
        let before = self.marks.before;
        (before.offset < self.next).then(|| Self {
            next: before.offset,
            fingerprint: before.fingerprint,
            ..self.clone()
        })
    }

    /// Goes on to the end of a block of the lane's next records, and computes their fingerprints.
    pub fn pass(&mut self, block: &mut Block) {
        self.fingerprint = block.seal(self.fingerprint);
        if let Some(last) = block.heads().last() {
            self.next = last.next;
            self.marks.pass(self.next, self.fingerprint);
        }
    }
}

/// Which file it is, whatever its name: device and inode.
pub type FileId = (u64, u64);

/// How the file of a lane stands that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// Which file it is.
    pub id: FileId,
    /// Its size.
    pub size: u64,
    /// It has bytes that are no line yet, or were not read.
    pub has_more: bool,
}

/// Reads the lanes of one source. Used by one thread. Calls may read a disk, but never wait for a network.
pub trait SourceReader: Send {
    /// Begins to read a lane where its trail ends; gives the lane's index for the other calls, counted from 0. `names` are
    /// those of all lanes of the source.
    ///
    /// # Errors
    /// As the lane's state is: also if it is not the one that left the trail.
    fn open(&mut self, trail: &LaneTrail, names: &[&str]) -> Result<usize, SourceError>;

    /// Whether the source cannot tell by itself that a lane's last records are those that were read: whoever opens it is
    /// to read them again.
    fn is_to_be_checked(&self) -> bool {
        false
    }

    /// The lane is not read any more; its index is not used again.
    fn close(&mut self, lane: usize);

    /// Appends records to `block` that are there already, until it weighs about `max_bytes` ([`Block::weight`]); does not
    /// wait. `trail` is how far the lane was read. Returns how many.
    ///
    /// # Errors
    /// As the lane's state is. What was appended before is good. The lane is to be closed then.
    fn fill(
        &mut self,
        lane: usize,
        trail: &LaneTrail,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<usize, SourceError>;

    /// Lanes of which something came since the last call, a fault included: all others are as they were when they last gave
    /// nothing, but for their ends. `None`: it cannot be told.
    fn came(&mut self) -> Option<Vec<usize>> {
        None
    }

    /// How long the thread may wait at most for the signal that the reader was opened with; zero: some lane may have
    /// something.
    fn pause(&mut self) -> Duration;

    /// The lane's end offset, if all below it has been handed over: on fresh evidence only, never from silence.
    fn at_end(&mut self, lane: usize) -> Option<i64>;

    /// Where the lane's log ends, everything appended included: on fresh evidence only.
    fn log_end(&self, lane: usize) -> Option<i64>;

    /// Since when nothing comes and nobody has said that there is nothing: a moment ago, if all is well.
    fn unanswered(&mut self, _lane: usize) -> Option<Unanswered> {
        None
    }

    /// Since when there is more than can be read, because a transaction that wrote it is open.
    fn held_since(&mut self, _lane: usize) -> Option<Instant> {
        None
    }

    /// The file that the lane is, where lanes are files.
    fn file(&self, _lane: usize) -> Option<OpenFile> {
        None
    }
}

/// Opens what reads a source. Does not wait for it to be in reach. A client that reads ahead by itself holds at most about
/// `share` bytes of each lane. Raising `signal` ends the waiting of who reads.
///
/// # Errors
/// [`SourceError::Unavailable`] if even that is not possible.
pub fn open(
    config: &SourceConfig,
    share: usize,
    signal: &Arc<Signal>,
) -> Result<Box<dyn SourceReader>, SourceError> {
    #[cfg(feature = "simulation")]
    if unisono_replication::rt::simulated::is_active() {
        return Ok(simulated::open(signal));
    }
    match &config.kind {
        SourceKind::Kafka(config) => Ok(match config.reader {
            KafkaReader::Direct => Box::new(kafka::DirectReader::connect(config, share, signal)?),
            KafkaReader::Librdkafka => {
                Box::new(kafka::ClientReader::connect(config, share, signal)?)
            }
        }),
        SourceKind::Files(config) => Ok(Box::new(files::FilesReader::new(config.clone()))),
    }
}
