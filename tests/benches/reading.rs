//! CPU seconds per million records of reading alone, by both readers: librdkafka's batch call with nothing done; each reader
//! into blocks, with fingerprints; and through the lanes' buffers with the node's budget. Records of 238 bytes, from a real
//! broker.
//!
//! `cargo bench -p unisono-tests --bench reading`; `UNISONO_BENCH_EVENTS` (default 2,000,000) and `UNISONO_BENCH_ROUNDS`
//! (default 3) change the load; `UNISONO_BENCH_COMPRESSION` (default `uncompressed`) is how the broker keeps them. CPU time is that of the whole process, all threads.
#![allow(clippy::unwrap_used)]
// The batch call alone is measured as it is offered: by pointers.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::bindings as native;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use unisono::config::{KafkaReader, KafkaSource, Properties, SourceConfig, SourceKind, StartAt};
use unisono::ingest::{LaneBuffer, ReadAhead, SourceFetcher};
use unisono::source::{self, Block, LaneTrail};
use unisono_tests::kafka::TestBroker;

const PARTITIONS: i32 = 4;
const BLOCK: usize = 256 << 10;
const READ_AHEAD: usize = 64 << 20;
/// Linux counts CPU time in such parts of a second.
const TICKS_PER_SECOND: f64 = 100.0;

fn main() {
    let events = setting("UNISONO_BENCH_EVENTS", 2_000_000);
    let rounds = setting("UNISONO_BENCH_ROUNDS", 3);
    let broker = TestBroker::start().unwrap();
    let compression = std::env::var("UNISONO_BENCH_COMPRESSION");
    let compression = compression.unwrap_or_else(|_| "uncompressed".to_owned());
    let kept = [("compression.type", compression.as_str())];
    broker
        .create_topic_with("reading", PARTITIONS, &kept)
        .unwrap();
    let records: Vec<String> = (0..50_000).map(event).collect();
    let each = events / PARTITIONS as usize;
    for partition in 0..PARTITIONS {
        let mut left = each;
        while left > 0 {
            let part = &records[..left.min(records.len())];
            broker.produce("reading", partition, part).unwrap();
            left -= part.len();
        }
    }
    println!(
        "{events} records of 238 bytes in {PARTITIONS} partitions, {compression}, {rounds} rounds"
    );
    let mut figures = [const { Vec::new() }; 5];
    for _ in 0..rounds {
        figures[0].push(measured(events, || batch_call(&broker, events)));
        for (at, reader) in [KafkaReader::Librdkafka, KafkaReader::Direct]
            .into_iter()
            .enumerate()
        {
            let config = config(&broker, reader);
            figures[1 + 2 * at].push(measured(events, || into_blocks(&config, events)));
            figures[2 + 2 * at].push(measured(events, || through_buffers(&config, each)));
        }
    }
    let names = [
        "librdkafka's batch call",
        "librdkafka, blocks",
        "librdkafka, buffers",
        "direct, blocks",
        "direct, buffers",
    ];
    let mut alone = None;
    for (name, figures) in names.iter().zip(&mut figures) {
        figures.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (cpu, wall) = figures[figures.len() / 2];
        let alone = *alone.get_or_insert(cpu);
        println!(
            "{name:<24} {cpu:.3} CPU seconds per million, {wall:.2} s in all, ratio {:.2}",
            cpu / alone
        );
    }
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn event(index: usize) -> String {
    let mut text = format!(
        r#"{{"order_id":{index},"created_at":{},"city":"Taipei","status":"paid","amount":{}.25,"channel":"web","note":""#,
        1_700_000_000_000_usize + index,
        index % 900
    );
    while text.len() < 236 {
        text.push('x');
    }
    text + "\"}"
}

/// CPU seconds per million records, and seconds in all.
fn measured(events: usize, read: impl FnOnce()) -> (f64, f64) {
    let (before, started) = (cpu_seconds(), Instant::now());
    read();
    let wall = started.elapsed().as_secs_f64();
    ((cpu_seconds() - before) * 1e6 / events as f64, wall)
}

fn batch_call(broker: &TestBroker, events: usize) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker.address())
        .set("group.id", "alone")
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true")
        .set("enable.auto.commit", "false")
        .set("fetch.queue.backoff.ms", "10")
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset("reading", partition, Offset::Beginning)
            .unwrap();
    }
    consumer.assign(&list).unwrap();
    let mut messages = vec![std::ptr::null_mut(); 1000];
    let mut count = 0;
    // SAFETY: the client lives as long as its queue, the array has room for all that is asked for, and each message is
    // destroyed once.
    unsafe {
        let queue = native::rd_kafka_queue_get_consumer(consumer.client().native_ptr());
        while count < events {
            let room = messages.as_mut_ptr();
            let taken = native::rd_kafka_consume_batch_queue(queue, 100, room, messages.len());
            for &message in &messages[..usize::try_from(taken).unwrap()] {
                assert!((*message).payload.is_null() || (*message).len == 238);
                native::rd_kafka_message_destroy(message);
                count += 1;
            }
        }
        native::rd_kafka_queue_destroy(queue);
    }
}

fn config(broker: &TestBroker, reader: KafkaReader) -> SourceConfig {
    SourceConfig {
        name: "reading".to_owned(),
        kind: SourceKind::Kafka(KafkaSource {
            brokers: broker.address(),
            topic: "reading".to_owned(),
            start: StartAt::Earliest,
            reader,
            properties: Properties::default(),
        }),
    }
}

fn into_blocks(config: &SourceConfig, events: usize) {
    let share = READ_AHEAD / 4 / PARTITIONS as usize;
    let signal = Arc::default();
    let mut reader = source::open(config, share, &signal).unwrap();
    let trail = |lane: i32| LaneTrail::new(&lane.to_string(), 0, "");
    let trails: Vec<LaneTrail> = (0..PARTITIONS).map(trail).collect();
    let lanes = trails.iter().map(|trail| reader.open(trail, &[]).unwrap());
    let lanes: Vec<usize> = lanes.collect();
    let mut block = Block::default();
    let (mut count, mut running) = (0, 0);
    while count < events {
        let before = count;
        for (&lane, trail) in lanes.iter().zip(&trails) {
            block.clear();
            count += reader.fill(lane, trail, &mut block, BLOCK).unwrap();
            running = block.seal(running);
        }
        if count == before {
            signal.wait(reader.pause().min(Duration::from_millis(100)));
        }
    }
    assert_ne!(running, 0);
}

fn through_buffers(config: &SourceConfig, each: usize) {
    let read_ahead = ReadAhead::new(READ_AHEAD);
    let fetcher = SourceFetcher::start(config.clone(), &read_ahead).unwrap();
    let trail = |lane: i32| LaneTrail::new(&lane.to_string(), 0, "");
    let add = |lane: i32| (0_i64, fetcher.add_lane(trail(lane), false));
    let mut lanes: Vec<(i64, Arc<LaneBuffer>)> = (0..PARTITIONS).map(add).collect();
    let each = i64::try_from(each).unwrap();
    while lanes.iter().any(|(taken, _)| *taken < each) {
        let mut idle = true;
        for (taken, lane) in &mut lanes {
            if let Some(choice) = lane.choose_cut(*taken, 8 << 20) {
                let parts = lane.take(*taken, choice.cut, choice.fingerprint);
                assert!(!parts.unwrap().is_empty());
                *taken = choice.cut;
                idle = false;
            }
        }
        if idle {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// User and system time of this process, all threads.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name in parentheses may hold spaces; utime and stime are fields 14 and 15.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / TICKS_PER_SECOND
}
