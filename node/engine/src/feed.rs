//! A feed: lanes that are read together, and the pipelines over them.
//!
//! Its lanes' states are [`LaneEngine`]s, which whoever reads them holds. A tick has three steps:
//! each lane takes in its records; with all of them there, [`FeedEngine::settle`] decides which
//! windows are closed and takes them from the lanes; then the lanes may go on with the next tick
//! while [`FeedEngine::write`] makes the rows.

use std::io;
use std::sync::Arc;

use crate::lane::LaneEngine;
use crate::merge::{LaneHops, Order, kept_hops};
use crate::pipeline::{Closings, Pipeline};
use crate::plan::Common;
use crate::row::{Digest, Incarnation, RowRef, Seq, StreamId, StreamKind};
use crate::spec::{LaneId, PipelineSpec, Timestamp};
use crate::stats::PipelineStats;
use crate::watermark::{self, LaneView};

/// Most time that one tick adds to a lane's quiet time, in milliseconds: ticks come at least twice
/// a second, so a longer gap is time in which nobody looked.
const MOST_QUIET_PER_TICK_MS: i64 = 1000;
/// A lane of which nobody has seen the end for so much agreed time, in milliseconds, begins its quiet
/// time anew: an outage is no silence.
const BLIND_MS: i64 = 1000;

/// A lane as all pipelines of the feed see it.
#[derive(Clone, Debug)]
pub(crate) struct FeedLane {
    pub(crate) label: String,
    /// Agreed time that passed, in milliseconds, while the lane was seen at its end and gave
    /// nothing.
    pub(crate) quiet_ms: i64,
    /// Agreed time that passed, in milliseconds, since its end was last seen; 0 where the last tick
    /// saw it.
    pub(crate) blind_ms: i64,
    /// It has come to its end for good.
    pub(crate) retired: bool,
}

impl FeedLane {
    /// Nobody has seen its end for so long that what was known of it counts for nothing.
    pub(crate) fn is_unseen(&self) -> bool {
        self.blind_ms >= BLIND_MS
    }
}

/// How a tick ends.
#[derive(Clone, Copy, Debug)]
pub struct TickEnd<'a> {
    /// With `None` agreed time follows the data: no lane becomes idle.
    pub agreed: Option<Timestamp>,
    /// The lanes that had been read to their end.
    pub at_end: &'a [LaneId],
}

/// What a tick closed: its rows are still to be written.
#[derive(Debug, Default)]
#[must_use = "rows come of it: give it to `write`"]
pub struct Settled {
    /// Of each pipeline.
    closings: Vec<Closings>,
}

impl Settled {
    /// Whether no row and no dead letter will come of it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.closings.iter().all(Closings::is_empty)
    }
}

/// The state of a feed that is not a lane's. Ticks and records are all that changes a row.
#[derive(Debug, Default)]
pub struct FeedEngine {
    pub(crate) lanes: Vec<FeedLane>,
    pub(crate) pipelines: Vec<Pipeline>,
    pub(crate) common: Common,
    /// The order of groups, for each of [`Common::groups`]: kept from window to window.
    orders: Vec<Order>,
    /// For each pipeline, what its closing keeps of the lanes from window to window.
    hops: Vec<Vec<LaneHops>>,
    /// The agreed time of the last tick.
    pub(crate) previous_agreed: Option<Timestamp>,
}

/// An order of groups that takes more than this is not kept from window to window.
const KEPT_ORDER_BYTES: usize = 1 << 20;

impl FeedEngine {
    /// A feed without lanes and pipelines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a lane, between two ticks. The label, like `dns/0`, is what dead letters show. Ids
    /// count from 0, in the order of the calls; the lane's engine is to be at that place wherever
    /// all lanes are asked for.
    pub fn add_lane(&mut self, label: String) -> (LaneId, LaneEngine) {
        let lane = self.lanes.len();
        self.lanes.push(FeedLane {
            label,
            quiet_ms: 0,
            blind_ms: 0,
            retired: false,
        });
        for pipeline in &mut self.pipelines {
            pipeline.lanes.push(crate::pipeline::LaneReport::default());
        }
        // A feed of four billion lanes does not fit into memory.
        let id = LaneId(u32::try_from(lane).unwrap_or(u32::MAX));
        (id, self.new_lane())
    }

    /// Nothing more comes of a lane, between two ticks: it holds no window open from the next tick on. What it has taken
    /// in of windows that are open stays. An unknown lane is none.
    pub fn retire_lane(&mut self, lane: LaneId) {
        if let Some(lane) = self.lanes.get_mut(lane.0 as usize) {
            lane.retired = true;
        }
    }

    /// A lane of all pipelines that has taken nothing in.
    pub(crate) fn new_lane(&self) -> LaneEngine {
        let mut engine = LaneEngine::new();
        for pipeline in &self.pipelines {
            engine.add_pipeline(&self.common, Arc::clone(&pipeline.program));
            if let Some(added) = engine.pipelines.last_mut() {
                // What is closed is closed for who comes now too.
                added.state.closed_through = pipeline.closed.through;
            }
        }
        engine
    }

    /// Adds a pipeline, between two ticks; it sees the records from the next tick on. An
    /// incarnation that is there already stays as it is.
    pub fn add_pipeline(
        &mut self,
        incarnation: Incarnation,
        spec: PipelineSpec,
        lanes: &mut [&mut LaneEngine],
    ) {
        if self.find(incarnation).is_some() {
            return;
        }
        let program = Arc::new(self.common.program(spec));
        for lane in lanes.iter_mut() {
            lane.add_pipeline(&self.common, Arc::clone(&program));
        }
        let pipeline = Pipeline::new(incarnation, program, self.lanes.len());
        self.pipelines.push(pipeline);
        self.orders
            .resize_with(self.common.groups.len(), Order::default);
    }

    /// Ends a tick, once all lanes have taken in its records. `lanes` are all of the feed's, in
    /// their order. After it the lanes may take in the next tick's records.
    pub fn settle(&mut self, lanes: &mut [&mut LaneEngine], end: TickEnd<'_>) -> Settled {
        let passed = self.pass_time(lanes, end);
        let mut closings = Vec::with_capacity(self.pipelines.len());
        for (at, pipeline) in self.pipelines.iter_mut().enumerate() {
            pipeline.look(at, lanes);
            pipeline.pass_time(&self.lanes, passed);
            let views = lane_views(pipeline, &self.lanes, end.agreed);
            let views = views.map(|(_, view)| view);
            let (all, close) = (self.lanes.len(), &pipeline.spec().close);
            let watermark = watermark::of_feed(views, all, end.agreed, close);
            closings.push(pipeline.settle(at, watermark, lanes));
            pipeline.look_at_panes(at, lanes);
        }
        Settled { closings }
    }

    /// Only a lane that is known to be at its end is quiet: time without that evidence counts for
    /// nothing, and much of it ends the quiet.
    /// Gives how much time passed.
    fn pass_time(&mut self, lanes: &mut [&mut LaneEngine], end: TickEnd<'_>) -> i64 {
        let passed = self
            .previous_agreed
            .zip(end.agreed)
            .map_or(0, |(before, now)| {
                let passed = now.0.saturating_sub(before.0);
                passed.clamp(0, MOST_QUIET_PER_TICK_MS)
            });
        self.previous_agreed = end.agreed;
        for (at, (lane, engine)) in (0..).zip(self.lanes.iter_mut().zip(lanes)) {
            let at_end = end.at_end.contains(&LaneId(at));
            if engine.take_took_record() {
                lane.quiet_ms = 0;
            } else if at_end {
                lane.quiet_ms = lane.quiet_ms.saturating_add(passed);
            }
            lane.blind_ms = match at_end {
                true => 0,
                false => lane.blind_ms.saturating_add(passed.max(1)),
            };
            if lane.is_unseen() {
                lane.quiet_ms = 0;
            }
        }
        passed
    }

    /// Closes all windows with data, as if every watermark had reached their end.
    pub fn finish(&mut self, lanes: &mut [&mut LaneEngine]) -> Settled {
        let mut closings = Vec::with_capacity(self.pipelines.len());
        for (at, pipeline) in self.pipelines.iter_mut().enumerate() {
            let end = pipeline.last_end(at, lanes);
            closings.push(match end {
                None => Closings::default(),
                Some(_) => pipeline.settle(at, pipeline.watermark.max(end), lanes),
            });
            pipeline.look_at_panes(at, lanes);
        }
        Settled { closings }
    }

    /// Writes the rows of a tick, which must be the last one that was settled: calls `emit` for each
    /// row, of each pipeline, in the order in which they were added, its rows and then its dead
    /// letters.
    ///
    /// # Errors
    /// Groups on disk cannot be read. Rows up to there were given; the engine is of no more use.
    pub fn write(
        &mut self,
        settled: Settled,
        emit: &mut dyn FnMut(StreamId, RowRef<'_>),
    ) -> io::Result<()> {
        self.hops.resize_with(self.pipelines.len(), Vec::new);
        let pipelines = self.pipelines.iter_mut().zip(&mut self.hops);
        for ((pipeline, hops), closings) in pipelines.zip(settled.closings) {
            if closings.is_empty() {
                continue;
            }
            if hops.len() != self.lanes.len() {
                // A lane joined: what is kept of the others is soon made again.
                *hops = kept_hops(pipeline.spec(), self.lanes.len());
            }
            let order = &mut self.orders[pipeline.program.groups];
            let label = |lane: usize| self.lanes[lane].label.clone();
            pipeline.write(&closings, (order, hops), label, emit)?;
            if order.memory() > KEPT_ORDER_BYTES {
                *order = Order::default();
            }
        }
        Ok(())
    }

    /// About the same as [`Self::kept_bytes`], for each tick.
    #[must_use]
    pub fn about_kept_bytes(&self) -> usize {
        let hops = self.hops.iter().flatten().map(LaneHops::about_memory);
        let orders = self.orders.iter().map(Order::memory);
        let ledgers = self.pipelines.iter().map(|of| of.ledger.memory());
        hops.chain(orders).chain(ledgers).sum()
    }

    /// Forgets what is kept from window to window: it is made again where it is missing.
    pub fn forget_kept(&mut self) {
        self.hops.iter_mut().for_each(Vec::clear);
        self.orders
            .iter_mut()
            .for_each(|order| *order = Order::default());
    }

    /// Bytes that are kept from window to window beside the lanes' states: for overlapping windows about as much as
    /// their panes take. Looks at every pane: not for each tick.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let hops = self.hops.iter().flatten().map(LaneHops::memory);
        let orders = self.orders.iter().map(Order::memory);
        let ledgers = self.pipelines.iter().map(|of| of.ledger.memory());
        let seen = self.pipelines.iter().map(|of| of.seen.memory());
        hops.chain(orders).chain(ledgers).chain(seen).sum()
    }

    /// The next row of a stream has this number at least, and this digest before it, if it goes on there: others have rows of
    /// those numbers, which stay. Between two ticks, all rows written. Gives where the stream goes on; `None` for an unknown one.
    pub fn go_on_behind(
        &mut self,
        stream: StreamId,
        next: Seq,
        digest: Digest,
    ) -> Option<(Seq, Digest)> {
        let at = self.find(stream.incarnation)?;
        let pipeline = &mut self.pipelines[at];
        let end = match stream.kind {
            StreamKind::Rows => &mut pipeline.rows,
            StreamKind::DeadLetters => &mut pipeline.letters,
        };
        if next > end.next {
            (end.next, end.digest) = (next, digest);
        }
        Some((end.next, end.digest))
    }

    /// How a pipeline stands; `None` for an unknown incarnation.
    #[must_use]
    pub fn stats(&self, incarnation: Incarnation) -> Option<PipelineStats> {
        self.find(incarnation).map(|at| self.pipelines[at].stats())
    }

    /// How far event time has come in each lane at the last tick, by lane: where pipelines see it differently, for the
    /// one that is furthest behind.
    #[must_use]
    pub fn lane_watermarks(&self) -> Vec<Option<Timestamp>> {
        let least = |lane: usize| {
            let reports = self.pipelines.iter().filter_map(|it| it.lanes.get(lane));
            reports.filter_map(|report| report.watermark).min()
        };
        (0..self.lanes.len()).map(least).collect()
    }

    /// The pipelines, in the order in which they were added.
    #[must_use]
    pub fn incarnations(&self) -> Vec<Incarnation> {
        let pipelines = self.pipelines.iter();
        pipelines.map(|pipeline| pipeline.incarnation).collect()
    }

    /// The lanes as a pipeline saw them at the last tick.
    pub(crate) fn views<'a>(
        &'a self,
        pipeline: &'a Pipeline,
    ) -> impl Iterator<Item = (LaneId, LaneView)> + 'a {
        lane_views(pipeline, &self.lanes, self.previous_agreed)
    }

    pub(crate) fn find(&self, incarnation: Incarnation) -> Option<usize> {
        let is_it = |pipeline: &Pipeline| pipeline.incarnation == incarnation;
        self.pipelines.iter().position(is_it)
    }
}

/// The lanes that are not retired, as a pipeline's watermark sees them.
fn lane_views<'a>(
    pipeline: &'a Pipeline,
    lanes: &'a [FeedLane],
    agreed: Option<Timestamp>,
) -> impl Iterator<Item = (LaneId, LaneView)> + 'a {
    // Without agreed time there are no timers.
    let idle_ms = pipeline.spec().close.idle_ms.filter(|_| agreed.is_some());
    let numbers = (0..).map(LaneId);
    let lanes = numbers.zip(lanes.iter().zip(&pipeline.lanes));
    lanes
        .filter(|(_, (lane, _))| !lane.retired)
        .map(move |(number, (lane, report))| {
            // Without evidence at this very tick it may have records by now.
            let is_idle = |idle: i64| lane.blind_ms == 0 && lane.quiet_ms >= idle.max(1);
            let view = LaneView {
                watermark: report.watermark,
                idle: idle_ms.is_some_and(is_idle),
                seen_ms: (lane.blind_ms == 0).then_some(report.seen_ms),
            };
            (number, view)
        })
}
