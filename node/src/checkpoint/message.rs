//! Rows on their way to a peer.

use serde::{Deserialize, Serialize};
use unisono_engine::row::{Digest, Row, Seq};
use unisono_engine::spec::Timestamp;
use unisono_replication::command::StreamKey;

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
