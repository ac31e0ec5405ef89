//! A row that a sink refuses for its size is left out, named, and passed by all who publish.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use unisono_tests::kafka::{Committed, TestBroker};

use super::sinks::{sink, wait_records};
use super::*;

/// With its key, twice as much in a row: more than the topic takes, and no more than a group may have.
fn large() -> String {
    "y".repeat(1_000)
}

fn header(record: &Committed, name: &str) -> String {
    let mut headers = record.headers.iter();
    let found = headers.find(|(key, _)| key == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

impl Replicas {
    fn event(&self, second: i64, group: &str) {
        let mut options = OpenOptions::new();
        let path = self.dir.path().join("in/0.ndjson");
        let mut file = options.append(true).open(path).unwrap();
        file.write_all(event(second, group).as_bytes()).unwrap();
    }

    /// Waits until the leader shows that the sink lacks rows of both pipelines: the numbers of those of `p`, how many of `q`.
    fn wait_refused(&mut self, of_p: &[u64], of_q: u64) {
        let leader = self.leader();
        let look = |served: &Served| {
            let cluster = cluster(served).ok()?;
            let refused = cluster["sinks"][0]["refused"].as_array()?.clone();
            let of = |name: &str| refused.iter().find(|it| it["pipeline"] == name).cloned();
            let (p, q) = (of("p")?, of("q")?);
            let last = p["last"].as_array()?.iter();
            let last: Vec<_> = last.filter_map(|row| row["seq"].as_u64()).collect();
            (p["count"] == of_p.len() && last == of_p && q["count"] == of_q).then_some(())
        };
        self.node(leader).wait("refused rows", look).unwrap();
        let (_, metrics) = self.node(leader).get("/metrics").unwrap();
        assert!(metrics.contains("unisono_sink_refused_rows{"), "{metrics}");
        self.node(leader).wait_ready(200, "true").unwrap();
    }
}

/// All numbers of a pipeline's rows in the topic; each is there once.
fn numbers(broker: &TestBroker, topic: &str, pipeline: &str) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for record in broker.read_committed(topic).unwrap() {
        if header(&record, "pipeline") == pipeline {
            let seq = header(&record, "seq").parse().unwrap();
            assert!(numbers.insert(seq), "row {seq} of {pipeline} twice");
        }
    }
    numbers
}

#[test]
fn a_row_that_a_sink_refuses_is_left_out_and_named_and_all_others_of_the_sink_go_on() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    // So little that rows which fit one by one are refused together.
    let few = [("max.message.bytes", "2000")];
    broker.create_topic_with("refused-rows", 1, &few).unwrap();
    let letters = ", dead_letters = \"refused-dead\"";
    let files = format!(
        "{}{}{}",
        sink(broker, "out", "refused", letters),
        pipeline("p", 1, "sink = \"out\""),
        pipeline("q", 2, "sink = \"out\"")
    );
    let mut replicas = Replicas::start(3, &files);
    replicas.events(0..50);
    replicas.event(50, &large());
    replicas.events(51..100);
    // Of p one of 99, of q one of 50: its window has two groups.
    wait_records(&mut replicas, broker, "refused-rows", 98 + 49);
    wait_records(&mut replicas, broker, "refused-dead", 2);
    replicas.wait_refused(&[50], 1);
    let notes = broker.read_committed("refused-dead").unwrap();
    let note = notes.iter().map(|note| {
        assert_eq!(header(note, "kind"), "refused");
        serde_json::from_slice::<Value>(note.payload.as_ref().unwrap()).unwrap()
    });
    let note: Vec<Value> = note.filter(|note| note["pipeline"] == "p").collect();
    assert_eq!((note.len(), &note[0]["seq"]), (1, &Value::from(50)));
    assert!(note[0]["bytes"].as_u64() > Some(2000), "{note:?}");

    // Who leads next knows of it from the sink, and passes the next one alike.
    let leader = replicas.leader();
    replicas.restart(leader, &files);
    replicas.events(100..120);
    replicas.event(120, &large());
    replicas.events(121..150);
    wait_records(&mut replicas, broker, "refused-rows", 147 + 74);
    replicas.wait_refused(&[50, 120], 2);
    let expected: BTreeSet<u64> = (0..149).filter(|seq| ![50, 120].contains(seq)).collect();
    assert_eq!(numbers(broker, "refused-rows", "p"), expected);
    assert_eq!(broker.read_committed("refused-dead").unwrap().len(), 4);
    // Each replica has them all the same.
    replicas.published("p", 149);
}

#[test]
fn a_topic_that_takes_no_row_at_all_is_named_and_nothing_is_left_out() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let none = [("max.message.bytes", "150")];
    broker.create_topic_with("none-rows", 1, &none).unwrap();
    let files = format!(
        "{}{}",
        sink(broker, "out", "none", ""),
        pipeline("p", 1, "sink = \"out\"")
    );
    let mut replicas = Replicas::start(1, &files);
    replicas.events(0..20);
    let told = "topic none-rows does not take even row 0 of pipeline p";
    replicas.node(1).wait_ready(503, told).unwrap();
    assert_eq!(broker.read_committed("none-rows").unwrap().len(), 0);
}

/// The rows of `p` that are not in the sink, as its leader shows it, and as its topic for dead letters has it.
fn left_out(replicas: &mut Replicas, broker: &TestBroker) -> (u64, Vec<u64>) {
    let leader = replicas.leader();
    let shown = cluster(replicas.node(leader)).unwrap();
    let refused = shown["sinks"][0]["refused"].as_array().cloned();
    let count = refused
        .iter()
        .flatten()
        .filter_map(|it| it["count"].as_u64());
    let notes = broker.read_committed("moved-dead").unwrap();
    let seq = |note: &Committed| {
        let note: Value = serde_json::from_slice(note.payload.as_ref().unwrap()).unwrap();
        note["seq"].as_u64().unwrap()
    };
    (count.sum(), notes.iter().map(seq).collect())
}

/// Leaders die when they have just seen that a row is refused, when they have passed it, or at any moment, and whoever leads next
/// would have it taken.
#[test]
fn a_row_that_one_leader_leaves_out_and_the_next_would_publish_is_in_the_sink_once_or_named_once() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    const LIMIT: &str = "max.message.bytes";
    broker.create_topic("moved-rows", 1).unwrap();
    let files = format!(
        "{}{}",
        sink(broker, "out", "moved", ", dead_letters = \"moved-dead\""),
        pipeline("p", 1, "sink = \"out\"")
    );
    let mut replicas = Replicas::start(3, &files);
    replicas.events(0..10);
    wait_records(&mut replicas, broker, "moved-rows", 9);
    let said = "the row is left out";
    let mut seen = (0, 0);
    for round in 1..=8 {
        let (at, leader) = (round * 10, replicas.leader());
        broker.set_topic("moved-rows", LIMIT, "2000").unwrap();
        let before = replicas.node(leader).said().matches(said).count();
        let passed = left_out(&mut replicas, broker).1.len();
        replicas.event(at, &large());
        replicas.events(at + 1..at + 10);
        let moment = Instant::now() + Duration::from_millis(10) * u32::try_from(round).unwrap();
        let dies = |served: &Served| match round % 3 {
            0 => served.said().matches(said).count() > before,
            1 => broker.read_committed("moved-dead").unwrap().len() > passed,
            _ => Instant::now() >= moment,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !dies(replicas.node(leader)) {
            assert!(Instant::now() < deadline, "round {round}");
            std::thread::sleep(Duration::from_millis(1));
        }
        replicas.kill(leader);
        broker.set_topic("moved-rows", LIMIT, "1000000").unwrap();
        replicas.node(leader).start();
        let rows = u64::try_from(at + 9).unwrap();
        replicas.published("p", rows);
        let all = |_: &Served| {
            let there = numbers(broker, "moved-rows", "p");
            (there.last() == Some(&(rows - 1))).then_some(there)
        };
        let there = replicas.running[0].wait("the last row", all).unwrap();
        let (count, named) = left_out(&mut replicas, broker);
        let missing: Vec<u64> = (0..rows).filter(|seq| !there.contains(seq)).collect();
        assert_eq!(named, missing, "named, and not in the sink");
        assert_eq!(count, missing.len() as u64, "the frontier names as many");
        seen = (
            missing.len(),
            usize::try_from(round).unwrap() - missing.len(),
        );
    }
    println!("left out, taken later: {seen:?}");
    assert!(seen.0 >= 3, "three leaders died after it");
}
