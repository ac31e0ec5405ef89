//! Sessions that close: taken from the lanes.

use super::Pipeline;
use crate::lane::LaneEngine;
use crate::session::close::{ClosedSessions, close};
use crate::spec::Timestamp;

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
