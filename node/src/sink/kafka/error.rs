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

/// Why rows are not, or may not be, published. After any of them the sink is released: acquire it again, which reads
/// back how far publishing came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum PublishError {
    /// Another publisher acquired the sink, or the broker ended a transaction that took too long. Ask the quorum who
    /// leads: if it is still us, acquire again; else stop.
    #[error("fenced: another publisher acquired the kafka sink {transactional_id}")]
    Fenced { transactional_id: String },
    /// The sink may or may not have the batch. Ask the quorum who leads; acquire again and go on from the frontier
    /// that it gives.
    #[error("kafka sink {transactional_id}: the outcome of a transaction is unknown: {reason}")]
    Unknown {
        transactional_id: String,
        reason: String,
    },
    /// The sink does not have the batch; the broker does not answer, or could not take it now. Acquire again after a
    /// pause.
    #[error("kafka sink {transactional_id}: {reason}")]
    Unavailable {
        transactional_id: String,
        reason: String,
    },
    /// This row never fits. An operator must raise the limits; until then the sink stands still.
    #[error(
        "kafka sink {transactional_id}: row {seq} of pipeline {pipeline} has {bytes} bytes, more \
         than the broker takes; raise message.max.bytes in the sink's properties, and \
         max.message.bytes of topic {topic}"
    )]
    TooLarge {
        transactional_id: String,
        pipeline: String,
        seq: u64,
        bytes: usize,
        topic: String,
    },
    /// An operator must act: the broker refuses for good, or the frontier topic holds what cannot be read.
    #[error("kafka sink {transactional_id}: {reason}")]
    Fatal {
        transactional_id: String,
        reason: String,
    },
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
