//! A topic as a source, read by Kafka's own protocol.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{LONG, classify, partition, told};
use crate::config;
use crate::kafka::reader::{Batch, BatchError, Decompressor, DirectSource, Target};
use crate::signal::Signal;
use crate::source::{Block, LaneTrail, SourceError, SourceReader, Unanswered};

pub struct DirectReader {
    source: DirectSource,
    /// The partitions that are read.
    lanes: Vec<Option<i32>>,
}

impl DirectReader {
    pub fn connect(
        config: &config::KafkaSource,
        share: usize,
        signal: &Arc<Signal>,
    ) -> Result<Self, SourceError> {
        let source = DirectSource::connect(&told(config, share), signal);
        Ok(Self {
            source: source.map_err(|error| classify(0, error))?,
            lanes: Vec::new(),
        })
    }

    fn partition(&self, lane: usize) -> Option<i32> {
        self.lanes.get(lane).copied().flatten()
    }
}

impl Target for Block {
    fn weight(&self) -> usize {
        Block::weight(self)
    }

    fn add(
        &mut self,
        batch: &Batch<'_>,
        from: i64,
        decompressor: &mut Decompressor,
    ) -> Result<usize, BatchError> {
        self.append_with(|bytes, heads| {
            batch.read(from, decompressor, bytes, |record| {
                let next = record.offset + 1;
                heads.push(record.offset, next, record.stamp, record.payload);
            })
        })
    }
}

impl SourceReader for DirectReader {
    fn open(&mut self, trail: &LaneTrail, _names: &[&str]) -> Result<usize, SourceError> {
        let partition = partition(&trail.name)?;
        self.source.open(partition, trail.next, &trail.identity);
        self.lanes.push(Some(partition));
        Ok(self.lanes.len() - 1)
    }

    /// A log that was cut and written on has the same topic id.
    fn is_to_be_checked(&self) -> bool {
        true
    }

    fn close(&mut self, lane: usize) {
        if let Some(partition) = self.lanes.get_mut(lane).and_then(Option::take) {
            self.source.close(partition);
        }
    }

    fn fill(
        &mut self,
        lane: usize,
        _trail: &LaneTrail,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<usize, SourceError> {
        let Some(partition) = self.partition(lane) else {
            return Ok(0);
        };
        let read = self.source.read(partition, max_bytes, block);
        read.map_err(|error| classify(partition, error))
    }

    fn came(&mut self) -> Option<Vec<usize>> {
        let came = self.source.came();
        let lane = |partition| self.lanes.iter().rposition(|lane| *lane == Some(partition));
        Some(came.into_iter().filter_map(lane).collect())
    }

    fn pause(&mut self) -> Duration {
        match self.source.may_have_more() {
            true => Duration::ZERO,
            false => LONG,
        }
    }

    fn at_end(&mut self, lane: usize) -> Option<i64> {
        self.source.at_end(self.partition(lane)?)
    }

    fn log_end(&self, lane: usize) -> Option<i64> {
        self.source.log_end(self.partition(lane)?)
    }

    fn unanswered(&mut self, lane: usize) -> Option<Unanswered> {
        self.source.unanswered(self.partition(lane)?)
    }

    fn held_since(&mut self, lane: usize) -> Option<Instant> {
        self.source.held_since(self.partition(lane)?)
    }
}
