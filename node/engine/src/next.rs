//! What would close a window next: for whoever makes the ticks. No row depends on it.

use crate::feed::FeedEngine;
use crate::lane::time_of;
use crate::record::Record;
use crate::spec::{LaneId, TimeSource, Timestamp};

/// What has to come for a window to close.
#[derive(Clone, Debug, PartialEq)]
pub struct NextClosing {
    /// The time that counts.
    pub time: TimeSource,
    /// Records of this event time or a later one.
    pub reach: Timestamp,
    /// So many of each lane.
    pub records: usize,
    /// The lanes that have not shown them.
    pub lanes: Vec<LaneId>,
}

impl FeedEngine {
    /// What would close the next window, one for each source of time: the soonest. Timers apart.
    ///
    /// Between two ticks. It may be wrong where windows hold no data: then nothing closes.
    #[must_use]
    pub fn next_closings(&self) -> Vec<NextClosing> {
        let mut soonest: Vec<NextClosing> = Vec::new();
        for at in 0..self.pipelines.len() {
            let Some(next) = self.next_closing(at) else {
                continue;
            };
            match soonest.iter_mut().find(|other| other.time == next.time) {
                Some(other) if next.reach < other.reach => *other = next,
                Some(_) => {}
                None => soonest.push(next),
            }
        }
        soonest
    }

    fn next_closing(&self, at: usize) -> Option<NextClosing> {
        let pipeline = &self.pipelines[at];
        let spec = pipeline.spec();
        if !pipeline.waits_for_windows() {
            return None;
        }
        let end = pipeline.next_end()?.0;
        let waits = |view: &crate::watermark::LaneView| {
            let shown = view
                .watermark
                .max(view.timed(self.previous_agreed, &spec.close));
            !view.idle && shown.is_none_or(|shown| shown.0 < end)
        };
        let views = self.views(pipeline);
        let lanes: Vec<LaneId> = views
            .filter(|(_, view)| waits(view))
            .map(|(lane, _)| lane)
            .collect();
        (!lanes.is_empty()).then(|| NextClosing {
            time: spec.time.clone(),
            reach: Timestamp(end.saturating_add(spec.close.lag_ms)),
            records: spec.close.records.max(1),
            lanes,
        })
    }
}

impl NextClosing {
    /// Whether a record has the event time.
    #[must_use]
    pub fn is_reached_by(&self, record: &Record<'_>) -> bool {
        time_of(&self.time, record).is_some_and(|time| time >= self.reach)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::row::Incarnation;
    use crate::spec::{CloseSpec, PipelineSpec, WindowSpec};
    use crate::{LaneEngine, TickEnd};

    fn spec(slide_ms: i64, lag_ms: i64) -> PipelineSpec {
        PipelineSpec {
            name: "p".to_owned(),
            time: TimeSource::AppendTime,
            filter: None,
            group_by: Vec::new(),
            window: WindowSpec::new(slide_ms, slide_ms, 0).unwrap(),
            close: CloseSpec {
                lag_ms,
                idle_ms: Some(1000),
                ..CloseSpec::default()
            },
            values: Vec::new(),
            max_future_ms: None,
            derived: Vec::new(),
            having: None,
            late: crate::spec::LateSpec::Drop,
            dedup: None,
            group_bytes: 100,
        }
    }

    /// Ends a tick at this agreed time, after each lane took in a record of this time, or none.
    fn tick(
        feed: &mut FeedEngine,
        lanes: &mut [LaneEngine],
        agreed_ms: i64,
        times: &[Option<i64>],
    ) -> Vec<NextClosing> {
        let cells = crate::record::Cells::new(0);
        let mut at_end = Vec::new();
        for (lane, (engine, time)) in (0..).zip(lanes.iter_mut().zip(times)) {
            engine.begin(None);
            match time {
                None => at_end.push(LaneId(lane)),
                Some(time) => engine.absorb(&record(*time, &cells)),
            }
        }
        let mut lanes: Vec<&mut LaneEngine> = lanes.iter_mut().collect();
        let end = TickEnd {
            agreed: Some(Timestamp(agreed_ms)),
            at_end: &at_end,
        };
        let settled = feed.settle(&mut lanes, end);
        feed.write(settled, &mut |_, _| {}).unwrap();
        feed.next_closings()
    }

    fn record(time: i64, cells: &crate::record::Cells) -> Record<'_> {
        Record {
            offset: 0,
            append_time: Some(Timestamp(time)),
            state: crate::record::RecordState::Decoded,
            payload: b"{}",
            cells,
        }
    }

    #[test]
    fn the_lanes_that_are_behind_the_soonest_end_are_waited_for() {
        let mut feed = FeedEngine::new();
        let mut lanes: Vec<LaneEngine> = ["a", "b"]
            .map(|name| feed.add_lane(name.to_owned()).1)
            .into();
        let mut held: Vec<&mut LaneEngine> = lanes.iter_mut().collect();
        feed.add_pipeline(Incarnation(1), spec(1000, 50), &mut held);
        feed.add_pipeline(Incarnation(2), spec(200, 50), &mut held);
        assert_eq!(tick(&mut feed, &mut lanes, 0, &[Some(10_000), None]), []);
        let next = tick(&mut feed, &mut lanes, 1, &[Some(10_300), Some(10_070)]);
        let [next] = &next[..] else {
            panic!("{next:?}")
        };
        assert_eq!(next.reach, Timestamp(10_250));
        assert_eq!((next.records, &next.lanes[..]), (1, &[LaneId(1)][..]));
        let cells = crate::record::Cells::new(0);
        assert!(!next.is_reached_by(&record(10_249, &cells)));
        assert!(next.is_reached_by(&record(10_250, &cells)));
        // An idle lane is not waited for.
        let next = tick(&mut feed, &mut lanes, 1002, &[Some(10_320), None]);
        assert_eq!(next[0].lanes, [LaneId(0)]);
        assert_eq!(next[0].reach, Timestamp(10_450));
    }
}
