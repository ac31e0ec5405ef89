//! The same on a real broker.

use std::time::{Duration, Instant};

use rdkafka::producer::Producer;
use unisono_tests::kafka::{Denied, Outcome, TestBroker};
use unisono_tests::serve::{Addresses, PATIENCE, PIPELINE, Served, event};

use super::{lag, lanes, rows, wait_lanes};

fn streams(broker: &TestBroker, topic: &str, reader: &str) -> String {
    format!(
        "[[source]]\nname = \"events\"\nkafka = {{ brokers = \"{}\", topic = \"{topic}\", \
         start = \"earliest\", reader = \"{reader}\" }}\n{PIPELINE}",
        broker.address()
    )
}

fn on_topic(broker: &TestBroker, topic: &str) -> (tempfile::TempDir, Served) {
    read_by(broker, topic, "direct")
}

fn read_by(broker: &TestBroker, topic: &str, reader: &str) -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().unwrap();
    let streams = streams(broker, topic, reader);
    let served = Served::new(dir.path(), 1, &Addresses::of(1), &streams);
    (dir, served)
}

fn seconds(range: std::ops::Range<i64>, group: &str) -> Vec<String> {
    range.map(|second| event(second, group)).collect()
}

fn make_again(broker: &TestBroker, topic: &str) {
    broker.delete_topic(topic).unwrap();
    // Until it is gone, the name is taken.
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = broker.create_topic(topic, 1) {
        assert!(Instant::now() < deadline, "{error}");
    }
}

#[test]
fn a_topic_that_was_made_again_while_all_were_down_gives_no_row_and_both_ids_are_named() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("spliced", 1).unwrap();
    broker.produce("spliced", 0, &seconds(0..4, "x")).unwrap();
    let (_dir, mut served) = on_topic(broker, "spliced");
    served.start();
    assert_eq!(served.wait_rows(3).unwrap(), rows(0..3, &["x"]));
    assert_eq!(served.terminate().unwrap(), 0);
    make_again(broker, "spliced");
    broker.produce("spliced", 0, &seconds(0..9, "y")).unwrap();
    served.start();
    served
        .wait_ready(503, "the topic was deleted and made again (id from ")
        .unwrap();
    assert_eq!(served.rows().unwrap(), rows(0..3, &["x"]));
    assert_eq!(
        served.said().matches("ERROR").count(),
        1,
        "{}",
        served.said()
    );
    // As it stays when nothing changes, over many tries.
    let (_, reason) = served.get("/readyz").unwrap();
    assert!(reason.contains(" to "), "{reason}");
    assert_eq!(served.terminate().unwrap(), 0);
}

#[test]
fn a_topic_that_may_not_be_read_for_a_while_is_read_on() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start().unwrap();
    broker.create_topic("denied", 1).unwrap();
    broker.produce("denied", 0, &seconds(0..4, "x")).unwrap();
    let (_dir, mut served) = on_topic(&broker, "denied");
    served.start();
    assert_eq!(served.wait_rows(3).unwrap(), rows(0..3, &["x"]));
    broker.deny("denied", Denied::Yes).unwrap();
    served
        .wait_ready(503, "lane 0: kafka source denied")
        .unwrap();
    let held = lanes(&served).unwrap();
    assert!(held[0].2.is_some(), "{held:?}");
    broker.deny("denied", Denied::No).unwrap();
    broker.produce("denied", 0, &seconds(4..9, "x")).unwrap();
    assert_eq!(served.wait_rows(8).unwrap(), rows(0..8, &["x"]));
    served.wait_ready(200, "true").unwrap();
    let held = lanes(&served).unwrap();
    assert_eq!(held[0].2, None, "what is over is not shown");
    assert_eq!(served.terminate().unwrap(), 0);
}

#[test]
fn a_partition_that_was_added_while_all_were_down_begins_where_its_log_does() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("moved", 1).unwrap();
    broker.produce("moved", 0, &seconds(0..4, "x")).unwrap();
    let (_dir, mut served) = on_topic(broker, "moved");
    served.start();
    assert_eq!(served.wait_rows(3).unwrap(), rows(0..3, &["x"]));
    assert_eq!(served.terminate().unwrap(), 0);
    broker.grow_topic("moved", 2).unwrap();
    broker.produce("moved", 1, &seconds(0..9, "y")).unwrap();
    broker.delete_records("moved", 1, 5).unwrap();
    // All that was taken in, but nothing that was not.
    broker.delete_records("moved", 0, 4).unwrap();
    served.start();
    wait_lanes(&mut served, &[("0", 4), ("1", 9)]);
    broker.produce("moved", 0, &seconds(4..9, "x")).unwrap();
    let mut expected = rows(0..5, &["x"]);
    expected.extend(rows(5..8, &["x", "y"]));
    assert_eq!(served.wait_rows(expected.len()).unwrap(), expected);
    assert!(
        served.said().contains("read from this offset on"),
        "{}",
        served.said()
    );
    served.wait_ready(200, "true").unwrap();
    assert_eq!(served.terminate().unwrap(), 0);
}

#[test]
fn what_retention_took_and_was_no_record_is_missed_by_neither_reader() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    for reader in ["direct", "librdkafka"] {
        let topic = format!("markers-{reader}");
        broker.create_topic(&topic, 1).unwrap();
        let transaction = |events: &[String], outcome: &Outcome| {
            let ended = broker.transaction(&topic, 0, events, outcome);
            ended.unwrap();
        };
        // Four records and a marker; two that do not count, and a marker.
        transaction(&seconds(0..4, "x"), &Outcome::Commit);
        transaction(&seconds(7..9, "y"), &Outcome::Abort);
        let (_dir, mut served) = read_by(broker, &topic, reader);
        served.start();
        assert_eq!(served.wait_rows(3).unwrap(), rows(0..3, &["x"]));
        let empty_to = |served: &Served| {
            let (_, body) = served.get("/v1/cluster").ok()?;
            let view: serde_json::Value = serde_json::from_str(&body).ok()?;
            let lane = &view["lanes"][0];
            Some((lane["position"].as_i64()?, lane["empty_to"].as_i64()?))
        };
        let deadline = Instant::now() + PATIENCE;
        while empty_to(&served) != Some((4, 8)) {
            assert!(Instant::now() < deadline, "{:?}", empty_to(&served));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(served.terminate().unwrap(), 0);
        broker.delete_records(&topic, 0, 8).unwrap();
        served.start();
        transaction(&seconds(4..9, "x"), &Outcome::Commit);
        assert_eq!(served.wait_rows(8).unwrap(), rows(0..8, &["x"]));
        served.wait_ready(200, "true").unwrap();
        assert_eq!(served.terminate().unwrap(), 0);
        // A record that nobody took in is missed.
        transaction(&seconds(9..12, "x"), &Outcome::Commit);
        broker.delete_records(&topic, 0, 15).unwrap();
        served.start();
        served.wait_ready(503, "retention").unwrap();
        assert_eq!(served.rows().unwrap(), rows(0..8, &["x"]));
        assert_eq!(served.terminate().unwrap(), 0);
    }
}

#[test]
fn a_compacted_topic_is_refused_until_it_is_not() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let compacted = [("cleanup.policy", "compact")];
    broker
        .create_topic_with("compacted", 1, &compacted)
        .unwrap();
    let (_dir, mut served) = on_topic(broker, "compacted");
    served.start();
    served
        .wait_ready(503, "the topic is compacted (cleanup.policy compact)")
        .unwrap();
    assert_eq!(lanes(&served).unwrap(), []);
    broker.delete_topic("compacted").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = broker.create_topic("compacted", 1) {
        assert!(Instant::now() < deadline, "{error}");
    }
    broker.produce("compacted", 0, &seconds(0..4, "x")).unwrap();
    assert_eq!(served.wait_rows(3).unwrap(), rows(0..3, &["x"]));
    served.wait_ready(200, "true").unwrap();
    assert_eq!(served.terminate().unwrap(), 0);
}

/// The brokers' default is the producers' time.
#[test]
fn append_time_is_what_the_log_stamps_and_no_producers_time() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("stamped", 1).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let streams = streams(broker, "stamped", "direct");
    let is_time = |line: &&str| line.starts_with("time =");
    let by_field = streams.lines().find(is_time).unwrap();
    let streams = streams.replace(by_field, "time = { from = \"append_time\" }");
    let streams = streams.replace("\"1h\"", "\"200ms\"");
    let mut served = Served::new(dir.path(), 1, &Addresses::of(1), &streams);
    served.start();
    served
        .wait_ready(503, "message.timestamp.type CreateTime")
        .unwrap();
    assert_eq!(lanes(&served).unwrap(), []);
    broker.delete_topic("stamped").unwrap();
    let by_log = [("message.timestamp.type", "LogAppendTime")];
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = broker.create_topic_with("stamped", 1, &by_log) {
        assert!(Instant::now() < deadline, "{error}");
    }
    broker.produce("stamped", 0, &seconds(0..4, "x")).unwrap();
    served.wait_rows(1).unwrap();
    // Not in the windows of 2023 that the records' own times say.
    let (_, rows) = served.get("/v1/pipelines/p/windows").unwrap();
    assert!(
        rows.contains("\"start\":\"") && !rows.contains("\"2023-"),
        "{rows}"
    );
    assert_eq!(served.terminate().unwrap(), 0);
}

#[test]
fn another_kafka_cluster_at_the_address_gives_no_row_and_both_ids_are_named() {
    if TestBroker::skipped() {
        return;
    }
    let [one, other] = [(); 2].map(|()| TestBroker::start().unwrap());
    for (broker, group) in [(&one, "x"), (&other, "y")] {
        broker.create_topic("moved", 1).unwrap();
        broker.produce("moved", 0, &seconds(0..6, group)).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let addresses = Addresses::of(1);
    let at = |broker: &TestBroker| {
        let streams = streams(broker, "moved", "direct");
        Served::new(dir.path(), 1, &addresses, &streams)
    };
    let mut served = at(&one);
    served.start();
    assert_eq!(served.wait_rows(5).unwrap(), rows(0..5, &["x"]));
    assert_eq!(served.terminate().unwrap(), 0);
    let mut served = at(&other);
    served.start();
    served.wait_ready(503, "is the Kafka cluster ").unwrap();
    let (_, body) = served.get("/readyz").unwrap();
    assert!(
        body.contains("but the replicas read from the cluster "),
        "{body}"
    );
    other.produce("moved", 0, &seconds(6..9, "y")).unwrap();
    assert_eq!(served.terminate().unwrap(), 0);
    let mut served = at(&one);
    served.start();
    one.produce("moved", 0, &seconds(6..9, "x")).unwrap();
    assert_eq!(served.wait_rows(8).unwrap(), rows(0..8, &["x"]));
    served.wait_ready(200, "true").unwrap();
}

#[test]
fn a_log_that_was_cut_and_written_anew_while_all_were_down_gives_no_row_and_the_range_is_named() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start().unwrap();
    for (topic, group, count) in [("cut", "x", 4), ("kept", "x", 4), ("other", "y", 9)] {
        broker.create_topic(topic, 1).unwrap();
        broker.produce(topic, 0, &seconds(0..4, group)).unwrap();
        broker.produce(topic, 0, &seconds(4..count, group)).unwrap();
    }
    let (_dir, mut served) = on_topic(&broker, "cut");
    served.start();
    assert_eq!(served.wait_rows(3).unwrap(), rows(0..3, &["x"]));
    assert_eq!(served.terminate().unwrap(), 0);
    broker.kill().unwrap();
    broker.replace_records("kept", "cut").unwrap();
    broker.replace_records("cut", "other").unwrap();
    broker.start_again().unwrap();
    served.start();
    let reason = "offsets 0 to 4 hold other records than those that were read";
    served.wait_ready(503, reason).unwrap();
    assert_eq!(served.rows().unwrap(), rows(0..3, &["x"]));
    broker.kill().unwrap();
    broker.replace_records("cut", "kept").unwrap();
    broker.start_again().unwrap();
    broker.produce("cut", 0, &seconds(4..9, "x")).unwrap();
    assert_eq!(served.wait_rows(8).unwrap(), rows(0..8, &["x"]));
    served.wait_ready(200, "true").unwrap();
    assert_eq!(served.terminate().unwrap(), 0);
}

#[test]
fn lag_is_measured_to_the_logs_end_and_is_not_known_while_the_broker_is_silent() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start().unwrap();
    broker.create_topic("lagging", 1).unwrap();
    broker.produce("lagging", 0, &seconds(0..4, "x")).unwrap();
    let (_dir, mut served) = on_topic(&broker, "lagging");
    served.start();
    assert_eq!(served.wait_rows(3).unwrap(), rows(0..3, &["x"]));
    let is = |end: Option<i64>, by: Option<i64>| {
        move |served: &Served| (lag(served)? == (end, by)).then_some(())
    };
    served.wait("no lag", is(Some(4), Some(0))).unwrap();
    // What a transaction holds is in the log, and cannot be read yet.
    let producer = broker
        .open_transaction("lagging", 0, &seconds(4..9, "x"))
        .unwrap();
    served.wait("a lag of 5", is(Some(9), Some(5))).unwrap();
    Producer::commit_transaction(&producer, PATIENCE).unwrap();
    assert_eq!(served.wait_rows(8).unwrap(), rows(0..8, &["x"]));
    // A marker stands behind the last record.
    served.wait("no lag", is(Some(10), Some(0))).unwrap();
    let (_, metrics) = served.get("/metrics").unwrap();
    assert!(metrics.contains("unisono_lane_lag{"), "{metrics}");
    broker.freeze().unwrap();
    served.wait("no end", is(None, None)).unwrap();
    let (_, metrics) = served.get("/metrics").unwrap();
    let known = metrics
        .lines()
        .find(|line| line.starts_with("unisono_lane_end_known{"));
    assert!(known.is_some_and(|line| line.ends_with(" 0")), "{known:?}");
    assert!(!metrics.contains("unisono_lane_lag{"), "{metrics}");
    broker.thaw().unwrap();
    served.wait("no lag", is(Some(10), Some(0))).unwrap();
}
