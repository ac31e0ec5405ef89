//! What librdkafka tells beside records: errors, log lines, ends of partitions.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::threads::lock;

/// The events of one client. A broker that goes away and comes back is logged once each, for debugging.
pub(crate) struct ClientEvents {
    topic: String,
    served: AtomicU64,
    unreachable: AtomicBool,
    refusal: Mutex<Option<String>>,
    end: Mutex<Option<PartitionEnd>>,
    recreated: Mutex<Option<String>>,
    lost: Mutex<Vec<(i32, Code)>>,
}

impl ClientEvents {
    pub(crate) fn new(topic: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            served: AtomicU64::new(0),
            unreachable: AtomicBool::new(false),
            refusal: Mutex::default(),
            end: Mutex::new(None),
            recreated: Mutex::new(None),
            lost: Mutex::default(),
        }
    }

    /// Counts events that a poll consumed without giving them back: while it grows, the queue is not empty yet.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// What the end-of-partition event says that the same thread was just given.
    pub(crate) fn take_end(&self) -> Option<PartitionEnd> {
        lock(&self.end).take()
    }

    /// The two ids, if another topic has taken the name since the first metadata.
    pub(super) fn recreated(&self) -> Option<String> {
        lock(&self.recreated).clone()
    }

    /// Why the broker has a partition no longer, if it said so since the last call.
    pub(super) fn take_lost(&self, partition: i32) -> Option<Code> {
        let mut lost = lock(&self.lost);
        let index = lost.iter().position(|(lost, _)| *lost == partition)?;
        Some(lost.swap_remove(index).1)
    }

    /// Why the brokers do not admit this client, or are not believed to be them, if that is what was told last. It is not
    /// told again while it stays the same.
    pub(crate) fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    /// A broker answered.
    pub(crate) fn admitted(&self) {
        *lock(&self.refusal) = None;
    }

    /// Something came from the broker.
    pub(super) fn reached(&self) {
        if self.unreachable.load(Ordering::Relaxed)
            && self.unreachable.swap(false, Ordering::Relaxed)
        {
            tracing::debug!(topic = self.topic, "kafka broker is back");
        }
    }
}

/// Serves what a client that reads nothing has to tell, which would otherwise pile up.
pub(crate) fn serve(client: &BaseConsumer<ClientEvents>) {
    let events = client.context();
    loop {
        let served = events.served();
        if client.poll(Duration::ZERO).is_none() && events.served() == served {
            return;
        }
    }
}

impl ClientContext for ClientEvents {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.served.fetch_add(1, Ordering::Relaxed);
        if let Some(change) = id_change(message, &self.topic) {
            *lock(&self.recreated) = Some(change);
        }
        if let Some(partition) = lost_partition(message, &self.topic) {
            lock(&self.lost).push(partition);
        }
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::warn!(topic = self.topic, facility, message, "librdkafka");
            }
            RDKafkaLogLevel::Debug => tracing::trace!(facility, message, "librdkafka"),
            _ => tracing::debug!(topic = self.topic, facility, message, "librdkafka"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.served.fetch_add(1, Ordering::Relaxed);
        match error.rdkafka_error_code() {
            Some(Code::PartitionEOF) => {
                let end = PartitionEnd::read(reason);
                *lock(&self.end) = end;
            }
            Some(Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL) => {
                tracing::debug!(
                    topic = self.topic,
                    reason,
                    "kafka broker and client do not come to terms"
                );
                *lock(&self.refusal) = Some(refusal(reason));
            }
            Some(Code::AllBrokersDown | Code::BrokerTransportFailure | Code::Resolve) => {
                if !self.unreachable.swap(true, Ordering::Relaxed) {
                    // Whoever asks the broker tells the user, with what to do.
                    tracing::debug!(topic = self.topic, reason, "kafka broker does not answer");
                }
            }
            _ => tracing::debug!(topic = self.topic, reason, "kafka client error"),
        }
    }

    fn stats_raw(&self, _statistics: &[u8]) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}

impl ConsumerContext for ClientEvents {}

/// Where a reader has nothing more to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionEnd {
    /// One past all that can be read now.
    pub(crate) offset: i64,
    /// One past all that was appended; greater while a transaction is open.
    pub(crate) appended: i64,
}

impl PartitionEnd {
    /// Reads librdkafka's text of an end-of-partition event, the only place where it gives the offsets. A text that
    /// reads otherwise gives `None`, and then nothing is ever taken to be at its end.
    fn read(reason: &str) -> Option<Self> {
        let (_, rest) = reason.split_once("reached end of partition at offset ")?;
        let (offset, rest) = rest.split_once(" (HighwaterMark ")?;
        let (appended, _) = rest.split_once(')')?;
        Some(Self {
            offset: offset.parse().ok()?,
            appended: appended.parse().ok()?,
        })
    }
}

/// What is the same from try to try of librdkafka's "ssl://host:9093/bootstrap: SSL handshake failed: … (after 5ms in state
/// SSL_HANDSHAKE, 2 identical error(s) suppressed)".
fn refusal(reason: &str) -> String {
    let (text, _) = reason.rsplit_once(" (after ").unwrap_or((reason, ""));
    match text.split_once(": ") {
        Some((broker, text)) if broker.contains("://") => text.to_owned(),
        _ => text.to_owned(),
    }
}

/// The ids in librdkafka's line "Topic T changed id from A to B", unless A says "not known yet".
fn id_change(message: &str, topic: &str) -> Option<String> {
    const UNKNOWN: &str = "AAAAAAAAAAAAAAAAAAAAA";
    let (before, ids) = message.split_once(" changed id from ")?;
    let named = before
        .rsplit_once("Topic ")
        .is_some_and(|(_, name)| name == topic);
    (named && !ids.starts_with(UNKNOWN)).then(|| format!("id {ids}"))
}

/// The partition and the error in librdkafka's line "T [0]: topic does not exist (Broker: …)". Where events are not asked
/// for, as by the batch call, it has no other word for a partition that is gone.
fn lost_partition(message: &str, topic: &str) -> Option<(i32, Code)> {
    const REASONS: [&str; 3] = [
        "topic does not exist",
        "desired partition is not available",
        "desired partition is no longer available",
    ];
    let (_, rest) = message.split_once(&format!(": {topic} ["))?;
    let (partition, rest) = rest.split_once("]: ")?;
    let mut errors = REASONS
        .iter()
        .filter_map(|reason| rest.strip_prefix(reason));
    let error = errors.next()?.strip_prefix(" (")?.strip_suffix(')')?;
    // Other errors of a topic than that it is gone.
    let others = [Code::TopicAuthorizationFailed, Code::InvalidTopic];
    let code = others
        .into_iter()
        .find(|code| code.to_string().contains(error));
    let gone = Code::UnknownTopicOrPartition;
    Some((partition.parse().ok()?, code.unwrap_or(gone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_read_from_the_event_or_not_at_all() {
        let text = "Fetch from broker 1 reached end of partition at offset 42 (HighwaterMark 43)";
        let (offset, appended) = (42, 43);
        assert_eq!(
            PartitionEnd::read(text),
            Some(PartitionEnd { offset, appended })
        );
        assert_eq!(PartitionEnd::read("end of partition"), None);
        let invalid = "reached end of partition at offset INVALID (HighwaterMark 43)";
        assert_eq!(PartitionEnd::read(invalid), None);
    }

    #[test]
    fn a_refusal_is_told_without_what_changes_from_try_to_try() {
        let text = "sasl_ssl://localhost:9093/bootstrap: SASL authentication error: no (x) (after 33ms in state AUTH_REQ)";
        assert_eq!(refusal(text), "SASL authentication error: no (x)");
        assert_eq!(refusal("no: x"), "no: x");
    }

    #[test]
    fn a_partition_that_is_gone_is_read_from_the_log() {
        let lost = |rest: &str, error: Code| {
            // In the library's own words for the error.
            let text = error.to_string();
            let (_, text) = text.split_once(" (").unwrap_or(("", &text));
            let line = format!("[thrd:app]: unisono#consumer-1: orders{rest} ({text}");
            lost_partition(&line, "orders")
        };
        let gone = Code::UnknownTopicOrPartition;
        assert_eq!(lost(" [3]: topic does not exist", gone), Some((3, gone)));
        let denied = Code::TopicAuthorizationFailed;
        let unavailable = " [0]: desired partition is not available";
        assert_eq!(lost(unavailable, denied), Some((0, denied)));
        assert_eq!(lost("_eu [3]: topic does not exist", gone), None);
        assert_eq!(lost(" [3]: something else", gone), None);
    }

    #[test]
    fn only_a_known_id_that_changes_means_another_topic() {
        let line = |from: &str| {
            format!("[thrd:main]: Topic orders changed id from {from} to yN4O8vDUTSmYyMrHTuo9Hw")
        };
        assert!(id_change(&line("zM4O8vDUTSmYyMrHTuo9Hw"), "orders").is_some());
        assert!(id_change(&line("AAAAAAAAAAAAAAAAAAAAAA"), "orders").is_none());
        assert!(id_change(&line("zM4O8vDUTSmYyMrHTuo9Hw"), "order").is_none());
    }
}
