//! The loop of a fetcher's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unisono_engine::spec::Timestamp;

use super::chunk::{Chunk, fingerprint};
use super::{LaneBuffer, Shared, lock};
use crate::config::{FieldSet, SourceConfig};
use crate::decode::Decoder;
use crate::source::{self, SourceError, SourceReader};

/// About so many bytes of raw records make a chunk: enough to share its cost, few enough to arrive soon.
const CHUNK_BYTES: usize = 128 * 1024;
/// How long the thread may sleep when nothing is there.
const WAIT: Duration = Duration::from_millis(20);
/// How often the source is asked which lanes it has, and an unreachable one is tried again.
const LOOK_AROUND: Duration = Duration::from_secs(2);

pub(super) struct Worker {
    source: SourceConfig,
    decoder: Decoder,
    shared: Arc<Shared>,
    lanes: Vec<FetchedLane>,
}

struct FetchedLane {
    name: String,
    buffer: Arc<LaneBuffer>,
    /// The offset one past the last record that was read, and the fingerprint up to there.
    next: i64,
    fingerprint: u64,
    /// The reader's index of the lane, once it is open.
    handle: Option<usize>,
    failed: bool,
}

impl Worker {
    pub(super) fn new(source: SourceConfig, fields: &FieldSet, shared: Arc<Shared>) -> Self {
        Self {
            source,
            decoder: Decoder::new(fields),
            shared,
            lanes: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        while !self.stopping() {
            let mut reader = match source::open(&self.source) {
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
            if let Err(error) = self.read(reader.as_mut()) {
                self.trouble(Some(error));
                self.rest(LOOK_AROUND);
            }
        }
    }

    fn read(&mut self, reader: &mut dyn SourceReader) -> Result<(), SourceError> {
        let mut looked: Option<Instant> = None;
        while !self.stopping() {
            if looked.is_none_or(|at| at.elapsed() >= LOOK_AROUND) {
                self.look_around(reader);
                looked = Some(Instant::now());
            }
            self.take_new_lanes();
            // All of them before the first is read: a client that is given its partitions one by one starts over each time.
            for index in 0..self.lanes.len() {
                self.with_lane(index, |lane, _| lane.open(reader))?;
            }
            let mut read = 0;
            for index in 0..self.lanes.len() {
                read += self.read_lane(reader, index)?;
            }
            if read == 0 {
                reader.wait(WAIT);
            }
        }
        Ok(())
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
            self.lanes.push(FetchedLane {
                name: new.start.name,
                buffer: new.buffer,
                next: new.start.cut,
                fingerprint: new.start.fingerprint,
                handle: None,
                failed: false,
            });
        }
    }

    fn read_lane(
        &mut self,
        reader: &mut dyn SourceReader,
        index: usize,
    ) -> Result<usize, SourceError> {
        self.with_lane(index, |lane, decoder| lane.fill(reader, decoder))
    }

    /// Does something with a lane that can still be read; a fault of the lane is the lane's alone.
    fn with_lane(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut FetchedLane, &Decoder) -> Result<usize, SourceError>,
    ) -> Result<usize, SourceError> {
        let lane = &mut self.lanes[index];
        if lane.failed {
            return Ok(0);
        }
        match act(lane, &self.decoder) {
            Err(SourceError::Lane {
                lane: name,
                message,
            }) => {
                let source = &self.source.name;
                tracing::error!(source, lane = name, message, "lane cannot be read on");
                lane.failed = true;
                lane.buffer
                    .fail(format!("source {source}, lane {name}: {message}"));
                Ok(0)
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
            std::thread::sleep(WAIT);
        }
    }

    fn stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }
}

impl FetchedLane {
    /// Begins to read the lane where it stands, unless that was done.
    fn open(&mut self, reader: &mut dyn SourceReader) -> Result<usize, SourceError> {
        if self.handle.is_none() {
            self.handle = Some(reader.open(&self.name, self.next)?);
        }
        Ok(0)
    }

    fn fill(
        &mut self,
        reader: &mut dyn SourceReader,
        decoder: &Decoder,
    ) -> Result<usize, SourceError> {
        let Some(handle) = self.handle else {
            return Ok(0);
        };
        if !self.buffer.has_room() {
            return Ok(0);
        }
        let mut chunk = Chunk::new(decoder.new_batch());
        let (next, running) = (&mut self.next, &mut self.fingerprint);
        let read = reader.poll(handle, CHUNK_BYTES, &mut |record| {
            let append_time = record.append_time_ms.map(Timestamp);
            decoder.decode_into(&mut chunk.batch, record.offset, append_time, record.payload);
            *running = fingerprint(*running, &record);
            *next = record.next;
            chunk.mark(&record, *running);
        });
        // What was read before an error counts.
        self.buffer.push(chunk);
        let read = read?;
        if read == 0 {
            let end = reader.at_end(handle);
            self.buffer.set_at_end(end);
        }
        Ok(read)
    }
}
