//! The direct reader where several brokers share a topic: leaders that die, and a log that loses its end.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use unisono::config::{self, KafkaReader, Properties, SourceConfig, SourceKind, StartAt};
use unisono::signal::Signal;
use unisono::source::{self, Block, LaneTrail, SourceError, SourceReader};
use unisono_tests::kafka::{TestBroker, TestBrokers};

const PATIENCE: Duration = Duration::from_secs(60);

/// A topic's lanes, as a reading thread reads them.
struct Lanes {
    reader: Box<dyn SourceReader>,
    signal: Arc<Signal>,
    lanes: Vec<(usize, LaneTrail)>,
    records: Vec<Vec<(i64, String)>>,
}

impl Lanes {
    fn open(brokers: &TestBrokers, topic: &str, count: usize) -> Self {
        let kind = SourceKind::Kafka(config::KafkaSource {
            brokers: brokers.addresses(),
            topic: topic.to_owned(),
            start: StartAt::Earliest,
            reader: KafkaReader::Direct,
            properties: Properties::new(BTreeMap::new()),
        });
        let name = topic.to_owned();
        let signal = Arc::default();
        let mut reader = source::open(&SourceConfig { name, kind }, 1 << 20, &signal).unwrap();
        let mut lanes = Vec::new();
        for partition in 0..count {
            let trail = LaneTrail::new(&partition.to_string(), 0, "");
            lanes.push((reader.open(&trail, &[]).unwrap(), trail));
        }
        Self {
            reader,
            signal,
            lanes,
            records: vec![Vec::new(); count],
        }
    }

    /// One turn of each lane.
    fn turn(&mut self) -> Result<(), SourceError> {
        let mut block = Block::default();
        for ((index, trail), records) in self.lanes.iter_mut().zip(&mut self.records) {
            block.clear();
            let filled = self.reader.fill(*index, trail, &mut block, 256 << 10);
            trail.pass(&mut block);
            let text = |payload: Option<&[u8]>| {
                String::from_utf8_lossy(payload.unwrap_or_default()).into_owned()
            };
            records.extend(
                block
                    .records()
                    .map(|record| (record.offset, text(record.payload))),
            );
            filled?;
        }
        let pause = self.reader.pause().min(Duration::from_millis(5));
        self.signal.wait(pause);
        Ok(())
    }

    fn count(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }

    fn turn_until(&mut self, what: &str, done: impl Fn(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            self.turn().unwrap();
            assert!(
                Instant::now() < deadline,
                "not {what} after {} records",
                self.count()
            );
        }
    }
}

fn kills() -> usize {
    let kills = std::env::var("UNISONO_DRILL_KILLS").unwrap_or_default();
    kills.parse().unwrap_or(3)
}

/// Numbers, in turn to all partitions, until it is told to stop; gives how many.
fn produce(brokers: &TestBrokers, topic: &str, stop: &AtomicBool) -> usize {
    let mut config = brokers.config();
    config
        .set("enable.idempotence", "true")
        .set("linger.ms", "2");
    config.set("message.timeout.ms", "120000");
    let producer: BaseProducer = config.create().unwrap();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..20 {
            let text = number.to_string();
            let partition = i32::try_from(number % 3).unwrap();
            let record: BaseRecord<'_, str, str> =
                BaseRecord::to(topic).partition(partition).payload(&text);
            if producer.send(record).is_ok() {
                number += 1;
            }
        }
        producer.poll(Duration::from_millis(10));
    }
    producer.flush(PATIENCE).unwrap();
    number
}

#[test]
fn leaders_that_die_lose_no_record_and_give_none_twice() {
    if TestBroker::skipped() {
        return;
    }
    let brokers = TestBrokers::start().unwrap();
    let replicas: &[&[i32]] = &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]];
    brokers
        .create_topic("numbers", replicas, &[("min.insync.replicas", "2")])
        .unwrap();
    let stop = AtomicBool::new(false);
    let mut lanes = Lanes::open(&brokers, "numbers", 3);
    let produced = std::thread::scope(|scope| {
        let producing = scope.spawn(|| produce(&brokers, "numbers", &stop));
        // A lane that never heard of its leader says so after a while; those that did wait for the next one.
        lanes.turn_until("begun", |lanes| {
            lanes.records.iter().all(|records| !records.is_empty())
        });
        let killing = scope.spawn(|| {
            for round in 0..kills() {
                let all = |_: i32, in_sync: &[i32]| in_sync.len() == 3;
                let partition = i32::try_from(round % 3).unwrap();
                let leader = brokers
                    .wait_leader("numbers", partition, None, all)
                    .unwrap();
                brokers.broker(leader).kill().unwrap();
                let another = |now: i32, _: &[i32]| now > 0 && now != leader;
                brokers
                    .wait_leader("numbers", partition, Some(leader), another)
                    .unwrap();
                brokers.broker(leader).start_again().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !killing.is_finished() {
            lanes.turn().unwrap();
        }
        killing.join().unwrap();
        producing.join().unwrap()
    });
    lanes.turn_until("all read", |lanes| lanes.count() >= produced);
    lanes.turn_until("at the end", |lanes| {
        let indexes: Vec<usize> = lanes.lanes.iter().map(|(index, _)| *index).collect();
        indexes
            .into_iter()
            .all(|index| lanes.reader.at_end(index).is_some())
    });
    for (partition, records) in lanes.records.iter().enumerate() {
        assert!(records.is_sorted_by_key(|(offset, _)| *offset));
        let found = records.iter().map(|(_, text)| text.clone());
        let expected = (partition..produced)
            .step_by(3)
            .map(|number| number.to_string());
        assert!(found.eq(expected), "partition {partition}");
    }
    println!("{produced} records, {} leaders killed", kills());
}

#[test]
fn a_log_that_loses_its_end_with_its_leader_stops_the_lane_and_names_the_epochs() {
    if TestBroker::skipped() {
        return;
    }
    let brokers = TestBrokers::start().unwrap();
    let unclean = [
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "1"),
    ];
    brokers.create_topic("cut", &[&[1, 2]], &unclean).unwrap();
    let both = |leader: i32, in_sync: &[i32]| leader > 0 && in_sync.len() == 2;
    let leader = brokers.wait_leader("cut", 0, None, both).unwrap();
    let follower = 3 - leader;
    let producer: BaseProducer = brokers.config().create().unwrap();
    let send = |texts: &[&str]| {
        for text in texts {
            let record: BaseRecord<'_, str, str> = BaseRecord::to("cut").partition(0).payload(text);
            producer.send(record).unwrap();
        }
        producer.flush(PATIENCE).unwrap();
    };
    send(&["kept"; 10]);
    brokers.broker(follower).kill().unwrap();
    brokers
        .wait_leader("cut", 0, Some(follower), |_, in_sync| in_sync == [leader])
        .unwrap();
    send(&["lost"; 10]);
    let mut lanes = Lanes::open(&brokers, "cut", 1);
    lanes.turn_until("read", |lanes| lanes.count() == 20);
    brokers.broker(leader).kill().unwrap();
    brokers.broker(follower).start_again().unwrap();
    brokers
        .wait_leader("cut", 0, Some(leader), |now, _| now == follower)
        .unwrap();
    send(&["other"; 30]);
    let deadline = Instant::now() + PATIENCE;
    let error = loop {
        if let Err(error) = lanes.turn() {
            break error.to_string();
        }
        assert!(Instant::now() < deadline, "{:?}", lanes.records);
    };
    assert!(
        error.contains("the log was cut: what was read up to offset 20"),
        "{error}"
    );
    assert!(
        error.contains("but the log ends at offset 10 in epoch"),
        "{error}"
    );
    assert_eq!(lanes.count(), 20, "nothing of the other history was given");
}
