//! What one transaction of a Kafka sink takes, by its parts, with nothing of ours around it: ten rows to one topic and a record to
//! another, as a sink's client sends them, ten times a second, and a `read_committed` reader.
//!
//! `cargo bench -p unisono-tests --bench transaction`; `UNISONO_BENCH_TIMES` (default 200) is how many there are,
//! `UNISONO_BENCH_PROPERTIES` further properties of the producer, as `linger.ms=1,debug=eos`.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use unisono_tests::bench::live::{make_topics, quantile};
use unisono_tests::bench::{Table, setting};
use unisono_tests::kafka::TestBroker;

const ROWS: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// The first ones warm broker and client.
const WARM: u64 = 20;
const WITHIN: Duration = Duration::from_secs(10);

/// When each part of a transaction was done, since its beginning.
struct Parts {
    taken: Duration,
    committed: Duration,
    readable: Duration,
}

fn main() -> Result<()> {
    let times = setting("UNISONO_BENCH_TIMES", 200)?;
    let broker = TestBroker::start()?;
    let address = broker.address();
    make_topics(&broker)?;
    let producer = producer(&address)?;
    producer.init_transactions(WITHIN)?;
    let seen = read(&address)?;
    let mut all = Vec::new();
    for number in 0..times + WARM {
        std::thread::sleep(PAUSE);
        let parts = transact(&producer, number, &seen)?;
        if number >= WARM {
            all.push(parts);
        }
    }
    let mut table = Table::new(&["ms", "p50", "p90", "p99"]);
    let part = |of: fn(&Parts) -> Duration| {
        let millis = all.iter().map(|parts| of(parts).as_secs_f64() * 1e3);
        millis.collect::<Vec<f64>>()
    };
    for (what, values) in [
        ("the broker has all records", part(|parts| parts.taken)),
        (
            "and then has committed",
            part(|parts| parts.committed - parts.taken),
        ),
        (
            "and then they are read",
            part(|parts| parts.readable.saturating_sub(parts.committed)),
        ),
        ("together", part(|parts| parts.readable)),
    ] {
        let of = |share| format!("{:.1}", quantile(&values, share));
        table.line(&[what.to_owned(), of(0.5), of(0.9), of(0.99)]);
    }
    table.print();
    Ok(())
}

fn producer(brokers: &str) -> Result<BaseProducer> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("transactional.id", "bench")
        .set("linger.ms", "0")
        .set("socket.nagle.disable", "true");
    let more = std::env::var("UNISONO_BENCH_PROPERTIES").unwrap_or_default();
    for property in more.split(',').filter(|property| !property.is_empty()) {
        let (name, value) = property
            .split_once('=')
            .context("properties are NAME=VALUE")?;
        config.set(name, value);
    }
    Ok(config.create()?)
}

/// Tells of each number whose rows can be read, and when the first one of them was.
fn read(brokers: &str) -> Result<mpsc::Receiver<(u64, Instant)>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("fetch.queue.backoff.ms", "1")
        .create()?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset("out", 0, Offset::Beginning)?;
    consumer.assign(&list)?;
    let (sender, seen) = mpsc::channel();
    let body = move || {
        // Until nobody listens, or with the process.
        loop {
            let Some(Ok(message)) = consumer.poll(Duration::from_secs(1)) else {
                continue;
            };
            let at = Instant::now();
            let number = message.payload().and_then(|it| it.try_into().ok());
            let number = number.map_or(u64::MAX, u64::from_be_bytes);
            if sender.send((number, at)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("reader".to_owned())
        .spawn(body)?;
    Ok(seen)
}

fn transact(
    producer: &BaseProducer,
    number: u64,
    seen: &mpsc::Receiver<(u64, Instant)>,
) -> Result<Parts> {
    let began = Instant::now();
    producer.begin_transaction()?;
    let payload = number.to_be_bytes();
    for topic in std::iter::repeat_n("out", ROWS).chain(["frontiers"]) {
        let record = BaseRecord::<[u8], [u8]>::to(topic)
            .partition(0)
            .key(b"key")
            .payload(&payload);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    while producer.in_flight_count() > 0 {
        ensure!(began.elapsed() < WITHIN, "the broker does not take them");
        producer.poll(Duration::ZERO);
        std::thread::sleep(Duration::from_micros(50));
    }
    let taken = began.elapsed();
    producer.commit_transaction(WITHIN)?;
    let committed = began.elapsed();
    loop {
        let (of, at) = seen.recv_timeout(WITHIN).context("nothing is read")?;
        if of == number {
            return Ok(Parts {
                taken,
                committed,
                readable: at.saturating_duration_since(began),
            });
        }
    }
}
