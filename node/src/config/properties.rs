//! Properties passed on to the Kafka client. Some of them are secrets.

use std::collections::BTreeMap;
use std::fmt;

/// Names and values for the Kafka client. Its `Debug` shows names alone: a value can be a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties {
    entries: BTreeMap<String, String>,
}

impl Properties {
    /// Takes the entries as they are; which names are allowed is checked where they are read.
    #[must_use]
    pub fn new(entries: BTreeMap<String, String>) -> Self {
        Self { entries }
    }

    /// Names and values, ordered by name. Values must not be logged.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value under `name`. It must not be logged.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.entries.keys().map(|name| (name, "***")))
            .finish()
    }
}

/// Why a source's property is fixed: each changes which bytes are read, or who reads them.
const FIXED_FOR_SOURCES: [(&str, &str); 12] = [
    (
        "isolation.level",
        "read_committed: records of aborted transactions must not count",
    ),
    ("check.crcs", "true: damaged bytes must not count"),
    (
        "auto.offset.reset",
        "error: offsets are never skipped silently",
    ),
    (
        "enable.auto.commit",
        "off: positions are agreed in the Raft log",
    ),
    (
        "enable.auto.offset.store",
        "off: positions are agreed in the Raft log",
    ),
    (
        "auto.commit.interval.ms",
        "unused: positions are agreed in the Raft log",
    ),
    (
        "enable.partition.eof",
        "on: it tells that a partition's end was reached",
    ),
    (
        "group.id",
        "unused: partitions are assigned, not shared in a group",
    ),
    (
        "group.instance.id",
        "unused: partitions are assigned, not shared in a group",
    ),
    (
        "partition.assignment.strategy",
        "unused: partitions are assigned, not shared in a group",
    ),
    ("bootstrap.servers", "set by the key brokers"),
    ("metadata.broker.list", "set by the key brokers"),
];

/// Why a sink's property is fixed: each would break publishing exactly once.
const FIXED_FOR_SINKS: [(&str, &str); 9] = [
    ("transactional.id", "set by the key transactional_id"),
    (
        "enable.idempotence",
        "true: a row must not be written twice",
    ),
    (
        "acks",
        "all: a published row must survive the loss of a broker",
    ),
    (
        "request.required.acks",
        "all: a published row must survive the loss of a broker",
    ),
    (
        "enable.gapless.guarantee",
        "unused: transactions leave no gaps",
    ),
    (
        "isolation.level",
        "read_committed: the frontier is read from committed records only",
    ),
    ("group.id", "unused: the frontier's partition is assigned"),
    ("bootstrap.servers", "set by the key brokers"),
    ("metadata.broker.list", "set by the key brokers"),
];

/// What Unisono sets `name` to in a source's client, and why, if it does not leave it to the user.
#[must_use]
pub fn fixed_for_sources(name: &str) -> Option<&'static str> {
    reason(&FIXED_FOR_SOURCES, name)
}

/// What Unisono sets `name` to in a sink's client, and why, if it does not leave it to the user.
#[must_use]
pub fn fixed_for_sinks(name: &str) -> Option<&'static str> {
    reason(&FIXED_FOR_SINKS, name)
}

fn reason(fixed: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    fixed
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, reason)| *reason)
}
