//! Sessions that close: taken from the lanes, and written.

use std::sync::Arc;

use super::{Closings, Pipeline};
use crate::having::Having;
use crate::lane::LaneEngine;
use crate::render::RowWriter;
use crate::revise::Standing;
use crate::row::{RowRef, StreamId, StreamKind};
use crate::session::close::{ClosedSessions, close};
use crate::spec::Timestamp;
use crate::stats::count;

impl Pipeline {
    /// Moves to the watermark: the sessions that are over by that are taken from the lanes, and what
    /// comes from before it from now on is late.
    pub(super) fn settle_sessions(
        &mut self,
        at: usize,
        watermark: Timestamp,
        lanes: &mut [&mut LaneEngine],
    ) -> ClosedSessions {
        let through = self.closed.through;
        if through.is_some_and(|through| through >= watermark) {
            return ClosedSessions::default();
        }
        self.closed.through = Some(watermark);
        let closed = close(at, &self.spec().values, watermark, lanes);
        for lane in lanes.iter_mut() {
            lane.close_through(at, watermark);
        }
        closed
    }

    /// Writes the sessions that a tick closed, by end and group.
    pub(super) fn write_sessions(
        &mut self,
        closings: &Closings,
        emit: &mut dyn FnMut(StreamId, RowRef<'_>),
    ) {
        if closings.sessions.is_empty() {
            return;
        }
        let program = Arc::clone(&self.program);
        let stream = self.stream(StreamKind::Rows);
        let mut writer = RowWriter::new(&program.spec);
        let mut having = Having::new(&program.spec);
        let columns = closings.sessions.columns();
        for (session, key) in closings.sessions.each() {
            writer.window(session.start, session.end);
            let (place, length) = (session.place, writer.length());
            let having = having.as_mut();
            if having.is_some_and(|it| !it.keeps(key, columns, place, length)) {
                count(&mut self.withheld, 1);
                continue;
            }
            let seq = self.rows.next;
            let (json, group) = writer.row(Some(seq), Standing::FIRST, key, columns, place);
            self.rows.push(json);
            let row = RowRef {
                seq,
                start: Timestamp(session.start),
                end: Timestamp(session.end),
                digest: self.rows.digest,
                json,
                group,
            };
            emit(stream, row);
        }
    }

    /// No window with data that is not closed ends before: where it is known without looking at every
    /// session.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        let watermark = self.watermark?;
        if self.spec().window.gap_ms().is_none() {
            return Some(Timestamp(self.spec().window.pane_of(watermark.0).1));
        }
        let lanes = self.lanes.iter().filter_map(|lane| lane.soonest_end);
        lanes.min().map(Timestamp)
    }
}
