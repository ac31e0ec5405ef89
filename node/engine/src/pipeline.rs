//! One pipeline over all lanes of its feed: what closes, and numbering rows and dead letters.

use std::sync::Arc;

use crate::close::{Closed, Closing, EmptyWindows};
use crate::dead_letter::{DeadLetter, Reason};
use crate::dedup::{self, Seen};
use crate::feed::FeedLane;
use crate::lane::{LaneEngine, LaneTables};
use crate::plan::Program;
use crate::revise::{Ledger, Revisions, last_with_data};
use crate::row::{Digest, Incarnation, Seq, StreamId, StreamKind};
use crate::session::close::ClosedSessions;
use crate::spec::{PipelineSpec, Timestamp};
use crate::stats::{Counters, PipelineStats};

mod write;

mod sessions;

/// The end of a numbered stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamEnd {
    pub(crate) next: Seq,
    pub(crate) digest: Digest,
}

impl StreamEnd {
    fn push(&mut self, row: &[u8]) {
        self.digest = self.digest.chain(row);
        self.next = Seq(self.next.0.saturating_add(1));
    }
}

/// A lane as it was at the end of the last tick.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneReport {
    pub(crate) watermark: Option<Timestamp>,
    /// Agreed time that passed, in milliseconds, while it was seen at its end, since it was not for long:
    /// kept where windows wait for `at_most` so long.
    pub(crate) seen_ms: i64,
    counters: Counters,
    groups: u64,
    waiting: u64,
    pane_changes: u64,
    /// None of its sessions ends before.
    soonest_end: Option<i64>,
}

/// A pipeline's definition and all of its state that is not a lane's.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub(crate) incarnation: Incarnation,
    pub(crate) program: Arc<Program>,
    pub(crate) lanes: Vec<LaneReport>,
    pub(crate) watermark: Option<Timestamp>,
    pub(crate) closed: Closed,
    pub(crate) rows: StreamEnd,
    pub(crate) letters: StreamEnd,
    pub(crate) letters_suppressed: u64,
    /// Of windows that are kept for late records.
    pub(crate) ledger: Ledger,
    /// Rows for which `having` did not hold, since the process began.
    withheld: u64,
    open_windows: u64,
    /// Ids that were counted, for `dedup`.
    pub(crate) seen: Arc<Seen>,
}

/// What a tick closed of one pipeline: its rows are still to be written.
#[derive(Debug, Default)]
pub(crate) struct Closings {
    windows: Vec<Closing>,
    sessions: ClosedSessions,
    lanes: Vec<LaneTables>,
    /// Lane and letter, in the order of lanes and offsets.
    letters: Vec<(usize, DeadLetter)>,
    /// Rows of windows that were closed before.
    revisions: Option<Box<Revisions>>,
}

impl Closings {
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
            && self.sessions.is_empty()
            && self.letters.is_empty()
            && self.revisions.is_none()
    }
}

impl Pipeline {
    pub(crate) fn new(incarnation: Incarnation, program: Arc<Program>, lanes: usize) -> Self {
        Self {
            incarnation,
            program,
            lanes: vec![LaneReport::default(); lanes],
            watermark: None,
            closed: Closed::default(),
            rows: StreamEnd::default(),
            letters: StreamEnd::default(),
            letters_suppressed: 0,
            ledger: Ledger::default(),
            withheld: 0,
            open_windows: 0,
            seen: Arc::default(),
        }
    }

    /// Counts time for `at_most`: only while a lane is known to be at its end.
    pub(crate) fn pass_time(&mut self, lanes: &[FeedLane], passed: i64) {
        if self.spec().close.at_most_ms.is_none() {
            return;
        }
        for (report, lane) in self.lanes.iter_mut().zip(lanes) {
            if lane.is_unseen() {
                report.seen_ms = 0;
            } else if lane.blind_ms == 0 {
                report.seen_ms = report.seen_ms.saturating_add(passed);
            }
        }
    }

    /// Goes on where another left off, but for its lanes.
    pub(crate) fn go_on_from(&mut self, other: &Self) {
        self.watermark = other.watermark;
        self.closed = other.closed;
        self.rows = other.rows;
        self.letters = other.letters;
        self.letters_suppressed = other.letters_suppressed;
        self.ledger = other.ledger.clone();
        self.seen = Arc::clone(&other.seen);
    }

    pub(crate) fn spec(&self) -> &PipelineSpec {
        &self.program.spec
    }

    /// Notes how far the lanes have come.
    pub(crate) fn look(&mut self, at: usize, lanes: &[&mut LaneEngine]) {
        for (report, lane) in self.lanes.iter_mut().zip(lanes) {
            let state = &lane.pipelines[at].state;
            report.watermark = state.watermark();
            report.counters = state.counters;
        }
    }

    /// Notes what the lanes hold; panes are looked at only where one came or went.
    pub(crate) fn look_at_panes(&mut self, at: usize, lanes: &[&mut LaneEngine]) {
        let mut changed = false;
        for (report, lane) in self.lanes.iter_mut().zip(lanes) {
            let panes = &lane.pipelines[at].state.panes;
            report.groups = panes.group_count();
            report.waiting = lane.pipelines[at].state.waiting.records();
            changed |= report.pane_changes != panes.changes();
            report.pane_changes = panes.changes();
            if let Some(sessions) = lane.sessions(at) {
                report.groups = sessions.open();
                report.soonest_end = sessions.soonest_end();
            }
        }
        if self.spec().window.gap_ms().is_some() {
            self.open_windows = self.lanes.iter().map(|lane| lane.groups).sum();
            return;
        }
        if changed {
            let window = &self.spec().window;
            let starts = self.open_starts()..i64::MAX;
            let panes = lanes
                .iter()
                .flat_map(|lane| lane.pipelines[at].state.panes.keys_in(starts.clone()));
            let open = self.closed.open_ends(window, panes, Timestamp(i64::MAX));
            self.open_windows = open.count() as u64;
        }
    }

    /// Moves to the watermark: what closes by that is taken from the lanes, and what comes for it
    /// from now on is late.
    pub(crate) fn settle(
        &mut self,
        at: usize,
        watermark: Option<Timestamp>,
        lanes: &mut [&mut LaneEngine],
    ) -> Closings {
        self.watermark = watermark;
        let mut closings = Closings::default();
        for (lane, engine) in lanes.iter_mut().enumerate() {
            let letters = engine.take_letters(at).into_iter();
            closings
                .letters
                .extend(letters.map(|letter| (lane, letter)));
        }
        let program = Arc::clone(&self.program);
        let window = &program.spec.window;
        if window.gap_ms().is_some() {
            if let Some(watermark) = watermark {
                closings.sessions = self.settle_sessions(at, watermark, lanes);
            }
            return closings;
        }
        let empty = if self.spec().group_by.is_empty() {
            EmptyWindows::Shown
        } else {
            EmptyWindows::Skipped
        };
        if let Some(watermark) = watermark {
            self.judge(at, watermark, lanes);
        }
        let before = self.closed.through;
        if let Some(gone) = program
            .spec
            .late
            .keep_ms()
            .and(program.spec.late.gone(before))
        {
            self.ledger.forget(gone.0);
            let state = (&mut self.closed, &self.ledger);
            let revisions = Revisions::collect((at, &program.spec), empty, state, lanes);
            closings.revisions = revisions.map(Box::new);
        }
        let Some(watermark) = watermark else {
            return closings;
        };
        let starts = self.open_starts()..watermark.0;
        let panes = lanes
            .iter()
            .flat_map(|lane| lane.pipelines[at].state.panes.keys_in(starts.clone()));
        closings.windows = self.closed.advance(window, empty, panes, watermark);
        if self.closed.through == before {
            return closings;
        }
        let with_data = |closing: &Closing| matches!(closing, Closing::WithData { .. });
        if closings.windows.iter().any(with_data) {
            let lend = |lane: &mut &mut LaneEngine| lane.lend_in(at, starts.clone(), |_| true);
            closings.lanes = lanes.iter_mut().map(lend).collect();
        }
        if let (EmptyWindows::Shown, Some(keep_ms)) = (empty, program.spec.late.keep_ms()) {
            let panes = lanes.iter().flat_map(|lane| {
                lane.pipelines[at]
                    .state
                    .panes
                    .keys_in(i64::MIN..watermark.0)
            });
            let gone = last_with_data(window, keep_ms, (before, watermark), panes);
            self.ledger.gone_with_data = self.ledger.gone_with_data.max(gone);
        }
        for lane in lanes.iter_mut() {
            lane.close_through(at, watermark);
        }
        closings
    }

    /// Panes that start before this lie in closed windows only.
    fn open_starts(&self) -> i64 {
        let through = self.closed.through;
        through.map_or(i64::MIN, |through| {
            self.spec().window.first_start_after(through.0)
        })
    }

    /// Records whose first window closes count, or are copies.
    fn judge(&mut self, at: usize, watermark: Timestamp, lanes: &mut [&mut LaneEngine]) {
        let program = Arc::clone(&self.program);
        let Some(of) = &program.spec.dedup else {
            return;
        };
        if self.closed.through.is_some_and(|done| done >= watermark) {
            return;
        }
        let due = lanes.iter_mut();
        let due: Vec<_> = due.map(|lane| lane.take_waiting(at, watermark)).collect();
        if due.iter().all(Vec::is_empty) {
            return;
        }
        let seen = Arc::make_mut(&mut self.seen);
        dedup::judge(&due, of.within_ms, seen, |lane, pane, record, verdict| {
            lanes[lane].judged(at, pane, record, verdict);
        });
        let horizon = dedup::horizon(&program.spec.window, Some(watermark));
        seen.sweep(horizon, of.within_ms);
        for (report, lane) in self.lanes.iter_mut().zip(lanes) {
            report.counters = lane.pipelines[at].state.counters;
        }
    }

    /// Whether some window gives a row once the watermark has reached its end.
    pub(crate) fn waits_for_windows(&self) -> bool {
        self.open_windows > 0 || self.spec().group_by.is_empty()
    }

    /// Where all windows with data have ended: to there the watermark must come to close them.
    pub(crate) fn last_end(&self, at: usize, lanes: &[&mut LaneEngine]) -> Option<Timestamp> {
        let panes = lanes
            .iter()
            .flat_map(|lane| lane.pipelines[at].state.panes.keys());
        let last = panes.map(|pane| pane.last_end(&self.spec().window)).max();
        let sessions = lanes
            .iter()
            .filter_map(|lane| lane.sessions(at)?.last_end());
        last.max(sessions.max()).map(Timestamp)
    }

    fn stream(&self, kind: StreamKind) -> StreamId {
        StreamId {
            incarnation: self.incarnation,
            kind,
        }
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.lanes.iter().for_each(|lane| sum.add(&lane.counters));
        sum
    }

    pub(crate) fn stats(&self) -> PipelineStats {
        let counters = self.counters();
        PipelineStats {
            records: counters.records,
            counted: counters.counted,
            filtered: counters.filtered,
            duplicates: counters.duplicates,
            waiting: self.lanes.iter().map(|lane| lane.waiting).sum(),
            late: counters.dead_letters.get(Reason::Late),
            partly_late: counters.partly_late,
            bad_fields: counters.bad_fields,
            rounded_fields: counters.rounded_fields,
            dead_letters: counters.dead_letters,
            dead_letters_suppressed: self.letters_suppressed,
            watermark: self.watermark,
            closed_through: self.closed.through,
            open_windows: self.open_windows,
            open_groups: self.lanes.iter().map(|lane| lane.groups).sum(),
            revising: counters.revising,
            revisions: self.ledger.revisions,
            withheld: self.withheld,
            next_row_seq: self.rows.next,
            row_digest: self.rows.digest,
            next_dead_letter_seq: self.letters.next,
            dead_letter_digest: self.letters.digest,
        }
    }
}
