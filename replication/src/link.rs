//! Links: all that replicas say to each other, as frames on a connection. A heartbeat costs one write and one read on either
//! side; each talker has a link of its own, so that no heartbeat waits behind entries.
//!
//! ```text
//! the asking end: "unisono" | version | 0, or 1 and a nonce    then requests, one after the other
//! a request:      u32 length of what follows | topic | u64 the node that is meant | body
//! an answer:      u32 length of what follows | 0 and the answer, or a refusal's kind and its text
//! ```
//!
//! With a secret, each end proves that it has it before anything is said; see [`secret`]. The head of a request is judged
//! before its body is read, and a body is read when there is room for it; see [`port`]. A checkpoint follows the answer to its
//! request: frames with pieces of it, then an empty one, then the answer to all of it.

mod call;
mod port;
mod secret;
mod serve;

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) use call::{CallError, Link};
pub(crate) use port::Port;
pub use port::{PortLimits, PortStatus, RefusedPeer};
pub use secret::{Secret, SecretError};
pub(crate) use serve::{Answered, Pieces, Serve, serve};

/// The version of the frames and of all messages in them.
pub(crate) const VERSION: u8 = 4;
const PREFACE: [u8; 8] = [b'u', b'n', b'i', b's', b'o', b'n', b'o', VERSION];
/// The largest frame.
const FRAME_BYTES: usize = 64 << 20;
/// The largest piece of a checkpoint.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// What stands before a request's body.
const HEAD: usize = 9;
/// A link on which nothing was said for so long is closed: its other end may be gone without a word.
const SILENCE: Duration = Duration::from_secs(60);

/// What a request is about; its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Append = 1,
    Vote = 2,
    PreVote = 3,
    Transfer = 4,
    Gossip = 5,
    Suspect = 6,
    Confirm = 7,
    Ask = 8,
    Checkpoint = 9,
}

impl Topic {
    fn from_byte(byte: u8) -> Option<Self> {
        let all = [
            Self::Append,
            Self::Vote,
            Self::PreVote,
            Self::Transfer,
            Self::Gossip,
            Self::Suspect,
            Self::Confirm,
            Self::Ask,
            Self::Checkpoint,
        ];
        all.into_iter().find(|topic| *topic as u8 == byte)
    }

    /// Whether it is for one identity, and not for whoever is there.
    fn is_addressed(self) -> bool {
        match self {
            Self::Append | Self::Vote | Self::PreVote | Self::Transfer | Self::Checkpoint => true,
            Self::Gossip | Self::Suspect | Self::Confirm | Self::Ask => false,
        }
    }

    /// The largest body.
    fn most_bytes(self) -> usize {
        match self {
            Self::Append | Self::Ask => FRAME_BYTES - HEAD,
            // A place in the log with a membership; of each lane and stream some bytes.
            Self::Checkpoint | Self::Confirm => 1 << 20,
            Self::Vote | Self::PreVote | Self::Transfer | Self::Gossip | Self::Suspect => 64 << 10,
        }
    }
}

/// A request as it is received.
pub(crate) struct Request {
    pub(crate) topic: Topic,
    pub(crate) body: Vec<u8>,
}

/// Why a request is not answered; what went wrong follows as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is for a node that this one is not (any more).
    Misdirected,
    /// Another version's message, or no message at all.
    Unreadable(String),
    /// Raft has stopped.
    Stopped(String),
    /// The peer does not have the cluster's secret.
    Stranger(String),
}

impl Refusal {
    fn kind(&self) -> u8 {
        match self {
            Self::Misdirected => 1,
            Self::Unreadable(_) => 2,
            Self::Stopped(_) => 3,
            Self::Stranger(_) => 4,
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Misdirected => "this node has another identity: its disk was replaced",
            Self::Unreadable(text) | Self::Stopped(text) | Self::Stranger(text) => text,
        }
    }
}

/// A frame: its length in four bytes, then that many. Written at once.
fn frame(parts: &[&[u8]]) -> io::Result<Vec<u8>> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let header = u32::try_from(length).ok().filter(|_| length <= FRAME_BYTES);
    let header = header.ok_or_else(|| too_large(length, FRAME_BYTES))?;
    let mut bytes = Vec::with_capacity(length + 4);
    bytes.extend_from_slice(&header.to_le_bytes());
    for part in parts {
        bytes.extend_from_slice(part);
    }
    Ok(bytes)
}

fn too_large(length: usize, most: usize) -> io::Error {
    let text = format!("a message of {length} bytes is larger than {most}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn request_frame(topic: Topic, target: u64, body: &[u8]) -> io::Result<Vec<u8>> {
    frame(&[&[topic as u8], &target.to_le_bytes(), body])
}

fn answer_frame(answer: Result<&[u8], &Refusal>) -> io::Result<Vec<u8>> {
    match answer {
        Ok(body) => frame(&[&[0], body]),
        Err(refusal) => frame(&[&[refusal.kind()], refusal.text().as_bytes()]),
    }
}

/// The length of the next frame; `None` where the link ends between two.
async fn read_length<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<usize>> {
    let mut header = [0; 4];
    if stream.read(&mut header[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut header[1..]).await?;
    Ok(Some(u32::from_le_bytes(header) as usize))
}

/// The next frame; `None` where the link ends between two.
async fn read_frame<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = read_length(stream).await? else {
        return Ok(None);
    };
    if length > FRAME_BYTES {
        return Err(too_large(length, FRAME_BYTES));
    }
    read_bytes(stream, length).await.map(Some)
}

async fn read_bytes<S: AsyncRead + Unpin>(stream: &mut S, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
