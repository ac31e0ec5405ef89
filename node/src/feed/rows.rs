//! Rows on their way from the engine to the results log.

use unisono_engine::row::{RowRef, StreamId, StreamOutput};

use crate::results::{ResultsError, ResultsLog};

/// Rows that are gathered before they are appended: a window of a million groups never lies in memory as rows.
const MOST: usize = 1000;

/// Gathers rows of one stream after another, and appends them.
pub(super) struct RowBatch<'a> {
    results: &'a ResultsLog,
    gathered: Option<StreamOutput>,
    /// The first error; what comes after it is not appended.
    failed: Option<ResultsError>,
}

impl<'a> RowBatch<'a> {
    pub(super) fn new(results: &'a ResultsLog) -> Self {
        Self {
            results,
            gathered: None,
            failed: None,
        }
    }

    pub(super) fn push(&mut self, stream: StreamId, row: &RowRef<'_>) {
        let is_other = |gathered: &StreamOutput| {
            gathered.stream != stream || gathered.rows.len() >= MOST
        };
        if self.gathered.as_ref().is_some_and(is_other) {
            self.append();
        }
        let gathered = self.gathered.get_or_insert_with(|| StreamOutput {
            stream,
            rows: Vec::new(),
        });
        gathered.rows.push(row.to_row());
    }

    fn append(&mut self) {
        if let Some(gathered) = self.gathered.take()
            && self.failed.is_none()
        {
            self.failed = self.results.append(&gathered).err();
        }
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
