//! Writing what a tick closed: rows and dead letters get their numbers here.

use std::io;
use std::sync::Arc;

use super::{Closings, Pipeline, StreamEnd};
use crate::close::Closing;
use crate::having::Having;
use crate::merge::{LaneHops, Merged, Order, each_group};
use crate::render::{self, RowWriter};
use crate::revise::{Ledger, Standing};
use crate::row::{RowRef, StreamId, StreamKind};
use crate::spec::{PipelineSpec, Timestamp};
use crate::stats::count;
use crate::value::Column;

/// The rows of one pipeline in one tick.
struct Rows<'a> {
    spec: &'a PipelineSpec,
    stream: StreamId,
    writer: RowWriter<'a>,
    having: Option<Having>,
    start: i64,
    end: i64,
    numbers: &'a mut StreamEnd,
    withheld: &'a mut u64,
    ledger: &'a mut Ledger,
    emit: &'a mut dyn FnMut(StreamId, RowRef<'_>),
}

impl Rows<'_> {
    /// The next rows are of the window with these bounds.
    fn window(&mut self, start: i64, end: i64) {
        (self.start, self.end) = (start, end);
        self.writer.window(start, end);
    }

    /// Whether `having` holds for the row.
    fn holds(&mut self, key: &[u8], columns: &[Column], place: usize) -> bool {
        let length = self.writer.length();
        let having = self.having.as_mut();
        having.is_none_or(|it| it.keeps(key, columns, place, length))
    }

    /// A row of a window that closes.
    fn first(&mut self, key: &[u8], columns: &[Column], place: usize) {
        if !self.holds(key, columns, place) {
            return count(self.withheld, 1);
        }
        if self.having.is_some() && self.spec.late.keep_ms().is_some() {
            self.ledger.note(self.end, key, Standing::FIRST);
        }
        self.push(Standing::FIRST, key, columns, place);
    }

    /// A row of a closed window that late records changed; `had_row`: it had one before, `having`
    /// apart.
    fn again(&mut self, key: &[u8], had_row: bool, columns: &[Column], place: usize) {
        let holds = self.holds(key, columns, place);
        let known = self.ledger.last(self.end, key);
        let before = match &self.having {
            Some(_) => known,
            None => known.or(had_row.then_some(Standing::FIRST)),
        };
        let standing = match before {
            None if holds => Standing::FIRST,
            // What was withdrawn stays so, once said.
            Some(before) if holds || !before.withdrawn => Standing {
                revision: before.revision.saturating_add(1),
                withdrawn: !holds,
            },
            _ => return count(self.withheld, 1),
        };
        if standing != Standing::FIRST || self.having.is_some() {
            self.ledger.note(self.end, key, standing);
        }
        self.push(standing, key, columns, place);
    }

    fn push(&mut self, standing: Standing, key: &[u8], columns: &[Column], place: usize) {
        let seq = self.numbers.next;
        let (json, group) = self.writer.row(Some(seq), standing, key, columns, place);
        self.numbers.push(json);
        let row = RowRef {
            seq,
            start: Timestamp(self.start),
            end: Timestamp(self.end),
            digest: self.numbers.digest,
            json,
            group,
        };
        (self.emit)(self.stream, row);
    }
}

impl Pipeline {
    /// Writes what a tick closed: rows by window end and group, then dead letters by lane and
    /// offset.
    ///
    /// # Errors
    /// Groups on disk cannot be read.
    pub(crate) fn write(
        &mut self,
        closings: &Closings,
        (order, hops): (&mut Order, &mut [LaneHops]),
        label: impl Fn(usize) -> String,
        emit: &mut dyn FnMut(StreamId, RowRef<'_>),
    ) -> io::Result<()> {
        let with_data = |closing: &Closing| matches!(closing, Closing::WithData { .. });
        if closings.windows.iter().any(with_data) {
            let keys: Vec<_> = closings.lanes.iter().map(|lane| &lane.keys).collect();
            order.follow(&keys);
        }
        let program = Arc::clone(&self.program);
        let spec = &program.spec;
        let mut rows = Rows {
            spec,
            stream: self.stream(StreamKind::Rows),
            writer: RowWriter::new(spec),
            having: Having::new(spec),
            start: i64::MIN,
            end: i64::MIN,
            numbers: &mut self.rows,
            withheld: &mut self.withheld,
            ledger: &mut self.ledger,
            emit: &mut *emit,
        };
        // The windows that were closed before the tick end before those that close now.
        if let Some(revisions) = &closings.revisions {
            revisions.forget_hops(hops);
            revisions.each(spec, |row| {
                if row.end != rows.end {
                    rows.window(spec.window.start_of(row.end), row.end);
                }
                rows.again(row.key, row.had_row, row.columns, row.place);
            })?;
        }
        for closing in &closings.windows {
            let end = closing.end();
            rows.window(spec.window.start_of(end), end);
            let mut any = false;
            let row = |key: &[u8], columns: &[Column], place: usize| {
                any = true;
                rows.first(key, columns, place);
                true
            };
            if let Closing::WithData { .. } = closing {
                each_group(spec, end, &closings.lanes, order, hops, row)?;
            }
            // Of nothing, or of nothing but copies.
            if !any && spec.group_by.is_empty() {
                let mut nothing = Merged::new(spec);
                let (columns, place) = nothing.of(&[]);
                rows.first(&[], columns, place);
            }
        }
        let sessions = &closings.sessions;
        for (session, key) in sessions.each() {
            rows.window(session.start, session.end);
            rows.first(key, sessions.columns(), session.place);
        }
        self.write_letters(closings, label, emit);
        Ok(())
    }

    /// Numbers the tick's dead letters; those beyond a lane's allowance are only counted.
    fn write_letters(
        &mut self,
        closings: &Closings,
        label: impl Fn(usize) -> String,
        emit: &mut dyn FnMut(StreamId, RowRef<'_>),
    ) {
        let stream = self.stream(StreamKind::DeadLetters);
        for (lane, letter) in &closings.letters {
            let seq = self.letters.next;
            let json = render::dead_letter(&self.program.spec.name, seq, &label(*lane), letter);
            self.letters.push(&json);
            let row = RowRef {
                seq,
                start: Timestamp(0),
                end: Timestamp(0),
                digest: self.letters.digest,
                json: &json,
                group: 0..0,
            };
            emit(stream, row);
        }
        let total = self.counters().dead_letters.total();
        self.letters_suppressed = total.saturating_sub(self.letters.next.0);
    }
}
