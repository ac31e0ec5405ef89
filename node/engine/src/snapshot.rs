//! A feed between two ticks, for readers: queries and checkpoints look at it while the feed goes on.
//!
//! Tables are shared, not copied; the next write to one that a reader still holds copies that one.

use std::io;
use std::sync::Arc;

use crate::close::Closed;
use crate::dead_letter::Allowance;
use crate::dedup::{self, LentWaiting, Verdict};
use crate::feed::{FeedEngine, FeedLane};
use crate::having::Having;
use crate::lane::{LaneEngine, LaneTables, fold};
use crate::merge::{Order, each_group, kept_hops};
use crate::pipeline::Pipeline;
use crate::render::RowWriter;
use crate::revise::Standing;
use crate::row::{Digest, Seq};
use crate::row::{Incarnation, RowRef};
use crate::session::close::show_open;
use crate::spec::Timestamp;
use crate::stats::{Counters, PipelineStats};
use crate::value::Column;
use crate::watermark::EventTimes;

/// All state of a feed and its lanes at the end of a tick.
#[derive(Debug)]
pub struct FeedSnapshot {
    pub(crate) previous_agreed: Option<Timestamp>,
    pub(crate) lanes: Vec<FeedLane>,
    pub(crate) pipelines: Vec<PipelineSnapshot>,
}

/// One pipeline of it.
#[derive(Debug)]
pub(crate) struct PipelineSnapshot {
    pub(crate) pipeline: Pipeline,
    /// Of each lane.
    pub(crate) lanes: Vec<LaneSnapshot>,
    pub(crate) tables: Vec<LaneTables>,
}

/// One pipeline on one lane, but for its tables.
#[derive(Debug)]
pub(crate) struct LaneSnapshot {
    pub(crate) times: EventTimes,
    pub(crate) counters: Counters,
    pub(crate) allowance: Allowance,
    /// Records that may be copies.
    pub(crate) waiting: Vec<LentWaiting>,
}

impl FeedEngine {
    /// The state between two ticks; the rows of the last one must be written.
    #[must_use]
    pub fn snapshot(&self, lanes: &mut [&mut LaneEngine]) -> FeedSnapshot {
        let pipelines = self.pipelines.iter().enumerate();
        FeedSnapshot {
            previous_agreed: self.previous_agreed,
            lanes: self.lanes.clone(),
            pipelines: pipelines
                .map(|(at, pipeline)| PipelineSnapshot::new(at, pipeline, lanes))
                .collect(),
        }
    }
}

impl PipelineSnapshot {
    fn new(at: usize, pipeline: &Pipeline, lanes: &mut [&mut LaneEngine]) -> Self {
        let states = lanes.iter_mut().map(|lane| LaneSnapshot {
            waiting: lane.lend_waiting(at),
            times: lane.pipelines[at].state.times.clone(),
            counters: lane.pipelines[at].state.counters,
            allowance: lane.pipelines[at].state.allowance,
        });
        Self {
            pipeline: pipeline.clone(),
            lanes: states.collect(),
            tables: lanes.iter_mut().map(|lane| lane.lend(at)).collect(),
        }
    }

    /// The tables as they were if what waits were judged now.
    fn judged_tables(&self) -> Option<Vec<LaneTables>> {
        let program = &self.pipeline.program;
        let within_ms = program.spec.dedup.as_ref()?.within_ms;
        let mut tables = self.tables.clone();
        let waiting: Vec<_> = self.lanes.iter().map(|lane| lane.waiting.clone()).collect();
        let mut seen = (*self.pipeline.seen).clone();
        dedup::judge(&waiting, within_ms, &mut seen, |lane, pane, record, is| {
            let panes = &mut tables[lane].panes;
            let found = panes.binary_search_by_key(&pane, |(key, _)| *key);
            if let (Verdict::Counts, Ok(at)) = (is, found) {
                let table = Arc::make_mut(&mut panes[at].1);
                let group = record.1.group;
                let (place, _) = table.place_or_add(group, group.saturating_add(1));
                fold(program, table, place, record);
            }
        });
        Some(tables)
    }

    fn open_ends(&self) -> impl Iterator<Item = i64> + '_ {
        let panes = self.tables.iter().flat_map(|lane| &lane.panes);
        let closed: Closed = self.pipeline.closed;
        closed.open_ends(
            &self.pipeline.spec().window,
            panes.map(|&(key, _)| key),
            Timestamp(i64::MAX),
        )
    }
}

impl FeedSnapshot {
    /// Calls `emit` with the present values of a pipeline's open windows, by window end and group
    /// (those for which `having` holds), until it says that it has enough. The rows have `Seq(0)` and no digest, `"seq":null` in the
    /// JSON. None for an unknown incarnation.
    ///
    /// # Errors
    /// Groups on disk cannot be read.
    pub fn open_windows(
        &self,
        incarnation: Incarnation,
        emit: &mut dyn FnMut(RowRef<'_>) -> bool,
    ) -> io::Result<()> {
        let is_it = |of: &&PipelineSnapshot| of.pipeline.incarnation == incarnation;
        let Some(of) = self.pipelines.iter().find(is_it) else {
            return Ok(());
        };
        let spec = of.pipeline.spec();
        if spec.window.gap_ms().is_some() {
            show_open(spec, &of.tables, emit);
            return Ok(());
        }
        let judged = of.judged_tables();
        let tables = judged.as_ref().unwrap_or(&of.tables);
        let mut order = Order::default();
        order.follow(&tables.iter().map(|lane| &lane.keys).collect::<Vec<_>>());
        let mut writer = RowWriter::new(spec);
        let mut hops = kept_hops(spec, tables.len());
        let mut having = Having::new(spec);
        let mut goes_on = true;
        for end in of.open_ends() {
            writer.window(spec.window.start_of(end), end);
            let length = writer.length();
            let row = |key: &[u8], columns: &[Column], place: usize| {
                let having = having.as_mut();
                if having.is_some_and(|it| !it.keeps(key, columns, place, length)) {
                    return true;
                }
                let (json, group) = writer.row(None, Standing::FIRST, key, columns, place);
                goes_on = emit(RowRef {
                    seq: Seq(0),
                    start: Timestamp(spec.window.start_of(end)),
                    end: Timestamp(end),
                    digest: Digest::default(),
                    json,
                    group,
                });
                goes_on
            };
            each_group(spec, end, tables, &order, &mut hops, row)?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// How a pipeline stood; `None` for an unknown incarnation.
    #[must_use]
    pub fn stats(&self, incarnation: Incarnation) -> Option<PipelineStats> {
        let is_it = |of: &&PipelineSnapshot| of.pipeline.incarnation == incarnation;
        let found = self.pipelines.iter().find(is_it);
        found.map(|of| of.pipeline.stats())
    }

    /// The pipelines, in the order in which they were added.
    pub fn incarnations(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.pipelines.iter().map(|of| of.pipeline.incarnation)
    }
}
