//! Rows before the first one held: a node that took a peer's checkpoint began in the midst of the stream and copies what
//! came before from a peer, from the newest to the oldest. What is held has no gap at any moment.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use unisono_engine::row::{Digest, Row, Seq};

use super::{Stream, remove_file};
use crate::results::durable::sync_dir;
use crate::results::error::ResultsError;
use crate::results::index::Span;
use crate::results::record::RowRef;
use crate::results::segment::Segment;
use crate::results::{OlderRows, Position};

/// The file that says, in a stream's directory, that its older rows were never here.
pub(super) const LACKS_OLDER: &str = "lacks_older";

impl Stream {
    /// Whether the rows before the first one were never here. Those that retention deleted are not missed.
    pub(in crate::results) fn lacks_older(&self) -> bool {
        self.lacks_older.load(Ordering::Acquire)
    }

    pub(super) fn look_for_older_mark(&self) {
        let marked = self.dir.join(LACKS_OLDER).exists();
        self.lacks_older.store(marked, Ordering::Release);
    }

    /// Notes, durably before the stream begins there, that it begins at `next` without what came before.
    pub(super) fn note_lack_of_older(&self, next: Seq) -> Result<(), ResultsError> {
        if next == Seq(0) {
            return self.forget_lack_of_older();
        }
        let path = self.dir.join(LACKS_OLDER);
        std::fs::create_dir_all(&self.dir).map_err(ResultsError::io("create", &self.dir))?;
        std::fs::write(&path, []).map_err(ResultsError::io("create", &path))?;
        sync_dir(&self.dir)?;
        self.lacks_older.store(true, Ordering::Release);
        Ok(())
    }

    /// No older rows than `first` are looked for any more, if the stream still begins there.
    pub(in crate::results) fn settle_older(&self, first: Seq) -> Result<(), ResultsError> {
        let _writer = self.lock_writer();
        match self.position().first == first {
            true => self.forget_lack_of_older(),
            false => Ok(()),
        }
    }

    fn forget_lack_of_older(&self) -> Result<(), ResultsError> {
        self.lacks_older.store(false, Ordering::Release);
        match remove_file(&self.dir.join(LACKS_OLDER)) {
            Err(ResultsError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// The rows of the segment that holds row `below - 1`, up to and with that one; `None` where it is not held.
    pub(in crate::results) fn before(&self, below: Seq) -> Result<Option<OlderRows>, ResultsError> {
        let found = {
            let state = self.read();
            let behind = state
                .segments
                .partition_point(|segment| segment.first() < below);
            let segment = behind.checked_sub(1).map(|at| &state.segments[at]);
            let segment = segment.filter(|segment| segment.next() >= below);
            segment.map(|segment| (segment.first(), segment.base()))
        };
        let Some((first, base)) = found else {
            return Ok(None);
        };
        let mut rows = Vec::new();
        self.visit(first, below, Span::ALL, |view| {
            rows.push(view.to_row());
            true
        })?;
        // Retention may have removed the segment in between.
        let whole = rows.first().is_some_and(|row| row.seq == first);
        Ok(whole.then_some(OlderRows { base, rows }))
    }

    /// Puts older rows before the first one; see [`crate::results::ResultsLog::prepend`].
    pub(in crate::results) fn prepend(
        &self,
        older: &OlderRows,
        max_bytes: u64,
    ) -> Result<bool, ResultsError> {
        let Position { first, bytes, .. } = self.position();
        let mut digest = older.base;
        for row in &older.rows {
            self.check_row(&RowRef::from(row), digest)?;
            digest = row.digest;
        }
        self.check_meets(&older.rows, digest, first)?;
        let segment = Segment::written(&self.dir, older.base, &older.rows)?;
        if bytes + segment.len() > max_bytes {
            return Ok(false);
        }
        let _writer = self.lock_writer();
        // Looked at again: a checkpoint that was installed meanwhile has put other rows there.
        self.check_meets(&older.rows, digest, self.position().first)?;
        segment.take_place(&self.dir)?;
        sync_dir(&self.dir)?;
        self.write().segments.insert(0, segment);
        Ok(true)
    }

    /// Whether `rows`, which end with `digest`, lead up to the first row held.
    fn check_meets(&self, rows: &[Row], digest: Digest, first: Seq) -> Result<(), ResultsError> {
        let stream = self.id;
        let numbers = rows.iter().map(|row| row.seq.0);
        let begin = first.0.checked_sub(rows.len() as u64);
        let in_order = begin.is_some_and(|begin| numbers.eq(begin..first.0)) && !rows.is_empty();
        if !in_order {
            return Err(ResultsError::Gap {
                stream,
                next: first,
                offered: rows.first().map_or(first, |row| row.seq),
            });
        }
        match self.digest_before(first)? == Some(digest) {
            true => Ok(()),
            false => Err(ResultsError::Chain { stream, seq: first }),
        }
    }
}
