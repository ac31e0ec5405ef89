//! What is asked of a topic beside reading it. Each call waits for the brokers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::identity::{Identified, Identifying, TopicIdentity};
use super::{KafkaSourceConfig, KafkaSourceError};
use crate::kafka::block_on;
use crate::kafka::context::{ClientEvents, serve};

/// Asks about one topic, on a connection of its own.
pub struct KafkaTopic {
    config: KafkaSourceConfig,
    client: Arc<BaseConsumer<ClientEvents>>,
}

impl KafkaTopic {
    /// Sets up the client; no broker is needed yet.
    ///
    /// # Errors
    /// [`KafkaSourceError::Property`] if the configuration is wrong.
    pub fn connect(config: &KafkaSourceConfig) -> Result<Self, KafkaSourceError> {
        // Where a reader would come to: an open transaction and what follows it do not count.
        let mut clients = config.watcher()?;
        clients.set("isolation.level", "read_committed");
        let client: BaseConsumer<ClientEvents> = clients
            .create_with_context(ClientEvents::new(&config.topic))
            .map_err(|error| config.refused(&error))?;
        Ok(Self {
            config: config.clone(),
            client: clients.keep(client),
        })
    }

    /// The topic's partitions, in order. Waits at most `timeout`.
    ///
    /// # Errors
    /// [`KafkaSourceError::Unreachable`] or [`KafkaSourceError::TopicMissing`].
    pub fn partitions(&self, timeout: Duration) -> Result<Vec<i32>, KafkaSourceError> {
        serve(&self.client);
        let place = self.config.place(0, 0);
        let asked = self
            .client
            .fetch_metadata(Some(&self.config.topic), timeout);
        let metadata = asked.map_err(|error| {
            serve(&self.client);
            let refusal = self.client.context().refusal();
            place.classify_call(&error).because(refusal)
        })?;
        self.client.context().admitted();
        let topic = metadata
            .topics()
            .iter()
            .find(|topic| topic.name() == self.config.topic);
        let Some(topic) = topic else {
            return Err(place.classify_call(&KafkaError::MetadataFetch(Code::UnknownTopic)));
        };
        if let Some(error) = topic.error() {
            return Err(place.classify_call(&KafkaError::MetadataFetch(error.into())));
        }
        let mut partitions: Vec<i32> = topic.partitions().iter().map(|p| p.id()).collect();
        partitions.sort_unstable();
        if partitions.is_empty() {
            return Err(place.classify_call(&KafkaError::MetadataFetch(Code::UnknownTopic)));
        }
        Ok(partitions)
    }

    /// Which topic has the name now. Waits at most `timeout`.
    ///
    /// # Errors
    /// [`KafkaSourceError::Unreachable`] or [`KafkaSourceError::TopicMissing`].
    pub fn identity(&self, timeout: Duration) -> Result<TopicIdentity, KafkaSourceError> {
        let place = self.config.place(0, 0);
        let asked = Identifying::default().ask(&self.client, &place, false, timeout)?;
        match asked {
            Some(Identified::ForNow(found) | Identified::ForGood(found)) => Ok(found),
            None => {
                let late = KafkaError::MetadataFetch(Code::OperationTimedOut);
                Err(place.classify_call(&late))
            }
        }
    }

    /// The partition's first offset, and the offset one past the last record that can be read: an open transaction and
    /// what follows it do not count. Waits at most `timeout`.
    ///
    /// # Errors
    /// [`KafkaSourceError::Unreachable`] or [`KafkaSourceError::TopicMissing`].
    pub fn bounds(
        &self,
        partition: i32,
        timeout: Duration,
    ) -> Result<(i64, i64), KafkaSourceError> {
        let place = self.config.place(partition, 0);
        self.client
            .fetch_watermarks(&self.config.topic, partition, timeout)
            .map_err(|error| place.classify_call(&error))
    }

    /// Refuses a topic whose records go when newer ones of the same key come: replicas that read it at different times
    /// read different records. Waits at most `timeout`; who may not ask is believed to know.
    ///
    /// # Errors
    /// [`KafkaSourceError::Compacted`], or [`KafkaSourceError::Property`].
    pub fn refuse_compaction(&self, timeout: Duration) -> Result<(), KafkaSourceError> {
        let topic = &self.config.topic;
        match self.setting("cleanup.policy", timeout)? {
            Some(policy) if policy.split(',').any(|part| part.trim() == "compact") => {
                Err(KafkaSourceError::Compacted {
                    topic: topic.clone(),
                    policy,
                })
            }
            Some(_) => Ok(()),
            None => {
                tracing::warn!(
                    topic,
                    "the brokers do not tell whether the topic is compacted; if it is, replicas may read different records"
                );
                Ok(())
            }
        }
    }

    /// Refuses a topic whose records are stamped by who produced them: that is no append time. Waits at most `timeout`; who
    /// may not ask is believed to know.
    ///
    /// # Errors
    /// [`KafkaSourceError::ProducersTimes`], or [`KafkaSourceError::Property`].
    pub fn refuse_producers_times(&self, timeout: Duration) -> Result<(), KafkaSourceError> {
        let topic = &self.config.topic;
        match self.setting("message.timestamp.type", timeout)? {
            Some(kind) if kind == "LogAppendTime" => Ok(()),
            Some(kind) => Err(KafkaSourceError::ProducersTimes {
                topic: topic.clone(),
                kind,
            }),
            None => {
                tracing::warn!(
                    topic,
                    "the brokers do not tell whether the topic stamps its records when they are appended; those that it does not \
                     are dead letters of pipelines that go by that time"
                );
                Ok(())
            }
        }
    }

    /// A setting of the topic; `None` where the brokers do not tell.
    fn setting(&self, name: &str, timeout: Duration) -> Result<Option<String>, KafkaSourceError> {
        let clients = self.config.watcher()?;
        let admin: AdminClient<DefaultClientContext> = clients
            .create()
            .map_err(|error| self.config.refused(&error))?;
        let admin = clients.keep(admin);
        let options = AdminOptions::new().request_timeout(Some(timeout));
        let asked = [ResourceSpecifier::Topic(&self.config.topic)];
        let deadline = Instant::now() + timeout;
        Ok(
            match block_on(admin.describe_configs(&asked, &options), deadline) {
                Some(Ok(described)) => described
                    .iter()
                    .filter_map(|resource| resource.as_ref().ok())
                    .find_map(|resource| resource.get(name)?.value.clone()),
                Some(Err(_)) | None => None,
            },
        )
    }
}
