//! Faults of a broker and its topics.

use std::time::Instant;

use unisono_tests::kafka::TestBroker;
use unisono_tests::serve::{Addresses, PATIENCE, PIPELINE, Served, event};

use super::{OF_HOSTILE, hostile_records, one_a_second, says_once};

fn streams(brokers: &str, topic: &str) -> String {
    format!(
        "[[source]]\nname = \"events\"\nkafka = {{ brokers = \"{brokers}\", topic = \"{topic}\", \
         start = \"earliest\" }}\n{PIPELINE}"
    )
}

fn on_topic(broker: &TestBroker, topic: &str) -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().unwrap();
    let streams = streams(&broker.address(), topic);
    let served = Served::new(dir.path(), 1, &Addresses::of(1), &streams);
    (dir, served)
}

fn seconds(range: std::ops::Range<i64>) -> Vec<String> {
    range.map(|second| event(second, "x")).collect()
}

#[test]
fn a_broker_and_a_topic_that_come_late_and_a_broker_that_goes_cost_no_row() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::not_started().unwrap();
    let (_dir, mut served) = on_topic(&broker, "late");
    served.start();
    let reason = format!("no broker answers at {}", broker.address());
    served.wait_ready(503, &reason).unwrap();
    says_once(&served.said(), &[&reason, "check that it runs"]);
    assert_eq!(served.terminate().unwrap(), 0);

    served.start();
    broker.start_again().unwrap();
    served.wait_ready(503, "has no such topic").unwrap();
    says_once(
        &served.said(),
        &["has no such topic or partition; create it"],
    );
    broker.create_topic("late", 1).unwrap();
    broker.produce("late", 0, &seconds(0..4)).unwrap();
    assert_eq!(served.wait_rows(3).unwrap(), one_a_second(3));
    served.wait_ready(200, "true").unwrap();

    broker.kill().unwrap();
    served.wait_ready(503, &reason).unwrap();
    broker.start_again().unwrap();
    broker.produce("late", 0, &seconds(4..8)).unwrap();
    assert_eq!(served.wait_rows(7).unwrap(), one_a_second(7));
    served.wait_ready(200, "true").unwrap();
    assert_eq!(served.terminate().unwrap(), 0);
    says_once(&served.said(), &["source can be read"]);
    assert!(!served.said().contains("ERROR"), "{}", served.said());
}

#[test]
fn a_partition_that_is_added_counts_from_its_first_record() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("grows", 1).unwrap();
    broker.produce("grows", 0, &seconds(0..4)).unwrap();
    let (_dir, mut served) = on_topic(broker, "grows");
    served.start();
    assert_eq!(served.wait_rows(3).unwrap(), one_a_second(3));
    broker.grow_topic("grows", 2).unwrap();
    broker.produce("grows", 1, &seconds(4..9)).unwrap();
    served
        .wait("the new lane", |served| {
            let (_, body) = served.get("/v1/cluster").ok()?;
            let view: serde_json::Value = serde_json::from_str(&body).ok()?;
            let lanes = view["lanes"].as_array()?;
            lanes
                .iter()
                .any(|lane| lane["lane"] == "1" && lane["position"] == 5)
                .then_some(())
        })
        .unwrap();
    broker.produce("grows", 0, &seconds(4..9)).unwrap();
    let mut expected = one_a_second(4);
    expected.extend((4..8).map(|second| format!("13:{} x 2", 20 + second)));
    assert_eq!(served.wait_rows(8).unwrap(), expected);
}

#[test]
fn an_open_transaction_holds_its_lane_and_is_shown_and_its_records_are_not_late() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    // If the program is still to be built, the transaction must not time out meanwhile.
    let _ = unisono_tests::unisono_binary();
    broker.create_topic("hangs", 2).unwrap();
    broker.produce("hangs", 0, &seconds(0..8)).unwrap();
    broker.produce("hangs", 1, &seconds(0..1)).unwrap();
    let producer = broker.open_transaction("hangs", 1, &seconds(1..4)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let streams = streams(&broker.address(), "hangs").replace("idle = \"1h\"", "idle = \"1s\"");
    let mut served = Served::new(dir.path(), 1, &Addresses::of(1), &streams);
    served.start();
    let held_since = |served: &Served| {
        let (_, body) = served.get("/v1/cluster").ok()?;
        let view: serde_json::Value = serde_json::from_str(&body).ok()?;
        let lanes = view["lanes"].as_array()?.iter();
        let mut held = lanes.map(|lane| (lane["lane"].clone(), lane["held_since"].clone()));
        held.find(|(_, since)| since.is_string())
    };
    // It is shown after two seconds: longer than a lane that is idle would hold windows.
    let (lane, _) = served.wait("a held lane", held_since).unwrap();
    assert_eq!(lane, "1");
    let (status, ready) = served.get("/readyz").unwrap();
    assert_eq!(status, 200, "{ready}");
    assert!(
        ready.contains("source events, lane 1: a transaction has been open for"),
        "{ready}"
    );
    assert!(ready.contains("at offset 1:"), "{ready}");
    let (_, metrics) = served.get("/metrics").unwrap();
    let name = "unisono_lane_held_by_transaction_seconds{feed=\"";
    let held = metrics
        .lines()
        .filter(|line| line.starts_with(name) && !line.ends_with(" 0"));
    assert_eq!(held.count(), 1, "{metrics}");
    assert_eq!(
        served.rows().unwrap(),
        [""; 0],
        "no window waits for a lane that was taken for idle"
    );
    rdkafka::producer::Producer::commit_transaction(&producer, PATIENCE).unwrap();
    // All of both lanes; what no record closes is closed since both are idle now.
    let expected = [2, 2, 2, 2, 1, 1, 1, 1];
    let expected: Vec<_> = (20..)
        .zip(expected)
        .map(|(m, n)| format!("13:{m} x {n}"))
        .collect();
    assert_eq!(served.wait_rows(8).unwrap(), expected);
    let is_over = |served: &Served| held_since(served).is_none().then_some(());
    served.wait("the end of the transaction", is_over).unwrap();
}

#[test]
fn a_topic_that_is_made_again_stops_its_feed() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("again", 1).unwrap();
    broker.produce("again", 0, &seconds(0..4)).unwrap();
    let (_dir, mut served) = on_topic(broker, "again");
    served.start();
    assert_eq!(served.wait_rows(3).unwrap(), one_a_second(3));
    broker.delete_topic("again").unwrap();
    // Until it is gone, the name is taken.
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = broker.create_topic("again", 1) {
        assert!(Instant::now() < deadline, "{error}");
    }
    let other: Vec<_> = (0..9).map(|second| event(second, "y")).collect();
    broker.produce("again", 0, &other).unwrap();
    served
        .wait("the end of the lane", |served| {
            let (status, body) = served.get("/readyz").ok()?;
            (status == 503 && body.contains("lane 0")).then_some(())
        })
        .unwrap();
    assert_eq!(
        served.rows().unwrap(),
        one_a_second(3),
        "no row of the other topic"
    );
    says_once(&served.said(), &["ERROR"]);
}

#[test]
fn hostile_records_of_a_topic_are_dead_letters() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker
        .create_topic_with("hostile", 1, &[("max.message.bytes", "4000000")])
        .unwrap();
    broker.produce("hostile", 0, &seconds(0..2)).unwrap();
    broker.produce("hostile", 0, &hostile_records()).unwrap();
    broker.produce("hostile", 0, &seconds(2..4)).unwrap();
    let (_dir, mut served) = on_topic(broker, "hostile");
    served.start();
    assert_eq!(served.wait_rows(4).unwrap(), OF_HOSTILE);
    served.wait_ready(200, "true").unwrap();
    assert_eq!(served.terminate().unwrap(), 0);
    assert!(!served.said().contains("ERROR"), "{}", served.said());
}
