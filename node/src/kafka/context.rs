//! What librdkafka tells beside records: errors, log lines, ends of partitions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// The events of one client. A broker that goes away and comes back is logged once each, for debugging.
pub(crate) struct ClientEvents {
    topic: String,
    served: AtomicU64,
    unreachable: AtomicBool,
    end: Mutex<Option<PartitionEnd>>,
    recreated: Mutex<Option<String>>,
}

impl ClientEvents {
    pub(crate) fn new(topic: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            served: AtomicU64::new(0),
            unreachable: AtomicBool::new(false),
            end: Mutex::new(None),
            recreated: Mutex::new(None),
        }
    }

    /// Counts events that a poll consumed without giving them back: while it grows, the queue is not empty yet.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// What the end-of-partition event says that the same thread was just given.
    pub(crate) fn take_end(&self) -> Option<PartitionEnd> {
        self.end
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// The two ids, if another topic has taken the name since the first metadata.
    pub(super) fn recreated(&self) -> Option<String> {
        self.recreated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
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

impl ClientContext for ClientEvents {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.served.fetch_add(1, Ordering::Relaxed);
        if let Some(change) = id_change(message, &self.topic) {
            *self
                .recreated
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(change);
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
                *self.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
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

/// The ids in librdkafka's line "Topic T changed id from A to B", unless A says "not known yet".
fn id_change(message: &str, topic: &str) -> Option<String> {
    const UNKNOWN: &str = "AAAAAAAAAAAAAAAAAAAAA";
    let (before, ids) = message.split_once(" changed id from ")?;
    let named = before
        .rsplit_once("Topic ")
        .is_some_and(|(_, name)| name == topic);
    (named && !ids.starts_with(UNKNOWN)).then(|| format!("id {ids}"))
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
    fn only_a_known_id_that_changes_means_another_topic() {
        let line = |from: &str| {
            format!("[thrd:main]: Topic orders changed id from {from} to yN4O8vDUTSmYyMrHTuo9Hw")
        };
        assert!(id_change(&line("zM4O8vDUTSmYyMrHTuo9Hw"), "orders").is_some());
        assert!(id_change(&line("AAAAAAAAAAAAAAAAAAAAAA"), "orders").is_none());
        assert!(id_change(&line("zM4O8vDUTSmYyMrHTuo9Hw"), "order").is_none());
    }
}
