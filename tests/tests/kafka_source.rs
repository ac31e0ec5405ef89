//! The Kafka source on a real broker: what it gives, when it is at its end, and what stops it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono::config::{self, KafkaReader, Properties, SourceConfig, SourceKind, StartAt};
use unisono::kafka::source::{KafkaSource, KafkaSourceConfig, KafkaSourceError, KafkaTopic};
use unisono::source::{self, Block, LaneTrail};
use unisono_tests::kafka::{Outcome, TestBroker};

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);
/// What the client may hold of a lane.
const READ_AHEAD: usize = 4 << 20;

fn config(broker: &TestBroker, topic: &str) -> KafkaSourceConfig {
    KafkaSourceConfig {
        brokers: broker.address(),
        topic: topic.to_owned(),
        read_ahead: READ_AHEAD,
        properties: BTreeMap::new(),
    }
}

fn connect(broker: &TestBroker, topic: &str) -> KafkaSource {
    KafkaSource::connect(&config(broker, topic), &Arc::default()).unwrap()
}

fn about(broker: &TestBroker, topic: &str) -> KafkaTopic {
    KafkaTopic::connect(&config(broker, topic)).unwrap()
}

/// Offset and payload of each record.
type Records = Vec<(i64, String)>;

fn poll(
    source: &mut KafkaSource,
    partition: i32,
    max: usize,
    into: &mut Records,
) -> Result<usize, KafkaSourceError> {
    source.poll(partition, max, |record| {
        let payload = record
            .payload
            .map_or("<null>".into(), String::from_utf8_lossy);
        into.push((record.offset, payload.into_owned()));
    })
}

/// Reads until the lane is at its end; gives the records and that end.
fn read_to_end(source: &mut KafkaSource, partition: i32) -> (Records, i64) {
    let mut records = Vec::new();
    let started = Instant::now();
    loop {
        poll(source, partition, 1000, &mut records).unwrap();
        if let Some(end) = source.at_end(partition) {
            return (records, end);
        }
        assert!(
            started.elapsed() < PATIENCE,
            "not at the end after {records:?}"
        );
        source.wait(Duration::from_millis(50));
    }
}

/// Polls the lane until it fails.
fn read_to_error(source: &mut KafkaSource, partition: i32) -> (Records, KafkaSourceError) {
    let mut records = Vec::new();
    let started = Instant::now();
    loop {
        if let Err(error) = poll(source, partition, 1000, &mut records) {
            return (records, error);
        }
        assert!(started.elapsed() < PATIENCE, "no error after {records:?}");
        source.wait(Duration::from_millis(50));
    }
}

/// Polls for so long; gives the records.
fn read_for(source: &mut KafkaSource, partition: i32, time: Duration) -> Records {
    let mut records = Vec::new();
    let started = Instant::now();
    while started.elapsed() < time {
        poll(source, partition, 1000, &mut records).unwrap();
        source.wait(Duration::from_millis(50));
    }
    records
}

fn numbered(range: std::ops::Range<i64>) -> Vec<String> {
    range.map(|number| format!("r{number}")).collect()
}

fn expected(range: std::ops::Range<i64>) -> Records {
    range.map(|number| (number, format!("r{number}"))).collect()
}

#[test]
fn every_record_is_given_once_in_order_and_bounded_by_the_poll() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("plain", 2).unwrap();
    broker.produce("plain", 0, &numbered(0..5000)).unwrap();
    let mut source = connect(broker, "plain");
    assert_eq!(about(broker, "plain").partitions(PATIENCE).unwrap(), [0, 1]);
    assert_eq!(
        about(broker, "plain").bounds(0, PATIENCE).unwrap(),
        (0, 5000)
    );
    source.assign(&[(0, 10), (1, 0)]).unwrap();
    let mut records = Vec::new();
    while records.len() < 4990 {
        let before = records.len();
        let given = poll(&mut source, 0, 7, &mut records).unwrap();
        assert!(given <= 7 && records.len() == before + given);
        source.wait(Duration::from_millis(50));
    }
    assert_eq!(records, expected(10..5000));
    assert_eq!(read_to_end(&mut source, 0), (vec![], 5000));
    assert_eq!(read_to_end(&mut source, 1), (vec![], 0));
}

#[test]
fn a_block_is_bounded_by_what_its_records_weigh() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("bytes", 1).unwrap();
    broker
        .produce("bytes", 0, &vec!["x".repeat(1000); 2000])
        .unwrap();
    let (properties, topic) = (Properties::default(), "bytes".to_owned());
    let kind = SourceKind::Kafka(config::KafkaSource {
        brokers: broker.address(),
        topic,
        start: StartAt::Earliest,
        reader: KafkaReader::Librdkafka,
        properties,
    });
    let name = "bytes".to_owned();
    let signal = Arc::default();
    let mut reader = source::open(&SourceConfig { name, kind }, READ_AHEAD, &signal).unwrap();
    let trail = LaneTrail::new("0", 0, "");
    let lane = reader.open(&trail, &[]).unwrap();
    let (mut next, mut running) = (0, 0);
    let started = Instant::now();
    while next < 2000 {
        let mut block = Block::default();
        let filled = reader.fill(lane, &trail, &mut block, 50_000).unwrap();
        assert_eq!(filled, block.len());
        assert!(block.weight() <= 52_000, "{}", block.weight());
        for record in block.records() {
            assert_eq!((record.offset, record.next), (next, next + 1));
            assert!(record.stamp.millis().is_some());
            assert_eq!(record.payload.map(<[u8]>::len), Some(1000));
            next += 1;
        }
        running = block.seal(running);
        assert!(started.elapsed() < PATIENCE, "{next} records");
        signal.wait(reader.pause().min(Duration::from_millis(50)));
    }
    assert_ne!(running, 0);
}

#[test]
fn going_back_gives_the_same_records_again() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("again", 1).unwrap();
    broker.produce("again", 0, &numbered(0..100)).unwrap();
    let mut source = connect(broker, "again");
    for start in [0, 40, 100, 99] {
        source.assign(&[(0, start)]).unwrap();
        assert_eq!(source.at_end(0), None, "an end known before is no evidence");
        assert_eq!(read_to_end(&mut source, 0), (expected(start..100), 100));
    }
}

#[test]
fn a_lane_that_is_not_polled_holds_back_only_itself() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("held", 2).unwrap();
    // More than a lane's queue holds.
    let large: Vec<String> = (0..300).map(|_| "x".repeat(100_000)).collect();
    broker.produce("held", 0, &large).unwrap();
    broker.produce("held", 1, &numbered(0..100)).unwrap();
    let mut source = connect(broker, "held");
    source.assign(&[(0, 0), (1, 0)]).unwrap();
    assert_eq!(read_to_end(&mut source, 1).0, expected(0..100));
    broker.produce("held", 1, &numbered(100..200)).unwrap();
    assert_eq!(read_to_end(&mut source, 1).0, expected(100..200));
    assert_eq!(read_to_end(&mut source, 0).0.len(), 300);
}

#[test]
fn transaction_markers_do_not_hide_the_end() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("markers", 1).unwrap();
    broker
        .transaction("markers", 0, &numbered(0..3), &Outcome::Commit)
        .unwrap();
    let mut source = connect(broker, "markers");
    source.assign(&[(0, 0)]).unwrap();
    assert_eq!(read_to_end(&mut source, 0), (expected(0..3), 4));
}

#[test]
fn aborted_records_are_not_given_and_do_not_hide_the_end() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("aborted", 1).unwrap();
    broker.produce("aborted", 0, &["before"]).unwrap();
    let mut source = connect(broker, "aborted");
    source.assign(&[(0, 0)]).unwrap();
    assert_eq!(read_to_end(&mut source, 0), (vec![(0, "before".into())], 1));
    broker
        .transaction("aborted", 0, &["never", "never"], &Outcome::Abort)
        .unwrap();
    let (records, end) = loop {
        let read = read_to_end(&mut source, 0);
        // The old end is good evidence until the source has heard of the new one.
        if read.1 != 1 {
            break read;
        }
    };
    assert_eq!((records, end), (vec![], 4));
    broker.produce("aborted", 0, &["after"]).unwrap();
    let mut records = Vec::new();
    while records.is_empty() {
        records = read_to_end(&mut source, 0).0;
    }
    assert_eq!(records, [(4, "after".into())]);
}

#[test]
fn an_open_transaction_is_not_the_end() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("open", 1).unwrap();
    broker.produce("open", 0, &["before"]).unwrap();
    let producer = broker.open_transaction("open", 0, &["r1", "r2"]).unwrap();
    let mut source = connect(broker, "open");
    assert_eq!(about(broker, "open").bounds(0, PATIENCE).unwrap(), (0, 1));
    source.assign(&[(0, 0)]).unwrap();
    assert_eq!(read_for(&mut source, 0, 2 * SECOND), [(0, "before".into())]);
    assert_eq!(source.at_end(0), None);
    rdkafka::producer::Producer::commit_transaction(&producer, PATIENCE).unwrap();
    assert_eq!(read_to_end(&mut source, 0), (expected(1..3), 4));
}

#[test]
fn without_a_word_from_the_broker_nothing_is_at_its_end() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start().unwrap();
    broker.create_topic("lost", 1).unwrap();
    broker.produce("lost", 0, &numbered(0..3)).unwrap();
    let mut source = connect(&broker, "lost");
    source.assign(&[(0, 0)]).unwrap();
    assert_eq!(read_to_end(&mut source, 0), (expected(0..3), 3));
    // Frozen: the connections stay open, only the answers stop.
    broker.freeze().unwrap();
    assert_eq!(read_for(&mut source, 0, 2 * SECOND + SECOND / 2), []);
    assert_eq!(source.at_end(0), None);
    broker.thaw().unwrap();
    assert_eq!(read_to_end(&mut source, 0), (vec![], 3));

    broker.kill().unwrap();
    assert_eq!(read_for(&mut source, 0, 2 * SECOND + SECOND / 2), []);
    assert_eq!(source.at_end(0), None);
    assert!(matches!(
        about(&broker, "lost").partitions(SECOND),
        Err(KafkaSourceError::Unreachable { .. })
    ));
    broker.start_again().unwrap();
    assert_eq!(read_to_end(&mut source, 0), (vec![], 3));
    broker.produce("lost", 0, &["r3"]).unwrap();
    let mut records = Vec::new();
    while records.is_empty() {
        records = read_to_end(&mut source, 0).0;
    }
    assert_eq!(records, expected(3..4));
}

#[test]
fn offsets_gone_by_retention_are_an_error_and_nothing_is_skipped() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("retention", 1).unwrap();
    broker.produce("retention", 0, &numbered(0..10)).unwrap();
    broker.delete_records("retention", 0, 5).unwrap();
    let mut source = connect(broker, "retention");
    assert_eq!(
        about(broker, "retention").bounds(0, PATIENCE).unwrap(),
        (5, 10)
    );
    for gone in [4, 11] {
        source.assign(&[(0, gone)]).unwrap();
        let (records, error) = read_to_error(&mut source, 0);
        assert_eq!(records, []);
        assert!(
            matches!(error, KafkaSourceError::OffsetOutOfRange { partition: 0, offset, .. } if offset == gone),
            "{error}"
        );
        // It stays an error, until the lane is assigned anew.
        assert_eq!(poll(&mut source, 0, 1, &mut Vec::new()), Err(error));
    }
    source.assign(&[(0, 5)]).unwrap();
    assert_eq!(read_to_end(&mut source, 0).0, expected(5..10));
}

#[test]
fn a_topic_that_is_missing_is_named() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let error = about(broker, "nowhere").partitions(PATIENCE).unwrap_err();
    assert!(matches!(&error, KafkaSourceError::TopicMissing { topic, .. } if topic == "nowhere"));
}

#[test]
fn a_topic_deleted_while_it_is_read_is_an_error() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("deleted", 1).unwrap();
    broker.produce("deleted", 0, &numbered(0..3)).unwrap();
    let mut source = connect(broker, "deleted");
    source.assign(&[(0, 0)]).unwrap();
    read_to_end(&mut source, 0);
    broker.delete_topic("deleted").unwrap();
    let (_, error) = read_to_error(&mut source, 0);
    assert!(
        matches!(error, KafkaSourceError::TopicMissing { .. }),
        "{error}"
    );
}

/// Deletes the topic and makes it again while it is read, with so many records.
fn made_again(topic: &str, records: usize) -> (Records, KafkaSourceError) {
    let broker = TestBroker::shared().unwrap();
    broker.create_topic(topic, 1).unwrap();
    broker.produce(topic, 0, &numbered(0..3)).unwrap();
    let mut source = connect(broker, topic);
    source.assign(&[(0, 0)]).unwrap();
    assert_eq!(read_to_end(&mut source, 0).1, 3);
    broker.delete_topic(topic).unwrap();
    broker.create_topic(topic, 1).unwrap();
    broker.produce(topic, 0, &vec!["other"; records]).unwrap();
    read_to_error(&mut source, 0)
}

#[test]
fn a_topic_made_again_is_an_error_though_it_is_shorter() {
    if TestBroker::skipped() {
        return;
    }
    let (records, error) = made_again("shorter", 1);
    assert_eq!(records, []);
    println!("{error}");
}

#[test]
fn a_topic_made_again_is_an_error_though_it_has_the_offsets() {
    if TestBroker::skipped() {
        return;
    }
    let (records, error) = made_again("longer", 50);
    assert_eq!(records, [], "records of another topic");
    println!("{error}");
}

#[test]
fn partitions_are_added_at_run_time() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("grown", 1).unwrap();
    broker.produce("grown", 0, &numbered(0..3)).unwrap();
    let mut source = connect(broker, "grown");
    source.assign(&[(0, 0)]).unwrap();
    assert_eq!(read_to_end(&mut source, 0).0, expected(0..3));
    broker.grow_topic("grown", 2).unwrap();
    broker.produce("grown", 1, &numbered(0..2)).unwrap();
    assert_eq!(about(broker, "grown").partitions(PATIENCE).unwrap(), [0, 1]);
    source.assign(&[(0, 3), (1, 0)]).unwrap();
    assert_eq!(read_to_end(&mut source, 1).0, expected(0..2));
    assert_eq!(read_to_end(&mut source, 0), (vec![], 3));
}

#[test]
fn lanes_that_are_added_one_after_the_other_do_not_disturb_those_that_are_read() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    broker.create_topic("growing", 8).unwrap();
    for partition in 0..8 {
        broker
            .produce("growing", partition, &numbered(0..50))
            .unwrap();
    }
    let mut source = connect(broker, "growing");
    source.assign(&[(0, 0)]).unwrap();
    let mut first = Vec::new();
    poll(&mut source, 0, 10, &mut first).unwrap();
    // In haste: assigning all of them anew each time makes librdkafka abort the process.
    for partition in 1..8 {
        source.add(&[(partition, 0)]).unwrap();
    }
    let (rest, end) = read_to_end(&mut source, 0);
    first.extend(rest);
    assert_eq!((first, end), (expected(0..50), 50));
    for partition in 1..8 {
        assert_eq!(
            read_to_end(&mut source, partition),
            (expected(0..50), 50),
            "partition {partition}"
        );
    }
}
