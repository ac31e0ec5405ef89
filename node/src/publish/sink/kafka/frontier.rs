//! How far was published: a record in a compacted topic, written in the rows' own transaction.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Message, Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use unisono_engine::row::{Incarnation, StreamId, StreamKind};

use crate::kafka::context::ClientEvents;
use crate::publish::sink::Frontier;

const VERSION: u32 = 1;
/// The last frontier lies within the last few offsets, unless many transactions were aborted after it: reading begins
/// that far from the end and goes further back only if nothing is found, so that its time does not grow with the topic.
const TAIL: i64 = 64;

/// The record's value. Older and newer replicas read it too: what changes needs another version.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    version: u32,
    streams: Vec<WireStream>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireStream {
    incarnation: u64,
    kind: WireKind,
    next: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireKind {
    Rows,
    DeadLetters,
}

impl Frontier {
    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let stream = |(stream, next): (&StreamId, &u64)| WireStream {
            incarnation: stream.incarnation.0,
            kind: match stream.kind {
                StreamKind::Rows => WireKind::Rows,
                StreamKind::DeadLetters => WireKind::DeadLetters,
            },
            next: *next,
        };
        serde_json::to_vec(&Wire {
            version: VERSION,
            streams: self.0.iter().map(stream).collect(),
        })
    }

    fn decode(value: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let found: Versioned = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        if found.version != VERSION {
            return Err(format!(
                "is of version {}, this program reads version {VERSION}; upgrade it",
                found.version
            ));
        }
        let wire: Wire = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        let stream = |stream: WireStream| {
            let kind = match stream.kind {
                WireKind::Rows => StreamKind::Rows,
                WireKind::DeadLetters => StreamKind::DeadLetters,
            };
            (
                StreamId {
                    incarnation: Incarnation(stream.incarnation),
                    kind,
                },
                stream.next,
            )
        };
        Ok(Self(wire.streams.into_iter().map(stream).collect()))
    }
}

/// Why the frontier could not be read.
pub(super) enum ReadError {
    /// Not all of it in time. A part is no answer.
    Unavailable(String),
    /// It is there, but cannot be understood.
    Unreadable(String),
}

/// Reads a sink's last committed frontier.
pub(super) struct FrontierReader<'a> {
    pub(super) consumer: &'a BaseConsumer<ClientEvents>,
    pub(super) topic: &'a str,
    /// The key of the sink's records.
    pub(super) key: &'a str,
    pub(super) deadline: Instant,
}

impl FrontierReader<'_> {
    /// The last committed frontier, empty if there is none. Only what was read after fencing is an answer.
    pub(super) fn read(&self) -> Result<Frontier, ReadError> {
        let (low, end) = self
            .consumer
            .fetch_watermarks(self.topic, 0, self.remaining())
            .map_err(|error| self.failed(&error))?;
        let mut back = TAIL;
        loop {
            let start = end.saturating_sub(back).max(low);
            let found = self.scan(start, end);
            // Else it would go on fetching.
            let _ = self.consumer.unassign();
            match found? {
                Some(frontier) => return Ok(frontier),
                None if start == low => return Ok(Frontier::default()),
                None => back = back.saturating_mul(TAIL),
            }
        }
    }

    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn failed(&self, error: &KafkaError) -> ReadError {
        ReadError::Unavailable(format!("reading frontier topic {}: {error}", self.topic))
    }

    /// The last frontier from `start` on, up to the end.
    ///
    /// The end is where nothing more was *appended*, not only where nothing more can be read: while any transaction
    /// is open in the topic, committed frontiers behind it are hidden, and the last one in sight would be an old one.
    fn scan(&self, start: i64, end: i64) -> Result<Option<Frontier>, ReadError> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(self.topic, 0, Offset::Offset(start))
            .map_err(|error| self.failed(&error))?;
        self.consumer
            .assign(&list)
            .map_err(|error| self.failed(&error))?;
        let mut last = None;
        loop {
            match self
                .consumer
                .poll(self.remaining().min(Duration::from_millis(100)))
            {
                Some(Ok(message)) if message.key() == Some(self.key.as_bytes()) => {
                    last = message.payload().map(<[u8]>::to_vec);
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    let reached = self.consumer.context().take_end();
                    if reached.is_some_and(|at| at.offset >= end && at.offset == at.appended) {
                        break;
                    }
                }
                Some(Err(error)) if is_lost(&error) => return Err(self.failed(&error)),
                Some(_) | None => {}
            }
            if self.remaining().is_zero() {
                return Err(ReadError::Unavailable(format!(
                    "frontier topic {}: its end was not reached in time; the broker is slow or \
                     down, or a transaction was left open there (kafka-transactions find-hanging \
                     names it)",
                    self.topic
                )));
            }
        }
        last.map(|value| Frontier::decode(&value))
            .transpose()
            .map_err(|reason| {
                ReadError::Unreadable(format!("the frontier in topic {}: {reason}", self.topic))
            })
    }
}

/// Whether waiting longer does not help. Others are transient: librdkafka reconnects.
fn is_lost(error: &KafkaError) -> bool {
    use rdkafka::error::RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(Code::AutoOffsetReset | Code::UnknownTopic | Code::UnknownTopicOrPartition)
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::golden;

    fn stream(incarnation: u64, kind: StreamKind) -> StreamId {
        StreamId {
            incarnation: Incarnation(incarnation),
            kind,
        }
    }

    #[test]
    fn the_record_reads_back_and_its_form_is_kept() {
        let frontier = Frontier(BTreeMap::from([
            (stream(7, StreamKind::Rows), u64::MAX),
            (stream(7, StreamKind::DeadLetters), 3),
        ]));
        let value = golden::bytes("frontier", &frontier.encode().unwrap());
        assert_eq!(
            String::from_utf8_lossy(&value),
            r#"{"version":1,"streams":[{"incarnation":7,"kind":"rows","next":18446744073709551615},{"incarnation":7,"kind":"dead_letters","next":3}]}"#
        );
        assert_eq!(Frontier::decode(&value), Ok(frontier));
    }

    #[test]
    fn a_newer_version_is_refused_with_both_versions() {
        let error = Frontier::decode(br#"{"version":2,"x":1}"#).unwrap_err();
        assert_eq!(
            error,
            "is of version 2, this program reads version 1; upgrade it"
        );
    }

    #[test]
    fn a_stream_never_published_starts_at_0() {
        assert_eq!(Frontier::default().next(stream(1, StreamKind::Rows)), 0);
    }
}
