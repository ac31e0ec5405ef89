//! What clients of Kafka are told: one list for sources and sinks, for the client itself and for the check of a config.

use Role::{Admin, Publisher, Readback, Source, Watcher};

/// What a client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads a topic's records.
    Source,
    /// Asks where a topic's partitions end: all that was appended counts, committed or not.
    Watcher,
    /// Writes rows.
    Publisher,
    /// Reads back how far was published.
    Readback,
    /// Makes topics.
    Admin,
}

const ALL: &[Role] = &[Source, Watcher, Publisher, Readback, Admin];
const READERS: &[Role] = &[Source, Readback];
const SINKS: &[Role] = &[Publisher, Readback, Admin];

/// A property that users cannot set.
#[derive(Debug)]
pub struct Fixed {
    /// Its name in librdkafka.
    pub name: &'static str,
    /// What it is set to; `None`: it is not set, or set by another key of the config.
    pub value: Option<&'static str>,
    why: &'static str,
    roles: &'static [Role],
}

impl Fixed {
    /// For people: what it is, and why.
    #[must_use]
    pub fn reason(&self) -> String {
        match self.value {
            Some(value) => format!("{value}: {}", self.why),
            None => self.why.to_owned(),
        }
    }
}

const fn fixed(
    roles: &'static [Role],
    name: &'static str,
    value: Option<&'static str>,
    why: &'static str,
) -> Fixed {
    Fixed {
        name,
        value,
        why,
        roles,
    }
}

const IN_THE_LOG: &str = "positions are agreed in the Raft log";
const ASSIGNED: &str = "partitions are assigned, not shared in a group";
const DURABLE: &str = "a published row must survive the loss of a broker";

/// What decides which bytes are read and by whom, on every replica alike, and what publishing exactly once rests on.
const FIXED: &[Fixed] = &[
    fixed(
        READERS,
        "isolation.level",
        Some("read_committed"),
        "records of aborted transactions must not count",
    ),
    fixed(
        READERS,
        "check.crcs",
        Some("true"),
        "damaged bytes must not count",
    ),
    fixed(
        READERS,
        "auto.offset.reset",
        Some("error"),
        "offsets are never skipped silently",
    ),
    fixed(READERS, "enable.auto.commit", Some("false"), IN_THE_LOG),
    fixed(
        READERS,
        "enable.auto.offset.store",
        Some("false"),
        IN_THE_LOG,
    ),
    fixed(READERS, "auto.commit.interval.ms", None, IN_THE_LOG),
    fixed(
        READERS,
        "enable.partition.eof",
        Some("true"),
        "it tells that a partition's end was reached",
    ),
    // librdkafka assigns partitions only to consumers that have one. No group is joined, and no offset is committed.
    fixed(READERS, "group.id", Some("unisono-assigned"), ASSIGNED),
    fixed(READERS, "group.instance.id", None, ASSIGNED),
    fixed(READERS, "partition.assignment.strategy", None, ASSIGNED),
    fixed(
        &[Watcher],
        "isolation.level",
        Some("read_uncommitted"),
        "an open transaction holds its lane",
    ),
    fixed(
        &[Publisher],
        "transactional.id",
        None,
        "set by the key transactional_id",
    ),
    fixed(
        &[Publisher],
        "enable.idempotence",
        Some("true"),
        "a row must not be written twice",
    ),
    fixed(&[Publisher], "acks", Some("all"), DURABLE),
    // Another name of the one before.
    fixed(&[Publisher], "request.required.acks", None, DURABLE),
    fixed(
        &[Publisher],
        "enable.gapless.guarantee",
        None,
        "transactions leave no gaps",
    ),
    fixed(ALL, "bootstrap.servers", None, "set by the key brokers"),
    fixed(ALL, "metadata.broker.list", None, "set by the key brokers"),
];

/// What users may change. librdkafka's own defaults are made for few large topics: with them a lane whose queue was full
/// is not fetched again for a second, and a restarted broker is noticed after up to ten.
const DEFAULTS: &[(&[Role], &str, &str)] = &[
    (ALL, "client.id", "unisono"),
    (ALL, "reconnect.backoff.ms", "50"),
    (ALL, "reconnect.backoff.max.ms", "1000"),
    (ALL, "socket.nagle.disable", "true"),
    (&[Source, Publisher], "socket.keepalive.enable", "true"),
    (&[Source], "fetch.queue.backoff.ms", "2"),
    (&[Source], "fetch.error.backoff.ms", "50"),
    // How long the broker holds a request when there is nothing: also how late a lane is seen to be at its end.
    (&[Source], "fetch.wait.max.ms", "50"),
    (&[Source], "topic.metadata.refresh.interval.ms", "30000"),
    // A topic is asked for before it is assigned; when it is gone after that, it was deleted.
    (&[Source], "topic.metadata.propagation.max.ms", "3000"),
    // The whole batch is there when sending begins; waiting for more only costs time.
    (&[Publisher], "linger.ms", "0"),
    (&[Publisher], "partitioner", "murmur2_random"),
    // How long a leader that died can hold back readers of the topic, if no other takes over.
    (&[Publisher], "transaction.timeout.ms", "10000"),
    // The end is told by an empty answer, for which the broker waits so long.
    (&[Readback], "fetch.wait.max.ms", "2"),
    (&[Readback], "allow.auto.create.topics", "false"),
];

/// Beginnings of the names of properties that all clients of a broker share, whatever they do: addresses and security.
/// A source's reader and a sink's publisher are given all that the user sets, the others these.
const CONNECTION: [&str; 10] = [
    "security.",
    "sasl.",
    "enable.sasl.",
    "ssl.",
    "enable.ssl.",
    "https.",
    "socket.",
    "reconnect.",
    "broker.",
    "client.",
];

impl Role {
    /// The properties of such a client that users cannot set.
    pub fn fixed(self) -> impl Iterator<Item = &'static Fixed> {
        FIXED
            .iter()
            .filter(move |fixed| fixed.roles.contains(&self))
    }

    /// The properties of such a client that users can change.
    pub fn defaults(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        DEFAULTS
            .iter()
            .filter(move |(roles, ..)| roles.contains(&self))
            .map(|&(_, name, value)| (name, value))
    }

    /// Whether such a client is given a property that the user sets.
    #[must_use]
    pub fn takes(self, name: &str) -> bool {
        matches!(self, Source | Publisher)
            || CONNECTION.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// Why a source's property cannot be set, if so.
#[must_use]
pub fn fixed_for_sources(name: &str) -> Option<String> {
    reason(&[Source], name)
}

/// Why a sink's property cannot be set, if so.
#[must_use]
pub fn fixed_for_sinks(name: &str) -> Option<String> {
    reason(SINKS, name)
}

/// For people: what to do about a property that is fixed for that reason.
#[must_use]
pub fn is_fixed(reason: String) -> String {
    format!("is fixed ({reason}); remove it")
}

fn reason(roles: &[Role], name: &str) -> Option<String> {
    let mut fixed = roles.iter().flat_map(|role| role.fixed());
    fixed.find(|fixed| fixed.name == name).map(Fixed::reason)
}
