//! Settings of this node, its cluster and its results.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::{Table, Value};

use super::section::Section;
use super::units;
use crate::room::LEAST_BUDGET;

/// Far more than a healthy cluster's log takes.
const MAX_LOG: u64 = 4 << 30;

/// This node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Unique in the cluster, 1 to 65535.
    pub id: u16,
    /// Host and port on which queries are answered.
    pub http: String,
    /// Threads that decode and fold records.
    pub workers: usize,
    /// Bytes that the state of all feeds may take in memory; beyond, the coldest goes to disk. `None`: as many as there are.
    pub state_memory: Option<u64>,
}

/// The cluster's members and how fast it moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Every member's number and the address of its Raft port, this node's too.
    pub peers: BTreeMap<u16, String>,
    /// Where other members answer queries; can be empty.
    pub http_peers: BTreeMap<u16, String>,
    /// The file with what only members know; relative to the config file. Without it whoever reaches a Raft port is a peer.
    pub secret_file: Option<PathBuf>,
    /// How often the leader shows that it is there.
    pub heartbeat: Duration,
    /// Least and greatest time without a leader before a member stands for election.
    pub election_timeout: (Duration, Duration),
    /// Time between two ticks while records come; with a backlog the next one follows at once.
    pub tick_interval: Duration,
    /// How often the state is saved, which bounds what a restart replays.
    pub checkpoint_interval: Duration,
    /// Entries of the agreed log that are kept below a checkpoint: a replica that was away for less is sent entries,
    /// not state.
    pub keep_log_entries: u64,
    /// Bytes that the agreed log may take: beyond, nothing is kept below a checkpoint, and what still holds it is said.
    pub max_log: u64,
    /// Bytes by which one tick moves a lane at most, each record's place counted in.
    pub tick_bytes: usize,
    /// Bytes that this node may hold of records that were read and not taken in yet: of all lanes of all sources
    /// together, what Kafka's client holds included.
    pub read_ahead: usize,
}

impl ClusterSettings {
    /// Whether all members are on this machine, by their addresses as they are written.
    #[must_use]
    pub fn is_on_loopback(&self) -> bool {
        self.peers.values().all(|address| {
            let host = address.rsplit_once(':').map_or("", |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let parsed = host.parse::<std::net::IpAddr>();
            host == "localhost" || parsed.is_ok_and(|host| host.is_loopback())
        })
    }
}

/// What is kept of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultsSettings {
    /// Bytes of published rows kept for each pipeline.
    pub max_bytes: u64,
    /// Bytes of rows and dead letters of a pipeline that may wait to be published before its feed takes in nothing more.
    pub max_unpublished: u64,
}

/// Checks `host:port`.
///
/// # Errors
/// What is wrong with the address.
pub fn check_address(text: &str) -> Result<(), String> {
    let refuse = |what: &str| Err(format!("\"{text}\" {what}; write \"127.0.0.1:8101\""));
    let Some((host, port)) = text.rsplit_once(':') else {
        return refuse("has no port");
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || host.contains(char::is_whitespace) || (host.contains(':') && !bracketed) {
        return refuse("has no usable host");
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(()),
        _ => refuse("has no port from 1 to 65535"),
    }
}

/// Reads `[node]`; `None` after reporting what is wrong.
pub fn read_node(root: &mut Section<'_>) -> Option<NodeSettings> {
    root.require("node", "[node] with id and http");
    let table = root.table("node")?;
    let mut section = root.section("node", table);
    section.require("id", "id = 1, a number unique in the cluster");
    let id = section
        .integer("id", 1..=i64::from(u16::MAX))
        .and_then(|id| u16::try_from(id).ok());
    section.require(
        "http",
        "http = \"127.0.0.1:8101\", where this node answers queries",
    );
    let http = section.parsed("http", |text| check_address(text).map(|()| text.to_owned()));
    let workers = section
        .integer("workers", 1..=1024)
        .and_then(|workers| usize::try_from(workers).ok());
    let state_memory = section.bytes("state_memory");
    if state_memory.is_some_and(|bytes| bytes < LEAST_BUDGET) {
        section.problem("state_memory", "must be at least 1MiB");
    }
    section.finish();
    Some(NodeSettings {
        id: id?,
        http: http?,
        workers: workers.unwrap_or_else(cores),
        state_memory,
    })
}

/// What the system lets this process use; one where it does not tell.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Reads `[cluster]`; `None` after reporting what is wrong.
pub fn read_cluster(root: &mut Section<'_>, id: Option<u16>) -> Option<ClusterSettings> {
    root.require("cluster", "[cluster] with peers");
    let table = root.table("cluster")?;
    let mut section = root.section("cluster", table);
    section.require(
        "peers",
        "peers = { 1 = \"127.0.0.1:8201\" } with every member, this node too",
    );
    let peers = read_members(&mut section, "peers");
    let http_peers = read_members(&mut section, "http_peers");
    check_members(&mut section, &peers, &http_peers, id);
    let secret_file = section.string("secret_file").map(PathBuf::from);
    let heartbeat = section
        .duration("heartbeat")
        .unwrap_or(Duration::from_millis(100));
    let election_timeout = read_election_timeout(&mut section)
        .unwrap_or((Duration::from_millis(500), Duration::from_millis(1000)));
    check_pace(&mut section, heartbeat, election_timeout);
    let tick_interval = positive(&mut section, "tick_interval", Duration::from_millis(25));
    if tick_interval > Duration::from_millis(500) {
        section.problem(
            "tick_interval",
            "must be at most 500ms: ticks come at least that often",
        );
    }
    let checkpoint_interval =
        positive(&mut section, "checkpoint_interval", Duration::from_secs(30));
    let keep_log_entries = section
        .integer("keep_log_entries", 0..=i64::from(u32::MAX))
        .and_then(|entries| u64::try_from(entries).ok())
        .unwrap_or(20_000);
    let max_log = section.bytes("max_log").unwrap_or(MAX_LOG);
    let tick_bytes = read_size(&mut section, "tick_bytes", 8 << 20);
    let read_ahead = read_size(&mut section, "read_ahead", 64 << 20);
    section.finish();
    Some(ClusterSettings {
        peers,
        http_peers,
        secret_file,
        heartbeat,
        election_timeout,
        tick_interval,
        checkpoint_interval,
        keep_log_entries,
        max_log,
        tick_bytes,
        read_ahead,
    })
}

/// Reads `[results]`.
pub fn read_results(root: &mut Section<'_>) -> ResultsSettings {
    let table = root.table("results").unwrap_or_default();
    let mut section = root.section("results", table);
    let max_bytes = section.bytes("max_bytes").unwrap_or(1 << 30);
    if max_bytes < 1 << 20 {
        section.problem("max_bytes", "must be at least 1MiB");
    }
    let max_unpublished = section.bytes("max_unpublished").unwrap_or(4 << 30);
    if max_unpublished < 1 << 20 {
        section.problem("max_unpublished", "must be at least 1MiB");
    }
    section.finish();
    ResultsSettings {
        max_bytes,
        max_unpublished,
    }
}

fn positive(section: &mut Section<'_>, key: &'static str, default: Duration) -> Duration {
    match section.duration(key) {
        Some(Duration::ZERO) => {
            section.problem(key, "must be greater than 0");
            default
        }
        Some(duration) => duration,
        None => default,
    }
}

/// Sizes of buffers: 4 KiB holds a record, and beyond 1 GiB a block's positions end.
fn read_size(section: &mut Section<'_>, key: &'static str, default: usize) -> usize {
    match section.bytes(key).map(usize::try_from) {
        None => default,
        Some(Ok(size)) if (4 << 10..=1 << 30).contains(&size) => size,
        Some(_) => {
            section.problem(key, "must be 4KiB to 1GiB");
            default
        }
    }
}

fn read_members(section: &mut Section<'_>, key: &'static str) -> BTreeMap<u16, String> {
    let table: Table = section.table(key).unwrap_or_default();
    let mut members = BTreeMap::new();
    for (number, address) in table {
        let place = format!("{key}[{number}]");
        let id = match number.parse::<u16>() {
            Ok(id) if id > 0 => id,
            _ => {
                section.problem(&place, "a member's number must be 1 to 65535");
                continue;
            }
        };
        match address {
            Value::String(address) => match check_address(&address) {
                Ok(()) => {
                    members.insert(id, address);
                }
                Err(message) => section.problem(&place, message),
            },
            other => {
                let _: Option<()> = section.wrong_type(&place, "an address in quotes", &other);
            }
        }
    }
    members
}

fn check_members(
    section: &mut Section<'_>,
    peers: &BTreeMap<u16, String>,
    http_peers: &BTreeMap<u16, String>,
    id: Option<u16>,
) {
    if let Some(id) = id
        && !peers.is_empty()
        && !peers.contains_key(&id)
    {
        section.problem(
            "peers",
            format!("lacks this node; add {id} = its own Raft address"),
        );
    }
    for (key, members) in [("peers", peers), ("http_peers", http_peers)] {
        let mut seen = BTreeMap::new();
        for (member, address) in members {
            if let Some(other) = seen.insert(address, member) {
                let message = format!("members {other} and {member} have one address, {address}");
                section.problem(key, message);
            }
        }
    }
    for member in http_peers
        .keys()
        .filter(|member| !peers.contains_key(member))
    {
        section.problem(
            "http_peers",
            format!("member {member} is not among the peers"),
        );
    }
}

fn read_election_timeout(section: &mut Section<'_>) -> Option<(Duration, Duration)> {
    let texts = section.strings("election_timeout")?;
    let [least, greatest] = texts.as_slice() else {
        section.problem(
            "election_timeout",
            "must be two durations, as [\"500ms\", \"1s\"]",
        );
        return None;
    };
    match (
        units::parse_duration(least),
        units::parse_duration(greatest),
    ) {
        (Ok(least), Ok(greatest)) if least < greatest => Some((least, greatest)),
        (Ok(_), Ok(_)) => {
            section.problem(
                "election_timeout",
                "the first duration must be less than the second",
            );
            None
        }
        (Err(message), _) | (_, Err(message)) => {
            section.problem("election_timeout", message);
            None
        }
    }
}

fn check_pace(section: &mut Section<'_>, heartbeat: Duration, election: (Duration, Duration)) {
    if heartbeat.is_zero() {
        section.problem("heartbeat", "must be greater than 0");
    }
    if election.0 < heartbeat * 2 {
        let message = "must be at least twice the heartbeat, or one late heartbeat is an election";
        section.problem("election_timeout", message);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::check_address;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:8101", "unisono-1.unisono:80", "[::1]:8101"] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "8101",
            "host",
            "host:",
            "host:0",
            "host:70000",
            ":80",
            "::1:80",
            "a b:1",
        ] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
    }
}
