//! Makes sure that a sink's topics are there and fit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::config::KafkaSinkConfig;
use super::error::SinkError;
use crate::kafka::block_on;
use crate::kafka::context::{ClientEvents, serve};

const DEADLINE: Duration = Duration::from_secs(10);

/// Creates the topics that are missing, and checks the frontier's.
///
/// # Errors
/// [`SinkError::Unreachable`], or [`SinkError::Topic`] with what is wrong.
pub(super) fn ensure(
    config: &KafkaSinkConfig,
    reader: &BaseConsumer<ClientEvents>,
) -> Result<(), SinkError> {
    let topics = Topics {
        config,
        reader,
        deadline: Instant::now() + DEADLINE,
    };
    topics.ensure(&config.topic, Kind::Rows)?;
    if let Some(dead_letters) = &config.dead_letter_topic {
        topics.ensure(dead_letters, Kind::Rows)?;
    }
    topics.ensure(&config.frontier_topic, Kind::Frontier)?;
    topics.check_frontier()
}

/// How many records were ever appended to a topic, at most; `None` if that cannot be learnt now.
pub(super) fn appended(
    topic: &str,
    reader: &BaseConsumer<ClientEvents>,
    within: Duration,
) -> Option<u64> {
    let metadata = reader.fetch_metadata(Some(topic), within).ok()?;
    let found = metadata
        .topics()
        .iter()
        .find(|found| found.name() == topic)?;
    let mut appended = 0_u64;
    for partition in found.partitions() {
        let (_, end) = reader
            .fetch_watermarks(topic, partition.id(), within)
            .ok()?;
        appended = appended.saturating_add(u64::try_from(end).ok()?);
    }
    Some(appended)
}

#[derive(Clone, Copy)]
enum Kind {
    Rows,
    Frontier,
}

struct Topics<'a> {
    config: &'a KafkaSinkConfig,
    reader: &'a BaseConsumer<ClientEvents>,
    deadline: Instant,
}

impl Topics<'_> {
    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn ensure(&self, topic: &str, kind: Kind) -> Result<(), SinkError> {
        if self.partitions(topic)?.is_some() {
            return Ok(());
        }
        self.create(topic, kind)?;
        tracing::info!(topic, "created kafka topic");
        while self.partitions(topic)?.is_none() {
            if self.remaining().is_zero() {
                return Err(refusal(topic, "was created, but does not show up"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The number of partitions, `None` if there is no such topic.
    fn partitions(&self, topic: &str) -> Result<Option<usize>, SinkError> {
        let metadata = self
            .reader
            .fetch_metadata(Some(topic), self.remaining())
            .map_err(|error| {
                serve(self.reader);
                let refusal = self.reader.context().refusal();
                self.config.unreachable(&error, refusal)
            })?;
        self.reader.context().admitted();
        let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
            return Ok(None);
        };
        match found.error().map(Code::from) {
            None => Ok(Some(found.partitions().len()).filter(|count| *count > 0)),
            Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => Ok(None),
            // It is being made, by another replica for example.
            Some(Code::LeaderNotAvailable) => Ok(None),
            Some(code) => Err(refusal(topic, &code.to_string())),
        }
    }

    fn admin(&self) -> Result<Arc<AdminClient<DefaultClientContext>>, SinkError> {
        let clients = self.config.admin()?;
        let admin: AdminClient<DefaultClientContext> = clients
            .create()
            .map_err(|error| self.config.refused(&error))?;
        Ok(clients.keep(admin))
    }

    fn create(&self, topic: &str, kind: Kind) -> Result<(), SinkError> {
        // -1: the broker's own default.
        let new = match kind {
            Kind::Rows => NewTopic::new(topic, -1, TopicReplication::Fixed(-1)),
            Kind::Frontier => NewTopic::new(topic, 1, TopicReplication::Fixed(-1))
                .set("cleanup.policy", "compact")
                .set("segment.bytes", "16777216"),
        };
        let admin = self.admin()?;
        let options = AdminOptions::new()
            .operation_timeout(Some(self.remaining()))
            .request_timeout(Some(self.remaining()));
        let results = block_on(admin.create_topics(&[new], &options), self.deadline)
            .unwrap_or(Err(KafkaError::AdminOp(Code::OperationTimedOut)))
            .map_err(|error| self.config.unreachable(&error, None))?;
        for result in results {
            match result {
                // Another replica was quicker.
                Ok(_) | Err((_, Code::TopicAlreadyExists)) => {}
                Err((_, code)) => {
                    let reason = format!("is missing and could not be created: {code}; create it");
                    return Err(refusal(topic, &reason));
                }
            }
        }
        Ok(())
    }

    /// Retention would delete the frontier, and a second partition would hide it.
    fn check_frontier(&self) -> Result<(), SinkError> {
        let topic = &self.config.frontier_topic;
        let partitions = self.partitions(topic)?.unwrap_or(0);
        if partitions != 1 {
            let reason = format!("has {partitions} partitions, but the frontier needs exactly 1");
            return Err(refusal(topic, &reason));
        }
        let admin = self.admin()?;
        let options = AdminOptions::new().request_timeout(Some(self.remaining()));
        let asked = [ResourceSpecifier::Topic(topic)];
        let answer = block_on(admin.describe_configs(&asked, &options), self.deadline);
        let Some(Ok(described)) = answer else {
            tracing::warn!(
                topic,
                "could not ask whether the frontier topic is compacted"
            );
            return Ok(());
        };
        let policy = described
            .iter()
            .filter_map(|resource| resource.as_ref().ok())
            .find_map(|resource| resource.get("cleanup.policy")?.value.clone());
        match policy.as_deref() {
            Some("compact") => Ok(()),
            Some(other) => {
                let reason = format!(
                    "has cleanup.policy {other}, which would delete the frontier; set it to compact"
                );
                Err(refusal(topic, &reason))
            }
            None => {
                tracing::warn!(
                    topic,
                    "the broker does not tell whether the topic is compacted"
                );
                Ok(())
            }
        }
    }
}

fn refusal(topic: &str, reason: &str) -> SinkError {
    SinkError::Topic {
        topic: topic.to_owned(),
        reason: reason.to_owned(),
    }
}
