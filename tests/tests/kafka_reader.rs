//! Both readers of a topic on a real broker: they give the same records, and the direct one stops where it must.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use unisono::config::KafkaReader;
use unisono_tests::kafka::{Lane, Lanes, Outcome, TestBroker};

const PATIENCE: Duration = Duration::from_secs(30);
const READERS: [KafkaReader; 2] = [KafkaReader::Direct, KafkaReader::Librdkafka];

/// A topic's only lane, from that offset on.
fn open(broker: &TestBroker, reader: KafkaReader, topic: &str, from: i64) -> Lanes {
    Lanes::open(&broker.address(), reader, topic, &[from]).unwrap()
}

fn broker() -> Option<&'static TestBroker> {
    TestBroker::shared()
}

fn numbered(range: std::ops::Range<i64>) -> Vec<String> {
    range.map(|number| format!("r{number}")).collect()
}

/// Records of all kinds, with that compression.
fn produce_all_kinds(broker: &TestBroker, topic: &str, compression: &str) {
    let mut config = broker.config();
    config
        .set("compression.type", compression)
        .set("linger.ms", "5");
    config.set("message.max.bytes", "2000000");
    let producer: BaseProducer = config.create().unwrap();
    let long = |length: usize, seed: usize| -> Vec<u8> {
        // Words, which compress to some extent.
        let text: String = (0..length / 8)
            .map(|at| format!("{:07x} ", at * 31 % (7919 + seed)))
            .collect();
        text.into_bytes()
    };
    for number in 0..3000_usize {
        let payload = match number % 500 {
            0 => long(400_000, number),
            7 => Vec::new(),
            _ => long(40 + number % 300, number),
        };
        let headers = OwnedHeaders::new().insert(Header {
            key: "trace",
            value: Some("00-4bf92f3577b34da6a3ce929d0e0e4736"),
        });
        let key = format!("key-{number}");
        let mut record: BaseRecord<'_, str, [u8]> = BaseRecord::to(topic).partition(0).key(&key);
        if number % 11 != 3 {
            record = record.payload(&payload);
        }
        if number % 3 == 0 {
            record = record.headers(headers);
        }
        if number % 5 == 0 {
            record = record.timestamp(number as i64 * 1000);
        }
        let mut record = Some(record);
        while let Some(waiting) = record.take() {
            if let Err((_, back)) = producer.send(waiting) {
                producer.poll(Duration::from_millis(5));
                record = Some(back);
            }
        }
    }
    producer.flush(PATIENCE).unwrap();
}

fn assert_same(broker: &TestBroker, topic: &str, from: i64) -> (Lane, i64) {
    let [direct, client] = READERS.map(|reader| {
        let mut lanes = open(broker, reader, topic, from);
        let ends = lanes.read_to_end().unwrap();
        (lanes.lanes.remove(0), ends[0])
    });
    let (ours, theirs) = (&direct.0, &client.0);
    assert_eq!(ours.records.len(), theirs.records.len(), "{topic}");
    for (ours, theirs) in ours.records.iter().zip(&theirs.records) {
        assert_eq!(ours, theirs, "{topic}");
    }
    // Marks lie where blocks end, and those are each reader's own.
    let reached = |lane: &Lane| (lane.trail.next, lane.trail.fingerprint);
    assert_eq!(reached(ours), reached(theirs), "{topic}");
    assert_eq!(direct.1, client.1, "{topic}");
    direct
}

#[test]
fn both_readers_give_the_same_records_whatever_the_compression() {
    let Some(broker) = broker() else { return };
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("same-{compression}");
        broker
            .create_topic_with(&topic, 1, &[("max.message.bytes", "2000000")])
            .unwrap();
        produce_all_kinds(broker, &topic, compression);
        let (lane, end) = assert_same(broker, &topic, 0);
        assert_eq!((lane.records.len(), end), (3000, 3000));
        // From within a batch on.
        let (lane, _) = assert_same(broker, &topic, 1234);
        assert_eq!(lane.records[0].0, 1234);
    }
}

#[test]
fn both_readers_take_the_brokers_time_where_it_stamps_records() {
    let Some(broker) = broker() else { return };
    broker
        .create_topic_with("stamped", 1, &[("message.timestamp.type", "LogAppendTime")])
        .unwrap();
    produce_all_kinds(broker, "stamped", "lz4");
    let (lane, _) = assert_same(broker, "stamped", 0);
    let before = lane
        .records
        .iter()
        .filter(|(_, time, _)| time.millis().unwrap() < 1_700_000_000_000);
    assert_eq!(before.count(), 0, "all are the broker's");
}

#[test]
fn both_readers_leave_out_what_was_aborted_and_pass_what_is_no_record() {
    let Some(broker) = broker() else { return };
    broker.create_topic("transactions", 1).unwrap();
    let mut expected = Vec::new();
    for round in 0..20 {
        let records = numbered(round * 10..round * 10 + 10);
        let outcome = if round % 3 == 1 {
            Outcome::Abort
        } else {
            Outcome::Commit
        };
        broker
            .transaction("transactions", 0, &records, &outcome)
            .unwrap();
        if round % 3 != 1 {
            expected.extend(records);
        }
        broker.produce("transactions", 0, &["between"]).unwrap();
        expected.push("between".to_owned());
    }
    let (lane, end) = assert_same(broker, "transactions", 0);
    assert_eq!(lane.payloads(), expected);
    // Ten records and a marker, and one between, each time.
    assert_eq!(end, 240);
    // An aborted one whose records are interleaved with another's.
    broker.create_topic("interleaved", 1).unwrap();
    let kept = broker
        .open_transaction("interleaved", 0, &numbered(0..5))
        .unwrap();
    let dropped = broker.begin_transaction("interleaved-2").unwrap();
    for (producer, text) in [
        (&dropped, "never"),
        (&kept, "r5"),
        (&dropped, "never"),
        (&kept, "r6"),
    ] {
        let record: BaseRecord<'_, str, str> =
            BaseRecord::to("interleaved").partition(0).payload(text);
        producer.send(record).unwrap();
        producer.flush(PATIENCE).unwrap();
    }
    dropped.abort_transaction(PATIENCE).unwrap();
    kept.commit_transaction(PATIENCE).unwrap();
    let (lane, _) = assert_same(broker, "interleaved", 0);
    assert_eq!(lane.payloads(), numbered(0..7));
}

#[test]
fn an_open_transaction_is_not_the_end_for_either() {
    let Some(broker) = broker() else { return };
    for (at, reader) in READERS.into_iter().enumerate() {
        let topic = format!("opened-{at}");
        broker.create_topic(&topic, 1).unwrap();
        broker.produce(&topic, 0, &["before"]).unwrap();
        let producer = broker.open_transaction(&topic, 0, &["r1", "r2"]).unwrap();
        let mut lane = open(broker, reader, &topic, 0);
        lane.read_for(Duration::from_secs(4)).unwrap();
        assert_eq!(lane.lanes[0].payloads(), ["before"]);
        assert_eq!(lane.reader.at_end(0), None);
        assert!(lane.reader.held_since(0).is_some(), "{reader:?}");
        assert_eq!(lane.reader.log_end(0), Some(3));
        producer.commit_transaction(PATIENCE).unwrap();
        assert_eq!(lane.read_to_end().unwrap(), [4]);
        assert_eq!(lane.lanes[0].payloads(), ["before", "r1", "r2"]);
        assert_eq!(lane.reader.held_since(0), None);
    }
}

#[test]
fn a_broker_that_is_silent_or_gone_is_no_end_and_reading_goes_on_when_it_is_back() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start().unwrap();
    broker.create_topic("silent", 1).unwrap();
    broker.produce("silent", 0, &numbered(0..3)).unwrap();
    let mut lane = open(&broker, KafkaReader::Direct, "silent", 0);
    assert_eq!(lane.read_to_end().unwrap(), [3]);
    broker.freeze().unwrap();
    lane.read_for(Duration::from_millis(2500)).unwrap();
    assert_eq!(lane.reader.at_end(0), None);
    let silent = lane.reader.unanswered(0).unwrap();
    assert!(
        silent.since.elapsed() > Duration::from_secs(2),
        "{silent:?}"
    );
    broker.thaw().unwrap();
    assert_eq!(lane.read_to_end().unwrap(), [3]);
    broker.kill().unwrap();
    lane.read_for(Duration::from_millis(2500)).unwrap();
    assert_eq!(lane.reader.at_end(0), None);
    broker.start_again().unwrap();
    broker.produce("silent", 0, &numbered(3..5)).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while lane.count() < 5 {
        lane.turn().unwrap();
        assert!(Instant::now() < deadline);
    }
    assert_eq!(lane.lanes[0].payloads(), numbered(0..5));
    assert_eq!(lane.read_to_end().unwrap(), [5]);
}

#[test]
fn what_is_gone_or_another_is_an_error_that_names_it() {
    let Some(broker) = broker() else { return };
    let mut lane = open(broker, KafkaReader::Direct, "nowhere", 0);
    let error = lane.read_to_error().unwrap();
    assert!(error.contains("no such topic or partition"), "{error}");

    broker.create_topic("shortened", 1).unwrap();
    broker.produce("shortened", 0, &numbered(0..10)).unwrap();
    broker.delete_records("shortened", 0, 5).unwrap();
    let mut lane = open(broker, KafkaReader::Direct, "shortened", 2);
    let error = lane.read_to_error().unwrap();
    assert!(error.contains("partition 0 has no offset 2"), "{error}");
    let mut lane = open(broker, KafkaReader::Direct, "shortened", 11);
    let error = lane.read_to_error().unwrap();
    assert!(error.contains("partition 0 has no offset 11"), "{error}");

    broker.create_topic("again", 1).unwrap();
    broker.produce("again", 0, &numbered(0..10)).unwrap();
    let mut lane = open(broker, KafkaReader::Direct, "again", 0);
    assert_eq!(lane.read_to_end().unwrap(), [10]);
    broker.delete_topic("again").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = broker.create_topic("again", 1) {
        assert!(Instant::now() < deadline, "{error}");
    }
    broker.produce("again", 0, &numbered(0..20)).unwrap();
    let error = lane.read_to_error().unwrap();
    assert!(
        error.contains("was deleted and made again (id from "),
        "{error}"
    );
    assert_eq!(lane.lanes[0].payloads(), numbered(0..10));

    broker.create_topic("deleted", 1).unwrap();
    broker.produce("deleted", 0, &numbered(0..10)).unwrap();
    let mut lane = open(broker, KafkaReader::Direct, "deleted", 0);
    assert_eq!(lane.read_to_end().unwrap(), [10]);
    broker.delete_topic("deleted").unwrap();
    let error = lane.read_to_error().unwrap();
    assert!(error.contains("no such topic or partition"), "{error}");
}

/// A broker that tells clients to speak to it where nobody is.
#[test]
fn a_broker_that_is_not_where_it_says_is_told_with_that_address() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start_gated(1).unwrap();
    broker.create_topic("misled", 1).unwrap();
    broker.produce("misled", 0, &numbered(0..3)).unwrap();
    // By the gate's port the broker answers, and says the port behind which nobody listens: the gate is not open.
    let gate = &broker.gates()[0];
    let mut lane = Lanes::open(
        &format!("127.0.0.1:{}", gate.behind),
        KafkaReader::Direct,
        "misled",
        &[0],
    )
    .unwrap();
    let error = lane.read_to_error().unwrap();
    let said = format!(
        "127.0.0.1:{}, as broker 1 says of itself: no connection",
        gate.port
    );
    assert!(error.contains(&said), "{error}");
    assert!(
        error.contains("check that it runs, and the address"),
        "{error}"
    );
}
