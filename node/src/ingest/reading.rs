//! The loop of a reading thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::buffer::FULL;
use super::{LaneBuffer, ReadAhead, Shared, lock};
use crate::config::SourceConfig;
use crate::source::{self, Block, SourceError, SourceReader};

/// How long the thread may sleep when nothing is there. It is woken for all that matters; this is how often the ends of
/// quiet lanes are looked at, whose evidence must stay fresh.
const WAIT: Duration = Duration::from_millis(100);
/// How long it may sleep while a lane has no room: what other lanes give back does not wake it.
const WAIT_FOR_ROOM: Duration = Duration::from_millis(20);
/// How often the source is asked which lanes it has, and an unreachable one is tried again.
const LOOK_AROUND: Duration = Duration::from_secs(2);

pub(super) struct Reading {
    source: SourceConfig,
    read_ahead: Arc<ReadAhead>,
    shared: Arc<Shared>,
    lanes: Vec<ReadLane>,
    /// The lanes' indexes, those that hold least first.
    order: Vec<usize>,
    /// The block that is filled next.
    block: Option<Block>,
}

struct ReadLane {
    name: String,
    buffer: Arc<LaneBuffer>,
    /// The offset one past the last record that was read, and the fingerprint up to there.
    next: i64,
    fingerprint: u64,
    /// The reader's index of the lane, once it is open.
    handle: Option<usize>,
    failed: bool,
}

/// What came of one lane's turn.
enum Turn {
    Read,
    Nothing,
    NoRoom,
}

impl Reading {
    pub(super) fn new(
        source: SourceConfig,
        read_ahead: Arc<ReadAhead>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            source,
            read_ahead,
            shared,
            lanes: Vec::new(),
            order: Vec::new(),
            block: None,
        }
    }

    pub(super) fn run(mut self) {
        while !self.stopping() {
            // Before the source is opened: a client's queues are as large as the lanes' share of the budget.
            self.take_new_lanes();
            let share = self.read_ahead.client_share();
            let mut reader = match source::open(&self.source, share, &self.shared.signal) {
                Ok(reader) => reader,
                Err(error) => {
                    self.trouble(Some(error));
                    self.rest(LOOK_AROUND);
                    continue;
                }
            };
            for lane in &mut self.lanes {
                lane.handle = None;
            }
            if let Err(error) = self.read(reader.as_mut(), share) {
                self.trouble(Some(error));
                self.rest(LOOK_AROUND);
            }
        }
    }

    /// Reads until the source is out of reach, or should be opened again because its lanes' share has shrunk by half.
    fn read(&mut self, reader: &mut dyn SourceReader, share: usize) -> Result<(), SourceError> {
        let mut looked: Option<Instant> = None;
        while !self.stopping() && self.read_ahead.client_share() > share / 2 {
            if looked.is_none_or(|at| at.elapsed() >= LOOK_AROUND) {
                self.look_around(reader);
                self.read_ahead.trim();
                looked = Some(Instant::now());
            }
            self.take_new_lanes();
            // All of them before the first is read: a client that is given its partitions one by one starts over each time.
            for index in 0..self.lanes.len() {
                self.with_lane(index, |lane, _| lane.open(reader).map(|()| Turn::Nothing))?;
            }
            let wait = self.take_turns(reader)?;
            if let Some(wait) = wait {
                reader.wait(wait);
            }
        }
        Ok(())
    }

    /// Fills a block of each lane that has room, the lanes that hold least first. Gives how long to wait, if there was
    /// nothing.
    fn take_turns(
        &mut self,
        reader: &mut dyn SourceReader,
    ) -> Result<Option<Duration>, SourceError> {
        let lanes = &self.lanes;
        self.order
            .sort_by_cached_key(|&index| lanes[index].buffer.held());
        let mut wait = Some(WAIT);
        for turn in 0..self.order.len() {
            let index = self.order[turn];
            match self.with_lane(index, |lane, block| lane.fill(reader, block))? {
                Turn::Read => wait = None,
                Turn::NoRoom => wait = wait.map(|_| WAIT_FOR_ROOM),
                Turn::Nothing => {}
            }
            if self.block.as_ref().is_none_or(|block| block.memory() == 0) {
                self.block = Some(self.read_ahead.block());
            }
        }
        Ok(wait)
    }

    fn look_around(&self, reader: &mut dyn SourceReader) {
        match reader.lanes() {
            Ok(lanes) => {
                lock(&self.shared.state).lanes = lanes;
                self.trouble(None);
            }
            Err(error) => self.trouble(Some(error)),
        }
    }

    fn take_new_lanes(&mut self) {
        for new in lock(&self.shared.new_lanes).drain(..) {
            self.order.push(self.lanes.len());
            self.lanes.push(ReadLane {
                name: new.start.name,
                buffer: new.buffer,
                next: new.start.cut,
                fingerprint: new.start.fingerprint,
                handle: None,
                failed: false,
            });
        }
    }

    /// Does something with a lane that can still be read; a fault of the lane is the lane's alone.
    fn with_lane(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut ReadLane, &mut Option<Block>) -> Result<Turn, SourceError>,
    ) -> Result<Turn, SourceError> {
        let lane = &mut self.lanes[index];
        if lane.failed {
            return Ok(Turn::Nothing);
        }
        match act(lane, &mut self.block) {
            Err(SourceError::Lane {
                lane: name,
                message,
            }) => {
                let source = &self.source.name;
                tracing::error!(source, lane = name, message, "lane cannot be read on");
                lane.failed = true;
                lane.buffer
                    .fail(format!("source {source}, lane {name}: {message}"));
                Ok(Turn::Nothing)
            }
            other => other,
        }
    }

    /// Notes why the source cannot be read, and says so once for each new reason.
    fn trouble(&self, error: Option<SourceError>) {
        let trouble = error.map(|error| error.to_string());
        let mut state = lock(&self.shared.state);
        if state.trouble == trouble {
            return;
        }
        let source = &self.source.name;
        match &trouble {
            Some(reason) => tracing::warn!(source, reason, "source cannot be read; trying again"),
            None => tracing::info!(source, "source can be read"),
        }
        state.trouble = trouble;
    }

    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stopping() && Instant::now() < end {
            self.shared
                .signal
                .wait(end.saturating_duration_since(Instant::now()));
        }
    }

    fn stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }
}

impl ReadLane {
    /// Begins to read the lane where it stands, unless that was done.
    fn open(&mut self, reader: &mut dyn SourceReader) -> Result<(), SourceError> {
        if self.handle.is_none() {
            self.handle = Some(reader.open(&self.name, self.next)?);
        }
        Ok(())
    }

    /// Fills the spare block with the lane's next records, if it has room for them.
    fn fill(
        &mut self,
        reader: &mut dyn SourceReader,
        spare: &mut Option<Block>,
    ) -> Result<Turn, SourceError> {
        let Some(handle) = self.handle else {
            return Ok(Turn::Nothing);
        };
        if !self.buffer.has_room() {
            return Ok(Turn::NoRoom);
        }
        let mut block = spare.take().unwrap_or_default();
        block.clear();
        let filled = reader.fill(handle, &mut block, FULL);
        // What was read before an error counts.
        self.fingerprint = block.seal(self.fingerprint);
        self.next = block.heads().last().map_or(self.next, |head| head.next);
        *spare = self.buffer.push(block);
        if filled? > 0 {
            return Ok(Turn::Read);
        }
        let end = reader.at_end(handle);
        self.buffer.set_at_end(end);
        Ok(Turn::Nothing)
    }
}
