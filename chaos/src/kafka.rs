//! Topics of a drill: made, read and deleted apart from Unisono's own Kafka code.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use crate::checker::Expectation;
use crate::order::Order;

const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const READ_WITHIN: Duration = Duration::from_secs(60);

fn admin(brokers: &str) -> Result<AdminClient<DefaultClientContext>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config.create().context("cannot make a Kafka admin client")
}

/// Creates topics with a number of partitions each.
///
/// # Errors
/// The broker does not answer, or refuses one of them.
pub async fn create_topics(brokers: &str, topics: &[(&str, i32)]) -> Result<()> {
    let new = |&(name, partitions)| NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
    let new: Vec<NewTopic<'_>> = topics.iter().map(new).collect();
    let options = AdminOptions::new()
        .request_timeout(Some(ANSWER_WITHIN))
        .operation_timeout(Some(ANSWER_WITHIN));
    let results = admin(brokers)?
        .create_topics(&new, &options)
        .await
        .with_context(|| format!("cannot create topics on {brokers}; is the broker up?"))?;
    for result in results {
        result.map_err(|(name, code)| anyhow!("cannot create topic {name}: {code}"))?;
    }
    Ok(())
}

/// Deletes topics; one that is not there is passed over.
///
/// # Errors
/// The broker does not answer.
pub async fn delete_topics(brokers: &str, topics: &[&str]) -> Result<()> {
    let options = AdminOptions::new().request_timeout(Some(ANSWER_WITHIN));
    let deleted = admin(brokers)?.delete_topics(topics, &options).await;
    deleted.with_context(|| format!("cannot delete topics on {brokers}"))?;
    Ok(())
}

/// A `read_committed` consumer of all partitions of one topic, from their beginning.
pub struct TopicReader {
    topic: String,
    consumer: BaseConsumer,
    partitions: Vec<i32>,
    /// The offset after the last record that was read, by partition.
    next: BTreeMap<i32, i64>,
}

impl TopicReader {
    /// Connects and finds the partitions.
    ///
    /// # Errors
    /// The broker does not answer, or has no such topic.
    pub fn connect(brokers: &str, topic: &str) -> Result<Self> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            // The client demands a group's name, but no group is joined: partitions are assigned by hand.
            .set("group.id", "unisono-checker")
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "10")
            .set("fetch.queue.backoff.ms", "10")
            .create()
            .context("cannot make a consumer for the checker")?;
        let metadata = consumer
            .fetch_metadata(Some(topic), ANSWER_WITHIN)
            .with_context(|| format!("cannot read topic {topic} on {brokers}"))?;
        let described = metadata.topics().first();
        let mut partitions: Vec<i32> = described
            .map(|topic| {
                topic
                    .partitions()
                    .iter()
                    .map(|partition| partition.id())
                    .collect()
            })
            .unwrap_or_default();
        partitions.sort_unstable();
        if partitions.is_empty() {
            bail!("there is no topic {topic} on {brokers}");
        }
        let mut assignment = TopicPartitionList::new();
        for &partition in &partitions {
            assignment.add_partition_offset(topic, partition, Offset::Beginning)?;
        }
        consumer
            .assign(&assignment)
            .with_context(|| format!("cannot assign topic {topic}"))?;
        Ok(Self {
            topic: topic.to_owned(),
            consumer,
            partitions,
            next: BTreeMap::new(),
        })
    }

    /// The next record's partition and text, waiting at most `wait`. `Ok(None)`: nothing came.
    ///
    /// # Errors
    /// What the broker refuses, or a record that is not text.
    pub fn poll(&mut self, wait: Duration) -> Result<Option<(i32, String)>> {
        let message = match self.consumer.poll(wait) {
            None | Some(Err(KafkaError::PartitionEOF(_))) => return Ok(None),
            Some(message) => message.with_context(|| format!("cannot read {}", self.topic))?,
        };
        let partition = message.partition();
        self.next.insert(partition, message.offset() + 1);
        let payload = message.payload().unwrap_or_default();
        let text = std::str::from_utf8(payload)
            .with_context(|| format!("{}/{partition} holds other than text", self.topic))?;
        Ok(Some((partition, text.to_owned())))
    }

    /// Reads a topic without transactions as far as it reaches now.
    ///
    /// # Errors
    /// As for `poll`, and when the end is not reached in a minute.
    pub fn read_orders(&mut self, expectation: &mut Expectation) -> Result<()> {
        let mut ends = Vec::new();
        for &partition in &self.partitions {
            let bounds = self
                .consumer
                .fetch_watermarks(&self.topic, partition, ANSWER_WITHIN);
            let (_, end) = bounds.with_context(|| format!("no end of {}", self.topic))?;
            ends.push((partition, end));
        }
        let deadline = Instant::now() + READ_WITHIN;
        while ends
            .iter()
            .any(|(partition, end)| self.next.get(partition).unwrap_or(&0) < end)
        {
            if Instant::now() > deadline {
                bail!(
                    "topic {} was not read to its end within {READ_WITHIN:?}",
                    self.topic
                );
            }
            if let Some((partition, line)) = self.poll(Duration::from_millis(100))? {
                let Some(order) = Order::parse(&line) else {
                    bail!("not an order: {line}")
                };
                expectation.add(&partition.to_string(), &order);
            }
        }
        Ok(())
    }

    /// All committed records from the beginning to where each partition ends now.
    ///
    /// # Errors
    /// As for `poll`, and when the end is not reached in a minute.
    pub fn read_committed(brokers: &str, topic: &str) -> Result<Vec<String>> {
        let reader = Self::connect(brokers, topic)?;
        let mut open = reader.partitions.clone();
        let mut texts = Vec::new();
        let deadline = Instant::now() + READ_WITHIN;
        while !open.is_empty() {
            if Instant::now() > deadline {
                bail!("topic {topic} was not read to its end within {READ_WITHIN:?}");
            }
            match reader.consumer.poll(Duration::from_millis(100)) {
                None => {}
                Some(Err(KafkaError::PartitionEOF(ended))) => open.retain(|&other| other != ended),
                Some(message) => {
                    let message = message.with_context(|| format!("cannot read {topic}"))?;
                    let payload = message.payload().unwrap_or_default();
                    texts.push(String::from_utf8_lossy(payload).into_owned());
                }
            }
        }
        Ok(texts)
    }
}
