//! Publishes rows to Kafka, each once: rows and frontier in one transaction, by the one who fenced all others.

mod config;
mod error;
mod fence;
mod frontier;
mod handle;
mod offsets;
mod topics;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::BaseConsumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders, ToBytes};
use rdkafka::producer::{BaseRecord, Producer};
use unisono_engine::row::{Incarnation, StreamId, StreamKind};

pub use config::KafkaSinkConfig;
pub use error::SinkError;

use super::{Bounds, Fate, Frontier, PublishError, PublishRow, Sink};
use crate::config::{SinkConfig, SinkKind};
use crate::kafka::context::{ClientEvents, serve};
use crate::threads::test_death_in_transaction;
use error::{foreign, is_fenced, is_refused, is_too_large};
use fence::Pace;
use frontier::{Found, FrontierReader, ReadError};
use handle::{Handle, Pool};
use offsets::Offsets;

/// Bounds of one transaction.
const BOUNDS: Bounds = Bounds {
    rows: 10_000,
    bytes: 4 << 20,
};
/// A topic that does not take even a row of this size is misconfigured: its rows are no exceptions that may be left out.
const ORDINARY: usize = 1 << 10;
const ACQUIRE_WITHIN: Duration = Duration::from_secs(10);
/// How long a first look at whose the sink is may take: it decides nothing that acquiring does not.
const LOOK_WITHIN: Duration = Duration::from_secs(2);
const DELIVER_WITHIN: Duration = Duration::from_secs(8);
const COMMIT_WITHIN: Duration = Duration::from_secs(5);
/// A handle of our own that was given up is gone by then: whoever fenced this one before was another replica.
const CALM: Duration = Duration::from_secs(2);

/// Publishes to a topic. Blocking; made for one thread. Not acquired at first.
pub struct KafkaSink {
    config: KafkaSinkConfig,
    reader: Arc<BaseConsumer<ClientEvents>>,
    pool: Pool,
    active: Option<Handle>,
    /// When another publisher fenced this one, if it has not published since.
    fenced: Option<Instant>,
    fenced_at: Option<Instant>,
    offsets: Arc<Offsets>,
    /// Other clusters that write to the frontier topic.
    others: BTreeSet<String>,
}

impl KafkaSink {
    /// Sets up the clients and makes sure that the topics are there: creates those that are missing. Fences nobody.
    ///
    /// # Errors
    /// What is wrong with the configuration, the broker or a topic.
    pub fn connect(config: &KafkaSinkConfig) -> Result<Self, SinkError> {
        let producer = config.producer()?;
        let clients = config.reader()?;
        let reader: BaseConsumer<ClientEvents> = clients
            .create_with_context(ClientEvents::new(&config.frontier_topic))
            .map_err(|error| config.refused(&error))?;
        let reader = clients.keep(reader);
        topics::ensure(config, &reader)?;
        let offsets = Arc::default();
        let pool = Pool::new(producer, &config.topic, &offsets);
        pool.keep_warm();
        let mut sink = Self {
            config: config.clone(),
            reader,
            pool,
            active: None,
            fenced: None,
            fenced_at: None,
            offsets,
            others: BTreeSet::new(),
        };
        sink.look()?;
        Ok(sink)
    }

    /// Looks whose the sink is before it is taken from anybody, and whether its rows are there.
    fn look(&mut self) -> Result<(), SinkError> {
        match self.read(Instant::now() + LOOK_WITHIN) {
            Ok(found) => {
                let frontier = &found.frontier;
                let rows = frontier.streams.iter();
                let rows = rows.filter(|(stream, _)| stream.kind == StreamKind::Rows);
                let refused = |stream| frontier.refused.get(stream).map_or(0, |it| it.count);
                let published = rows.map(|(stream, next)| next - refused(stream)).sum();
                let held = topics::appended(&self.config.topic, &self.reader, LOOK_WITHIN);
                self.offsets.compare(&self.config.topic, published, held);
                self.others.extend(found.others);
                Ok(())
            }
            Err(ReadError::Foreign(other)) => Err(SinkError::Foreign(self.foreign(&other))),
            // An open transaction hides it, or the broker is slow: acquiring tells.
            Err(ReadError::Unavailable(_) | ReadError::Unreadable(_)) => Ok(()),
        }
    }

    fn read(&self, deadline: Instant) -> Result<Found, ReadError> {
        let reader = FrontierReader {
            consumer: &self.reader,
            topic: &self.config.frontier_topic,
            key: &self.config.transactional_id,
            cluster: self.config.cluster,
            deadline,
        };
        reader.read()
    }

    fn foreign(&self, other: &str) -> String {
        let KafkaSinkConfig {
            transactional_id,
            frontier_topic,
            cluster,
            ..
        } = &self.config;
        foreign(transactional_id, frontier_topic, other, *cluster)
    }

    fn pace(&self) -> Pace {
        let lately = self.fenced.is_some_and(|at| at.elapsed() < CALM);
        if lately { Pace::Calm } else { Pace::Quick }
    }

    /// Whether the sink was acquired and no error has come since. Another may have fenced it meanwhile.
    #[must_use]
    pub fn is_acquired(&self) -> bool {
        self.active.is_some()
    }

    fn transact(
        &self,
        handle: &Handle,
        batch: &[PublishRow<'_>],
        frontier: &Frontier,
    ) -> Result<(), PublishError> {
        let producer = &handle.producer;
        producer
            .begin_transaction()
            .map_err(|error| self.not_published(&error))?;
        let deadline = Instant::now() + DELIVER_WITHIN;
        for (index, row) in batch.iter().enumerate() {
            let sent = match row.fate {
                Fate::Goes => self.send(handle, index, row, deadline),
                Fate::Refused => self.send_note(handle, index, row, deadline),
                Fate::Unsaid => Ok(()),
            };
            sent?;
        }
        let value = frontier
            .encode(self.config.cluster)
            .map_err(|error| self.fatal(error.to_string()))?;
        let record = BaseRecord::with_opaque_to(&self.config.frontier_topic, batch.len())
            .partition(0)
            .key(self.config.transactional_id.as_bytes())
            .payload(&value);
        producer
            .send(record)
            .map_err(|(error, _)| self.not_published(&error))?;
        // Not `flush`: it looks only every 100 ms. In flight is what the broker has not answered for.
        while producer.in_flight_count() > 0 {
            producer.poll(Duration::ZERO);
            if Instant::now() > deadline {
                return Err(self.unavailable("the broker did not take the rows in time".into()));
            }
            if producer.in_flight_count() > 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        if let Some((index, error)) = producer.context().take_failed() {
            return Err(self.not_taken(batch.get(index), &error, batch.len() == 1));
        }
        test_death_in_transaction();
        producer
            .commit_transaction(COMMIT_WITHIN)
            .map_err(|error| self.not_committed(&error))
    }

    fn send(
        &self,
        handle: &Handle,
        index: usize,
        row: &PublishRow<'_>,
        deadline: Instant,
    ) -> Result<(), PublishError> {
        if row.kind == StreamKind::DeadLetters && self.config.dead_letter_topic.is_none() {
            return Ok(());
        }
        let (topic, kind) = (self.topic_of(row.kind), kind_name(row.kind));
        let (incarnation, seq) = (row.incarnation.to_string(), row.seq.to_string());
        let headers = OwnedHeaders::new_with_capacity(5)
            .insert(Header {
                key: "pipeline",
                value: Some(row.pipeline),
            })
            .insert(Header {
                key: "incarnation",
                value: Some(&incarnation),
            })
            .insert(Header {
                key: "kind",
                value: Some(kind),
            })
            .insert(Header {
                key: "seq",
                value: Some(&seq),
            })
            .insert(Header {
                key: "digest",
                value: Some(&row.digest),
            });
        let record = BaseRecord::with_opaque_to(topic, index)
            .key(row.key)
            .payload(row.value)
            .headers(headers);
        self.enqueue(handle, row, record, deadline)
    }

    /// A short dead letter in the place of a row that was refused.
    fn send_note(
        &self,
        handle: &Handle,
        index: usize,
        row: &PublishRow<'_>,
        deadline: Instant,
    ) -> Result<(), PublishError> {
        let Some(topic) = &self.config.dead_letter_topic else {
            return Ok(());
        };
        let note = serde_json::json!({
            "reason": "refused by the sink for its size",
            "pipeline": row.pipeline,
            "incarnation": row.incarnation,
            "kind": kind_name(row.kind),
            "seq": row.seq,
            "bytes": row.key.len() + row.value.len(),
            "topic": self.topic_of(row.kind),
            "digest": row.digest,
        });
        let note = note.to_string();
        let headers = OwnedHeaders::new_with_capacity(1).insert(Header {
            key: "kind",
            value: Some("refused"),
        });
        let record = BaseRecord::<[u8], str, usize>::with_opaque_to(topic, index)
            .payload(&note)
            .headers(headers);
        self.enqueue(handle, row, record, deadline)
    }

    fn topic_of(&self, kind: StreamKind) -> &str {
        match (kind, &self.config.dead_letter_topic) {
            (StreamKind::DeadLetters, Some(topic)) => topic,
            (StreamKind::DeadLetters, None) | (StreamKind::Rows, _) => &self.config.topic,
        }
    }

    /// Gives a record to the producer, which may have to send others first.
    fn enqueue<P: ToBytes + ?Sized>(
        &self,
        handle: &Handle,
        row: &PublishRow<'_>,
        mut record: BaseRecord<'_, [u8], P, usize>,
        deadline: Instant,
    ) -> Result<(), PublishError> {
        loop {
            match handle.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((error, refused))
                    if error.rdkafka_error_code() == Some(Code::QueueFull)
                        && Instant::now() < deadline =>
                {
                    handle.producer.poll(Duration::from_millis(1));
                    record = refused;
                }
                // The producer itself looks at each alone.
                Err((error, _)) => return Err(self.not_taken(Some(row), &error, true)),
            }
        }
    }

    fn not_taken(
        &self,
        row: Option<&PublishRow<'_>>,
        error: &KafkaError,
        alone: bool,
    ) -> PublishError {
        let bytes = row.map_or(0, |row| row.key.len() + row.value.len());
        match row {
            Some(row) if is_too_large(error) && alone && bytes < ORDINARY => self.fatal(format!(
                "topic {} does not take even row {} of pipeline {}, which has {bytes} bytes: raise max.message.bytes of the topic; \
                 nothing is published until then",
                self.topic_of(row.kind),
                row.seq,
                row.pipeline
            )),
            Some(row) if is_too_large(error) => PublishError::TooLarge {
                sink: self.config.transactional_id.clone(),
                pipeline: row.pipeline.to_owned(),
                stream: StreamId {
                    incarnation: Incarnation(row.incarnation),
                    kind: row.kind,
                },
                seq: row.seq,
                bytes,
                topic: self.topic_of(row.kind).to_owned(),
                alone,
            },
            _ => self.not_published(error),
        }
    }

    /// Before the commit was asked for, nothing of the transaction can ever be read.
    fn not_published(&self, error: &KafkaError) -> PublishError {
        if is_fenced(error) {
            self.fenced()
        } else if is_refused(error) {
            self.fatal(format!("the broker refuses: {error}"))
        } else {
            self.unavailable(format!("the broker did not take the rows: {error}"))
        }
    }

    fn not_committed(&self, error: &KafkaError) -> PublishError {
        let aborted = match error {
            KafkaError::Transaction(error) => error.txn_requires_abort(),
            _ => false,
        };
        if is_fenced(error) {
            self.fenced()
        } else if aborted {
            self.unavailable(format!("the broker did not commit: {error}"))
        } else {
            PublishError::Unknown {
                sink: self.config.transactional_id.clone(),
                reason: error.to_string(),
            }
        }
    }

    fn fenced(&self) -> PublishError {
        PublishError::Fenced {
            sink: self.config.transactional_id.clone(),
        }
    }

    fn unavailable(&self, reason: String) -> PublishError {
        let sink = self.config.transactional_id.clone();
        PublishError::Unavailable { sink, reason }
    }

    fn fatal(&self, reason: String) -> PublishError {
        let sink = self.config.transactional_id.clone();
        PublishError::Fatal { sink, reason }
    }
}

fn kind_name(kind: StreamKind) -> &'static str {
    match kind {
        StreamKind::Rows => "rows",
        StreamKind::DeadLetters => "dead_letters",
    }
}

/// The clients' settings for a sink of the config.
#[must_use]
pub fn settings(sink: &SinkConfig, cluster: u128) -> KafkaSinkConfig {
    let SinkKind::Kafka(sink) = &sink.kind;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    KafkaSinkConfig {
        brokers: sink.brokers.clone(),
        topic: sink.topic.clone(),
        dead_letter_topic: sink.dead_letters.clone(),
        frontier_topic: sink.frontier_topic.clone(),
        transactional_id: sink.transactional_id.clone(),
        cluster,
        properties: sink.properties.iter().map(owned).collect(),
    }
}

impl Sink for KafkaSink {
    fn bounds(&self) -> Option<Bounds> {
        Some(BOUNDS)
    }

    /// Waits at most 10 s.
    fn acquire(&mut self) -> Result<Frontier, PublishError> {
        self.release();
        let deadline = Instant::now() + ACQUIRE_WITHIN;
        let handle = fence::fence(
            &self.pool,
            &self.config.transactional_id,
            self.pace(),
            deadline,
        )?;
        self.fenced_at = Some(Instant::now());
        match self.read(deadline) {
            Ok(found) => {
                self.active = Some(handle);
                self.pool.keep_warm();
                self.others.extend(found.others);
                Ok(found.frontier)
            }
            Err(error) => {
                handle.retire();
                Err(match error {
                    ReadError::Unavailable(reason) => self.unavailable(reason),
                    ReadError::Unreadable(reason) => self.fatal(reason),
                    ReadError::Foreign(other) => PublishError::Foreign {
                        sink: self.config.transactional_id.clone(),
                        reason: self.foreign(&other),
                    },
                })
            }
        }
    }

    fn publish(
        &mut self,
        batch: &[PublishRow<'_>],
        frontier: &Frontier,
    ) -> Result<(), PublishError> {
        let Some(handle) = self.active.take() else {
            return Err(self.unavailable("not acquired".to_owned()));
        };
        match self.transact(&handle, batch, frontier) {
            Ok(()) => {
                self.active = Some(handle);
                self.fenced = None;
                Ok(())
            }
            Err(error) => {
                let unavailable = matches!(error, PublishError::Unavailable { .. });
                let error = if unavailable && handle.was_fenced() {
                    self.fenced()
                } else {
                    error
                };
                handle.retire();
                if matches!(error, PublishError::Fenced { .. }) {
                    self.fenced = Some(Instant::now());
                }
                Err(error)
            }
        }
    }

    fn release(&mut self) {
        if let Some(handle) = self.active.take() {
            handle.retire();
        }
    }

    fn keep_warm(&mut self) {
        self.pool.keep_warm();
        // Serves what librdkafka has to tell; nothing is assigned, so no record can come.
        serve(&self.reader);
    }

    fn fenced_at(&self) -> Option<Instant> {
        self.fenced_at
    }

    fn notice(&self) -> Option<String> {
        let others = (!self.others.is_empty()).then(|| {
            let others: Vec<&str> = self.others.iter().map(String::as_str).collect();
            format!(
                "cluster {} writes to frontier topic {} too (this is cluster {:032x}); transactional ids keep them apart, but its \
                 open transactions delay takeovers: give each cluster a frontier topic of its own",
                others.join(" and cluster "),
                self.config.frontier_topic,
                self.config.cluster
            )
        });
        let told: Vec<String> = others.into_iter().chain(self.offsets.notice()).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}
