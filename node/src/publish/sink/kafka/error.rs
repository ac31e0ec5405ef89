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
    /// Who answers does not admit this client, or is not believed to be the broker. Retry: a password or a certificate may be
    /// put right.
    #[error("kafka sink {topic}: {brokers} cannot be written to: {reason}")]
    Refused {
        topic: String,
        brokers: String,
        reason: String,
    },
    /// The broker refuses the topic, or it is not fit. An operator must act; do not retry.
    #[error("kafka sink: topic {topic}: {reason}")]
    Topic { topic: String, reason: String },
    /// Another cluster publishes here. An operator must give one of them another sink.
    #[error("{0}")]
    Foreign(String),
}

/// What to say of a frontier that is another cluster's.
pub(super) fn foreign(
    transactional_id: &str,
    frontier_topic: &str,
    other: &str,
    own: u128,
) -> String {
    format!(
        "transactional id {transactional_id} with frontier topic {frontier_topic} belongs to cluster {other}, and this is cluster \
         {own:032x}: two clusters must not share a sink. If that one still runs, give this one's sink another \
         transactional_id, frontier_topic and topic; if it is gone (its data directories were wiped, or this one's are mistyped), \
         put the data directories right, or give the sink new names as well: the rows in its topic are not this cluster's"
    )
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

/// Whether a record is larger than the producer or the broker takes, or the batch that it was sent in.
pub(super) fn is_too_large(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(Code::MessageSizeTooLarge | Code::MessageBatchTooLarge)
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
