//! A run of records that is read at once. Rows are checked where they are read: a start does not read them all.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use unisono_engine::row::Seq;

use crate::results::error::ResultsError;
use crate::results::record::{self, RowRef};

/// A run of whole records to read.
#[derive(Debug)]
pub(in crate::results) struct Chunk {
    pub(super) path: Arc<PathBuf>,
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    pub(super) end: u64,
    /// The first row in it.
    pub(in crate::results) first: Seq,
    /// The first row behind it.
    pub(in crate::results) next: Seq,
}

impl Chunk {
    /// Bytes that reading it takes.
    pub(in crate::results) fn byte_len(&self) -> u64 {
        self.end - self.offset
    }

    /// Puts its bytes in the place of what is in `bytes`.
    pub(in crate::results) fn read(&self, bytes: &mut Vec<u8>) -> Result<(), ResultsError> {
        let length = usize::try_from(self.byte_len()).unwrap_or(usize::MAX);
        bytes.resize(length, 0);
        self.file
            .read_exact_at(bytes, self.offset)
            .map_err(ResultsError::io("read", &self.path))
    }

    /// The record at `at` in the chunk's bytes, which must be row `seq`, and its length.
    pub(in crate::results) fn record<'b>(
        &self,
        bytes: &'b [u8],
        at: usize,
        seq: Seq,
    ) -> Result<(RowRef<'b>, usize), ResultsError> {
        let found = bytes.get(at..).and_then(record::decode);
        let found = found.filter(|(row, _)| row.seq == seq);
        found.ok_or_else(|| {
            let what = format!("there is no valid record of row {}", seq.0);
            ResultsError::corrupt(&self.path, self.offset + at as u64, what)
        })
    }

    /// Reads it and gives each record to `visit`, until that returns `false`.
    ///
    /// # Errors
    /// The file cannot be read, or a record in it is damaged.
    pub(in crate::results) fn visit(
        &self,
        mut visit: impl FnMut(RowRef<'_>) -> bool,
    ) -> Result<(), ResultsError> {
        let mut bytes = Vec::new();
        self.read(&mut bytes)?;
        let (mut at, mut seq) = (0, self.first);
        while seq < self.next {
            let (row, length) = self.record(&bytes, at, seq)?;
            if !visit(row) {
                break;
            }
            (at, seq) = (at + length, Seq(seq.0 + 1));
        }
        Ok(())
    }
}
