//! Checkpoints: the state at one index of the agreed log, as a file and as what a peer is sent.
//!
//! The order of durability is: rows in the results log, then the checkpoint that names them, then the purge of the log
//! below it. A file is written beside its name, synced, and renamed; a damaged one is refused by its checksums, and the
//! one before it is used.
//!
//! Each feed's state stands at an index of its own, the checkpoint at the least of them: one feed that is slow, or stopped,
//! keeps no other's state from being saved. It is loaded by reading the log from the checkpoint's index on; each feed starts
//! when that has come to its own.
//!
//! A checkpoint is a run of parts, written and read one by one and never held whole in memory. What a peer is sent is the
//! same run, with the rows that are not published yet as further parts.

mod frame;
mod message;
mod parcel;
mod reader;
mod replay;
mod store;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use unisono_replication::Position;
use unisono_replication::command::{FeedId, Stream, StreamKey};
use unisono_replication::machine::Machine;

use crate::feed::StreamHead;
use crate::ids::key_of;

pub use frame::CheckpointError;
pub use message::{SentRow, StreamRows};
pub use parcel::{copy, copy_parts, send, take, take_rows};
pub use reader::{CheckpointReader, PartReader};
pub use replay::Replay;
pub use store::{CheckpointStore, Scratch, StoredCheckpoint, UnfinishedCheckpoint};
pub use writer::CheckpointWriter;

/// What a checkpoint begins with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The index of the last log entry that it contains.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// What Raft knows at that index: log id and membership, opaque here.
    pub raft: Vec<u8>,
    /// The agreed state at that index.
    pub machine: Machine,
    /// The feeds whose parts follow, and at which index of the log each stands: none below `index`, and what the log says of
    /// a feed up to its own is in its part already.
    pub feeds: BTreeMap<FeedId, u64>,
    /// How far the log was read when the checkpoint was made.
    pub made_at: u64,
}

impl Header {
    /// Where in the log the checkpoint stands.
    #[must_use]
    pub fn position(&self) -> Position {
        Position {
            index: self.index,
            term: self.term,
        }
    }
}

impl PartId {
    /// The feed that the part belongs to; rows belong to a pipeline.
    #[must_use]
    pub fn feed(self) -> Option<FeedId> {
        match self {
            Self::Heads(feed) | Self::Feed(feed) | Self::Lane(feed, _) => Some(feed),
            Self::Rows(_) => None,
        }
    }
}

/// What a part holds. The order of the variants is part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartId {
    /// Where the feed's streams stood.
    Heads(FeedId),
    /// The state of a feed that belongs to no lane.
    Feed(FeedId),
    /// The state of one lane of a feed.
    Lane(FeedId, u32),
    /// Rows that are not published yet, see [`crate::results::ResultsLog::export`]; only in what a peer is sent.
    Rows(StreamKey),
}

/// Where a stream stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The stream.
    pub stream: StreamKey,
    /// The number that its next row has.
    pub next: u64,
    /// Its digest up to the row before.
    pub digest: u128,
}

impl From<StreamHead> for Head {
    fn from(head: StreamHead) -> Self {
        Self {
            stream: key_of(head.stream),
            next: head.next.0,
            digest: head.digest.0,
        }
    }
}

/// The bytes of a [`PartId::Heads`] part.
#[must_use]
pub fn encode_heads(heads: &[Head]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for head in heads {
        bytes.extend(head.stream.incarnation.to_le_bytes());
        bytes.push(match head.stream.stream {
            Stream::Rows => 0,
            Stream::DeadLetters => 1,
        });
        bytes.extend(head.next.to_le_bytes());
        bytes.extend(head.digest.to_le_bytes());
    }
    bytes
}

/// Reads what [`encode_heads`] made.
///
/// # Errors
/// The part cannot be read, or is none.
pub fn read_heads(part: &mut dyn Read) -> io::Result<Vec<Head>> {
    let mut bytes = Vec::new();
    part.read_to_end(&mut bytes)?;
    let mut heads = Vec::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let (head, behind) = read_head(rest)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "heads of streams"))?;
        heads.push(head);
        rest = behind;
    }
    Ok(heads)
}

fn read_head(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let (incarnation, rest) = bytes.split_first_chunk::<8>()?;
    let (&kind, rest) = rest.split_first()?;
    let (next, rest) = rest.split_first_chunk::<8>()?;
    let (digest, rest) = rest.split_first_chunk::<16>()?;
    let stream = match kind {
        0 => Stream::Rows,
        1 => Stream::DeadLetters,
        _ => return None,
    };
    let head = Head {
        stream: StreamKey {
            incarnation: u64::from_le_bytes(*incarnation),
            stream,
        },
        next: u64::from_le_bytes(*next),
        digest: u128::from_le_bytes(*digest),
    };
    Some((head, rest))
}
