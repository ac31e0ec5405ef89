//! How far was published: a record in a compacted topic, written in the rows' own transaction.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Message, Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use unisono_engine::row::{Incarnation, StreamId, StreamKind};

use crate::kafka::context::ClientEvents;
use crate::publish::sink::{Frontier, Refusals, RefusedRow};

const VERSION: u32 = 2;
/// The same, where rows were refused: it is written only then.
const WITH_REFUSED: u32 = 3;
/// The last frontier lies within the last few offsets, unless many transactions were aborted after it: reading begins
/// that far from the end and goes further back only if nothing is found, so that its time does not grow with the topic.
const TAIL: i64 = 64;

/// The record's value. Older and newer replicas read it too: what changes needs another version.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    version: u32,
    /// The cluster whose pipelines these are: 32 hex digits.
    cluster: String,
    streams: Vec<WireStream>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireStream {
    incarnation: u64,
    kind: WireKind,
    next: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<WireRefused>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRefused {
    count: u64,
    /// Numbers and sizes.
    last: Vec<(u64, u64)>,
}

impl From<&Refusals> for WireRefused {
    fn from(refusals: &Refusals) -> Self {
        let last = refusals.last.iter();
        Self {
            count: refusals.count,
            last: last.map(|row| (row.seq, row.bytes)).collect(),
        }
    }
}

impl From<WireRefused> for Refusals {
    fn from(wire: WireRefused) -> Self {
        let last = wire.last.into_iter();
        Self {
            count: wire.count,
            last: last.map(|(seq, bytes)| RefusedRow { seq, bytes }).collect(),
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireKind {
    Rows,
    DeadLetters,
}

/// A cluster's id as it is written.
pub(super) fn cluster_text(cluster: u128) -> String {
    format!("{cluster:032x}")
}

impl Frontier {
    pub(super) fn encode(&self, cluster: u128) -> Result<Vec<u8>, serde_json::Error> {
        let stream = |(stream, next): (&StreamId, &u64)| WireStream {
            incarnation: stream.incarnation.0,
            kind: match stream.kind {
                StreamKind::Rows => WireKind::Rows,
                StreamKind::DeadLetters => WireKind::DeadLetters,
            },
            next: *next,
            refused: self.refused.get(stream).map(WireRefused::from),
        };
        let version = match self.refused.is_empty() {
            true => VERSION,
            false => WITH_REFUSED,
        };
        serde_json::to_vec(&Wire {
            version,
            cluster: cluster_text(cluster),
            streams: self.streams.iter().map(stream).collect(),
        })
    }

    /// The frontier, if it is this cluster's.
    fn decode(value: &[u8], cluster: u128) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let unreadable = |error: serde_json::Error| ReadError::Unreadable(error.to_string());
        let Versioned { version: found } = serde_json::from_slice(value).map_err(unreadable)?;
        if !(VERSION..=WITH_REFUSED).contains(&found) {
            let what_to_do = match found > WITH_REFUSED {
                true => "upgrade it",
                false => {
                    "the older one's log is not carried over: give the sink another frontier_topic and topic"
                }
            };
            return Err(ReadError::Unreadable(format!(
                "is of version {found}, this program reads versions {VERSION} and {WITH_REFUSED}; {what_to_do}"
            )));
        }
        let wire: Wire = serde_json::from_slice(value).map_err(unreadable)?;
        if wire.cluster != cluster_text(cluster) {
            return Err(ReadError::Foreign(wire.cluster));
        }
        let mut frontier = Self::default();
        for of in wire.streams {
            let stream = StreamId {
                incarnation: Incarnation(of.incarnation),
                kind: match of.kind {
                    WireKind::Rows => StreamKind::Rows,
                    WireKind::DeadLetters => StreamKind::DeadLetters,
                },
            };
            frontier.streams.insert(stream, of.next);
            if let Some(refused) = of.refused {
                frontier.refused.insert(stream, refused.into());
            }
        }
        Ok(frontier)
    }
}

/// The cluster that a record under another key is of, if it is one of this version.
fn cluster_of(value: &[u8]) -> Option<String> {
    let wire: Wire = serde_json::from_slice(value).ok()?;
    Some(wire.cluster)
}

/// Why the frontier could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// It is another cluster's, this one.
    Foreign(String),
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
    pub(super) cluster: u128,
    pub(super) deadline: Instant,
}

/// What a frontier topic holds.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Empty if there is none.
    pub(super) frontier: Frontier,
    /// Other clusters that write there too, as far as was read.
    pub(super) others: BTreeSet<String>,
}

impl FrontierReader<'_> {
    /// The last committed frontier, empty if there is none. Only what was read after fencing is an answer.
    pub(super) fn read(&self) -> Result<Found, ReadError> {
        let (low, end) = self
            .consumer
            .fetch_watermarks(self.topic, 0, self.remaining())
            .map_err(|error| self.failed(&error))?;
        let mut back = TAIL;
        let mut others = BTreeSet::new();
        loop {
            let start = end.saturating_sub(back).max(low);
            let found = self.scan(start, end, &mut others);
            // Else it would go on fetching.
            let _ = self.consumer.unassign();
            match found? {
                Some(frontier) => return Ok(Found { frontier, others }),
                None if start == low => {
                    let frontier = Frontier::default();
                    return Ok(Found { frontier, others });
                }
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
    fn scan(
        &self,
        start: i64,
        end: i64,
        others: &mut BTreeSet<String>,
    ) -> Result<Option<Frontier>, ReadError> {
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
                Some(Ok(message)) => {
                    let cluster = message.payload().and_then(cluster_of);
                    others.extend(cluster.filter(|it| *it != cluster_text(self.cluster)));
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
        let read = last.map(|value| Frontier::decode(&value, self.cluster));
        read.transpose().map_err(|error| match error {
            ReadError::Unreadable(reason) => {
                ReadError::Unreadable(format!("the frontier in topic {}: {reason}", self.topic))
            }
            error => error,
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
        let frontier = Frontier::of(BTreeMap::from([
            (stream(7, StreamKind::Rows), u64::MAX),
            (stream(7, StreamKind::DeadLetters), 3),
        ]));
        let value = golden::bytes("frontier-2", &frontier.encode(255).unwrap());
        assert_eq!(
            String::from_utf8_lossy(&value),
            r#"{"version":2,"cluster":"000000000000000000000000000000ff","streams":[{"incarnation":7,"kind":"rows","next":18446744073709551615},{"incarnation":7,"kind":"dead_letters","next":3}]}"#
        );
        assert_eq!(Frontier::decode(&value, 255), Ok(frontier.clone()));
        let mut refusals = Refusals::default();
        (0..10).for_each(|seq| {
            refusals.add(RefusedRow {
                seq,
                bytes: 600_000,
            })
        });
        let refused = BTreeMap::from([(stream(7, StreamKind::Rows), refusals)]);
        let frontier = Frontier {
            refused,
            ..frontier
        };
        let value = golden::bytes("frontier-3", &frontier.encode(255).unwrap());
        let read = Frontier::decode(&value, 255).unwrap();
        assert_eq!(read, frontier);
        let of_rows = &read.refused[&stream(7, StreamKind::Rows)];
        assert_eq!((of_rows.count, of_rows.last.len()), (10, 8));
        assert_eq!((of_rows.last[0].seq, of_rows.last[7].seq), (2, 9));
    }

    #[test]
    fn another_clusters_record_is_not_taken_for_ours() {
        let value = Frontier::default().encode(255).unwrap();
        let error = Frontier::decode(&value, 7).unwrap_err();
        assert_eq!(error, ReadError::Foreign(cluster_text(255)));
    }

    #[test]
    fn another_version_is_refused_with_both_versions_and_what_to_do() {
        for (found, what_to_do) in [(1, "not carried over"), (4, "upgrade it")] {
            let value = format!(r#"{{"version":{found},"x":1}}"#);
            let error = Frontier::decode(value.as_bytes(), 7).unwrap_err();
            let ReadError::Unreadable(text) = error else {
                panic!("{error:?}");
            };
            assert!(text.contains(&format!(
                "version {found}, this program reads versions 2 and 3"
            )));
            assert!(text.contains(what_to_do), "{text}");
        }
    }

    #[test]
    fn a_stream_never_published_starts_at_0() {
        assert_eq!(Frontier::default().next(stream(1, StreamKind::Rows)), 0);
    }
}
