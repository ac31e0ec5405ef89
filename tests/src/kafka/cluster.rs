//! Several brokers of one cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::json;

use super::broker::{TestBroker, free_port};
use super::clients::create;

const DEADLINE: Duration = Duration::from_secs(60);
/// A cluster id as Kafka wants it: 16 bytes in base64.
const CLUSTER: &str = "VW5pc29ub1Rlc3RzMDAwMQ";

/// Three brokers, each a controller too. They end with the value.
pub struct TestBrokers {
    brokers: Vec<TestBroker>,
}

impl TestBrokers {
    /// Starts them in racks named by their numbers, each with a gate; leaders name replicas in a reader's rack.
    ///
    /// # Errors
    /// As [`TestBroker::start`].
    pub fn start() -> Result<Self> {
        let ports = [free_port()?, free_port()?, free_port()?];
        let ports = ports.map(|port| port.to_string()).join(",");
        let member = |node| -> Result<TestBroker> {
            let mut broker = TestBroker::not_started()?;
            broker.member = Some(format!("{node}@{CLUSTER}:{ports}"));
            let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
            let more = broker.dir().join("more.properties");
            let settings = format!("broker.rack={node}\nreplica.selector.class={selector}\n");
            std::fs::write(&more, settings)?;
            broker.more = vec!["--more".to_owned(), more.to_string_lossy().into_owned()];
            broker.add_gate()?;
            Ok(broker)
        };
        let brokers = (1..=3).map(member).collect::<Result<Vec<_>>>()?;
        // None answers before most are there.
        std::thread::scope(|scope| {
            let starting = brokers
                .iter()
                .map(|broker| scope.spawn(|| broker.start_again()));
            let starting: Vec<_> = starting.collect();
            starting
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a start panicked"))?)
        })?;
        Ok(Self { brokers })
    }

    /// One of them, by its number, counted from 1.
    #[must_use]
    pub fn broker(&self, node: i32) -> &TestBroker {
        &self.brokers[usize::try_from(node - 1).unwrap_or(0)]
    }

    /// All addresses, as clients want them.
    #[must_use]
    pub fn addresses(&self) -> String {
        let all = self.brokers.iter().map(TestBroker::address);
        all.collect::<Vec<_>>().join(",")
    }

    /// What every client is told.
    #[must_use]
    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.addresses());
        config
    }

    /// Creates a topic whose partitions have these replicas.
    ///
    /// # Errors
    /// What the brokers say.
    pub fn create_topic(
        &self,
        name: &str,
        replicas: &[&[i32]],
        settings: &[(&str, &str)],
    ) -> Result<()> {
        let count = i32::try_from(replicas.len())?;
        let topic = NewTopic::new(name, count, TopicReplication::Variable(replicas));
        create(&self.config(), topic, settings)
    }

    /// Has a topic's partitions moved to these replicas, and waits until they alone are in sync.
    ///
    /// # Errors
    /// What the brokers say.
    pub fn reassign(&self, topic: &str, replicas: &[Vec<i32>]) -> Result<()> {
        let partitions: Vec<_> = (0..)
            .zip(replicas)
            .map(|(partition, replicas): (i32, _)| {
                json!({"topic": topic, "partition": partition, "replicas": replicas})
            })
            .collect();
        let plan = self.brokers[0].dir().join("reassign.json");
        let json = json!({"version": 1, "partitions": partitions});
        std::fs::write(&plan, json.to_string())?;
        self.brokers[0].run(&["reassign", &plan.to_string_lossy()])?;
        for (partition, replicas) in (0..).zip(replicas) {
            let moved = |leader: i32, in_sync: &[i32]| {
                replicas.contains(&leader)
                    && in_sync.len() == replicas.len()
                    && in_sync.iter().all(|node| replicas.contains(node))
            };
            self.wait_leader(topic, partition, None, moved)?;
        }
        Ok(())
    }

    /// Who leads a partition, and which replicas are in sync, as one of the brokers says that is not `but`.
    ///
    /// # Errors
    /// It does not say.
    pub fn leader(&self, topic: &str, partition: i32, but: Option<i32>) -> Result<(i32, Vec<i32>)> {
        let asked = (1..=3).find(|node| Some(*node) != but).unwrap_or(1);
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.broker(asked).address());
        let client: BaseConsumer = config.create()?;
        let metadata = client.fetch_metadata(Some(topic), Duration::from_secs(5))?;
        let found = metadata.topics().first().context("no metadata")?;
        let partition = found.partitions().iter().find(|it| it.id() == partition);
        let partition = partition.context("no such partition")?;
        Ok((partition.leader(), partition.isr().to_vec()))
    }

    /// Waits until a partition is led and in sync as wanted; gives the leader.
    ///
    /// # Errors
    /// It does not come to that.
    pub fn wait_leader(
        &self,
        topic: &str,
        partition: i32,
        but: Option<i32>,
        wanted: impl Fn(i32, &[i32]) -> bool,
    ) -> Result<i32> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let found = self.leader(topic, partition, but);
            if let Ok((leader, in_sync)) = &found
                && wanted(*leader, in_sync)
            {
                return Ok(*leader);
            }
            ensure!(
                Instant::now() < deadline,
                "partition {partition} of {topic}: {found:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
