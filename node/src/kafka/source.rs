//! Reads all partitions of a Kafka topic: assigned by hand, no consumer group, one bounded queue for each lane.
//!
//! A lane that is not polled fills its queue and holds back only itself. Nothing is ever skipped: an offset that the
//! broker does not have, a log that was cut, a topic that was made again are errors.

mod config;
mod error;
mod evidence;
mod identity;
mod lane;
mod topic;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use unisono_engine::record::Stamp;

pub use config::KafkaSourceConfig;
pub use error::KafkaSourceError;
pub use evidence::Unanswered;
pub use identity::{Difference, Identified, TopicIdentity};
pub use topic::KafkaTopic;

use super::batch::{Item, MOST};
use super::context::ClientEvents;
use crate::signal::Signal;
use error::Place;
use evidence::Evidence;
use identity::Identifying;
use lane::{Lane, Stray};

/// One record as it lies in the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Its offset in the partition.
    pub offset: i64,
    /// What it is stamped with, as the topic is set.
    pub stamp: Stamp,
    /// `None` for a tombstone.
    pub payload: Option<&'a [u8]>,
}

/// Reads the partitions of one topic. Blocking; made for one thread.
pub struct KafkaSource {
    config: KafkaSourceConfig,
    // Before the consumer: queues are closed before the client is.
    lanes: BTreeMap<i32, Lane>,
    consumer: Arc<BaseConsumer<ClientEvents>>,
    evidence: Evidence,
    identifying: Identifying,
    signal: Arc<Signal>,
    strays: Vec<Stray>,
    /// Some lane was left with records at the last poll, because a limit was reached.
    unfinished: bool,
}

impl KafkaSource {
    /// Sets up the clients. No broker is needed yet: reading begins when partitions are
    /// assigned. The signal is raised
    /// when there is something to poll; whoever raises it ends a [`Self::wait`].
    ///
    /// # Errors
    /// [`KafkaSourceError::Property`] if the configuration is wrong.
    pub fn connect(
        config: &KafkaSourceConfig,
        signal: &Arc<Signal>,
    ) -> Result<Self, KafkaSourceError> {
        let refused = |error: KafkaError| config.refused(&error);
        let clients = config.reader()?;
        let mut consumer: BaseConsumer<ClientEvents> = clients
            .create_with_context(ClientEvents::new(&config.topic))
            .map_err(refused)?;
        let on_event = Arc::clone(signal);
        consumer.set_nonempty_callback(move || on_event.raise());
        let consumer = clients.keep(consumer);
        let clients = config.watcher()?;
        let watcher: BaseConsumer<ClientEvents> = clients
            .create_with_context(ClientEvents::new(&config.topic))
            .map_err(refused)?;
        let watcher = clients.keep(watcher);
        let evidence =
            Evidence::start(watcher, &config.topic, Arc::clone(signal)).map_err(|error| {
                KafkaSourceError::Fatal {
                    topic: config.topic.clone(),
                    partition: 0,
                    offset: 0,
                    reason: format!("could not start a thread: {error}"),
                }
            })?;
        Ok(Self {
            config: config.clone(),
            lanes: BTreeMap::new(),
            consumer,
            evidence,
            identifying: Identifying::default(),
            signal: Arc::clone(signal),
            strays: Vec::new(),
            unfinished: false,
        })
    }

    /// Which topic has the name, if an answer has come since the last call; does not wait. Nothing may be polled before it
    /// is known for good. What changes later is an error of [`Self::poll`].
    ///
    /// # Errors
    /// [`KafkaSourceError::Unreachable`] or [`KafkaSourceError::TopicMissing`].
    pub fn identity(&mut self) -> Result<Option<Identified>, KafkaSourceError> {
        let in_hand =
            !self.strays.is_empty() || self.lanes.values().any(|lane| lane.queue.len() > 0);
        let place = self.config.place(0, 0);
        let client = &self.consumer;
        let asked = self
            .identifying
            .ask(client, &place, in_hand, Duration::ZERO);
        asked.map_err(|error| error.because(client.context().refusal()))
    }

    /// A difference between the topic that is read and an agreed one, as an error.
    #[must_use]
    pub fn refuse(&self, found: &TopicIdentity, difference: Difference) -> KafkaSourceError {
        found.refused(&self.config, difference)
    }

    /// Reads these partitions, each from its offset on, and no others: also to go back. What was read ahead is given up;
    /// errors of lanes are forgotten.
    ///
    /// # Errors
    /// [`KafkaSourceError::Fatal`] if librdkafka refuses, for example a negative offset.
    pub fn assign(&mut self, lanes: &[(i32, i64)]) -> Result<(), KafkaSourceError> {
        self.lanes.clear();
        let list = self.list(lanes)?;
        let refused = |error: KafkaError| self.place(-1, -1).classify_lane(&error);
        self.consumer.assign(&list).map_err(refused)?;
        self.strays.clear();
        self.take_queues(lanes)
    }

    /// Reads these partitions too; the others go on as they are.
    ///
    /// # Errors
    /// As [`Self::assign`].
    pub fn add(&mut self, lanes: &[(i32, i64)]) -> Result<(), KafkaSourceError> {
        let list = self.list(lanes)?;
        let refused = |error: KafkaError| self.place(-1, -1).classify_lane(&error);
        self.consumer.incremental_assign(&list).map_err(refused)?;
        self.take_queues(lanes)
    }

    /// Reads a partition no more; the others go on as they are.
    pub fn give_up(&mut self, partition: i32) {
        if self.lanes.remove(&partition).is_none() {
            return;
        }
        let list = self.list(&[(partition, 0)]);
        let given_up = list.map(|list| self.consumer.incremental_unassign(&list));
        // Then it goes on being fetched, up to its bound.
        if let Ok(Err(error)) = given_up {
            tracing::debug!(topic = self.config.topic, partition, %error, "partition cannot be given up");
        }
    }

    fn list(&self, lanes: &[(i32, i64)]) -> Result<TopicPartitionList, KafkaSourceError> {
        let mut list = TopicPartitionList::with_capacity(lanes.len());
        for &(partition, offset) in lanes {
            list.add_partition_offset(&self.config.topic, partition, Offset::Offset(offset))
                .map_err(|error| self.place(partition, offset).classify_lane(&error))?;
        }
        Ok(list)
    }

    /// Gives each of the lanes, which were assigned just now, a queue of its own: at once, since what is fetched before
    /// goes to the common queue (`strays`).
    fn take_queues(&mut self, lanes: &[(i32, i64)]) -> Result<(), KafkaSourceError> {
        for &(partition, offset) in lanes {
            let place = (partition, offset);
            let lane = Lane::new(&self.consumer, &self.config.topic, place, &self.signal);
            let Some(lane) = lane else {
                let unknown = KafkaError::MessageConsumption(Code::UnknownPartition);
                return Err(self.place(partition, offset).classify_lane(&unknown));
            };
            self.lanes.insert(partition, lane);
        }
        let positions = self.lanes.iter();
        let positions: Vec<_> = positions
            .map(|(&partition, lane)| (partition, lane.progress.position))
            .collect();
        self.evidence.assign(&positions);
        self.signal.raise();
        Ok(())
    }

    /// Hands over the records that one lane has in memory, at most about `max_records`. Does not wait. Gives the number of
    /// records.
    ///
    /// # Errors
    /// Whatever it is, the lane gives nothing more until it is assigned anew, and the same error again. A broker that
    /// is down is no error: there is just nothing.
    pub fn poll(
        &mut self,
        partition: i32,
        max_records: usize,
        on_record: impl FnMut(RawRecord<'_>),
    ) -> Result<usize, KafkaSourceError> {
        let Some(mut lane) = self.lanes.remove(&partition) else {
            let unknown = KafkaError::MessageConsumption(Code::UnknownPartition);
            return Err(self.place(partition, -1).classify_lane(&unknown));
        };
        let given = match lane.failed.clone() {
            Some(error) => Err(error),
            None => self.poll_lane(partition, &mut lane, max_records, on_record),
        };
        if let Err(error) = &given {
            lane.failed = Some(error.clone());
        }
        self.lanes.insert(partition, lane);
        given
    }

    fn poll_lane(
        &mut self,
        partition: i32,
        lane: &mut Lane,
        max_records: usize,
        mut on_record: impl FnMut(RawRecord<'_>),
    ) -> Result<usize, KafkaSourceError> {
        let (mut given, mut more) = (0, false);
        if lane.is_pending() {
            let most = max_records.clamp(1, MOST);
            let batch = lane.queue.take(most);
            more = batch.len() == most;
            // Only now, with the records in hand: the word that the topic is another one was said before they came, and
            // what went to the common queue came before them.
            self.serve(partition)?;
            let mut progress = lane.progress;
            for stray in self
                .strays
                .extract_if(.., |stray| stray.partition == partition)
            {
                given += usize::from(progress.give(stray.record(), &mut on_record));
            }
            let place = self.place(partition, -1);
            let mut failed = None;
            batch.each(|item| match item {
                // What came before an error is good; what comes after it waits for who reads the lane anew.
                _ if failed.is_some() => {}
                Item::Record {
                    offset,
                    stamp,
                    payload,
                } => {
                    let record = RawRecord {
                        offset,
                        stamp,
                        payload,
                    };
                    given += usize::from(progress.give(record, &mut on_record));
                }
                Item::End(end) => progress.finish(end),
                Item::Error(code) => {
                    let error = KafkaError::MessageConsumption(code);
                    failed = place.at(progress.position).classify(&error);
                }
            });
            lane.progress = progress;
            if let Some(code) = self.consumer.context().take_lost(partition) {
                let error = KafkaError::MessageConsumption(code);
                failed = failed.or_else(|| place.at(progress.position).classify(&error));
            }
            if more {
                lane.has_more();
                self.unfinished = true;
            }
            if given > 0 {
                self.consumer.context().reached();
            }
            if let Some(error) = failed {
                return Err(error);
            }
        } else {
            self.same_topic()?;
        }
        let position = lane.progress.position;
        // Also without an end: a lane whose log was cut may never hear of one.
        let quiet = given == 0 && !more;
        match self.evidence.tell(partition, position, quiet) {
            Some(end) => Err(KafkaSourceError::Truncated {
                topic: self.config.topic.clone(),
                partition,
                position,
                end,
            }),
            None => Ok(given),
        }
    }

    /// Whether some lane may have something to poll without a signal: the last one stopped at its limits, or the client had
    /// something to say.
    pub fn may_have_more(&mut self) -> bool {
        // Errors here are those of the whole topic, and the next poll of a lane tells them.
        std::mem::take(&mut self.unfinished) || !matches!(self.serve(-1), Ok(0))
    }

    /// Waits until some lane may have something to poll, or the signal is raised; at most `timeout`. Returns at once if a
    /// poll since the last wait stopped at its limits.
    pub fn wait(&mut self, timeout: Duration) {
        if !self.may_have_more() {
            self.signal.wait(timeout);
        }
    }

    /// The end of the lane's log, if everything up to it was read and nothing more is there: on the broker's own word,
    /// less than two seconds old. `None` whenever that is not certain: records in hand, a backlog, a broker that does
    /// not answer.
    ///
    /// A transaction that is open in the partition also means `None`: its records were appended, and when it is
    /// committed they can be read. Until then time must not pass for the lane as if nothing were there.
    #[must_use]
    pub fn at_end(&self, partition: i32) -> Option<i64> {
        let lane = self.lanes.get(&partition)?;
        let reached = lane.reached_end()?;
        (self.evidence.end(partition) == Some(reached)).then_some(reached)
    }

    /// The end of the lane's log as the broker said it less than two seconds ago: what is in open transactions counts too.
    #[must_use]
    pub fn log_end(&self, partition: i32) -> Option<i64> {
        self.evidence.log_end(partition)
    }

    /// Since when nothing comes of the partition and the broker has not said that there is nothing: a moment ago, if all is
    /// well. `None`: something comes, or the broker has not been reached yet.
    #[must_use]
    pub fn unanswered(&self, partition: i32) -> Option<Unanswered> {
        self.evidence.unanswered(partition)
    }

    /// Since when a transaction that is open in the partition has kept what was appended from being read, if that is so for
    /// longer than records are on their way.
    #[must_use]
    pub fn held_since(&self, partition: i32) -> Option<Instant> {
        let reached = self.lanes.get(&partition)?.reached_end()?;
        self.evidence.held(partition, reached)
    }

    /// Empties the common queue: errors, log lines, and records that came before a lane had its queue. Gives how many
    /// things it held.
    fn serve(&mut self, partition: i32) -> Result<u64, KafkaSourceError> {
        let events = Arc::clone(self.consumer.context());
        let before = events.served();
        let mut strays = 0;
        loop {
            let served = events.served();
            match self.consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => {
                    self.strays.push(Stray::new(&message));
                    strays += 1;
                }
                // Ends and errors of partitions come by the lanes' queues.
                Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                    let error = KafkaError::MessageConsumptionFatal(code);
                    return Err(self.place(partition, -1).classify_lane(&error));
                }
                Some(Err(_)) => {}
                None if events.served() == served => break,
                None => {}
            }
        }
        self.same_topic()?;
        Ok(events.served() - before + strays)
    }

    /// Makes sure that no other topic has taken the name.
    fn same_topic(&self) -> Result<(), KafkaSourceError> {
        match self.consumer.context().recreated() {
            Some(change) => Err(KafkaSourceError::TopicRecreated {
                topic: self.config.topic.clone(),
                change,
            }),
            None => Ok(()),
        }
    }

    fn place(&self, partition: i32, offset: i64) -> Place<'_> {
        self.config.place(partition, offset)
    }
}
