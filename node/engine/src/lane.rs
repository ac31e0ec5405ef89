//! All pipelines of a feed on one lane.
//!
//! The state of a lane is a function of that lane's records, and of how far windows were closed
//! when each tick began: so lanes are folded apart, each by whoever decodes its records, and meet
//! when windows close.

use std::ops::Range;
use std::sync::Arc;

use crate::dead_letter::{DeadLetter, Reason};
use crate::dedup::Id;
use crate::expr::{Compiled, Work};
use crate::group::dictionary::{Dictionary, Keys};
use crate::group::push_cell;
use crate::pane::LentPane;
use crate::plan::{Common, Derived, GroupKey, Inputs, Program};
use crate::record::{Cell, Cells, Record};
use crate::revise::Touched;
use crate::session::SessionTable;
use crate::spec::{Column, Expr, TimeSource, Timestamp};
use crate::spill::Run;
use crate::stats::Counters;
use crate::timestamp;
use crate::window::PaneKey;

mod memory;
mod seen;
mod sessions;
mod state;
mod waiting;

pub(crate) use state::LaneState;
pub(crate) use waiting::fold;

/// The state of all pipelines of a feed on one lane. [`crate::FeedEngine::add_lane`] makes it.
#[derive(Debug)]
pub struct LaneEngine {
    shared: PerRecord,
    pub(crate) pipelines: Vec<LanePipeline>,
    took_record: bool,
    measured: memory::Measured,
}

/// One pipeline on the lane.
#[derive(Debug)]
pub(crate) struct LanePipeline {
    pub(crate) program: Arc<Program>,
    pub(crate) state: LaneState,
    pub(crate) seen: seen::Fields,
}

/// What is computed once for each record, however many pipelines ask.
#[derive(Debug, Default)]
pub(crate) struct PerRecord {
    times: Vec<Memo<TimeSource, Option<Timestamp>>>,
    filters: Vec<Memo<Prepared, bool>>,
    derived: Vec<Memo<Prepared, ()>>,
    /// A cell for each of `derived`.
    derived_cells: Cells,
    groups: Vec<Memo<Groups, Result<u32, Reason>>>,
    key: Vec<u8>,
    inputs: Inputs,
}

/// An expression and the memory that it works in.
#[derive(Debug)]
struct Prepared {
    compiled: Compiled,
    work: Work,
}

impl Prepared {
    fn new(compiled: Compiled) -> Self {
        let work = compiled.work();
        Self { compiled, work }
    }
}

#[derive(Debug)]
struct Memo<T, R> {
    of: T,
    /// For the present record.
    result: Option<R>,
}

/// The columns of a group, and the groups that they gave on this lane.
#[derive(Debug)]
struct Groups {
    key: GroupKey,
    dictionary: Dictionary,
}

impl<T, R> Memo<T, R> {
    fn new(of: T) -> Self {
        Self { of, result: None }
    }
}

/// The event time of a record; `None`: it has none that can be used.
#[inline]
pub fn time_of(source: &TimeSource, record: &Record<'_>) -> Option<Timestamp> {
    match source {
        TimeSource::AppendTime => record.append_time.and_then(timestamp::usable),
        TimeSource::Field {
            column,
            format,
            zone,
        } => timestamp::parse(record.cell(*column), format, zone.as_deref()),
    }
}

impl PerRecord {
    /// Knows all that `common` names.
    fn extend(&mut self, common: &Common) {
        let times = common.times.iter().skip(self.times.len());
        self.times.extend(times.cloned().map(Memo::new));
        let filters = common.filters.iter().skip(self.filters.len());
        self.filters
            .extend(filters.map(|filter| Memo::new(Prepared::new(Compiled::condition(filter)))));
        let derived = common.derived.iter().skip(self.derived.len());
        self.derived
            .extend(derived.map(|expr| Memo::new(Prepared::new(Compiled::new(expr)))));
        self.derived_cells = Cells::new(self.derived.len());
        let groups = common.groups.iter().skip(self.groups.len());
        self.groups.extend(groups.map(|key| {
            Memo::new(Groups {
                key: key.clone(),
                dictionary: Dictionary::default(),
            })
        }));
    }

    #[inline]
    fn begin_record(&mut self) {
        for time in &mut self.times {
            time.result = None;
        }
        for filter in &mut self.filters {
            filter.result = None;
        }
        if !self.derived.is_empty() {
            for derived in &mut self.derived {
                derived.result = None;
            }
            self.derived_cells.clear();
        }
        for group in &mut self.groups {
            group.result = None;
        }
    }

    #[inline]
    fn time(&mut self, at: usize, record: &Record<'_>) -> Option<Timestamp> {
        let Memo { of, result } = &mut self.times[at];
        *result.get_or_insert_with(|| time_of(of, record))
    }

    #[inline]
    fn selects(&mut self, at: usize, record: &Record<'_>) -> bool {
        let Memo { of, result } = &mut self.filters[at];
        *result.get_or_insert_with(|| of.compiled.selects(record, &mut of.work))
    }

    /// Computes the derived columns of these places.
    #[inline]
    fn derive(&mut self, places: &[usize], record: &Record<'_>) {
        for &at in places {
            let Memo { of, result } = &mut self.derived[at];
            if result.replace(()).is_none() {
                let cells = &mut self.derived_cells;
                of.compiled.write(record, &mut of.work, Column(at), cells);
            }
        }
    }

    /// The number of the record's group, once its derived columns are computed.
    ///
    /// # Errors
    /// Why it has none.
    #[inline]
    fn group(&mut self, at: usize, record: &Record<'_>) -> Result<u32, Reason> {
        let Memo { of, result } = &mut self.groups[at];
        let key = &mut self.key;
        let record = Derived {
            record,
            cells: &self.derived_cells,
        };
        *result.get_or_insert_with(|| {
            key.clear();
            for &column in &of.key.columns {
                let cell = record.cell(column);
                if cell == Cell::Nested || (cell == Cell::Bad && column.derived().is_none()) {
                    return Err(Reason::GroupUnusable);
                }
                push_cell(key, cell);
            }
            match key.len() <= of.key.most_bytes {
                true => Ok(of.dictionary.number(key)),
                false => Err(Reason::GroupTooLarge),
            }
        })
    }

    /// The id that these columns make, once derived ones are computed; `None`: one of them is null,
    /// or no plain value.
    fn id(&mut self, columns: &[Column], record: &Record<'_>) -> Option<Id> {
        let record = Derived {
            record,
            cells: &self.derived_cells,
        };
        self.key.clear();
        for &column in columns {
            match record.cell(column) {
                Cell::Missing | Cell::Null | Cell::Nested | Cell::Bad => return None,
                cell => push_cell(&mut self.key, cell),
            }
        }
        Some(Id::of(&self.key))
    }

    /// Reads what the values of `program` need.
    #[inline]
    fn read(&mut self, program: &Program, record: &Record<'_>) -> u64 {
        let record = Derived {
            record,
            cells: &self.derived_cells,
        };
        program.read(record, &mut self.inputs)
    }

    #[inline]
    fn dictionary(&mut self, at: usize) -> &mut Dictionary {
        &mut self.groups[at].of.dictionary
    }
}

impl LaneEngine {
    pub(crate) fn new() -> Self {
        Self {
            shared: PerRecord::default(),
            pipelines: Vec::new(),
            took_record: false,
            measured: memory::Measured::default(),
        }
    }

    pub(crate) fn add_pipeline(&mut self, common: &Common, program: Arc<Program>) {
        self.shared.extend(common);
        self.pipelines.push(LanePipeline {
            seen: seen::Fields::new(&program),
            state: LaneState::new(&program.spec),
            program,
        });
    }

    /// Opens a tick at an agreed time. With `None` agreed time follows the data: no record is too
    /// far ahead.
    pub fn begin(&mut self, agreed: Option<Timestamp>) {
        for pipeline in &mut self.pipelines {
            let ahead = agreed.zip(pipeline.program.spec.max_future_ms);
            let latest = ahead.map(|(agreed, most)| agreed.0.saturating_add(most));
            pipeline.state.latest_time = latest.map(Timestamp);
        }
    }

    /// Takes in the lane's next record.
    #[inline]
    pub fn absorb(&mut self, record: &Record<'_>) {
        self.took_record = true;
        self.shared.begin_record();
        for pipeline in &mut self.pipelines {
            pipeline.seen.look(record);
            pipeline
                .state
                .absorb(&pipeline.program, &mut self.shared, record);
        }
    }

    /// The fields that a pipeline names and no record had; `None` while there was no record.
    pub(crate) fn unseen(&self, pipeline: usize) -> Option<&[Column]> {
        self.pipelines.get(pipeline)?.seen.unseen()
    }

    /// What a pipeline's expressions could not use, and how often.
    pub(crate) fn misfits(&self, pipeline: usize, found: &mut dyn FnMut(&Expr, u64)) {
        let Some(pipeline) = self.pipelines.get(pipeline) else {
            return;
        };
        let filter = pipeline
            .program
            .filter
            .map(|at| &self.shared.filters[at].of);
        let derived = pipeline.program.derived.iter();
        let derived = derived.map(|&at| &self.shared.derived[at].of);
        for prepared in filter.into_iter().chain(derived) {
            for (expr, number) in prepared.compiled.misfits(&prepared.work) {
                found(expr, number);
            }
        }
    }

    /// What became of a pipeline's records so far on this lane; pipelines count from 0 in the order in which they were
    /// added. `None` for an unknown one.
    #[must_use]
    pub fn counters(&self, pipeline: usize) -> Option<Counters> {
        let pipeline = self.pipelines.get(pipeline)?;
        Some(pipeline.state.counters)
    }

    /// Whether a record came since the last call.
    pub(crate) fn take_took_record(&mut self) -> bool {
        std::mem::take(&mut self.took_record)
    }

    /// The dead letters of the tick.
    pub(crate) fn take_letters(&mut self, pipeline: usize) -> Vec<DeadLetter> {
        std::mem::take(&mut self.pipelines[pipeline].state.letters)
    }

    /// Those of the panes that start in this range that are `wanted`, and the keys of their groups, for
    /// whoever closes windows.
    pub(crate) fn lend_in(
        &mut self,
        pipeline: usize,
        starts: Range<i64>,
        wanted: impl Fn(PaneKey) -> bool,
    ) -> LaneTables {
        let LanePipeline { program, state, .. } = &mut self.pipelines[pipeline];
        LaneTables {
            keys: self.shared.dictionary(program.groups).keys(),
            panes: state.panes.lend_in(starts.clone(), &wanted),
            runs: state.panes.runs_in(starts, wanted),
            sessions: None,
        }
    }

    /// What the tick took in for closed windows.
    pub(crate) fn take_touched(&mut self, pipeline: usize) -> Touched {
        std::mem::take(&mut self.pipelines[pipeline].state.touched)
    }

    /// The number of a group, if it has one here.
    pub(crate) fn group_of(&mut self, pipeline: usize, key: &[u8]) -> Option<u32> {
        let groups = self.pipelines[pipeline].program.groups;
        self.shared.dictionary(groups).known(key)
    }

    /// All panes and the keys of their groups.
    pub(crate) fn lend(&mut self, pipeline: usize) -> LaneTables {
        let LanePipeline { program, state, .. } = &mut self.pipelines[pipeline];
        LaneTables {
            keys: self.shared.dictionary(program.groups).keys(),
            panes: state.panes.lend(),
            runs: state.panes.runs(),
            sessions: state.sessions.as_mut().map(|sessions| sessions.lend()),
        }
    }

    /// Windows that end here or before are closed. The panes of those that are not kept go.
    pub(crate) fn close_through(&mut self, pipeline: usize, through: Timestamp) {
        let LanePipeline { program, state, .. } = &mut self.pipelines[pipeline];
        state.closed_through = Some(through);
        let Some(gone) = program.spec.late.gone(Some(through)) else {
            return;
        };
        let dictionary = self.shared.dictionary(program.groups);
        state
            .panes
            .drop_closed(&program.spec.window, gone, dictionary);
    }

    /// The place of a group that comes from a checkpoint, in a pane of a pipeline.
    pub(crate) fn restore_group(
        &mut self,
        pipeline: usize,
        pane: PaneKey,
        key: &[u8],
    ) -> (&mut crate::pane::table::PaneTable, usize) {
        let LanePipeline { program, state, .. } = &mut self.pipelines[pipeline];
        let dictionary = self.shared.dictionary(program.groups);
        let group = dictionary.number(key);
        state.panes.table(pane, group, &program.spec, dictionary)
    }
}

/// Panes of one pipeline on one lane as they were at a moment, and the keys of their groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneTables {
    pub(crate) keys: Keys,
    pub(crate) panes: Vec<LentPane>,
    /// What of these panes is on disk, by pane.
    pub(crate) runs: Vec<(PaneKey, Run)>,
    /// Where windows are sessions: those.
    pub(crate) sessions: Option<Arc<SessionTable>>,
}
