//! A paced load on a topic whose right answer is known beforehand, and readers that note when each row could be read.
//!
//! Event `i` is due at `t0 + i / 10` milliseconds and is stamped with that time, so a window's end is a time of the clock on
//! the wall, and what each window holds follows from `t0` alone: 2,000 events, evenly in ten groups.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{BorrowedMessage, Headers};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde_json::Value;

use super::{Cluster, get};
use crate::kafka::TestBroker;

/// Events in a millisecond, if nothing else is asked for: 10,000 a second.
pub const PER_MS: i64 = 10;
/// The windows' length in milliseconds.
pub const WINDOW_MS: i64 = 200;
/// The groups of each window.
pub const GROUPS: i64 = 10;
/// The first pipeline.
pub const FIRST: &str = "live0";
/// The partitions of the input.
pub const LANES: i32 = 4;
const DELIVER_WITHIN: Duration = Duration::from_secs(10);

/// Milliseconds since 1970.
#[must_use]
pub fn now_ms() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |now| now.as_secs_f64() * 1e3)
}

/// The sections of source and pipeline for it, without a sink.
#[must_use]
pub fn streams(brokers: &str, topic: &str, pipelines: usize) -> String {
    let mut text = format!(
        "[[source]]\nname = \"events\"\nkafka = {{ brokers = {brokers:?}, topic = {topic:?} }}\n"
    );
    for number in 0..pipelines {
        text.push_str(&format!(
            "[[pipeline]]\nname = \"live{number}\"\nsources = [\"events\"]\ntime = {{ field = \"at\", format = \"ms\" }}\n\
             group_by = [\"g\"]\nwindow = {{ size = \"{WINDOW_MS}ms\" }}\nvalues = {{ n = \"count()\", s = \"sum(i)\" }}\n"
        ));
    }
    text
}

/// The topics `in`, `out` and `frontiers`, which a cluster reads and publishes to.
///
/// # Errors
/// What the broker says.
pub fn make_topics(broker: &TestBroker) -> Result<()> {
    broker.create_topic("in", LANES)?;
    broker.create_topic("out", 1)?;
    broker.create_topic_with("frontiers", 1, &[("cleanup.policy", "compact")])
}

/// The same sections with a sink, the topic `out`, for all pipelines together, as most have it.
#[must_use]
pub fn to_topic(brokers: &str, sections: &str) -> String {
    let sink = format!(
        "[[sink]]\nname = \"out\"\nkafka = {{ brokers = {brokers:?}, topic = \"out\", frontier_topic = \"frontiers\", \
         transactional_id = \"bench\" }}\n"
    );
    let sections = sections.replace("[[pipeline]]\n", "[[pipeline]]\nsink = \"out\"\n");
    format!("{sink}{sections}")
}

/// Events that flow until it is stopped or dropped.
pub struct Load {
    stop: Arc<AtomicBool>,
    worst: Arc<AtomicI64>,
    thread: Option<JoinHandle<Result<()>>>,
    /// When the first event is due.
    pub t0_ms: i64,
    per_ms: i64,
}

impl Load {
    /// Begins in about a second.
    ///
    /// # Errors
    /// No client or no thread.
    pub fn start(brokers: &str, topic: &str) -> Result<Self> {
        Self::start_at(brokers, topic, PER_MS)
    }

    /// The same with so many events in a millisecond, a multiple of the number of groups.
    ///
    /// # Errors
    /// No client or no thread.
    pub fn start_at(brokers: &str, topic: &str, per_ms: i64) -> Result<Self> {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("enable.idempotence", "true")
            .set("linger.ms", "1")
            .create()?;
        let t0_ms = (now_ms() as i64 / 1000 + 2) * 1000;
        let (stop, worst) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (ends, late, topic) = (Arc::clone(&stop), Arc::clone(&worst), topic.to_owned());
        let body = move || produce(&producer, &topic, (t0_ms, per_ms), &ends, &late);
        let thread = std::thread::Builder::new()
            .name("load".to_owned())
            .spawn(body)?;
        Ok(Self {
            stop,
            worst,
            thread: Some(thread),
            t0_ms,
            per_ms,
        })
    }

    /// How late an event was sent since the last call, at the most, in milliseconds: how disturbed the machine was.
    #[must_use]
    pub fn worst_ms(&self) -> i64 {
        self.worst.swap(0, Ordering::Relaxed)
    }

    /// Compares what was seen with what it must give.
    #[must_use]
    pub fn judge(&self, rows: &[SeenRow]) -> Verdict {
        judge(rows, self.t0_ms, self.per_ms)
    }

    /// Ends it, and keeps what it takes to judge rows.
    ///
    /// # Errors
    /// The broker did not take all.
    pub fn stop(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it was ended")?;
        thread.join().map_err(|_| anyhow!("the load panicked"))?
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn produce(
    producer: &BaseProducer,
    topic: &str,
    (t0_ms, per_ms): (i64, i64),
    stop: &AtomicBool,
    worst: &AtomicI64,
) -> Result<()> {
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (now_ms() as i64 - t0_ms + 1) * per_ms;
        if next < due {
            worst.fetch_max((due - next) / per_ms - 1, Ordering::Relaxed);
        }
        while next < due {
            let at = t0_ms + next / per_ms;
            let payload = format!("{{\"at\":{at},\"i\":{next},\"g\":\"g{}\"}}", next % GROUPS);
            let record = BaseRecord::<(), str>::to(topic)
                .partition((next % i64::from(LANES)) as i32)
                .payload(&payload);
            match producer.send(record) {
                Ok(()) => next += 1,
                // The broker is behind: what waits for it is late.
                Err((error, _))
                    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) =>
                {
                    producer.poll(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
        // Each call serves the answer for one batch; there are at most as many as partitions in a step.
        (0..2 * LANES).for_each(|_| producer.poll(Duration::ZERO));
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(producer.flush(DELIVER_WITHIN)?)
}

/// A row as a reader saw it.
#[derive(Clone, Copy, Debug)]
pub struct SeenRow {
    /// When it could be read, in milliseconds since 1970.
    pub at_ms: f64,
    /// When its publisher gave it to the sink, if the sink tells.
    pub made_ms: Option<i64>,
    /// Its number.
    pub seq: u64,
    /// When its window begins.
    pub start_ms: i64,
    /// Its group's number.
    pub group: i64,
    /// Its values.
    pub values: (i64, i64),
}

impl SeenRow {
    fn parse(text: &[u8], made_ms: Option<i64>) -> Result<Self> {
        let at_ms = now_ms();
        let row: Value = serde_json::from_slice(text)?;
        let whole = |value: &Value| value.to_string().trim_matches('"').parse::<i64>();
        let start: jiff::Timestamp = row["start"].as_str().context("no start")?.parse()?;
        let group = row["group"]["g"].as_str().and_then(|g| g.strip_prefix('g'));
        Ok(Self {
            at_ms,
            made_ms,
            seq: row["seq"].as_u64().context("no seq")?,
            start_ms: start.as_millisecond(),
            group: group.context("no group")?.parse()?,
            values: (whole(&row["values"]["n"])?, whole(&row["values"]["s"])?),
        })
    }

    /// How long after its window's end it could be read.
    #[must_use]
    pub fn lateness(&self) -> f64 {
        self.at_ms - (self.start_ms + WINDOW_MS) as f64
    }

    /// What the row must say, by the load alone.
    fn right(&self, t0_ms: i64, per_ms: i64) -> bool {
        let first = (self.start_ms - t0_ms) * per_ms;
        let events = WINDOW_MS * per_ms / GROUPS;
        // first + group, and so on in steps of the number of groups.
        let sum = events * (first + self.group) + GROUPS * events * (events - 1) / 2;
        first >= 0 && self.values == (events, sum)
    }
}

/// A `read_committed` consumer of one topic on a thread of its own.
pub struct Reader {
    rows: Arc<Mutex<Vec<SeenRow>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Reader {
    /// Of the first pipeline, on a topic with one partition.
    ///
    /// # Errors
    /// No client or no thread.
    pub fn of_topic(brokers: &str, topic: &str) -> Result<Self> {
        Self::isolated(brokers, topic, "read_committed")
    }

    /// The same with what was never committed.
    ///
    /// # Errors
    /// No client or no thread.
    pub fn of_uncommitted(brokers: &str, topic: &str) -> Result<Self> {
        Self::isolated(brokers, topic, "read_uncommitted")
    }

    /// Of the first pipeline, as each replica serves it.
    ///
    /// # Errors
    /// No thread.
    pub fn of_all(replicas: &Cluster) -> Result<Vec<Self>> {
        let nodes = 1..=replicas.replicas();
        nodes
            .map(|node| Self::of_replica(replicas.http(node)))
            .collect()
    }

    fn isolated(brokers: &str, topic: &str, isolation: &str) -> Result<Self> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("group.id", "reader")
            .set("enable.auto.commit", "false")
            .set("isolation.level", isolation)
            .set("fetch.wait.max.ms", "20")
            .set("fetch.queue.backoff.ms", "1")
            .create()?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Beginning)?;
        consumer.assign(&list)?;
        let is_of = |message: &BorrowedMessage<'_>| {
            let headers = message.headers();
            let mut headers = headers.iter().flat_map(|headers| headers.iter());
            let name = headers.find(|header| header.key == "pipeline");
            name.and_then(|header| header.value) == Some(FIRST.as_bytes())
        };
        Self::run(move |stop, rows| {
            while !stop.load(Ordering::Relaxed) {
                if let Some(message) = consumer.poll(Duration::from_millis(50)) {
                    let message = message?;
                    if !is_of(&message) {
                        continue;
                    }
                    let made = message.timestamp().to_millis();
                    let row = SeenRow::parse(message.payload().unwrap_or_default(), made)?;
                    lock(rows).push(row);
                }
            }
            Ok(())
        })
    }

    /// As a replica serves it, asked every few milliseconds, whether it answers or not.
    fn of_replica(http: &str) -> Result<Self> {
        let http = http.to_owned();
        Self::run(move |stop, rows| {
            let (mut next, mut incarnation) = (0_u64, None);
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(4));
                let Some(of) = incarnation else {
                    incarnation = incarnation_of(&http);
                    continue;
                };
                let path = format!(
                    "/v1/pipelines/{FIRST}/windows?format=ndjson&limit=1000&cursor=w.{of:x}.{next:x}"
                );
                // It may be down, or not know yet that it may serve them.
                let Ok(body) = get(&http, &path) else {
                    continue;
                };
                for line in body
                    .split(|&byte| byte == b'\n')
                    .filter(|line| !line.is_empty())
                {
                    let row = SeenRow::parse(line, None)?;
                    next = row.seq + 1;
                    lock(rows).push(row);
                }
            }
            Ok(())
        })
    }

    /// What `body` does on a thread of its own, until it is to stop.
    ///
    /// # Errors
    /// No thread.
    fn run(
        body: impl FnOnce(&AtomicBool, &Mutex<Vec<SeenRow>>) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (rows, stop) = (Arc::<Mutex<Vec<SeenRow>>>::default(), Arc::default());
        let (into, ends) = (Arc::clone(&rows), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || body(&ends, &into))?;
        Ok(Self {
            rows,
            stop,
            thread: Some(thread),
        })
    }

    /// What was seen so far.
    #[must_use]
    pub fn rows(&self) -> Vec<SeenRow> {
        lock(&self.rows).clone()
    }

    /// Ends it, and gives all that was seen.
    ///
    /// # Errors
    /// What could not be read.
    pub fn end(mut self) -> Result<Vec<SeenRow>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it was ended")?;
        thread
            .join()
            .map_err(|_| anyhow!("the reader panicked"))??;
        Ok(self.rows())
    }
}

fn incarnation_of(http: &str) -> Option<u64> {
    let answer: Value = serde_json::from_slice(&get(http, "/v1/pipelines").ok()?).ok()?;
    let mut pipelines = answer["pipelines"].as_array()?.iter();
    let found = pipelines.find(|one| one["name"] == FIRST)?;
    found["incarnation"].as_u64()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is wrong with the rows of one pipeline, all of which were read from the first on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Rows that are not there, up to the last window that is.
    pub gaps: usize,
    /// Rows that are there again.
    pub duplicates: usize,
    /// Rows that say something else than the load.
    pub wrong: usize,
    /// Rows that were compared.
    pub rows: usize,
}

impl Verdict {
    /// Of two pipelines together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            gaps: self.gaps + other.gaps,
            duplicates: self.duplicates + other.duplicates,
            wrong: self.wrong + other.wrong,
            rows: self.rows + other.rows,
        }
    }

    /// All must be as the load demands.
    ///
    /// # Errors
    /// They are not.
    pub fn accept(self) -> Result<()> {
        let faults = self.gaps + self.duplicates + self.wrong;
        ensure!(faults == 0, "rows are not as they must be: {self:?}");
        Ok(())
    }
}

/// Each row as whoever saw it first, by its number.
#[must_use]
pub fn first_seen(copies: &[Vec<SeenRow>]) -> BTreeMap<u64, SeenRow> {
    let mut first: BTreeMap<u64, SeenRow> = BTreeMap::new();
    for row in copies.iter().flatten() {
        let known = first.entry(row.seq).or_insert(*row);
        if row.at_ms < known.at_ms {
            *known = *row;
        }
    }
    first
}

fn judge(rows: &[SeenRow], t0_ms: i64, per_ms: i64) -> Verdict {
    let mut seen: BTreeMap<(i64, i64), usize> = BTreeMap::new();
    let mut verdict = Verdict {
        rows: rows.len(),
        ..Verdict::default()
    };
    let mut next = 0;
    for row in rows {
        *seen.entry((row.start_ms, row.group)).or_default() += 1;
        verdict.wrong += usize::from(!row.right(t0_ms, per_ms) || row.seq > next);
        next = next.max(row.seq + 1);
    }
    verdict.duplicates = seen.values().map(|count| count - 1).sum();
    let last = seen
        .last_key_value()
        .map_or(t0_ms, |((start, _), _)| *start);
    let windows = (last - t0_ms) / WINDOW_MS + i64::from(!seen.is_empty());
    verdict.gaps = usize::try_from(windows * GROUPS)
        .unwrap_or(0)
        .saturating_sub(seen.len());
    verdict
}

/// The value below which this share of them lies, by nearest rank.
///
/// # Panics
/// Without values.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}
