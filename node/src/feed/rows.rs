//! Rows on their way from the engine to the results log.

use std::ops::Range;

use unisono_engine::row::{Digest, RowRef, Seq, StreamId};
use unisono_engine::spec::Timestamp;

use crate::results::{ResultsError, ResultsLog};

/// Bytes of rows that are gathered before they are appended: a window of a million groups never lies in memory as rows.
const MOST_BYTES: usize = 256 << 10;

/// Gathers rows of one stream after another, and appends them.
pub(super) struct RowBatch<'a> {
    results: &'a ResultsLog,
    stream: Option<StreamId>,
    bytes: Vec<u8>,
    rows: Vec<Gathered>,
    /// The first error; what comes after it is not appended.
    failed: Option<ResultsError>,
}

struct Gathered {
    seq: Seq,
    start: Timestamp,
    end: Timestamp,
    digest: Digest,
    group: Range<usize>,
    json: Range<usize>,
}

impl<'a> RowBatch<'a> {
    pub(super) fn new(results: &'a ResultsLog) -> Self {
        Self {
            results,
            stream: None,
            bytes: Vec::new(),
            rows: Vec::new(),
            failed: None,
        }
    }

    pub(super) fn push(&mut self, stream: StreamId, row: &RowRef<'_>) {
        if self.stream != Some(stream) || self.bytes.len() >= MOST_BYTES {
            self.append();
            self.stream = Some(stream);
        }
        let from = self.bytes.len();
        self.bytes.extend_from_slice(row.json);
        self.rows.push(Gathered {
            seq: row.seq,
            start: row.start,
            end: row.end,
            digest: row.digest,
            group: row.group.clone(),
            json: from..self.bytes.len(),
        });
    }

    fn append(&mut self) {
        if let Some(stream) = self.stream.take()
            && self.failed.is_none()
        {
            let rows = self.rows.iter().map(|row| RowRef {
                seq: row.seq,
                start: row.start,
                end: row.end,
                digest: row.digest,
                json: &self.bytes[row.json.clone()],
                group: row.group.clone(),
            });
            self.failed = self.results.append_rows(stream, rows).err();
        }
        self.bytes.clear();
        self.rows.clear();
    }

    /// Appends what is left.
    ///
    /// # Errors
    /// The first that happened.
    pub(super) fn finish(mut self) -> Result<(), ResultsError> {
        self.append();
        self.failed.map_or(Ok(()), Err)
    }
}
