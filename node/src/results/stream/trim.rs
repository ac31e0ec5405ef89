//! What takes rows away: reset at the new end, retention at the old one. Files are replaced or removed, never shortened in
//! place, so a reader in the midst of one goes on with what it has open.

use std::path::PathBuf;
use std::sync::Arc;

use unisono_engine::row::{Digest, Seq};

use super::{Stream, remove_segment};
use crate::results::error::ResultsError;
use crate::results::segment::Segment;

impl Stream {
    /// Makes `next` the next row, with `digest` before it; see [`crate::results::ResultsLog::reset`].
    pub(in crate::results) fn reset(&self, next: Seq, digest: Digest) -> Result<(), ResultsError> {
        let _writer = self.lock_writer();
        if self.is_begun() && self.digest_before(next)? == Some(digest) {
            return self.cut_at(next, digest);
        }
        // From the end on: a crash in between leaves the older rows, without a gap.
        while let Some(path) = self.last_path() {
            remove_segment(&path)?;
            self.write().segments.pop();
        }
        self.note_lack_of_older(next)?;
        self.begin_segment(next, digest)
    }

    fn cut_at(&self, next: Seq, digest: Digest) -> Result<(), ResultsError> {
        loop {
            let last = {
                let state = self.read();
                state
                    .segments
                    .last()
                    .map(|last| (last.first(), last.next(), last.path().clone()))
            };
            match last {
                Some((first, behind, path)) if behind > next => {
                    let keeps_rows = first < next;
                    if keeps_rows {
                        self.shorten_last(next)?;
                    } else if first == next && self.read().segments.len() == 1 {
                        return self.replace_all(next, digest);
                    } else {
                        remove_segment(&path)?;
                        self.write().segments.pop();
                    }
                }
                _ => break,
            }
        }
        let mut state = self.write();
        (state.next, state.digest) = (next, digest);
        Ok(())
    }

    fn replace_all(&self, next: Seq, digest: Digest) -> Result<(), ResultsError> {
        if let Some(path) = self.last_path() {
            // A new file, not a shorter one: readers may be in the midst of the old one.
            remove_segment(&path)?;
        }
        self.write().segments.clear();
        self.begin_segment(next, digest)
    }

    fn shorten_last(&self, next: Seq) -> Result<(), ResultsError> {
        let short = {
            let state = self.read();
            state
                .segments
                .last()
                .map(|last| last.shortened(&self.dir, next))
                .transpose()?
        };
        if let (Some(short), Some(last)) = (short, self.write().segments.last_mut()) {
            *last = short;
        }
        Ok(())
    }

    fn last_path(&self) -> Option<Arc<PathBuf>> {
        self.read()
            .segments
            .last()
            .map(|last| Arc::clone(last.path()))
    }

    /// Deletes the oldest segments, those wholly below `published_below`, while more than `max_bytes` are held.
    pub(in crate::results) fn retain(
        &self,
        published_below: Seq,
        max_bytes: u64,
    ) -> Result<u64, ResultsError> {
        let _writer = self.lock_writer();
        let mut removed = 0;
        loop {
            let oldest = {
                let state = self.read();
                let bytes: u64 = state.segments.iter().map(Segment::len).sum();
                let may_go = bytes > max_bytes && state.segments.len() > 1;
                let oldest = state
                    .segments
                    .first()
                    .filter(|first| first.next() <= published_below);
                oldest
                    .filter(|_| may_go)
                    .map(|oldest| Arc::clone(oldest.path()))
            };
            let Some(path) = oldest else {
                return Ok(removed);
            };
            remove_segment(&path)?;
            self.write().segments.remove(0);
            removed += 1;
        }
    }
}
