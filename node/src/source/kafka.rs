//! A topic as a source: a lane for each partition.

use std::sync::Arc;
use std::time::Duration;

use super::{Block, HEAD_BYTES, SourceError, SourceReader};
use crate::config::{self, StartAt};
use crate::kafka::source::{KafkaSource, KafkaSourceConfig, KafkaSourceError};
use crate::signal::Signal;

/// How long a question to the broker may take.
const ASK: Duration = Duration::from_secs(2);
/// What a record is taken to weigh as long as none was seen.
const FIRST_GUESS: usize = 1024;

pub(super) struct KafkaReader {
    source: KafkaSource,
    start: StartAt,
    lanes: Vec<OpenLane>,
    /// So many of the lanes are assigned; the others were opened since.
    assigned: usize,
}

struct OpenLane {
    partition: i32,
    /// Where reading begins.
    start: i64,
    /// What a record of the lane weighs, by the last ones: a limit of bytes is one of records for the client.
    record_weight: usize,
}

impl KafkaReader {
    pub(super) fn connect(
        config: &config::KafkaSource,
        share: usize,
        signal: &Arc<Signal>,
    ) -> Result<Self, SourceError> {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let told = KafkaSourceConfig {
            brokers: config.brokers.clone(),
            topic: config.topic.clone(),
            read_ahead: share,
            properties: config.properties.iter().map(owned).collect(),
        };
        let source = KafkaSource::connect(&told, signal);
        Ok(Self {
            source: source.map_err(|error| classify(0, error))?,
            start: config.start,
            lanes: Vec::new(),
            assigned: 0,
        })
    }
}

impl KafkaReader {
    /// Assigns the lanes that were opened since the last time. Those that are read already go on undisturbed: librdkafka
    /// gives up what it has fetched of a partition that is assigned again, and aborts if that happens in haste.
    fn assign(&mut self, asked: usize) -> Result<(), SourceError> {
        let new = self.lanes[self.assigned..].iter();
        let new: Vec<_> = new.map(|lane| (lane.partition, lane.start)).collect();
        let assigned = match self.assigned {
            _ if new.is_empty() => return Ok(()),
            0 => self.source.assign(&new),
            _ => self.source.add(&new),
        };
        let partition = self.lanes[asked].partition;
        assigned.map_err(|error| classify(partition, error))?;
        self.assigned = self.lanes.len();
        Ok(())
    }
}

impl SourceReader for KafkaReader {
    fn lanes(&mut self) -> Result<Vec<String>, SourceError> {
        let partitions = self.source.partitions(ASK).map_err(unavailable)?;
        Ok(partitions.iter().map(ToString::to_string).collect())
    }

    fn start(&mut self, lane: &str) -> Result<i64, SourceError> {
        let (low, end) = self
            .source
            .bounds(partition(lane)?, ASK)
            .map_err(unavailable)?;
        Ok(match self.start {
            StartAt::Earliest => low,
            StartAt::Latest => end,
        })
    }

    fn open(&mut self, lane: &str, offset: i64) -> Result<usize, SourceError> {
        self.lanes.push(OpenLane {
            partition: partition(lane)?,
            start: offset,
            record_weight: FIRST_GUESS,
        });
        Ok(self.lanes.len() - 1)
    }

    fn fill(
        &mut self,
        lane: usize,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<usize, SourceError> {
        self.assign(lane)?;
        let open = &mut self.lanes[lane];
        let before = block.weight();
        let most = max_bytes.saturating_sub(before) / open.record_weight;
        let read = self.source.poll(open.partition, most, |record| {
            let next = record.offset + 1;
            block.push(record.offset, next, record.append_time, record.payload);
        });
        let read = read.map_err(|error| classify(open.partition, error))?;
        if let Some(weight) = (block.weight() - before).checked_div(read) {
            open.record_weight = weight.max(HEAD_BYTES);
        }
        Ok(read)
    }

    fn wait(&mut self, timeout: Duration) {
        self.source.wait(timeout);
    }

    fn at_end(&mut self, lane: usize) -> Option<i64> {
        self.source.at_end(self.lanes.get(lane)?.partition)
    }
}

fn partition(lane: &str) -> Result<i32, SourceError> {
    lane.parse().map_err(|_| SourceError::Lane {
        lane: lane.to_owned(),
        message: "is not a partition's number".to_owned(),
    })
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn unavailable(error: KafkaSourceError) -> SourceError {
    SourceError::Unavailable(error.to_string())
}

fn classify(partition: i32, error: KafkaSourceError) -> SourceError {
    match error {
        KafkaSourceError::Property { .. } | KafkaSourceError::Unreachable { .. } => {
            unavailable(error)
        }
        KafkaSourceError::TopicMissing { .. }
        | KafkaSourceError::OffsetOutOfRange { .. }
        | KafkaSourceError::Truncated { .. }
        | KafkaSourceError::TopicRecreated { .. }
        | KafkaSourceError::Fatal { .. } => SourceError::Lane {
            lane: partition.to_string(),
            message: error.to_string(),
        },
    }
}
