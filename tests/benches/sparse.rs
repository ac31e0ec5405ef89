//! Reading when little comes: CPU of a core, and how long a record takes from its producer's hand to the worker, by both
//! readers, at 1, 100 and 10,000 records a second over 1, 30 and 300 partitions of a real broker. And the CPU of a whole
//! replica, alone, that reads 300 of them.
//!
//! `cargo bench -p unisono-tests --bench sparse`; `UNISONO_BENCH_SECONDS` (default 10) is how long each figure is measured,
//! `UNISONO_BENCH_PARTITIONS=300` and `UNISONO_BENCH_RATE=100` measure those alone. The
//! producer is a process of its own, which sends each record at once, or 10,000 a second 5 ms later; the CPU is that of the process which reads, all threads.
#![allow(clippy::unwrap_used)]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use tokio::sync::Notify;
use unisono::config::{KafkaReader, KafkaSource, Properties, SourceConfig, SourceKind, StartAt};
use unisono::ingest::{LaneBuffer, ReadAhead, SourceFetcher};
use unisono::source::LaneTrail;
use unisono_tests::bench::cpu;
use unisono_tests::bench::live::{now_ms, quantile, streams};
use unisono_tests::bench::{Cluster, Table, setting};
use unisono_tests::kafka::TestBroker;

const READ_AHEAD: usize = 64 << 20;
/// What a reader that has just begun does is not measured.
const WARM: Duration = Duration::from_secs(3);
/// Where to, how many partitions, and how many records a second, for the producer.
const ASKED: &str = "UNISONO_BENCH_SPARSE";

fn main() -> Result<()> {
    if let Ok(asked) = std::env::var(ASKED) {
        return produce(&asked);
    }
    let seconds = Duration::from_secs(setting("UNISONO_BENCH_SECONDS", 10)?);
    let broker = TestBroker::start()?;
    let mut table = Table::new(&[
        "partitions",
        "records a second",
        "reader",
        "% of a core",
        "to the worker ms p50",
        "p99",
    ]);
    let partitions = setting("UNISONO_BENCH_PARTITIONS", 0)?;
    let only_rate = setting("UNISONO_BENCH_RATE", 0)?;
    let is_left_out = |only: u64, it: u64| only != 0 && only != it;
    for lanes in [1, 30, 300] {
        let topic = format!("sparse{lanes}");
        broker.create_topic(&topic, lanes)?;
        for rate in [1, 100, 10_000] {
            if is_left_out(partitions, lanes as u64) || is_left_out(only_rate, u64::from(rate)) {
                continue;
            }
            let load = Load::start(&broker, &topic, lanes, rate)?;
            for reader in [KafkaReader::Direct, KafkaReader::Librdkafka] {
                let (share, delays) = read(&config(&broker, &topic, reader), lanes, seconds)?;
                table.line(&[
                    lanes.to_string(),
                    rate.to_string(),
                    format!("{reader:?}"),
                    format!("{share:.2}"),
                    format!("{:.1}", quantile(&delays, 0.5)),
                    format!("{:.1}", quantile(&delays, 0.99)),
                ]);
            }
            drop(load);
        }
    }
    table.print();
    whole(&broker, seconds)
}

/// One replica with a pipeline; its windows of 200 ms close all the time.
fn whole(broker: &TestBroker, seconds: Duration) -> Result<()> {
    let sections = streams(&broker.address(), "sparse300", 1);
    let replica = Cluster::start(1, "", &sections)?;
    replica.wait_ready(Duration::from_secs(60))?;
    for rate in [0, 100] {
        let load = match rate {
            0 => None,
            rate => Some(Load::start(broker, "sparse300", 300, rate)?),
        };
        std::thread::sleep(WARM);
        let before = (Instant::now(), replica.cpu()?);
        std::thread::sleep(seconds);
        let share = (replica.cpu()? - before.1) / before.0.elapsed().as_secs_f64() * 100.0;
        println!(
            "a replica that reads 300 partitions, {rate} records a second: {share:.2} % of a core"
        );
        drop(load);
    }
    Ok(())
}

fn config(broker: &TestBroker, topic: &str, reader: KafkaReader) -> SourceConfig {
    SourceConfig {
        name: "sparse".to_owned(),
        kind: SourceKind::Kafka(KafkaSource {
            brokers: broker.address(),
            topic: topic.to_owned(),
            start: StartAt::Earliest,
            reader,
            properties: Properties::default(),
        }),
    }
}

/// Reads for a while; the share of a core, and how old records were, in milliseconds.
fn read(config: &SourceConfig, lanes: i32, seconds: Duration) -> Result<(f64, Vec<f64>)> {
    let read_ahead = ReadAhead::new(READ_AHEAD);
    let fetcher = SourceFetcher::start(config.clone(), &read_ahead)?;
    let add = |lane: i32| {
        let trail = LaneTrail::new(&lane.to_string(), 0, "");
        (0, fetcher.add_lane(trail, false))
    };
    let mut lanes: Vec<(i64, Arc<LaneBuffer>)> = (0..lanes).map(add).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let arrivals = Arc::new(Notify::new());
    let mut delays = Vec::new();
    let mut take_until = |end: Instant| {
        delays.clear();
        while Instant::now() < end {
            lanes
                .iter()
                .for_each(|(_, lane)| lane.tell_arrival(&arrivals, 0));
            let came = lanes
                .iter_mut()
                .filter_map(|(taken, lane)| take(taken, lane));
            let before = delays.len();
            delays.extend(came.flatten());
            if delays.len() == before {
                let left = end.saturating_duration_since(Instant::now());
                let _ = runtime
                    .block_on(async { tokio::time::timeout(left, arrivals.notified()).await });
            }
        }
    };
    take_until(Instant::now() + WARM);
    let before = (Instant::now(), cpu("self")?);
    take_until(before.0 + seconds);
    let share = (cpu("self")? - before.1) / before.0.elapsed().as_secs_f64() * 100.0;
    Ok((share, delays))
}

/// What has come of a lane: how old each record is.
fn take(taken: &mut i64, lane: &LaneBuffer) -> Option<Vec<f64>> {
    let choice = lane.choose_cut(*taken, READ_AHEAD)?;
    let parts = lane.take(*taken, choice.cut, choice.fingerprint).unwrap();
    *taken = choice.cut;
    let now = now_ms();
    let records = parts
        .iter()
        .flat_map(|(block, range)| range.clone().map(|at| block.record(at)));
    let age = |payload: &[u8]| {
        now - std::str::from_utf8(payload)
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    Some(
        records
            .filter_map(|record| record.payload.map(age))
            .collect(),
    )
}

/// A process that produces until this is dropped.
struct Load(Child);

impl Load {
    fn start(broker: &TestBroker, topic: &str, lanes: i32, rate: u32) -> Result<Self> {
        let asked = format!("{} {topic} {lanes} {rate}", broker.address());
        let child = Command::new(std::env::current_exe()?)
            .env(ASKED, asked)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends the time, evenly, to all partitions by turns. It ends by itself when whoever started it has long ended.
fn produce(asked: &str) -> Result<()> {
    let parts: Vec<&str> = asked.split(' ').collect();
    let [brokers, topic, lanes, rate] = parts[..] else {
        anyhow::bail!("{ASKED} is to have four parts");
    };
    let (lanes, rate): (i32, u32) = (lanes.parse()?, rate.parse()?);
    // Many records are sent together, as producers do: the broker shares the cores with the reader.
    let linger = if rate > 1000 { "5" } else { "0" };
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("linger.ms", linger);
    let producer: ThreadedProducer<DefaultProducerContext> = config.create()?;
    let began = Instant::now();
    let mut sent: i32 = 0;
    while began.elapsed() < Duration::from_secs(300) {
        let due = Duration::from_secs_f64(f64::from(sent) / f64::from(rate));
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let (partition, now) = (sent % lanes, now_ms().to_string());
        let record: BaseRecord<'_, (), str> =
            BaseRecord::to(topic).partition(partition).payload(&now);
        // A full queue is a load that the broker does not bear.
        producer.send(record).map_err(|(error, _)| error)?;
        sent += 1;
    }
    producer
        .flush(Duration::from_secs(10))
        .context("the broker did not take the records")
}
