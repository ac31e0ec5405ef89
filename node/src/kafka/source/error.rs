//! What can go wrong with a Kafka source: one variant for each thing that the caller does next.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// Why a Kafka source cannot give records.
///
/// A broker that is down is not among the errors of [`super::KafkaSource::poll`]: librdkafka reconnects by itself, and
/// meanwhile there is nothing to read. Only calls that ask the broker something say that it is unreachable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum KafkaSourceError {
    /// The configuration names a property that must not be set, or one that librdkafka refuses. Wrong configuration:
    /// do not retry.
    #[error("kafka source {topic}: property {name}: {reason}")]
    Property {
        topic: String,
        name: String,
        reason: String,
    },
    /// No broker answered in time. Retry.
    #[error(
        "kafka source {topic}: no broker answers at {brokers}: {reason}; check that it runs, and \
         the address"
    )]
    Unreachable {
        topic: String,
        brokers: String,
        reason: String,
    },
    /// Who answers does not admit this client, or is not believed to be the broker. Retry: a password or a certificate may be
    /// put right.
    #[error("kafka source {topic}: {brokers} cannot be read from: {reason}")]
    Refused {
        topic: String,
        brokers: String,
        reason: String,
    },
    /// The broker has no such topic or partition. At the start: wait for it or give up; while reading: stop the feed.
    #[error(
        "kafka source {topic}: the broker at {brokers} has no such topic or partition; create it"
    )]
    TopicMissing { topic: String, brokers: String },
    /// The broker does not have the offset (any more): gone by retention, or the log was cut. Stop the feed.
    #[error(
        "kafka source {topic}: partition {partition} has no offset {offset}: it is gone by \
         retention, or the log was cut or made again; nothing was skipped: restore the log, or give what there is \
         now as a new source to new pipelines"
    )]
    OffsetOutOfRange {
        topic: String,
        partition: i32,
        offset: i64,
    },
    /// The log ends before a position that was read already. Stop the feed.
    #[error(
        "kafka source {topic}: partition {partition} ends at {end}, but was read up to {position}: \
         it was cut or made again; restore it, or give what there is now as a new source to new pipelines"
    )]
    Truncated {
        topic: String,
        partition: i32,
        position: i64,
        end: i64,
    },
    /// Another topic has the name now; what it holds at an offset is not what was there. Stop the feed.
    #[error(
        "kafka source {topic}: the topic was deleted and made again ({change}); nothing of the new one was \
         taken in: give it as a new source to new pipelines"
    )]
    TopicRecreated { topic: String, change: String },
    /// The brokers are others than those that were agreed; what they hold at an offset is not what was there. Correct the
    /// address.
    #[error(
        "kafka source {topic}: {brokers} is the Kafka cluster {found}, but the replicas read from the cluster {agreed}; \
         nothing of it was taken in: correct the address, or give it as a new source to new pipelines"
    )]
    OtherCluster {
        topic: String,
        brokers: String,
        agreed: String,
        found: String,
    },
    /// Records go from the topic when newer ones with their key come. Wait for it to change; otherwise it cannot be read.
    #[error(
        "kafka source {topic}: the topic is compacted (cleanup.policy {policy}): records go from it, so replicas that read \
         it at different times read different records; set cleanup.policy to delete, or copy it into a topic that is not \
         compacted"
    )]
    Compacted { topic: String, policy: String },
    /// Records have no time of the log's. Wait for the topic to change, or go by a field.
    #[error(
        "kafka source {topic}: its records carry the times of those who produced them (message.timestamp.type {kind}), not when \
         they were appended; set message.timestamp.type to LogAppendTime, or name a field that holds the time"
    )]
    ProducersTimes { topic: String, kind: String },
    /// The brokers do not let this client read. Grant it that, or wait until somebody does.
    #[error(
        "kafka source {topic}: the topic may not be read by this client; grant it Read and Describe, or correct its user"
    )]
    Denied { topic: String },
    /// Nothing more will come from this lane. Stop the feed.
    #[error("kafka source {topic}: partition {partition} at offset {offset}: {reason}")]
    Fatal {
        topic: String,
        partition: i32,
        offset: i64,
        reason: String,
    },
}

impl KafkaSourceError {
    /// The same, for the reason that the brokers do not admit this client, if there is one.
    pub(super) fn because(self, refusal: Option<String>) -> Self {
        match (self, refusal) {
            (Self::Unreachable { topic, brokers, .. }, Some(reason)) => Self::Refused {
                topic,
                brokers,
                reason,
            },
            (error, _) => error,
        }
    }
}

/// Where an error came up: what messages name.
pub(super) struct Place<'a> {
    pub(super) topic: &'a str,
    pub(super) brokers: &'a str,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

impl Place<'_> {
    /// The same lane, at another offset.
    pub(super) fn at(&self, offset: i64) -> Self {
        Self { offset, ..*self }
    }

    /// Tells what a lane's error event means; `None` if librdkafka gets over it by itself.
    pub(super) fn classify(&self, error: &KafkaError) -> Option<KafkaSourceError> {
        let topic = self.topic.to_owned();
        let code = error.rdkafka_error_code();
        let transient = matches!(
            code,
            Some(
                Code::BrokerTransportFailure
                    | Code::AllBrokersDown
                    | Code::Resolve
                    | Code::OperationTimedOut
                    | Code::RequestTimedOut
                    | Code::NetworkException
                    | Code::NodeUpdate
                    | Code::LeaderNotAvailable
                    | Code::NotLeaderForPartition
                    | Code::BrokerNotAvailable
                    | Code::ReplicaNotAvailable
                    | Code::KafkaStorageError
                    | Code::CoordinatorNotAvailable
                    | Code::CoordinatorLoadInProgress
                    | Code::NotCoordinator
                    | Code::GroupAuthorizationFailed
            )
        );
        match code {
            // A group id is only there because librdkafka wants one; that it may not be used does not matter.
            _ if transient => None,
            Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => {
                Some(KafkaSourceError::OffsetOutOfRange {
                    topic,
                    partition: self.partition,
                    offset: self.offset,
                })
            }
            Some(Code::TopicAuthorizationFailed) => Some(KafkaSourceError::Denied { topic }),
            Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition) => {
                Some(KafkaSourceError::TopicMissing {
                    topic,
                    brokers: self.brokers.to_owned(),
                })
            }
            _ => Some(KafkaSourceError::Fatal {
                topic,
                partition: self.partition,
                offset: self.offset,
                reason: error.to_string(),
            }),
        }
    }

    /// Like [`Self::classify`], where going on is not possible.
    pub(super) fn classify_lane(&self, error: &KafkaError) -> KafkaSourceError {
        self.classify(error)
            .unwrap_or_else(|| KafkaSourceError::Fatal {
                topic: self.topic.to_owned(),
                partition: self.partition,
                offset: self.offset,
                reason: error.to_string(),
            })
    }

    /// Tells what the failure of a call that asks the broker means.
    pub(super) fn classify_call(&self, error: &KafkaError) -> KafkaSourceError {
        match self.classify(error) {
            Some(KafkaSourceError::Fatal { .. }) | None => KafkaSourceError::Unreachable {
                topic: self.topic.to_owned(),
                brokers: self.brokers.to_owned(),
                reason: why_unreachable(error),
            },
            Some(known) => known,
        }
    }
}

/// One text for all that only says that nobody answers: which of these comes up changes from try to try, and a new text
/// would be told as news.
fn why_unreachable(error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(
            Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::OperationTimedOut
            | Code::RequestTimedOut,
        ) => "no connection".to_owned(),
        Some(code) => code.to_string(),
        None => error.to_string(),
    }
}
