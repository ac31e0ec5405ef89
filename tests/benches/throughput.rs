//! CPU, wall-clock time and memory of the replay of a topic: views counted by 1,000 ads, in three shapes of windows, by one
//! replica and by three. Beside them, in the same run, a loop that only reads the topic with the same client library.
//!
//! `cargo bench -p unisono-tests --bench throughput`; `UNISONO_BENCH_EVENTS` (default 5,000,000) and `UNISONO_BENCH_ROUNDS`
//! (default 3) change the load, `UNISONO` the program. CPU time is that of whole processes, all threads, start included.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Message, Offset, TopicPartitionList};
use unisono_tests::bench::{Cluster, EVENT_BYTES, Events, Table, cpu, figure, fill_topic, median};
use unisono_tests::bench::{program, setting};
use unisono_tests::kafka::TestBroker;

const PARTITIONS: i32 = 4;
const WINDOWS: [(&str, &str, &str); 3] = [
    ("tumbling 10 s", "10s", "10s"),
    ("hop 10 s / 1 s", "10s", "1s"),
    ("hop 60 s / 1 s", "60s", "1s"),
];
const PATIENCE: Duration = Duration::from_secs(600);

/// The figures of one line of the table, a value for each round.
#[derive(Default)]
struct Line {
    cpu: Vec<f64>,
    wall: Vec<f64>,
    peak: Vec<f64>,
}

fn main() -> Result<()> {
    let events = setting("UNISONO_BENCH_EVENTS", 5_000_000)?;
    let rounds = setting("UNISONO_BENCH_ROUNDS", 3)?;
    // Before anything is measured: it may have to be built.
    println!("program: {}", program().display());
    let broker = TestBroker::start()?;
    let address = broker.address();
    broker.create_topic("events", PARTITIONS)?;
    fill_topic(
        &address,
        "events",
        PARTITIONS as u64,
        &mut Events::default(),
        events,
    )?;
    println!("{events} events of {EVENT_BYTES} bytes in {PARTITIONS} partitions, {rounds} rounds");
    let mut client = Line::default();
    let mut ours: Vec<(&str, u16, Line)> = WINDOWS
        .iter()
        .flat_map(|window| [1, 3].map(|replicas| (window.0, replicas, Line::default())))
        .collect();
    for _ in 0..rounds {
        read_alone(&address, events, &mut client)?;
        for (name, replicas, line) in &mut ours {
            replay(&address, events, name, *replicas, line)?;
        }
    }
    report(&client, &ours);
    Ok(())
}

fn report(client: &Line, ours: &[(&str, u16, Line)]) {
    let mut table = Table::new(&[
        "windows",
        "replicas",
        "CPU-s per M events",
        "against the client alone",
        "wall s",
        "peak MiB of a replica",
    ]);
    let alone = median(&client.cpu);
    table.line(&[
        "the client alone".into(),
        String::new(),
        figure(&client.cpu, 2),
        "1".into(),
        figure(&client.wall, 1),
        String::new(),
    ]);
    for (name, replicas, line) in ours {
        table.line(&[
            (*name).to_owned(),
            replicas.to_string(),
            figure(&line.cpu, 2),
            format!("{:.2}", median(&line.cpu) / alone),
            figure(&line.wall, 1),
            figure(&line.peak, 0),
        ]);
    }
    table.print();
}

/// The same client, set up alike, that counts messages and does nothing with them.
fn read_alone(brokers: &str, events: u64, line: &mut Line) -> Result<()> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "alone")
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true")
        .set("enable.auto.commit", "false")
        .set("queued.min.messages", "100000")
        .set("fetch.queue.backoff.ms", "10")
        .create()?;
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset("events", partition, Offset::Beginning)?;
    }
    let before = cpu("self")?;
    let started = Instant::now();
    consumer.assign(&list)?;
    let (mut count, mut bytes) = (0, 0);
    while count < events {
        ensure!(
            started.elapsed() < PATIENCE,
            "the client read {count} of {events} events"
        );
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            bytes += message?.payload().map_or(0, <[u8]>::len) as u64;
            count += 1;
        }
    }
    ensure!(bytes / events == EVENT_BYTES, "events have other sizes");
    line.cpu.push((cpu("self")? - before) * 1e6 / events as f64);
    line.wall.push(started.elapsed().as_secs_f64());
    Ok(())
}

/// From the start of the processes until all of them have taken all events in.
fn replay(brokers: &str, events: u64, name: &str, replicas: u16, line: &mut Line) -> Result<()> {
    let window = WINDOWS.iter().find(|window| window.0 == name);
    let (_, size, slide) = window.unwrap_or(&WINDOWS[0]);
    let streams = format!(
        r#"
[[source]]
name = "events"
kafka = {{ brokers = "{brokers}", topic = "events" }}
[[pipeline]]
name = "views"
sources = ["events"]
time = {{ field = "event_time", format = "ms" }}
where = "event_type = 'view'"
group_by = ["ad_id"]
window = {{ size = "{size}", slide = "{slide}" }}
close = {{ lag = "500ms" }}
values = {{ n = "count()" }}
"#
    );
    let started = Instant::now();
    let mut cluster = Cluster::start(replicas, "", &streams)?;
    cluster.wait_records(1, events)?;
    line.wall.push(started.elapsed().as_secs_f64());
    line.cpu.push(cluster.cpu()? * 1e6 / events as f64);
    line.peak.push(cluster.peak()?);
    Ok(())
}
