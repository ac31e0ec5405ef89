//! Events like those on which the peers were measured: JSON of 238 bytes and 7 fields, 1,000 ads, a third of them views.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

/// The time of the first event.
pub const T0: u64 = 1_700_000_000_000;
/// About so long is an event.
pub const EVENT_BYTES: u64 = 238;
const EVENTS_PER_MS: u64 = 50;
const ADS: u64 = 1_000;

/// All events, one after another; the same in each run.
#[derive(Debug)]
pub struct Events {
    random: u64,
    index: u64,
    text: String,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            random: 0x0123_4567,
            index: 0,
            text: String::new(),
        }
    }
}

impl Events {
    fn next_random(&mut self) -> u64 {
        let mut x = self.random;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random = x;
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn uuid(&mut self, a: u64, b: u64) {
        let (low, middle, high) = (b & 0xffff_ffff_ffff, b >> 48, a >> 32);
        // Writing to a String does not fail.
        let _ = write!(
            self.text,
            "{high:08x}-{:04x}-{:04x}-{middle:04x}-{low:012x}",
            (a >> 16) & 0xffff,
            a & 0xffff,
        );
    }

    /// The next event, a fiftieth of a millisecond after the last one.
    pub fn next_event(&mut self) -> &str {
        self.text.clear();
        let ad = self.next_random() % ADS;
        let kind = self.next_random() % 3;
        let ad_type = self.next_random() % 5;
        let user = (self.next_random(), self.next_random());
        let page = self.next_random() % 100_000;
        self.text.push_str(r#"{"user_id":""#);
        self.uuid(user.0, user.1);
        self.text.push_str(r#"","page_id":""#);
        self.uuid(page.wrapping_mul(0x9E37_79B9_7F4A_7C15), page);
        self.text.push_str(r#"","ad_id":""#);
        self.uuid(ad.wrapping_mul(0xD6E8_FEB8_6659_FD93), ad);
        self.text.push_str(r#"","ad_type":""#);
        let types = ["banner", "modal", "sponsored-search", "mail", "mobile"];
        self.text.push_str(types[ad_type as usize]);
        self.text.push_str(r#"","event_type":""#);
        self.text
            .push_str(["view", "click", "purchase"][kind as usize]);
        let time = T0 + self.index / EVENTS_PER_MS;
        let _ = write!(
            self.text,
            r#"","event_time":{time},"ip_address":"1.2.3.4"}}"#
        );
        self.index += 1;
        &self.text
    }
}

/// A producer that fills topics fast.
///
/// # Errors
/// The client cannot be made.
pub fn producer(brokers: &str) -> Result<ThreadedProducer<DefaultProducerContext>> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("linger.ms", "50")
        .set("batch.num.messages", "10000")
        .set("batch.size", "900000")
        .set("queue.buffering.max.messages", "500000");
    Ok(config.create()?)
}

/// Appends the next `count` events to a topic, by turns to its partitions.
///
/// # Errors
/// The broker does not take them.
pub fn fill_topic(
    brokers: &str,
    topic: &str,
    partitions: u64,
    events: &mut Events,
    count: u64,
) -> Result<()> {
    let producer = producer(brokers)?;
    for index in 0..count {
        let partition = i32::try_from(index % partitions)?;
        let mut record: BaseRecord<'_, (), str> = BaseRecord::to(topic)
            .partition(partition)
            .payload(events.next_event());
        while let Err((_, refused)) = producer.send(record) {
            record = refused;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    producer
        .flush(Duration::from_secs(120))
        .context("the broker did not take the events")
}

/// Appends a line whose `at` is now to the file `lane.ndjson` in `input`.
///
/// # Errors
/// The file cannot be written.
pub fn append_now(input: &Path, lane: u32) -> Result<()> {
    let path = input.join(format!("{lane}.ndjson"));
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    // At once: no reader sees half of it.
    Ok(file.write_all(format!("{{\"at\":{at},\"city\":\"Oslo\"}}\n").as_bytes())?)
}
