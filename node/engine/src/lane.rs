//! The state of one pipeline on one lane: a function of that lane's records and of the windows
//! closed meanwhile.

use std::ops::Range;

use crate::checkpoint::codec::{Fault, Reader, Writer};
use crate::dead_letter::{DeadLetter, EXCERPT_BYTES, MOST_PER_TICK, Reason};
use crate::expr;
use crate::group;
use crate::pane::PaneStore;
use crate::plan::{Inputs, Plan};
use crate::record::{RecordBatch, RecordMeta};
use crate::spec::{PipelineSpec, TimeSource, Timestamp};
use crate::stats::Counters;
use crate::timestamp;
use crate::watermark::EventTimes;
use crate::window::{PaneKey, Placement, place};

/// What is the same for all records of a tick.
pub(crate) struct Context<'a> {
    pub(crate) spec: &'a PipelineSpec,
    pub(crate) plan: &'a Plan,
    /// Windows that end here or before are closed.
    pub(crate) closed_through: Option<Timestamp>,
    /// A record's time must not lie beyond; `None` where agreed time follows the data.
    pub(crate) latest_time: Option<Timestamp>,
}

/// Watermark, panes and counters of one pipeline on one lane.
#[derive(Debug, Default)]
pub(crate) struct LaneState {
    times: EventTimes,
    pub(crate) panes: PaneStore,
    pub(crate) counters: Counters,
    /// The dead letters of the tick so far, as many as may be written.
    letters: Vec<DeadLetter>,
    inputs: Inputs,
    key: Vec<u8>,
}

impl LaneState {
    /// How far event time has come on this lane.
    pub(crate) fn watermark(&self) -> Option<Timestamp> {
        self.times.watermark()
    }

    /// Takes the dead letters of the tick.
    pub(crate) fn take_letters(&mut self) -> Vec<DeadLetter> {
        std::mem::take(&mut self.letters)
    }

    /// Takes in records `range` of the batch.
    pub(crate) fn absorb(
        &mut self,
        context: &Context<'_>,
        batch: &RecordBatch,
        range: Range<usize>,
    ) {
        for index in range {
            self.absorb_one(context, batch, index);
        }
    }

    #[inline]
    fn absorb_one(&mut self, context: &Context<'_>, batch: &RecordBatch, index: usize) {
        let spec = context.spec;
        self.counters.records += 1;
        let meta = batch.meta(index);
        if let Some(reason) = Reason::of_state(meta.state) {
            return self.reject(reason, batch, index);
        }
        // The filter goes first: a record that was not asked for is never a dead letter.
        let selected = spec
            .filter
            .as_ref()
            .is_none_or(|filter| expr::selects(filter, batch, index));
        let time = event_time(&spec.time, meta, batch, index);
        let fault = match time {
            None => Some(Reason::BadTime),
            Some(time) if context.latest_time.is_some_and(|latest| time > latest) => {
                Some(Reason::Future)
            }
            Some(_) => None,
        };
        let (Some(time), None) = (time, fault) else {
            match fault {
                Some(reason) if selected => self.reject(reason, batch, index),
                _ => self.counters.filtered += 1,
            }
            return;
        };
        // The watermark before this record decides whether it is late; after it, it moves, also for
        // a record that `where` drops.
        let complete_to = self.watermark().max(context.closed_through);
        self.times.show(time, &spec.close);
        if !selected {
            self.counters.filtered += 1;
            return;
        }
        let pane = match self
            .panes
            .last_if_holds(time, complete_to, spec.window.slide_ms())
        {
            Some(pane) => pane,
            None => match place(spec.window, time, complete_to) {
                Placement::All(pane) => pane,
                Placement::Some(pane) => {
                    self.counters.partly_late += 1;
                    pane
                }
                Placement::Late => return self.reject(Reason::Late, batch, index),
            },
        };
        self.count(context, pane, batch, index);
    }

    #[inline]
    fn count(&mut self, context: &Context<'_>, pane: PaneKey, batch: &RecordBatch, index: usize) {
        let Context { spec, plan, .. } = context;
        self.counters.counted += 1;
        self.counters.bad_fields += plan.read(batch, index, &mut self.inputs);
        self.key.clear();
        for column in &spec.group_by {
            group::push_cell(&mut self.key, batch.cell(index, column.column));
        }
        let values = self.panes.table(pane).values_of(&self.key, &spec.values);
        for (at, value) in values.iter_mut().enumerate() {
            value.add(plan.input(at, &self.inputs));
        }
    }

    #[cold]
    fn reject(&mut self, reason: Reason, batch: &RecordBatch, index: usize) {
        self.counters.dead_letters.add(reason, 1);
        if self.letters.len() < MOST_PER_TICK {
            let payload = batch.payload(index);
            let excerpt = payload[..payload.len().min(EXCERPT_BYTES)].to_vec();
            self.letters.push(DeadLetter {
                offset: batch.meta(index).offset,
                reason,
                excerpt,
            });
        }
    }

    /// The dead letters of an unfinished tick are not part of it: checkpoints are made between
    /// ticks.
    pub(crate) fn encode(&self, spec: &PipelineSpec, out: &mut Writer) {
        self.times.encode(out);
        self.counters.encode(out);
        self.panes.encode(&spec.values, out);
    }

    pub(crate) fn decode(input: &mut Reader<'_>, spec: &PipelineSpec) -> Result<Self, Fault> {
        let times = EventTimes::decode(input, &spec.close)?;
        let counters = Counters::decode(input)?;
        let panes = PaneStore::decode(input, spec)?;
        Ok(Self {
            times,
            counters,
            panes,
            ..Self::default()
        })
    }
}

#[inline]
fn event_time(
    source: &TimeSource,
    meta: &RecordMeta,
    batch: &RecordBatch,
    index: usize,
) -> Option<Timestamp> {
    match source {
        TimeSource::AppendTime => meta.append_time.and_then(timestamp::usable),
        TimeSource::Field { column, format } => {
            timestamp::parse(batch.cell(index, *column), *format)
        }
    }
}
