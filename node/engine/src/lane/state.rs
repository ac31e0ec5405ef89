//! The state of one pipeline on one lane.

use super::PerRecord;
use crate::dead_letter::{Allowance, DeadLetter, Reason};
use crate::dedup::{Id, WaitingStore};
use crate::pane::PaneStore;
use crate::plan::{Derived, Program};
use crate::record::Record;
use crate::revise::Touched;
use crate::session::SessionStore;
use crate::spec::{PipelineSpec, Timestamp};
use crate::stats::{Counters, count};
use crate::watermark::EventTimes;
use crate::window::{PaneKey, Placement, place};

/// Watermark, panes and counters of one pipeline on one lane.
#[derive(Debug, Default)]
pub(crate) struct LaneState {
    pub(crate) times: EventTimes,
    pub(crate) panes: PaneStore,
    /// Where windows are sessions: then there are no panes.
    pub(crate) sessions: Option<Box<SessionStore>>,
    /// Records that may be copies. Their panes are in `panes` too.
    pub(crate) waiting: WaitingStore,
    pub(crate) counters: Counters,
    pub(crate) allowance: Allowance,
    /// The dead letters of the tick so far that are to be written.
    pub(crate) letters: Vec<DeadLetter>,
    /// Windows that end here or before were closed when the tick began.
    pub(crate) closed_through: Option<Timestamp>,
    /// What the tick so far took in for windows that were closed when it began.
    pub(crate) touched: Touched,
    /// A record's time must not lie beyond; `None` where agreed time follows the data.
    pub(crate) latest_time: Option<Timestamp>,
}

impl LaneState {
    pub(crate) fn new(spec: &PipelineSpec) -> Self {
        let gap_ms = spec.window.gap_ms();
        Self {
            sessions: gap_ms.map(|gap_ms| Box::new(SessionStore::new(&spec.values, gap_ms))),
            ..Self::default()
        }
    }

    /// Groups in all panes, and open sessions.
    pub(crate) fn groups(&self) -> u64 {
        let sessions = self.sessions.as_ref().map_or(0, |of| of.open());
        self.panes.group_count().saturating_add(sessions)
    }

    /// Bytes that panes and sessions take.
    pub(crate) fn memory(&self) -> usize {
        let sessions = self.sessions.as_ref().map_or(0, |of| of.memory());
        let kept = self.panes.memory().saturating_add(sessions);
        kept.saturating_add(self.waiting.memory())
    }

    /// How far event time has come on this lane.
    #[inline]
    pub(crate) fn watermark(&self) -> Option<Timestamp> {
        self.times.watermark()
    }

    #[inline]
    pub(super) fn absorb(
        &mut self,
        program: &Program,
        shared: &mut PerRecord,
        record: &Record<'_>,
    ) {
        count(&mut self.counters.records, 1);
        if let Some(reason) = Reason::of_state(record.state) {
            return self.reject(reason, record);
        }
        // The filter goes first: a record that was not asked for is never a dead letter.
        let selected = program
            .filter
            .is_none_or(|filter| shared.selects(filter, record));
        let time = shared.time(program.time, record);
        let fault = match time {
            None => Some(Reason::BadTime),
            Some(time) if self.is_too_new(time, &program.spec, record) => Some(Reason::Future),
            Some(_) => None,
        };
        let (Some(time), None) = (time, fault) else {
            match fault {
                Some(reason) if selected => self.reject(reason, record),
                _ => count(&mut self.counters.filtered, 1),
            }
            return;
        };
        // The watermark before this record decides whether it is late; after it, it moves, also for
        // a record that `where` drops.
        let complete_to = self.watermark().max(self.closed_through);
        let complete_to = program.spec.late.gone(complete_to);
        self.times.show(time, &program.spec.close);
        if !selected {
            count(&mut self.counters.filtered, 1);
            return;
        }
        let window = &program.spec.window;
        let pane = match self.panes.last_if_holds(time, complete_to) {
            Some(pane) => pane,
            None if self.sessions.is_some() => {
                // A session that is closed reaches no further than to there.
                return match complete_to.is_some_and(|limit| time < limit) {
                    true => self.reject(Reason::Late, record),
                    false => self.count_in_session(program, shared, time, record),
                };
            }
            None => match place(window, time, complete_to) {
                Placement::All(pane) => pane,
                Placement::Some(pane) => {
                    count(&mut self.counters.partly_late, 1);
                    pane
                }
                Placement::Late => return self.reject(Reason::Late, record),
            },
        };
        self.count(program, shared, (pane, time), record);
    }

    /// What the log has stamped says it for itself, live and replayed alike; of other records the tick's clock says it.
    #[inline]
    fn is_too_new(&self, time: Timestamp, spec: &PipelineSpec, record: &Record<'_>) -> bool {
        let latest = match (record.append_time, spec.max_future_ms) {
            (Some(appended), Some(most)) => Some(Timestamp(appended.0.saturating_add(most))),
            _ => self.latest_time,
        };
        latest.is_some_and(|latest| time > latest)
    }

    #[inline]
    fn count(
        &mut self,
        program: &Program,
        shared: &mut PerRecord,
        (pane, time): (PaneKey, Timestamp),
        record: &Record<'_>,
    ) {
        let Some(group) = self.read(program, shared, record) else {
            return;
        };
        if let Some(dedup) = &program.spec.dedup
            && let Some(id) = shared.id(&dedup.key, record)
        {
            return self.wait(program, shared, (pane, time, group, id), record);
        }
        // Without `revise` no record has such a pane.
        if self
            .closed_through
            .is_some_and(|closed| closed.0 >= pane.first_end)
        {
            self.touch(pane, group);
        }
        count(&mut self.counters.counted, 1);
        let dictionary = &mut shared.groups[program.groups].of.dictionary;
        let (table, place) = self.panes.table(pane, group, &program.spec, dictionary);
        let record = Derived {
            record,
            cells: &shared.derived_cells,
        };
        let inputs = &shared.inputs;
        table.add(place, time, |value| program.input(value, inputs, record));
    }

    /// Notes a record that changes windows that are closed, before it is taken in.
    #[cold]
    fn touch(&mut self, pane: PaneKey, group: u32) {
        count(&mut self.counters.revising, 1);
        let is_new = !self.panes.holds(pane, group);
        self.touched.entry((pane, group)).or_insert(is_new);
    }

    fn count_in_session(
        &mut self,
        program: &Program,
        shared: &mut PerRecord,
        time: Timestamp,
        record: &Record<'_>,
    ) {
        let Some(group) = self.read(program, shared, record) else {
            return;
        };
        count(&mut self.counters.counted, 1);
        let Some(sessions) = &mut self.sessions else {
            return;
        };
        let dictionary = &mut shared.groups[program.groups].of.dictionary;
        let (columns, place) = sessions.take_in(group, time, dictionary);
        let record = Derived {
            record,
            cells: &shared.derived_cells,
        };
        for (value, column) in columns.iter_mut().enumerate() {
            column.add(place, time, program.input(value, &shared.inputs, record));
        }
    }

    /// Reads what groups and values need of a record that counts; gives its group's number.
    #[inline]
    fn read(
        &mut self,
        program: &Program,
        shared: &mut PerRecord,
        record: &Record<'_>,
    ) -> Option<u32> {
        shared.derive(&program.derived, record);
        let group = match shared.group(program.groups, record) {
            Ok(group) => group,
            Err(reason) => {
                self.reject(reason, record);
                return None;
            }
        };
        let bad_fields = shared.read(program, record);
        count(&mut self.counters.bad_fields, bad_fields);
        if record.has_rounded() {
            count(&mut self.counters.rounded_fields, program.rounded(record));
        }
        Some(group)
    }

    /// Keeps a record until its window closes: only then it is known whether it is a copy.
    fn wait(
        &mut self,
        program: &Program,
        shared: &mut PerRecord,
        (pane, time, group, id): (PaneKey, Timestamp, u32, Id),
        record: &Record<'_>,
    ) {
        shared.dictionary(program.groups).hold(group);
        self.panes.add(pane, &program.spec);
        let derived = Derived {
            record,
            cells: &shared.derived_cells,
        };
        let waiting = self.waiting.pane(pane);
        waiting.push(id, (time, record.offset), group, |out| {
            program.hold(&shared.inputs, derived, out);
        });
    }

    #[cold]
    fn reject(&mut self, reason: Reason, record: &Record<'_>) {
        self.counters.dead_letters.add(reason, 1);
        if self.allowance.admits(record.offset) {
            self.letters.push(DeadLetter::new(reason, record));
        }
    }
}
