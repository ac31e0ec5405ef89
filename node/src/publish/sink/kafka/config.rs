//! What a Kafka sink is told, and how librdkafka is set up for it.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::error::KafkaError;

use super::error::SinkError;
use crate::kafka::properties::Role;
use crate::kafka::{Clients, Refused, client, refused};

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
    /// The cluster's random name, which stands in its frontier.
    pub cluster: u128,
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
            .field("cluster", &self.cluster)
            .field("properties", &self.properties.keys())
            .finish()
    }
}

impl KafkaSinkConfig {
    /// The client that publishes.
    pub(super) fn producer(&self) -> Result<Clients, SinkError> {
        let mut config = self.client(Role::Publisher)?;
        config.set("transactional.id", &self.transactional_id);
        Ok(config)
    }

    /// The client that reads the frontier back.
    pub(super) fn reader(&self) -> Result<Clients, SinkError> {
        self.client(Role::Readback)
    }

    /// The client that creates topics.
    pub(super) fn admin(&self) -> Result<Clients, SinkError> {
        self.client(Role::Admin)
    }

    fn client(&self, role: Role) -> Result<Clients, SinkError> {
        client(role, &self.brokers, &[], &self.properties).map_err(|refused| self.property(refused))
    }

    pub(super) fn refused(&self, error: &KafkaError) -> SinkError {
        self.property(refused(error))
    }

    fn property(&self, refused: Refused) -> SinkError {
        SinkError::Property {
            topic: self.topic.clone(),
            name: refused.name,
            reason: refused.reason,
        }
    }

    /// No broker answers, or all refuse for that reason.
    pub(super) fn unreachable(&self, error: &KafkaError, refusal: Option<String>) -> SinkError {
        let (topic, brokers) = (self.topic.clone(), self.brokers.clone());
        match refusal {
            Some(reason) => SinkError::Refused {
                topic,
                brokers,
                reason,
            },
            None => SinkError::Unreachable {
                topic,
                brokers,
                reason: error.to_string(),
            },
        }
    }
}
