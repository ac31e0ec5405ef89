//! What must not be the same: topics, transactional ids and addresses that would get into each other's way.

use super::cluster::{ClusterSettings, NodeSettings};
use super::endpoint::{KafkaSink, SinkConfig, SinkKind, SourceConfig, SourceKind};
use super::problem::ConfigProblem;
use super::section::Section;

/// Sinks beside sources, and beside each other; each with its place in the file.
pub fn check_sinks(
    root: &mut Section<'_>,
    sources: &[(usize, SourceConfig)],
    sinks: &[(usize, SinkConfig)],
) {
    for (at, (index, sink)) in sinks.iter().enumerate() {
        let SinkKind::Kafka(kafka) = &sink.kind;
        for (_, source) in sources {
            check_loop(root, *index, kafka, source);
        }
        for (_, other) in &sinks[..at] {
            let SinkKind::Kafka(theirs) = &other.kind;
            if share_broker(&kafka.brokers, &theirs.brokers) {
                check_pair(root, *index, kafka, &other.name, theirs);
            }
        }
    }
}

/// What is written must not be read again: each row would be a new record.
fn check_loop(root: &mut Section<'_>, index: usize, sink: &KafkaSink, source: &SourceConfig) {
    let SourceKind::Kafka(read) = &source.kind else {
        return;
    };
    if !share_broker(&sink.brokers, &read.brokers) {
        return;
    }
    for (key, topic) in topics(sink) {
        if *topic == read.topic {
            root.problem(
                &format!("sink[{index}].kafka.{key}"),
                format!(
                    "\"{topic}\" is what source \"{}\" reads: what is published would be read again; name another topic",
                    source.name
                ),
            );
        }
    }
}

fn check_pair(
    root: &mut Section<'_>,
    index: usize,
    sink: &KafkaSink,
    other: &str,
    theirs: &KafkaSink,
) {
    let place = format!("sink[{index}].kafka");
    if sink.transactional_id == theirs.transactional_id {
        root.problem(
            &format!("{place}.transactional_id"),
            format!(
                "\"{}\" is that of sink \"{other}\" too: each would fence the other for ever; use another",
                sink.transactional_id
            ),
        );
    }
    for (key, topic) in topics(sink) {
        let is_frontier = key == "frontier_topic";
        let taken = topics(theirs).into_iter().any(|(their_key, name)| {
            name == topic && (their_key == "frontier_topic") != is_frontier
        });
        if taken {
            root.problem(
                &format!("{place}.{key}"),
                format!("\"{topic}\" has another use in sink \"{other}\"; a frontier topic holds nothing else"),
            );
        }
    }
}

fn topics(sink: &KafkaSink) -> Vec<(&'static str, &String)> {
    let mut topics = vec![
        ("topic", &sink.topic),
        ("frontier_topic", &sink.frontier_topic),
    ];
    topics.extend(
        sink.dead_letters
            .iter()
            .map(|topic| ("dead_letters", topic)),
    );
    topics
}

/// Whether two lists of brokers are of one Kafka cluster, as far as names tell.
fn share_broker(left: &str, right: &str) -> bool {
    let brokers = |list: &str| -> Vec<String> {
        let parts = list.split(',').map(|part| part.trim().to_lowercase());
        parts.filter(|part| !part.is_empty()).collect()
    };
    let right = brokers(right);
    brokers(left).iter().any(|broker| right.contains(broker))
}

/// The port on which queries are answered must be no port of peers.
pub fn check_ports(root: &mut Section<'_>, node: &NodeSettings, cluster: &ClusterSettings) {
    for (member, address) in &cluster.peers {
        let own = *member == node.id;
        if node.http == *address || (own && is_one_port(&node.http, address)) {
            let whose = if own {
                "this node's own".to_owned()
            } else {
                format!("member {member}'s")
            };
            let message = format!(
                "\"{}\" is {whose} address for peers (cluster.peers[{member}] = \"{address}\"); use another port",
                node.http
            );
            let problem = ConfigProblem::new(root.file(), "node.http", message);
            root.problems().push(problem);
        }
    }
}

/// Whether two listeners on this machine would want one port: one of them may listen on all addresses.
fn is_one_port(left: &str, right: &str) -> bool {
    let (Some((left_host, left_port)), Some((right_host, right_port))) =
        (left.rsplit_once(':'), right.rsplit_once(':'))
    else {
        return false;
    };
    let all = |host: &str| matches!(host, "0.0.0.0" | "[::]");
    left_port == right_port && (left_host == right_host || all(left_host) || all(right_host))
}
