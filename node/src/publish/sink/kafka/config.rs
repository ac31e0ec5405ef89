//! What a Kafka sink is told, and how librdkafka is set up for it.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use super::error::SinkError;
use crate::source::kafka::connection;

/// Where rows are published.
#[derive(Clone)]
pub struct KafkaSinkConfig {
    /// `host:port`, several separated by commas.
    pub brokers: String,
    /// Rows go here; made with the broker's defaults if it is missing.
    pub topic: String,
    /// Dead letters go here; without it they are not published (the results log has them).
    pub dead_letter_topic: Option<String>,
    /// One partition, compacted: holds how far was published. Made if it is missing.
    pub frontier_topic: String,
    /// One for each sink of a cluster, the same on all of its replicas; no other program may use it.
    pub transactional_id: String,
    /// Properties of librdkafka, over our defaults; some are refused.
    pub properties: BTreeMap<String, String>,
}

impl fmt::Debug for KafkaSinkConfig {
    /// Shows the names of the properties alone: their values hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSinkConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("dead_letter_topic", &self.dead_letter_topic)
            .field("frontier_topic", &self.frontier_topic)
            .field("transactional_id", &self.transactional_id)
            .field("properties", &self.properties.keys())
            .finish()
    }
}

const DEFAULTS: [(&str, &str); 4] = [
    // The whole batch is there when sending begins; waiting for more only costs time.
    ("linger.ms", "0"),
    ("partitioner", "murmur2_random"),
    // How long a leader that died can hold back readers of the topic, if no other takes over.
    ("transaction.timeout.ms", "10000"),
    ("socket.keepalive.enable", "true"),
];

/// Properties that exactly-once publishing rests on.
const FIXED: [&str; 5] = [
    "transactional.id",
    "enable.idempotence",
    "acks",
    "request.required.acks",
    "bootstrap.servers",
];

impl KafkaSinkConfig {
    /// The client that publishes.
    pub(super) fn producer(&self) -> Result<ClientConfig, SinkError> {
        let mut config = connection(&self.brokers, &BTreeMap::new());
        for (name, value) in DEFAULTS {
            config.set(name, value);
        }
        for (name, value) in &self.properties {
            if FIXED.contains(&name.as_str()) {
                return Err(SinkError::Property {
                    topic: self.topic.clone(),
                    name: name.clone(),
                    reason: "is set by the sink, since exactly-once rests on it; remove it".into(),
                });
            }
            config.set(name, value);
        }
        config.set("transactional.id", &self.transactional_id);
        config
            .create_native_config()
            .map_err(|error| self.refused(&error))?;
        Ok(config)
    }

    /// The client that reads the frontier back.
    pub(super) fn reader(&self) -> ClientConfig {
        let mut config = connection(&self.brokers, &self.properties);
        config
            .set("group.id", "unisono-assigned")
            .set("enable.auto.commit", "false");
        config
            .set("isolation.level", "read_committed")
            .set("auto.offset.reset", "error");
        config
            .set("enable.partition.eof", "true")
            .set("check.crcs", "true");
        // The end is told by an empty answer, for which the broker waits so long.
        config
            .set("fetch.wait.max.ms", "2")
            .set("allow.auto.create.topics", "false");
        config
    }

    /// The client that creates topics.
    pub(super) fn admin(&self) -> ClientConfig {
        connection(&self.brokers, &self.properties)
    }

    pub(super) fn refused(&self, error: &KafkaError) -> SinkError {
        let (name, reason) = match error {
            // The value, the last field, may be a password.
            KafkaError::ClientConfig(_, reason, name, _) => (name.clone(), reason.clone()),
            other => ("properties".to_owned(), other.to_string()),
        };
        SinkError::Property {
            topic: self.topic.clone(),
            name,
            reason,
        }
    }

    pub(super) fn unreachable(&self, error: &KafkaError) -> SinkError {
        SinkError::Unreachable {
            topic: self.topic.clone(),
            brokers: self.brokers.clone(),
            reason: error.to_string(),
        }
    }
}
