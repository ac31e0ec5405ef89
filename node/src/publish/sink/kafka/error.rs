//! What can go wrong with a Kafka sink: one variant for each thing that the caller does next.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// Why a sink cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum SinkError {
    /// Wrong configuration: do not retry.
    #[error("kafka sink {topic}: property {name}: {reason}")]
    Property {
        topic: String,
        name: String,
        reason: String,
    },
    /// No broker answered in time. Retry.
    #[error(
        "kafka sink {topic}: no broker answers at {brokers}: {reason}; check that it runs, and the \
         address"
    )]
    Unreachable {
        topic: String,
        brokers: String,
        reason: String,
    },
    /// The broker refuses the topic, or it is not fit. An operator must act; do not retry.
    #[error("kafka sink: topic {topic}: {reason}")]
    Topic { topic: String, reason: String },
}

/// Whether the broker has given the transactional id to a newer producer.
pub(super) fn is_fenced(error: &KafkaError) -> bool {
    error.rdkafka_error_code().is_some_and(is_fence)
}

/// Whether this code says so.
pub(super) fn is_fence(code: Code) -> bool {
    matches!(
        code,
        Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch
    )
}

/// Whether the broker will never allow it.
pub(super) fn is_refused(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::TransactionalIdAuthorizationFailed
                | Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::SaslAuthenticationFailed
                | Code::Authentication
                | Code::UnsupportedVersion
                | Code::UnsupportedFeature
                | Code::InvalidTransactionTimeout
                | Code::InvalidArgument
        )
    )
}
