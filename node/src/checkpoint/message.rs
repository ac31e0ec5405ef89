//! Messages between nodes, with version and checksum, and the rows in them.

use serde::{Deserialize, Serialize};
use unisono_engine::row::{Digest, Row, Seq};
use unisono_engine::spec::Timestamp;
use unisono_replication::command::StreamKey;
use xxhash_rust::xxh3::xxh3_128;

use super::frame::{self, CheckpointError};

const MAGIC: &[u8; 8] = b"UNISONO\n";
/// The version of the messages that this program writes, and the only one that it reads.
const VERSION: u32 = 1;
const HEADER: usize = MAGIC.len() + 4 + 16;

/// Consecutive rows of one stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamRows {
    /// The stream that they belong to.
    pub stream: StreamKey,
    /// The number of the first row, and the stream's digest before it.
    pub from: u64,
    /// That digest.
    pub digest_before: u128,
    /// The rows, by ascending number.
    pub rows: Vec<SentRow>,
}

/// A row on its way to a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentRow {
    start_ms: i64,
    end_ms: i64,
    digest: u128,
    json: Vec<u8>,
    group: (u32, u32),
}

/// The bytes of a message.
///
/// # Errors
/// Never for these types; postcard's signature says so.
pub fn seal<T: Serialize>(value: &T) -> Result<Vec<u8>, CheckpointError> {
    let body = postcard::to_stdvec(value).map_err(CheckpointError::damaged)?;
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&xxh3_128(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads what [`seal`] made.
///
/// # Errors
/// Another version, or damage.
pub fn unseal<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, CheckpointError> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| CheckpointError::damaged("it is no message"))?;
    let cut_short = || CheckpointError::damaged("it is cut short");
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_short)?;
    frame::check_version(u32::from_le_bytes(*version), VERSION)?;
    let (checksum, body) = rest.split_first_chunk::<16>().ok_or_else(cut_short)?;
    if xxh3_128(body) != u128::from_le_bytes(*checksum) {
        return Err(CheckpointError::damaged("its checksum does not fit"));
    }
    postcard::from_bytes(body).map_err(CheckpointError::damaged)
}

impl SentRow {
    /// The row without its number, which its place tells.
    #[must_use]
    pub fn new(row: Row) -> Self {
        // Rows are far below 4 GiB.
        let within = |at: usize| u32::try_from(at).unwrap_or(0);
        Self {
            start_ms: row.start.0,
            end_ms: row.end.0,
            digest: row.digest.0,
            group: (within(row.group.start), within(row.group.end)),
            json: row.json,
        }
    }

    /// The row with its number.
    #[must_use]
    pub fn into_row(self, seq: u64) -> Row {
        Row {
            seq: Seq(seq),
            start: Timestamp(self.start_ms),
            end: Timestamp(self.end_ms),
            digest: Digest(self.digest),
            json: self.json,
            group: self.group.0 as usize..self.group.1 as usize,
        }
    }
}
