//! What tests do to topics.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

use super::TestBroker;

const DEADLINE: Duration = Duration::from_secs(30);

/// A record that a consumer with `read_committed` was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The partition it lies in.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub payload: Option<Vec<u8>>,
    /// Its headers, in order; values as text.
    pub headers: Vec<(String, String)>,
}

/// What becomes of a transaction.
pub enum Outcome {
    /// Its records can be read.
    Commit,
    /// Its records are never read; they leave a hole.
    Abort,
}

fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(future))
}

/// Creates a topic with settings of its own.
pub(super) fn create<'a>(
    config: &ClientConfig,
    topic: NewTopic<'a>,
    settings: &[(&'a str, &'a str)],
) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let with = |topic: NewTopic<'a>, &(key, value): &(&'a str, &'a str)| topic.set(key, value);
    let topic = settings.iter().fold(topic, with);
    let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
    for result in wait(admin.create_topics(&[topic], &options))?? {
        result.map_err(|(topic, code)| anyhow!("creating topic {topic}: {code}"))?;
    }
    Ok(())
}

impl TestBroker {
    /// What every client is told.
    #[must_use]
    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.address());
        config
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(self.config().create()?)
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// What the broker says.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        self.create_topic_with(name, partitions, &[])
    }

    /// Creates a topic with settings of its own.
    ///
    /// # Errors
    /// What the broker says.
    pub fn create_topic_with(
        &self,
        name: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Result<()> {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        create(&self.config(), topic, settings)
    }

    /// Changes a setting of a topic; all others are the broker's own then.
    ///
    /// # Errors
    /// What the broker says.
    pub fn set_topic(&self, name: &str, key: &str, value: &str) -> Result<()> {
        let change = AlterConfig::new(ResourceSpecifier::Topic(name)).set(key, value);
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        for result in wait(self.admin()?.alter_configs([&change], &options))?? {
            result.map_err(|(_, code)| anyhow!("changing topic {name}: {code}"))?;
        }
        Ok(())
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// What the broker says.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        for result in wait(self.admin()?.delete_topics(&[name], &options))?? {
            result.map_err(|(topic, code)| anyhow!("deleting topic {topic}: {code}"))?;
        }
        Ok(())
    }

    /// Adds partitions to a topic, up to `count` in all.
    ///
    /// # Errors
    /// What the broker says.
    pub fn grow_topic(&self, name: &str, count: usize) -> Result<()> {
        let partitions = NewPartitions::new(name, count);
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        for result in wait(self.admin()?.create_partitions(&[partitions], &options))?? {
            result.map_err(|(topic, code)| anyhow!("growing topic {topic}: {code}"))?;
        }
        Ok(())
    }

    /// Deletes a partition's records below an offset, as retention does.
    ///
    /// # Errors
    /// What the broker says.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) -> Result<()> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(before))?;
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let result = wait(self.admin()?.delete_records(&list, &options))??;
        for element in result.elements() {
            element.error()?;
        }
        Ok(())
    }

    /// Appends records to one partition, in order, and waits until the broker has them.
    ///
    /// # Errors
    /// If it does not take them.
    pub fn produce<P: AsRef<[u8]>>(
        &self,
        topic: &str,
        partition: i32,
        payloads: &[P],
    ) -> Result<()> {
        let mut config = self.config();
        // Records larger than the client allows by default are for the broker to judge.
        config
            .set("linger.ms", "5")
            .set("message.max.bytes", "8000000");
        let producer: BaseProducer = config.create()?;
        send(&producer, topic, partition, payloads)
    }

    /// Appends records to one partition in one transaction, and ends it.
    ///
    /// # Errors
    /// If the broker does not take them.
    pub fn transaction<P: AsRef<[u8]>>(
        &self,
        topic: &str,
        partition: i32,
        payloads: &[P],
        outcome: &Outcome,
    ) -> Result<()> {
        let producer = self.open_transaction(topic, partition, payloads)?;
        match outcome {
            Outcome::Commit => producer.commit_transaction(DEADLINE)?,
            Outcome::Abort => producer.abort_transaction(DEADLINE)?,
        }
        Ok(())
    }

    /// Appends records to one partition in a transaction that stays open until the producer ends it.
    ///
    /// # Errors
    /// If the broker does not take them.
    pub fn open_transaction<P: AsRef<[u8]>>(
        &self,
        topic: &str,
        partition: i32,
        payloads: &[P],
    ) -> Result<BaseProducer> {
        let producer = self.begin_transaction(&format!("test-{topic}-{partition}"))?;
        send(&producer, topic, partition, payloads)?;
        Ok(producer)
    }

    /// A producer that fenced the older ones of this transactional id and has begun a transaction.
    ///
    /// # Errors
    /// If the broker refuses.
    pub fn begin_transaction(&self, transactional_id: &str) -> Result<BaseProducer> {
        let mut config = self.config();
        let producer: BaseProducer = config.set("transactional.id", transactional_id).create()?;
        producer.init_transactions(DEADLINE)?;
        producer.begin_transaction()?;
        Ok(producer)
    }

    /// All committed records of a topic, by partition and offset: up to the end of every partition as it is at the
    /// time of the call.
    ///
    /// # Errors
    /// If the broker does not give them all in time: never a part of them.
    pub fn read_committed(&self, topic: &str) -> Result<Vec<Committed>> {
        let consumer: BaseConsumer = self
            .config()
            .set("group.id", "unisono-tests")
            .set("isolation.level", "read_committed")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("enable.partition.eof", "true")
            .set("fetch.wait.max.ms", "20")
            .create()?;
        let metadata = consumer.fetch_metadata(Some(topic), DEADLINE)?;
        let found = metadata.topics().first().context("no metadata")?;
        ensure!(
            found.error().is_none(),
            "topic {topic}: {:?}",
            found.error()
        );
        let mut records = Vec::new();
        for partition in found.partitions() {
            let (low, end) = consumer.fetch_watermarks(topic, partition.id(), DEADLINE)?;
            if low < end {
                read_partition(&consumer, topic, (partition.id(), low, end), &mut records)?;
            }
        }
        Ok(records)
    }
}

fn read_partition(
    consumer: &BaseConsumer,
    topic: &str,
    (partition, low, end): (i32, i64, i64),
    records: &mut Vec<Committed>,
) -> Result<()> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(low))?;
    consumer.assign(&list)?;
    let started = Instant::now();
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) if message.offset() < end => records.push(committed(&message)),
            // The end was read before, so everything below it came before this.
            Some(Ok(_)) => return Ok(()),
            Some(Err(KafkaError::PartitionEOF(of))) if of == partition => return Ok(()),
            Some(Err(KafkaError::PartitionEOF(_))) => {}
            Some(Err(error)) => bail!("reading {topic}/{partition}: {error}"),
            None if started.elapsed() > DEADLINE => {
                bail!("reading {topic}/{partition}: not at {end} after {DEADLINE:?}")
            }
            None => {}
        }
    }
}

fn committed(message: &BorrowedMessage<'_>) -> Committed {
    let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into();
    let headers = message.headers().map(|headers| {
        headers
            .iter()
            .map(|header| (header.key.to_owned(), text(header.value)))
            .collect()
    });
    Committed {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        payload: message.payload().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
    }
}

fn send<P: AsRef<[u8]>>(
    producer: &BaseProducer,
    topic: &str,
    partition: i32,
    payloads: &[P],
) -> Result<()> {
    for payload in payloads {
        let mut record = BaseRecord::<(), [u8]>::to(topic)
            .partition(partition)
            .payload(payload.as_ref());
        while let Err((error, refused)) = producer.send(record) {
            let full = rdkafka::error::RDKafkaErrorCode::QueueFull;
            ensure!(
                error.rdkafka_error_code() == Some(full),
                "producing to {topic}: {error}"
            );
            producer.poll(Duration::from_millis(10));
            record = refused;
        }
    }
    producer
        .flush(DEADLINE)
        .with_context(|| format!("producing to {topic}"))
}
