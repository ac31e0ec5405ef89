//! Sinks and their routing are agreed; a sink is one cluster's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono::publish::sink::kafka::{KafkaSink, KafkaSinkConfig};
use unisono::publish::sink::{Frontier, Sink};
use unisono_engine::row::{Incarnation, StreamId, StreamKind};
use unisono_tests::kafka::TestBroker;

use super::*;

pub(super) fn sink(broker: &TestBroker, name: &str, topic: &str, more: &str) -> String {
    format!(
        "[[sink]]\nname = \"{name}\"\nkafka = {{ brokers = \"{}\", topic = \"{topic}-rows\", frontier_topic = \"{topic}-frontier\", \
         transactional_id = \"{topic}\"{more} }}\n",
        broker.address()
    )
}

/// Waits until a topic has so many committed records; it never has more.
pub(super) fn wait_records(
    replicas: &mut Replicas,
    broker: &TestBroker,
    topic: &str,
    count: usize,
) {
    let look = |_: &Served| {
        let found = broker.read_committed(topic).ok()?.len();
        assert!(found <= count, "{found} records in {topic}");
        (found == count).then_some(())
    };
    let what = format!("{count} records in {topic}");
    replicas.running[0].wait(&what, look).unwrap();
}

/// An event that nobody can use.
fn bad(replicas: &Replicas) {
    let mut options = OpenOptions::new();
    let path = replicas.dir.path().join("in/0.ndjson");
    let mut file = options.append(true).open(path).unwrap();
    file.write_all(b"{\"t\":\"never\",\"g\":\"x\"}\n").unwrap();
}

#[test]
fn a_sink_that_gets_a_place_for_dead_letters_goes_on_and_gets_those_from_then_on() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let p = pipeline("p", 1, "sink = \"out\"");
    let before = format!("{}{p}", sink(broker, "out", "letters", ""));
    let letters = ", dead_letters = \"letters-dead\"";
    let after = format!("{}{p}", sink(broker, "out", "letters", letters));
    let mut replicas = Replicas::start(1, &before);
    replicas.events(0..5);
    bad(&replicas);
    replicas.events(5..10);
    wait_records(&mut replicas, broker, "letters-rows", 9);

    replicas.restart(1, &after);
    replicas.events(10..20);
    wait_records(&mut replicas, broker, "letters-rows", 19);
    replicas.all("the sink's drift", |cluster| {
        drifts(cluster, 1, "out", "differs")
    });
    replicas.node(1).wait_ready(200, "true").unwrap();

    let config = replicas.config(1);
    let said = succeeds(replicas.node(1), &["apply", path(&config)]);
    assert!(said.contains("sink out: changed"), "{said}");
    assert!(said.contains("pipeline p: is agreed so already"), "{said}");
    bad(&replicas);
    replicas.events(20..30);
    wait_records(&mut replicas, broker, "letters-rows", 29);
    // The first one went the built-in way, before.
    wait_records(&mut replicas, broker, "letters-dead", 1);
    replicas.all("no drift", |cluster| {
        cluster["drifts"] == Value::Array(vec![])
    });
    // A publisher that begins anew finds the frontier of both.
    replicas.restart(1, &after);
    bad(&replicas);
    replicas.events(30..40);
    wait_records(&mut replicas, broker, "letters-rows", 39);
    wait_records(&mut replicas, broker, "letters-dead", 2);
}

#[test]
fn a_sink_that_is_renamed_in_the_files_publishes_on_and_is_renamed_by_command() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let files = |name: &str, more: &str| {
        let p = pipeline("p", 1, &format!("sink = \"{name}\""));
        format!("{}{p}", sink(broker, name, "renamed", more))
    };
    let mut replicas = Replicas::start(NODES, &files("old", ""));
    replicas.events(0..5);
    wait_records(&mut replicas, broker, "renamed-rows", 4);
    for node in 1..=NODES {
        replicas.restart(node, &files("new", ""));
        replicas.node(node).wait_ready(200, "true").unwrap();
    }
    replicas.events(5..10);
    wait_records(&mut replicas, broker, "renamed-rows", 9);
    replicas.all("all files drift", |cluster| {
        (1..=NODES).all(|node| drifts(cluster, node, "new", "renamed"))
    });
    let incarnation = info(replicas.node(1), "p").unwrap()["incarnation"].clone();
    let config = replicas.config(2);
    let said = succeeds(replicas.node(2), &["apply", path(&config)]);
    assert!(said.contains("sink new: renamed, it was old"), "{said}");
    replicas.all("no drift", |cluster| {
        cluster["drifts"] == Value::Array(vec![])
    });
    replicas.events(10..15);
    wait_records(&mut replicas, broker, "renamed-rows", 14);
    assert_eq!(
        info(replicas.node(1), "p").unwrap()["incarnation"],
        incarnation
    );

    // What publishing is known under never changes.
    let other =
        files("new", "").replace("transactional_id = \"renamed\"", "transactional_id = \"x\"");
    let file = replicas.dir.path().join("other.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let (head, _) = text.split_once("[[sink]]").unwrap();
    std::fs::write(&file, format!("{head}{other}")).unwrap();
    let refused = fails(replicas.node(1), &["apply", path(&file)]);
    assert!(refused.contains("which never changes"), "{refused}");
}

#[test]
fn a_new_cluster_at_an_old_sink_says_whose_it_is_and_drops_no_row_into_it() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let p = pipeline("p", 1, "sink = \"out\"");
    let files = format!("{}{p}", sink(broker, "out", "wiped", ""));
    let mut replicas = Replicas::start(1, &files);
    replicas.events(0..15);
    wait_records(&mut replicas, broker, "wiped-rows", 14);
    let first = cluster(replicas.node(1)).unwrap()["cluster"].clone();
    assert_eq!(replicas.node(1).terminate().unwrap(), 0);
    std::fs::remove_dir_all(replicas.folder(1).join("data")).unwrap();
    let served = replicas.served(1, &files);
    *replicas.node(1) = served;
    let told = format!("belongs to cluster {}", first.as_str().unwrap());
    replicas.node(1).wait_ready(503, &told).unwrap();
    let second = cluster(replicas.node(1)).unwrap()["cluster"].clone();
    assert_ne!(first, second);
    let status = succeeds(replicas.node(1), &["status"]);
    assert!(status.contains(&told), "{status}");
    assert!(status.contains(second.as_str().unwrap()), "{status}");
    replicas.events(15..30);
    let computed = |served: &Served| (info(served, "p").ok()?["next_seq"] == 29).then_some(());
    replicas.node(1).wait("29 rows computed", computed).unwrap();
    assert_eq!(broker.read_committed("wiped-rows").unwrap().len(), 14);
    assert_eq!(
        info(replicas.node(1), "p").unwrap()["published"],
        Value::Null
    );
    // With a sink of its own, all of its rows come, the first ones too.
    let own = format!("{}{p}", sink(broker, "own", "wiped-own", ""));
    let own = own.replace("sink = \"out\"", "sink = \"own\"");
    replicas.restart(1, &own);
    let config = replicas.config(1);
    succeeds(replicas.node(1), &["apply", path(&config)]);
    wait_records(&mut replicas, broker, "wiped-own-rows", 29);
}

#[test]
fn a_sink_that_has_more_than_was_ever_computed_is_left_alone_for_good() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let p = pipeline("p", 1, "sink = \"out\"");
    let files = format!("{}{p}", sink(broker, "out", "ahead", ""));
    let mut replicas = Replicas::start(1, &files);
    replicas.events(0..15);
    wait_records(&mut replicas, broker, "ahead-rows", 14);
    // As after data directories were put back from an older copy: the sink is this cluster's, and further.
    let id = cluster(replicas.node(1)).unwrap()["cluster"].clone();
    let incarnation = info(replicas.node(1), "p").unwrap()["incarnation"].as_u64();
    let rows = StreamId {
        incarnation: Incarnation(incarnation.unwrap()),
        kind: StreamKind::Rows,
    };
    let config = KafkaSinkConfig {
        brokers: broker.address(),
        topic: "ahead-rows".into(),
        dead_letter_topic: None,
        frontier_topic: "ahead-frontier".into(),
        transactional_id: "ahead".into(),
        cluster: u128::from_str_radix(id.as_str().unwrap(), 16).unwrap(),
        properties: BTreeMap::new(),
    };
    let mut other = KafkaSink::connect(&config).unwrap();
    other.acquire().unwrap();
    let frontier = Frontier(BTreeMap::from([(rows, 20)]));
    other.publish(&[], &frontier).unwrap();
    drop(other);
    replicas.events(15..17);
    let told = "was published up to row 20, but this cluster has computed rows up to";
    replicas.node(1).wait_ready(503, told).unwrap();
    // That as many are computed later makes the rows there no better.
    replicas.events(17..40);
    let computed = |served: &Served| (info(served, "p").ok()?["next_seq"] == 39).then_some(());
    replicas.node(1).wait("39 rows computed", computed).unwrap();
    // For longer than it takes until a sink is looked at again.
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        replicas.node(1).wait_ready(503, told).unwrap();
        assert_eq!(broker.read_committed("ahead-rows").unwrap().len(), 14);
    }
}
