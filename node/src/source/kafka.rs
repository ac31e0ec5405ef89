//! A topic as a source: a lane for each partition. Here as librdkafka reads it.

mod direct;
mod survey;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use direct::DirectReader;
pub(super) use survey::KafkaSurvey;

use super::{Block, HEAD_BYTES, LaneTrail, SourceError, SourceReader, Unanswered};
use crate::config;
use crate::kafka::source::{
    Identified, KafkaSource, KafkaSourceConfig, KafkaSourceError, TopicIdentity,
};
use crate::signal::Signal;

/// What a record is taken to weigh as long as none was seen.
const FIRST_GUESS: usize = 1024;
/// How often it is looked whether it is known which topic is read, for the answer raises no signal: at first, and when
/// it takes longer than that.
const UNKNOWN: Duration = Duration::from_millis(5);
const UNKNOWN_FOR_LONG: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(2);
/// No bound of its own.
const LONG: Duration = Duration::from_secs(3600);

pub(super) struct ClientReader {
    source: KafkaSource,
    lanes: Vec<Option<OpenLane>>,
    /// It is known for good which topic is read.
    identified: Option<TopicIdentity>,
    connected: Instant,
    /// When the lanes were last given a turn for that.
    looked: Instant,
}

struct OpenLane {
    partition: i32,
    /// Where reading begins.
    start: i64,
    /// As agreed; empty: not compared, or it was and is right.
    identity: String,
    assigned: bool,
    /// What a record of the lane weighs, by the last ones: a limit of bytes is one of records for the client.
    record_weight: usize,
}

fn told(config: &config::KafkaSource, share: usize) -> KafkaSourceConfig {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    KafkaSourceConfig {
        brokers: config.brokers.clone(),
        topic: config.topic.clone(),
        read_ahead: share,
        properties: config.properties.iter().map(owned).collect(),
    }
}

impl ClientReader {
    pub(super) fn connect(
        config: &config::KafkaSource,
        share: usize,
        signal: &Arc<Signal>,
    ) -> Result<Self, SourceError> {
        let source = KafkaSource::connect(&told(config, share), signal);
        Ok(Self {
            source: source.map_err(|error| classify(0, error))?,
            lanes: Vec::new(),
            identified: None,
            connected: Instant::now(),
            looked: Instant::now(),
        })
    }

    /// Assigns the lanes that were opened since the last time. Those that are read already go on undisturbed: librdkafka
    /// gives up what it has fetched of a partition that is assigned again, and aborts if that happens in haste.
    fn assign(&mut self, asked: i32) -> Result<(), SourceError> {
        let new = self.lanes.iter().flatten().filter(|lane| !lane.assigned);
        let new: Vec<_> = new.map(|lane| (lane.partition, lane.start)).collect();
        let assigned = match self.lanes.iter().flatten().any(|lane| lane.assigned) {
            _ if new.is_empty() => return Ok(()),
            false => self.source.assign(&new),
            true => self.source.add(&new),
        };
        assigned.map_err(|error| classify(asked, error))?;
        for lane in self.lanes.iter_mut().flatten() {
            lane.assigned = true;
        }
        Ok(())
    }

    /// Whether the lane is known to be the one that was agreed: before that nothing of it may be handed over.
    fn is_the_one(&mut self, lane: usize) -> Result<bool, SourceError> {
        let Some(Some(open)) = self.lanes.get_mut(lane) else {
            return Ok(false);
        };
        if open.identity.is_empty() && self.identified.is_some() {
            return Ok(true);
        }
        let partition = open.partition;
        let (found, for_good) = match &self.identified {
            Some(found) => (found.clone(), true),
            None => match self.source.identity() {
                Ok(Some(Identified::ForGood(found))) => (found, true),
                Ok(Some(Identified::ForNow(found))) => (found, false),
                Ok(None) => return Ok(false),
                Err(error) => return Err(classify(partition, error)),
            },
        };
        if let Some(difference) = found.difference(&open.identity) {
            let error = self.source.refuse(&found, difference);
            return Err(classify(partition, error));
        }
        if for_good {
            open.identity.clear();
            self.identified = Some(found);
        }
        Ok(for_good)
    }
}

impl SourceReader for ClientReader {
    fn open(&mut self, trail: &LaneTrail, _names: &[&str]) -> Result<usize, SourceError> {
        self.lanes.push(Some(OpenLane {
            partition: partition(&trail.name)?,
            start: trail.next,
            identity: trail.identity.clone(),
            assigned: false,
            record_weight: FIRST_GUESS,
        }));
        Ok(self.lanes.len() - 1)
    }

    /// A log that was cut and written on has the same topic id.
    fn is_to_be_checked(&self) -> bool {
        true
    }

    fn close(&mut self, lane: usize) {
        if let Some(closed) = self.lanes.get_mut(lane).and_then(Option::take)
            && closed.assigned
        {
            self.source.give_up(closed.partition);
        }
    }

    fn fill(
        &mut self,
        lane: usize,
        trail: &LaneTrail,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<usize, SourceError> {
        self.assign(partition(&trail.name)?)?;
        if !self.is_the_one(lane)? {
            return Ok(0);
        }
        let Some(Some(open)) = self.lanes.get_mut(lane) else {
            return Ok(0);
        };
        let before = block.weight();
        let most = max_bytes.saturating_sub(before) / open.record_weight;
        let read = self.source.poll(open.partition, most, |record| {
            let next = record.offset + 1;
            block.push(record.offset, next, record.stamp, record.payload);
        });
        let read = read.map_err(|error| classify(open.partition, error))?;
        if let Some(weight) = (block.weight() - before).checked_div(read) {
            open.record_weight = weight.max(HEAD_BYTES);
        }
        Ok(read)
    }

    fn pause(&mut self) -> Duration {
        if self.source.may_have_more() {
            return Duration::ZERO;
        }
        if self.identified.is_some() {
            return LONG;
        }
        let every = match self.connected.elapsed() < SOON {
            true => UNKNOWN,
            false => UNKNOWN_FOR_LONG,
        };
        let left = every.saturating_sub(self.looked.elapsed());
        if left.is_zero() {
            self.looked = Instant::now();
        }
        left
    }

    fn at_end(&mut self, lane: usize) -> Option<i64> {
        let open = self.lanes.get(lane)?.as_ref()?;
        self.source.at_end(open.partition)
    }

    fn log_end(&self, lane: usize) -> Option<i64> {
        let open = self.lanes.get(lane)?.as_ref()?;
        self.source.log_end(open.partition)
    }

    fn unanswered(&mut self, lane: usize) -> Option<Unanswered> {
        let open = self.lanes.get(lane)?.as_ref()?;
        self.source.unanswered(open.partition)
    }

    fn held_since(&mut self, lane: usize) -> Option<Instant> {
        let open = self.lanes.get(lane)?.as_ref()?;
        self.source.held_since(open.partition)
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
        KafkaSourceError::Property { .. }
        | KafkaSourceError::Unreachable { .. }
        | KafkaSourceError::Refused { .. }
        | KafkaSourceError::TopicMissing { .. }
        | KafkaSourceError::Compacted { .. }
        | KafkaSourceError::ProducersTimes { .. } => unavailable(error),
        KafkaSourceError::OffsetOutOfRange { .. } => SourceError::Gone {
            lane: partition.to_string(),
            message: error.to_string(),
        },
        KafkaSourceError::Truncated { .. }
        | KafkaSourceError::TopicRecreated { .. }
        | KafkaSourceError::OtherCluster { .. }
        | KafkaSourceError::Denied { .. }
        | KafkaSourceError::Fatal { .. } => SourceError::Lane {
            lane: partition.to_string(),
            message: error.to_string(),
        },
    }
}
