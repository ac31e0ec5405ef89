//! A whole engine on one thread: a feed and its lanes.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use unisono_engine::decimal::Decimal;
use unisono_engine::record::{Cells, Record, RecordState};
use unisono_engine::row::{Incarnation, Row, RowRef, StreamId};
use unisono_engine::spec::{Column, LaneId, PipelineSpec, Timestamp};
use unisono_engine::spill::{Room, SpillFile, Spilled, SpilledBytes, spill};
use unisono_engine::{FeedEngine, JoinError, LaneEngine, PipelineStats, RestoreError, TickEnd};

use crate::timeline::COLUMNS;

/// All state goes to disk.
pub const NO_ROOM: Room = Room {
    limit: 0,
    keep: 0,
    least: 0,
};

/// A file in memory.
#[derive(Debug, Default)]
struct Disk(Vec<u8>);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl SpillFile for Disk {
    fn finish(self: Box<Self>) -> std::io::Result<Arc<dyn SpilledBytes>> {
        Ok(Arc::new(*self))
    }
}

impl SpilledBytes for Disk {
    fn read_at(&self, at: u64, into: &mut [u8]) -> std::io::Result<usize> {
        let mut rest = self.0.get(at as usize..).unwrap_or_default();
        std::io::Read::read(&mut rest, into)
    }
}

/// A record that waits to be taken in.
struct Waiting {
    offset: i64,
    state: RecordState,
    payload: Vec<u8>,
    cells: Cells,
}

/// Records of one lane.
#[derive(Default)]
pub struct Batch(Vec<Waiting>);

impl Batch {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a record; the `set_*` calls fill its cells.
    pub fn push(&mut self, offset: i64, state: RecordState, payload: &[u8]) {
        self.0.push(Waiting {
            offset,
            state,
            payload: payload.to_vec(),
            cells: Cells::new(COLUMNS),
        });
    }

    pub fn last(&mut self) -> &mut Cells {
        &mut self.0.last_mut().unwrap().cells
    }

    pub fn set_number(&mut self, column: Column, value: Decimal) {
        self.last().set_number(column, value);
    }

    pub fn set_text(&mut self, column: Column, value: &str) {
        self.last().set_text(column, value);
    }
}

/// New rows of one stream, their numbers without a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamOutput {
    pub stream: StreamId,
    pub rows: Vec<Row>,
}

/// The parts of a checkpoint: the feed's, then each lane's.
pub type Parts = Vec<Vec<u8>>;

#[derive(Default)]
pub struct Engine {
    feed: FeedEngine,
    lanes: Vec<LaneEngine>,
    agreed: Option<Timestamp>,
}

impl Engine {
    pub fn add_pipeline(&mut self, incarnation: Incarnation, spec: PipelineSpec) {
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        self.feed.add_pipeline(incarnation, spec, &mut lanes);
    }

    pub fn add_lane(&mut self, label: String) -> LaneId {
        let (id, lane) = self.feed.add_lane(label);
        self.lanes.push(lane);
        id
    }

    pub fn retire_lane(&mut self, lane: LaneId) {
        self.feed.retire_lane(lane);
    }

    pub fn begin(&mut self, agreed: Option<Timestamp>) {
        self.agreed = agreed;
        self.lanes.iter_mut().for_each(|lane| lane.begin(agreed));
    }

    pub fn absorb(&mut self, lane: LaneId, batch: &Batch, range: Range<usize>) {
        for waiting in &batch.0[range] {
            self.lanes[lane.0 as usize].absorb(&Record {
                offset: waiting.offset,
                append_time: None,
                state: waiting.state,
                payload: &waiting.payload,
                cells: &waiting.cells,
            });
        }
    }

    pub fn close(&mut self, at_end: &[LaneId]) -> Vec<StreamOutput> {
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let agreed = self.agreed;
        let settled = self.feed.settle(&mut lanes, TickEnd { agreed, at_end });
        self.write(settled)
    }

    pub fn finish(&mut self) -> Vec<StreamOutput> {
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let settled = self.feed.finish(&mut lanes);
        self.write(settled)
    }

    fn write(&mut self, settled: unisono_engine::Settled) -> Vec<StreamOutput> {
        let is_empty = settled.is_empty();
        let mut outputs: Vec<StreamOutput> = Vec::new();
        self.feed
            .write(
                settled,
                &mut |stream: StreamId, row: RowRef<'_>| match outputs.last_mut() {
                    Some(last) if last.stream == stream => last.rows.push(row.to_row()),
                    _ => outputs.push(StreamOutput {
                        stream,
                        rows: vec![row.to_row()],
                    }),
                },
            )
            .unwrap();
        assert!(!is_empty || outputs.is_empty());
        outputs
    }

    pub fn open_windows(&mut self, incarnation: Incarnation) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let snapshot = self.feed.snapshot(&mut lanes);
        snapshot
            .open_windows(incarnation, &mut |row| {
                rows.push(row.to_row());
                true
            })
            .unwrap();
        rows
    }

    pub fn stats(&self, incarnation: Incarnation) -> Option<PipelineStats> {
        self.feed.stats(incarnation)
    }

    pub fn state_bytes(&self) -> usize {
        let lanes = self.lanes.iter().map(LaneEngine::state_bytes);
        lanes.sum::<usize>() + self.feed.kept_bytes()
    }

    /// One engine out of two at the same cuts.
    /// Without a pipeline, the others' definitions being `specs`.
    pub fn without(
        mut self,
        incarnation: Incarnation,
        specs: Vec<(Incarnation, PipelineSpec)>,
    ) -> Result<Self, JoinError> {
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let state = self.feed.snapshot(&mut lanes);
        let (feed, lanes) = FeedEngine::without(state, incarnation, specs, &mut |_| Ok(()))?;
        Ok(Self {
            feed,
            lanes,
            agreed: self.agreed,
        })
    }

    pub fn join(
        mut self,
        mut comes: Self,
        specs: Vec<(Incarnation, PipelineSpec)>,
    ) -> Result<Self, JoinError> {
        let snapshot = |of: &mut Self| {
            let mut lanes: Vec<_> = of.lanes.iter_mut().collect();
            of.feed.snapshot(&mut lanes)
        };
        let (stays, comes) = (snapshot(&mut self), snapshot(&mut comes));
        let (feed, lanes) = FeedEngine::join(&stays, &comes, specs, &mut |_| Ok(()))?;
        let agreed = self.agreed;
        Ok(Self {
            feed,
            lanes,
            agreed,
        })
    }

    /// Puts state on disk, as far as there is no room for it.
    pub fn spill(&mut self, room: Room) -> Option<Spilled> {
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let mut create =
            || -> std::io::Result<Box<dyn SpillFile>> { Ok(Box::new(Disk::default())) };
        spill(&mut lanes, self.feed.kept_bytes(), room, &mut create).unwrap()
    }

    pub fn checkpoint(&mut self) -> Parts {
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let snapshot = self.feed.snapshot(&mut lanes);
        let mut parts = vec![Vec::new(); snapshot.lanes() + 1];
        snapshot.write_feed(&mut parts[0]).unwrap();
        for lane in 0..snapshot.lanes() {
            snapshot.write_lane(lane, &mut parts[lane + 1]).unwrap();
        }
        parts
    }

    pub fn restore(
        parts: &Parts,
        specs: Vec<(Incarnation, PipelineSpec)>,
    ) -> Result<Self, RestoreError> {
        let mut feed = FeedEngine::restore(&mut &parts[0][..], specs)?;
        let lanes: Result<Vec<_>, _> = (0..)
            .zip(&parts[1..])
            .map(|(lane, part)| {
                let mut create =
                    || -> std::io::Result<Box<dyn SpillFile>> { Ok(Box::new(Disk::default())) };
                feed.restore_lane_in_pieces(LaneId(lane), &mut &part[..], &mut |lane| {
                    spill(&mut [lane], 0, NO_ROOM, &mut create).map(|_| ())
                })
            })
            .collect();
        let mut lanes = lanes?;
        feed.resume(&lanes.iter_mut().collect::<Vec<_>>());
        Ok(Self {
            feed,
            lanes,
            agreed: None,
        })
    }
}
