//! One lane of a reading thread: where it begins, and its turns.

use std::sync::Arc;

use super::{Fault, Turn};
use crate::ingest::LaneBuffer;
use crate::ingest::buffer::FULL;
use crate::ingest::end::End;
use crate::source::{Block, Head, LaneTrail, SourceError, SourceReader};

pub(super) struct ReadLane {
    /// As far as it was read.
    pub(super) trail: LaneTrail,
    pub(super) buffer: Arc<LaneBuffer>,
    /// Who reads it, and by which index, once it is open.
    pub(super) reader: Option<(u64, usize)>,
    /// It is not read any more.
    pub(super) retired: bool,
    pub(super) fault: Option<Fault>,
    /// It is read again from before its last records, which are compared and not handed over.
    pub(super) check: Option<LaneTrail>,
    /// Where it began, and will begin the next time.
    began: Begin,
    next: Begin,
}

/// Where a lane begins to be read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Begin {
    /// Before its last records, if the source can be read again.
    #[default]
    Earlier,
    /// Behind them: they could not be had, retention may have taken them.
    AtCut,
    /// Behind the hole that is agreed to follow: its offsets are gone as well.
    BehindHole,
}

impl ReadLane {
    pub(super) fn new(trail: LaneTrail, buffer: Arc<LaneBuffer>) -> Self {
        Self {
            trail,
            buffer,
            reader: None,
            retired: false,
            fault: None,
            check: None,
            began: Begin::default(),
            next: Begin::default(),
        }
    }

    /// From where to open it, and whether that is before its last records.
    pub(super) fn start(&self, can_check: bool) -> (LaneTrail, bool) {
        let earlier = self.trail.before_last();
        match (self.next, earlier) {
            (Begin::Earlier, Some(earlier)) if can_check => (earlier, true),
            (Begin::Earlier | Begin::AtCut, _) => (self.trail.clone(), false),
            (Begin::BehindHole, _) => {
                let mut trail = self.trail.clone();
                trail.next = self.buffer.behind_hole(trail.next);
                (trail, false)
            }
        }
    }

    /// It was opened there, by that reader.
    pub(super) fn begin(&mut self, reader: (u64, usize), (from, checks): (LaneTrail, bool)) {
        self.reader = Some(reader);
        self.check = checks.then_some(from);
        self.began = std::mem::take(&mut self.next);
    }

    /// Whether it could not begin where it did at the last try.
    pub(super) fn begins_elsewhere(&self) -> bool {
        self.next != Begin::Earlier
    }

    /// Whether there is another place to begin at after this fault.
    pub(super) fn can_begin_elsewhere(&mut self, error: &SourceError) -> bool {
        let next = self.trail.next;
        let is_gone = matches!(error, SourceError::Gone { .. }) && self.began != Begin::BehindHole;
        if is_gone && !self.begins_elsewhere() && self.buffer.behind_hole(next) > next {
            self.next = Begin::BehindHole;
        }
        self.begins_elsewhere()
    }

    /// Reads the lane's last records again, and compares them with those that were read.
    pub(super) fn check(
        &mut self,
        reader: &mut dyn SourceReader,
        handle: usize,
        spare: &mut Option<Block>,
        mut check: LaneTrail,
    ) -> Result<Turn, SourceError> {
        let mut block = spare.take().unwrap_or_default();
        block.clear();
        let filled = reader.fill(handle, &check, &mut block, FULL);
        check.pass(&mut block);
        let known = block.count_up_to(self.trail.next);
        let last = known.checked_sub(1).map(|last| block.heads()[last]);
        let (from, to) = (self.trail.marks.before.offset, self.trail.next);
        let refused = |message: String| SourceError::Lane {
            lane: self.trail.name.clone(),
            message,
        };
        if check.next < to {
            *spare = Some(block);
            let count = filled.inspect_err(|error| {
                if !matches!(error, SourceError::Unavailable(_)) {
                    self.next = Begin::AtCut;
                }
            })?;
            if let (0, Some(end)) = (count, reader.at_end(handle)) {
                return Err(refused(format!(
                    "it ends at offset {end}, but was read up to {to}: the log was cut; restore it"
                )));
            }
            self.check = Some(check);
            return Ok(if count > 0 {
                Turn::Checked
            } else {
                Turn::Nothing
            });
        }
        let is_same = |last: Head| last.next == to && last.fingerprint == self.trail.fingerprint;
        if !last.is_some_and(is_same) {
            *spare = Some(block);
            return Err(refused(format!(
                "offsets {from} to {to} hold other records than those that were read: the log was cut and written anew; \
                 restore it, or give what there is now as a new source to new pipelines"
            )));
        }
        block.skip(known);
        self.trail.pass(&mut block);
        *spare = self.buffer.push(block);
        filled?;
        Ok(Turn::Read)
    }

    /// Fills the spare block with the lane's next records, if it has room for them.
    pub(super) fn fill(
        &mut self,
        reader: &mut dyn SourceReader,
        handle: usize,
        spare: &mut Option<Block>,
    ) -> Result<Turn, SourceError> {
        if !self.buffer.has_room() {
            return Ok(Turn::NoRoom);
        }
        let mut block = spare.take().unwrap_or_default();
        block.clear();
        let filled = reader.fill(handle, &self.trail, &mut block, FULL);
        // What was read before an error counts.
        self.trail.pass(&mut block);
        *spare = self.buffer.push(block);
        if filled? > 0 {
            return Ok(Turn::Read);
        }
        let end = reader.at_end(handle);
        self.buffer.set_end(End {
            at: end,
            held_since: reader.held_since(handle),
            unanswered: reader.unanswered(handle),
        });
        Ok(end.map_or(Turn::Nothing, |_| Turn::AtEnd))
    }
}
