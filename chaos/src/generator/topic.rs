//! Orders to a Kafka topic, each lane a partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use super::Target;

const STORED_WITHIN: Duration = Duration::from_secs(30);

struct Deliveries {
    failed: Arc<AtomicU64>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A topic that has a partition for each lane.
pub struct TopicTarget {
    topic: String,
    producer: BaseProducer<Deliveries>,
    failed: Arc<AtomicU64>,
}

impl TopicTarget {
    /// Makes an idempotent producer: the order within a partition is the order of the calls, and a retry stores
    /// nothing twice.
    ///
    /// # Errors
    /// The client could not be made.
    pub fn connect(brokers: &str, topic: &str) -> Result<Self> {
        let failed = Arc::new(AtomicU64::new(0));
        let producer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", "2")
            .create_with_context(Deliveries {
                failed: Arc::clone(&failed),
            })
            .context("cannot make the generator's producer")?;
        Ok(Self {
            topic: topic.to_owned(),
            producer,
            failed,
        })
    }
}

impl Target for TopicTarget {
    fn append(&mut self, lane: usize, lines: &str) -> Result<()> {
        let partition = i32::try_from(lane)?;
        for line in lines.lines() {
            let mut record = BaseRecord::<(), str>::to(&self.topic)
                .partition(partition)
                .payload(line);
            while let Err((error, back)) = self.producer.send(record) {
                match error {
                    KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) => {
                        self.producer.poll(Duration::from_millis(5));
                        record = back;
                    }
                    error => bail!("cannot produce to topic {}: {error}", self.topic),
                }
            }
        }
        self.producer.poll(Duration::ZERO);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let deadline = Instant::now() + STORED_WITHIN;
        while self.producer.in_flight_count() > 0 && Instant::now() < deadline {
            self.producer.poll(Duration::from_millis(10));
        }
        let pending = self.producer.in_flight_count();
        let failed = self.failed.load(Ordering::Relaxed);
        if pending > 0 || failed > 0 {
            bail!(
                "topic {}: {failed} orders were refused, {pending} are unanswered",
                self.topic
            );
        }
        Ok(())
    }
}
