//! How a checkpoint lies in a file. All integers little endian.
//!
//! ```text
//! magic "UNISONO\n" | u32 version | frames
//! frame: u8 kind | u32 length of the body | body | u32 crc32 of all before it in the frame
//!   header      index, term, Raft's state, machine, each feed's own index, the last index read (postcard)
//!   part        which one (postcard)
//!   chunk       bytes of the part
//!   part's end  u64 bytes of the part
//!   end         u64 parts | u64 bytes before this frame | u128 xxh3 of them
//! ```

use std::io;

use xxhash_rust::xxh3::Xxh3;

pub(super) const MAGIC: &[u8; 8] = b"UNISONO\n";
/// The version of the format that this program writes, and the only one that it reads. 1 was one value as a whole, 2 knew no agreed
/// configuration, in 3 all parts stood at one index, in 4 no feed could be held.
pub(super) const VERSION: u32 = 6;
/// Bytes before the first frame.
pub(super) const PREFACE: usize = MAGIC.len() + 4;
/// Bytes of a chunk: what is held of a part at any moment, on either side.
pub(super) const CHUNK: usize = 64 * 1024;
/// Bytes of the last frame.
pub(super) const END: usize = frame_len(32);

/// Bytes that a frame with so long a body takes.
pub(super) const fn frame_len(body: usize) -> usize {
    1 + 4 + body + 4
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Header = 1,
    Part = 2,
    Chunk = 3,
    PartEnd = 4,
    End = 5,
}

impl Kind {
    pub(super) fn of(byte: u8) -> Option<Self> {
        [
            Self::Header,
            Self::Part,
            Self::Chunk,
            Self::PartEnd,
            Self::End,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == byte)
    }
}

/// Appends a frame to `out`.
pub(super) fn encode(kind: Kind, body: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let begin = out.len();
    out.push(kind as u8);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(body);
    let checksum = crc32fast::hash(&out[begin..]);
    out.extend_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// Everything that lies before the end mark.
pub(super) struct Total {
    hasher: Box<Xxh3>,
    pub(super) parts: u64,
    pub(super) bytes: u64,
}

impl Total {
    pub(super) fn new() -> Self {
        Self {
            hasher: Box::new(Xxh3::new()),
            parts: 0,
            bytes: 0,
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// The body of the end mark.
    pub(super) fn mark(&self) -> [u8; 32] {
        let mut body = [0; 32];
        body[..8].copy_from_slice(&self.parts.to_le_bytes());
        body[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        body[16..].copy_from_slice(&self.hasher.digest128().to_le_bytes());
        body
    }
}

/// What is wrong with a checkpoint, or with a message in the same envelope.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum CheckpointError {
    /// A newer program wrote it: upgrade this replica.
    #[error("it has format version {found}, this program reads version {reads}: upgrade this node")]
    Newer { found: u32, reads: u32 },
    /// An older program wrote it.
    #[error(
        "it has format version {found}, this program reads version {reads}: run the program that wrote it, or move this \
         node's data directory away and restart, it rejoins and copies its state from a peer"
    )]
    Older { found: u32, reads: u32 },
    /// Use the one before, or a peer's.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// It cannot be read now.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl CheckpointError {
    pub(super) fn damaged(reason: impl std::fmt::Display) -> Self {
        Self::Damaged(reason.to_string())
    }
}

impl From<CheckpointError> for io::Error {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Io(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}

/// Refuses every version but the one that is read.
pub(super) fn check_version(found: u32, reads: u32) -> Result<(), CheckpointError> {
    match found.cmp(&reads) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(CheckpointError::Newer { found, reads }),
        std::cmp::Ordering::Less => Err(CheckpointError::Older { found, reads }),
    }
}
