//! CPU seconds per million events of one replica: a filtered count in windows of 10 s over JSON events of 238 bytes, read
//! from a real broker. Beside it, in the same run, a loop that only reads the topic with the same client library.
//!
//! `cargo bench -p unisono-tests --bench throughput`; `UNISONO_BENCH_EVENTS` (default 4,000,000) and
//! `UNISONO_BENCH_ROUNDS` (default 3) change the load. CPU time is that of the whole process, all threads.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{Message, Offset, TopicPartitionList};
use unisono_tests::kafka::TestBroker;
use unisono_tests::unisono_binary;

const PARTITIONS: i32 = 3;
const EVENT_BYTES: usize = 238;
/// Linux counts CPU time in such parts of a second.
const TICKS_PER_SECOND: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(600);

fn main() -> Result<()> {
    let events = setting("UNISONO_BENCH_EVENTS", 4_000_000)?;
    let rounds = setting("UNISONO_BENCH_ROUNDS", 3)?;
    let broker = TestBroker::start()?;
    let address = broker.address();
    broker.create_topic("events", PARTITIONS)?;
    produce(&address, events)?;
    println!("{events} events of {EVENT_BYTES} bytes in {PARTITIONS} partitions");
    let (mut client, mut replica) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        client.push(read_alone(&address, events)?);
        replica.push(run_replica(&address, events)?);
    }
    println!("CPU seconds per million events, median of {rounds} rounds (least to most):");
    let alone = report("the client alone", &mut client);
    let ours = report("one replica", &mut replica);
    println!("  ratio             {:.2}", ours / alone);
    Ok(())
}

fn setting(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{name} must be a number")),
        Err(_) => Ok(default),
    }
}

fn report(name: &str, figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    let median = figures[figures.len() / 2];
    let (least, most) = (figures[0], figures[figures.len() - 1]);
    println!("  {name:<17} {median:.2} ({least:.2} to {most:.2})");
    median
}

/// One event, padded to the size: event times go forward by 1 ms each thousand events.
fn event(index: u64, text: &mut String) {
    use std::fmt::Write as _;
    const CITIES: [&str; 5] = ["Taipei", "Oslo", "Lagos", "Quito", "Perth"];
    text.clear();
    let status = if index.is_multiple_of(3) {
        "open"
    } else {
        "paid"
    };
    let city = CITIES[(index % 5) as usize];
    let time = 1_700_000_000_000 + index / 100;
    // Writing to a String does not fail.
    let _ = write!(
        text,
        r#"{{"order_id":{index},"created_at":{time},"city":"{city}","status":"{status}","amount":{}.{:02},"channel":"web","note":""#,
        index % 900,
        index % 100
    );
    while text.len() < EVENT_BYTES - 2 {
        text.push('x');
    }
    text.push_str("\"}");
}

fn produce(brokers: &str, events: u64) -> Result<()> {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("linger.ms", "20")
        .set("batch.num.messages", "100000")
        .set("batch.size", "1000000")
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    let mut text = String::new();
    for index in 0..events {
        event(index, &mut text);
        let partition = (index % PARTITIONS as u64) as i32;
        let mut record: BaseRecord<'_, (), str> =
            BaseRecord::to("events").partition(partition).payload(&text);
        while let Err((_, refused)) = producer.send(record) {
            record = refused;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    producer
        .flush(Duration::from_secs(60))
        .context("the broker did not take the events")
}

/// The same client, set up alike, that counts messages and does nothing with them.
fn read_alone(brokers: &str, events: u64) -> Result<f64> {
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
    let before = cpu_seconds("self")?;
    consumer.assign(&list)?;
    let (mut count, mut bytes) = (0, 0);
    let started = Instant::now();
    while count < events {
        ensure!(
            started.elapsed() < PATIENCE,
            "the client read {count} of {events} events"
        );
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            bytes += message?.payload().map_or(0, <[u8]>::len);
            count += 1;
        }
    }
    ensure!(
        bytes as u64 == events * EVENT_BYTES as u64,
        "events have other sizes"
    );
    Ok((cpu_seconds("self")? - before) * 1e6 / events as f64)
}

/// A replica alone in its cluster, from its start until it has taken all events in.
fn run_replica(brokers: &str, events: u64) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let (http, raft) = (free_address()?, free_address()?);
    let config = dir.path().join("unisono.toml");
    let text = format!(
        r#"data_dir = "data"
[node]
id = 1
http = "{http}"
[cluster]
peers = {{ 1 = "{raft}" }}
[[source]]
name = "events"
kafka = {{ brokers = "{brokers}", topic = "events" }}
[[pipeline]]
name = "paid"
sources = ["events"]
time = {{ field = "created_at", format = "ms" }}
where = "status = 'paid'"
window = {{ size = "10s" }}
close = {{ lag = "5s" }}
values = {{ orders = "count()" }}
"#
    );
    std::fs::write(&config, text)?;
    let mut replica = Replica::start(&config)?;
    let pid = replica.0.id().to_string();
    let started = Instant::now();
    loop {
        ensure!(
            started.elapsed() < PATIENCE,
            "the replica did not take all events in"
        );
        if let Some(status) = replica.0.try_wait()? {
            bail!("the replica ended: {status}");
        }
        if records(&http).is_some_and(|records| records >= events) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(cpu_seconds(&pid)? * 1e6 / events as f64)
}

/// A process that ends with its owner.
struct Replica(Child);

impl Replica {
    fn start(config: &Path) -> Result<Self> {
        let mut command = Command::new(unisono_binary());
        command
            .args(["serve", "--log", "warn", "--config"])
            .arg(config);
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Records that the pipeline has taken in; `None` while the replica does not answer.
fn records(http: &str) -> Option<u64> {
    let mut stream = TcpStream::connect(http).ok()?;
    let request =
        format!("GET /v1/pipelines HTTP/1.1\r\nhost: {http}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let body = answer.split_once("\r\n\r\n")?.1;
    let pipelines: serde_json::Value = serde_json::from_str(body).ok()?;
    pipelines["pipelines"][0]["counters"]["records"].as_u64()
}

/// User and system time of a process, all threads.
fn cpu_seconds(process: &str) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold spaces; utime and stime are fields 14 and 15.
    let after_name = stat
        .rsplit_once(')')
        .context("an unknown form of /proc/…/stat")?
        .1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}
