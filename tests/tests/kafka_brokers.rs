//! The direct reader where several brokers share a topic: leaders that die, and a log that loses its end.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use unisono::config::{KafkaReader, Properties};
use unisono_chaos::gate::Place;
use unisono_tests::kafka::{Lanes, TestBroker, TestBrokers};

const PATIENCE: Duration = Duration::from_secs(60);

/// By a reader in that rack; empty: in none.
fn open(brokers: &TestBrokers, topic: &str, lanes: usize, rack: &str) -> Lanes {
    open_by(&brokers.addresses(), topic, lanes, rack)
}

fn open_by(address: &str, topic: &str, lanes: usize, rack: &str) -> Lanes {
    let from = vec![0; lanes];
    let rack = ("client.rack".to_owned(), rack.to_owned());
    let properties = Properties::new([rack].into_iter().collect());
    Lanes::open_with(address, KafkaReader::Direct, topic, &from, properties).unwrap()
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

/// Reads a topic of three partitions that is written to, by a reader in no rack and one in a rack, while `disturb` runs; all
/// that was written is read, once, in order.
fn read_while(brokers: &TestBrokers, topic: &str, disturb: impl FnOnce() + Send) {
    let stop = AtomicBool::new(false);
    let mut readers = ["", "2"].map(|rack| open(brokers, topic, 3, rack));
    let produced = std::thread::scope(|scope| {
        let producing = scope.spawn(|| produce(brokers, topic, &stop));
        // A lane that never heard of its leader says so after a while; those that did wait for the next one.
        let begun = |lanes: &mut Lanes| lanes.lanes.iter().all(|lane| !lane.records.is_empty());
        for lanes in &mut readers {
            lanes.turn_until("begun", begun).unwrap();
        }
        let disturbing = scope.spawn(|| {
            disturb();
            stop.store(true, Ordering::Relaxed);
        });
        while !disturbing.is_finished() {
            for lanes in &mut readers {
                lanes.turn().unwrap();
            }
        }
        disturbing.join().unwrap();
        producing.join().unwrap()
    });
    for lanes in &mut readers {
        let all = |lanes: &mut Lanes| lanes.count() >= produced;
        lanes.turn_until("all read", all).unwrap();
        lanes.read_to_end().unwrap();
        for (partition, lane) in lanes.lanes.iter().enumerate() {
            assert!(lane.records.is_sorted_by_key(|(offset, ..)| *offset));
            let expected = (partition..produced)
                .step_by(3)
                .map(|number| number.to_string());
            assert!(
                lane.payloads().into_iter().eq(expected),
                "partition {partition}"
            );
        }
    }
    println!("{produced} records");
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
    read_while(&brokers, "numbers", || {
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
    });
    println!("{} leaders killed", kills());
}

#[test]
fn partitions_that_move_to_other_brokers_lose_no_record_and_give_none_twice() {
    if TestBroker::skipped() {
        return;
    }
    let brokers = TestBrokers::start().unwrap();
    // No leader of a round holds its partition in the next one.
    let placed = |round: i32| -> Vec<Vec<i32>> {
        let broker = |at: i32| (round + at).rem_euclid(3) + 1;
        (0..3)
            .map(|partition| vec![broker(partition), broker(partition + 1)])
            .collect()
    };
    let first = placed(0);
    let replicas: Vec<&[i32]> = first.iter().map(Vec::as_slice).collect();
    brokers.create_topic("moved", &replicas, &[]).unwrap();
    read_while(&brokers, "moved", || {
        for round in 1..=4 {
            brokers.reassign("moved", &placed(round)).unwrap();
        }
    });
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
    let racks = [String::new(), follower.to_string()];
    let mut readers = racks.map(|rack| open(&brokers, "cut", 1, &rack));
    for lanes in &mut readers {
        let read = |lanes: &mut Lanes| lanes.count() == 20;
        lanes.turn_until("read", read).unwrap();
    }
    brokers.broker(leader).kill().unwrap();
    brokers.broker(follower).start_again().unwrap();
    brokers
        .wait_leader("cut", 0, Some(leader), |now, _| now == follower)
        .unwrap();
    send(&["other"; 30]);
    for lanes in &mut readers {
        let error = lanes.read_to_error().unwrap();
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
}

/// Forwards what comes by a gate; gives how many bytes the broker has said.
fn count(gate: Place) -> Arc<AtomicU64> {
    let said = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&said);
    let listener = TcpListener::bind(("127.0.0.1", gate.port)).unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(broker) = TcpStream::connect(("127.0.0.1", gate.behind)) else {
                continue;
            };
            let (asks, answers) = (client.try_clone().unwrap(), broker.try_clone().unwrap());
            std::thread::spawn(move || copy(asks, broker, &AtomicU64::new(0)));
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || copy(answers, client, &counted));
        }
    });
    said
}

fn copy(mut from: TcpStream, mut to: TcpStream, counted: &AtomicU64) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        counted.fetch_add(count as u64, Ordering::Relaxed);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// All so many records, and then the end.
fn read_up_to(lane: &mut Lanes, end: usize) {
    let all = |lane: &mut Lanes| lane.count() == end;
    lane.turn_until("all read", all).unwrap();
    assert_eq!(lane.read_to_end().unwrap(), [end as i64]);
}

#[test]
fn a_reader_in_a_rack_reads_there_and_by_the_leader_where_that_fails() {
    if TestBroker::skipped() {
        return;
    }
    let brokers = TestBrokers::start().unwrap();
    let said = [1, 2, 3].map(|node| count(brokers.broker(node).gates()[0]));
    let said = || said.each_ref().map(|said| said.load(Ordering::Relaxed));
    brokers.create_topic("near", &[&[1, 2, 3]], &[]).unwrap();
    let in_sync = |leader: i32, in_sync: &[i32]| leader == 1 && in_sync.len() == 3;
    brokers.wait_leader("near", 0, None, in_sync).unwrap();
    let batch: Vec<String> = (0..2000).map(|number| format!("{number:01000}")).collect();
    let first = brokers.broker(1);
    first.produce("near", 0, &batch).unwrap();
    let gate = first.gates()[0].port;
    let open = |rack: &str| open_by(&format!("127.0.0.1:{gate}"), "near", 1, rack);
    let mut lane = open("2");
    assert_eq!(lane.read_to_end().unwrap(), [2000]);
    let [by_leader, by_replica, by_other] = said();
    assert!(
        by_replica > 2_000_000 && by_leader < 300_000 && by_other < 300_000,
        "{:?}",
        said()
    );
    // What comes, comes from there too; it is at the end again and again.
    for round in 1..4 {
        first.produce("near", 0, &batch[..100]).unwrap();
        read_up_to(&mut lane, 2000 + round * 100);
    }
    assert!(said()[1] - by_replica > 300_000, "{:?}", said());
    assert!(said()[0] - by_leader < 200_000, "{:?}", said());
    // Nobody there: by the leader.
    brokers.broker(2).kill().unwrap();
    let without = |_: i32, in_sync: &[i32]| !in_sync.contains(&2);
    brokers.wait_leader("near", 0, Some(2), without).unwrap();
    first.produce("near", 0, &batch[..100]).unwrap();
    read_up_to(&mut lane, 2400);
    let expected: Vec<&String> = batch
        .iter()
        .chain(batch[..100].iter().cycle().take(400))
        .collect();
    assert!(lane.lanes[0].payloads().iter().eq(expected));
    // A rack without a replica is none.
    let mut elsewhere = open("elsewhere");
    assert_eq!(elsewhere.read_to_end().unwrap(), [2400]);
}
