//! A feed: lanes that are read together, and the pipelines over them.

use std::ops::Range;

use crate::pipeline::Pipeline;
use crate::record::RecordBatch;
use crate::row::{Incarnation, Row, StreamOutput};
use crate::spec::{LaneId, PipelineSpec, Timestamp};
use crate::stats::PipelineStats;
use crate::watermark::{self, LaneView};

/// Most time that one tick adds to a lane's quiet time, in milliseconds: ticks come at least twice
/// a second, so a longer gap is time in which nobody looked.
const MOST_QUIET_PER_TICK_MS: i64 = 1000;

/// A lane as all pipelines of the feed see it.
#[derive(Debug)]
pub(crate) struct FeedLane {
    pub(crate) label: String,
    /// Agreed time that passed, in milliseconds, while the lane was seen at its end and gave
    /// nothing.
    pub(crate) quiet_ms: i64,
    /// It took a record in the tick that is open.
    took_record: bool,
    /// The tick that ends says that the lane had been read to its end.
    at_end: bool,
}

impl FeedLane {
    pub(crate) fn new(label: String, quiet_ms: i64) -> Self {
        Self {
            label,
            quiet_ms,
            took_record: false,
            at_end: false,
        }
    }

    /// Only a lane that is known to be at its end is quiet: time without that evidence counts for
    /// nothing.
    fn end_tick(&mut self, passed_ms: i64) {
        let at_end = std::mem::take(&mut self.at_end);
        if std::mem::take(&mut self.took_record) {
            self.quiet_ms = 0;
        } else if at_end {
            self.quiet_ms = self.quiet_ms.saturating_add(passed_ms);
        }
    }
}

/// The state of a feed: lanes and pipelines. Ticks and records are all that changes a row.
#[derive(Debug, Default)]
pub struct FeedEngine {
    pub(crate) lanes: Vec<FeedLane>,
    pub(crate) pipelines: Vec<Pipeline>,
    /// The agreed time of the last tick.
    pub(crate) previous_agreed: Option<Timestamp>,
}

/// A tick that takes in records. Dropped without [`OpenTick::close`] it leaves the engine between
/// two ticks: load a checkpoint then.
#[must_use = "a tick ends with `close`"]
pub struct OpenTick<'a> {
    engine: &'a mut FeedEngine,
    agreed: Option<Timestamp>,
}

impl FeedEngine {
    /// A feed without lanes and pipelines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a lane, between two ticks. The label, like `dns/0`, is what dead letters show. Ids
    /// count from 0, in the order of the calls.
    pub fn add_lane(&mut self, label: String) -> LaneId {
        let lane = self.lanes.len();
        self.lanes.push(FeedLane::new(label, 0));
        for pipeline in &mut self.pipelines {
            pipeline.lanes.push(crate::lane::LaneState::default());
        }
        // A feed of four billion lanes does not fit into memory.
        LaneId(u32::try_from(lane).unwrap_or(u32::MAX))
    }

    /// Adds a pipeline, between two ticks; it sees the records from the next tick on. An
    /// incarnation that is there already stays as it is.
    pub fn add_pipeline(&mut self, incarnation: Incarnation, spec: PipelineSpec) {
        if self.find(incarnation).is_none() {
            self.pipelines
                .push(Pipeline::new(incarnation, spec, self.lanes.len()));
        }
    }

    /// Removes a pipeline with all its state, between two ticks; without effect if it is not there.
    pub fn remove_pipeline(&mut self, incarnation: Incarnation) {
        self.pipelines
            .retain(|pipeline| pipeline.incarnation != incarnation);
    }

    /// Opens the next tick at an agreed time. With `None` agreed time follows the data: no record
    /// is too far ahead, no lane becomes idle.
    pub fn begin(&mut self, agreed: Option<Timestamp>) -> OpenTick<'_> {
        OpenTick {
            engine: self,
            agreed,
        }
    }

    /// Closes all windows with data, as if every watermark had reached their end.
    pub fn finish(&mut self) -> Vec<StreamOutput> {
        self.pipelines
            .iter_mut()
            .filter_map(Pipeline::close_all)
            .collect()
    }

    /// The present values of a pipeline's open windows, by window end and group: `Seq(0)` and no
    /// digest, `"seq":null` in the JSON. Empty for an unknown incarnation.
    #[must_use]
    pub fn open_windows(&self, incarnation: Incarnation) -> Vec<Row> {
        self.find(incarnation)
            .map(Pipeline::open_rows)
            .unwrap_or_default()
    }

    /// How a pipeline stands; `None` for an unknown incarnation.
    #[must_use]
    pub fn stats(&self, incarnation: Incarnation) -> Option<PipelineStats> {
        self.find(incarnation).map(Pipeline::stats)
    }

    fn find(&self, incarnation: Incarnation) -> Option<&Pipeline> {
        self.pipelines
            .iter()
            .find(|pipeline| pipeline.incarnation == incarnation)
    }
}

impl OpenTick<'_> {
    /// Takes in records `range` of the batch, which are the lane's next ones, in the order of their
    /// offsets.
    ///
    /// # Panics
    /// The lane is not the feed's, or the range lies outside of the batch: the program's error,
    /// never the data's.
    pub fn absorb(&mut self, lane: LaneId, batch: &RecordBatch, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let lane = lane.0 as usize;
        self.engine.lanes[lane].took_record = true;
        for pipeline in &mut self.engine.pipelines {
            let (context, state) = pipeline.lane(lane, self.agreed);
            state.absorb(&context, batch, range.clone());
        }
    }

    /// Ends the tick. `at_end` names the lanes that had been read to their end. Gives the streams
    /// that have new rows: of each pipeline, in the order in which they were added, its rows and
    /// then its dead letters.
    pub fn close(self, at_end: &[LaneId]) -> Vec<StreamOutput> {
        let FeedEngine {
            lanes,
            pipelines,
            previous_agreed,
        } = self.engine;
        let passed = previous_agreed.zip(self.agreed).map_or(0, |(before, now)| {
            now.0
                .saturating_sub(before.0)
                .clamp(0, MOST_QUIET_PER_TICK_MS)
        });
        *previous_agreed = self.agreed;
        for lane in at_end {
            lanes[lane.0 as usize].at_end = true;
        }
        for lane in lanes.iter_mut() {
            lane.end_tick(passed);
        }
        let mut outputs = Vec::new();
        for pipeline in pipelines {
            let watermark = feed_watermark(pipeline, lanes, self.agreed);
            outputs.extend(pipeline.close_windows(watermark));
            outputs.extend(pipeline.close_letters(|lane| lanes[lane].label.clone()));
        }
        outputs
    }
}

fn feed_watermark(
    pipeline: &Pipeline,
    lanes: &[FeedLane],
    agreed: Option<Timestamp>,
) -> Option<Timestamp> {
    let close = &pipeline.spec().close;
    // Without agreed time there are no timers.
    let idle_ms = close.idle_ms.filter(|_| agreed.is_some());
    let views = lanes
        .iter()
        .zip(&pipeline.lanes)
        .map(|(lane, state)| LaneView {
            watermark: state.watermark(),
            idle: idle_ms.is_some_and(|idle| lane.quiet_ms >= idle.max(1)),
        });
    watermark::of_feed(views, agreed, close)
}
