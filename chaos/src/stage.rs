//! One drill from start to verdict: a cluster, a stream of orders, and everybody watching.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::checker::{Copy, Demand, Expectation, check};
use crate::cluster::{Cluster, ClusterOptions, Medium, Own};
use crate::fault::Fault;
use crate::gate::{Gate, Place};
use crate::generator::{FileTarget, Forger, Generator, GeneratorOptions, LANES, TopicTarget};
use crate::http::{self, RowReader};
use crate::kafka::{self, TopicReader};
use crate::moment::Clock;
use crate::order::LAG_MS;
use crate::report::Report;
use crate::slow_disk::SlowDisk;
use crate::watch::{Picture, Watch};
use crate::ways::Ways;

mod live;
mod unfit;

pub use live::LiveChecker;
pub use unfit::Unfit;

use live::Input;

const NODES: u16 = 3;
const PAGE: usize = 5_000;
/// A take-over that has not come by then fails the drill.
const TAKEOVER_WITHIN: Duration = Duration::from_secs(30);
/// How long the last windows may take to be published everywhere after the input has ended.
const COMPLETE_WITHIN: Duration = Duration::from_secs(60);
/// How long more rows than there should be may take to show.
const SETTLE: Duration = Duration::from_secs(1);

/// What a drill runs on.
#[derive(Clone, Debug)]
pub struct StageOptions {
    /// The `unisono` binary.
    pub binary: PathBuf,
    /// A folder for configs, data, logs and input; it must exist.
    pub dir: PathBuf,
    /// `host:port` of a Kafka broker to use for input and output; `None`: files and the built-in sink.
    pub kafka: Option<String>,
    /// Each replica's own way to that broker; empty: all go straight.
    pub gates: Vec<Place>,
    /// How long a way from one replica to another one and back takes; `None`: they go straight.
    pub round_trip: Option<Duration>,
    /// The orders.
    pub generator: GeneratorOptions,
    /// As in `ClusterOptions`.
    pub checkpoint_interval: Option<String>,
}

/// A running drill; dropping it kills every replica.
pub struct Stage {
    /// The replicas, to deal faults to.
    pub cluster: Cluster,
    medium: Medium,
    clock: Clock,
    generator: Generator,
    watch: Arc<Watch>,
    times: BTreeMap<Fault, Vec<Duration>>,
    slow_disks: Option<SlowDisk>,
    /// Why no disk can be made slow.
    no_slow_disk: Option<String>,
    /// Where each replica reads a copy of its own.
    forger: Option<Forger>,
    /// Of each replica's way to the broker, if they go by gates.
    gates: Vec<Gate>,
    ways: Option<Arc<Ways>>,
}

/// Looks at a running drill without holding it up.
pub struct Sight {
    clock: Clock,
    watch: Arc<Watch>,
    orders: Arc<AtomicU64>,
}

impl Sight {
    /// Orders written so far.
    #[must_use]
    pub fn orders(&self) -> u64 {
        self.orders.load(Ordering::Relaxed)
    }

    /// Milliseconds since 1970 by the clock that stamps the orders.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// The curve and the newest rows.
    #[must_use]
    pub fn picture(&self) -> Picture {
        self.watch.picture()
    }
}

/// A leader's death and its succession.
#[derive(Clone, Copy, Debug)]
pub struct Takeover {
    /// The node that was killed and has not been started again.
    pub killed: u16,
    /// From the kill to the first row by the next leader that could be read.
    pub time: Duration,
}

impl Stage {
    /// Starts three replicas, waits until they are ready, then starts the orders. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// What could not be started, or is not ready within a minute.
    pub async fn start(options: &StageOptions) -> Result<Self> {
        let clock = Clock::start();
        let medium = prepare(options, clock).await?;
        let cluster_options = ClusterOptions {
            binary: options.binary.clone(),
            dir: options.dir.clone(),
            nodes: NODES,
            medium: medium.clone(),
            checkpoint_interval: options.checkpoint_interval.clone(),
        };
        let slow_disks = SlowDisk::build(&options.dir);
        let no_slow_disk = slow_disks.as_ref().err().map(|error| format!("{error:#}"));
        let environment = |number| match &slow_disks {
            Ok(slow_disks) => slow_disks.environment(number),
            Err(_) => Vec::new(),
        };
        let brokers = |number| {
            let gate = options.gates.get(usize::from(number) - 1)?;
            Some((options.kafka.clone()?, format!("127.0.0.1:{}", gate.port)))
        };
        let mut gates = Vec::new();
        for &place in &options.gates {
            gates.push(Gate::build(place).await?);
        }
        let ways = match options.round_trip {
            Some(both) => Some(Arc::new(Ways::build(NODES, both / 2).await?)),
            None => None,
        };
        let mut cluster = Cluster::start(&cluster_options, |number| Own {
            environment: environment(number),
            brokers: brokers(number),
            ways: ways.clone(),
        })?;
        cluster.wait_ready().await?;
        let mut forger = None;
        let (watch, generator) = match &medium {
            Medium::Files { dir } => {
                let target = FileTarget::create(dir, &copies(options))?;
                forger = Some(target.forger());
                let watch = Watch::replicas(&cluster.addresses())?;
                (watch, Generator::start(options.generator, clock, target)?)
            }
            Medium::Kafka {
                brokers,
                input,
                output,
                ..
            } => {
                let target = TopicTarget::connect(brokers, input)?;
                let watch = Watch::topic(brokers, output)?;
                (watch, Generator::start(options.generator, clock, target)?)
            }
        };
        Ok(Self {
            cluster,
            medium,
            clock,
            generator,
            watch: Arc::new(watch),
            times: BTreeMap::new(),
            slow_disks: slow_disks.ok(),
            no_slow_disk,
            forger,
            gates,
            ways,
        })
    }

    /// Kills the leader with SIGKILL and times the succession. The killed node stays down.
    ///
    /// # Errors
    /// There is no leader, or nobody succeeds it within 30 seconds.
    pub async fn kill_leader(&mut self) -> Result<Takeover> {
        let leader = self.cluster.wait_leader().await?;
        self.kill_timed(leader).await
    }

    /// Kills a node, the leader, with SIGKILL and times the succession. The killed node stays down.
    ///
    /// What is timed ends with a row that only the next leader can have published: one whose window ends later than
    /// the lag before the moment when the killed process was gone. Orders are stamped by this process's clock, never in
    /// the future, so at that moment no lane could have shown an event time that closes such a window; whoever published
    /// it did so afterwards. (A mere rise of the published mark would not do: the dead leader's last mark may become
    /// visible only when its successor commits it.) The clock of the time starts before the signal is sent.
    ///
    /// # Errors
    /// The node does not run, or there is no such row within 30 seconds.
    pub async fn kill_timed(&mut self, killed: u16) -> Result<Takeover> {
        let time = self.time_kill(killed).await?;
        self.times.entry(Fault::Kill).or_default().push(time);
        Ok(Takeover { killed, time })
    }

    async fn time_kill(&mut self, killed: u16) -> Result<Duration> {
        self.watch.start_timing();
        // The readers may be in the middle of their quiet period.
        tokio::time::sleep(Duration::from_millis(60)).await;
        let start = Instant::now();
        self.cluster.kill(killed)?;
        let gone_ms = self.clock.now_ms();
        let deadline = start + TAKEOVER_WITHIN;
        let reached = self
            .watch
            .first_row_ending_after(gone_ms - LAG_MS, deadline)
            .await;
        let reached = reached.with_context(|| {
            let failure = self.watch.failure().unwrap_or_default();
            format!("nobody took over from node {killed} ({failure})")
        })?;
        self.cluster.ensure_none_crashed()?;
        Ok(reached - start)
    }

    /// Waits for a row of a window that ends after now: the curve goes on.
    ///
    /// # Errors
    /// There is none within `within`.
    pub async fn wait_for_new_row(&mut self, within: Duration) -> Result<()> {
        let now_ms = self.clock.now_ms();
        let deadline = Instant::now() + within;
        self.watch
            .first_row_ending_after(now_ms, deadline)
            .await
            .map(drop)
    }

    /// The ways between the replicas, where they do not go straight.
    #[must_use]
    pub fn ways(&self) -> Option<&Ways> {
        self.ways.as_deref()
    }

    /// How long after they could be closed the windows of the next while are seen: asks for it all the time meanwhile, and gives
    /// all of them, sorted.
    pub async fn delays(&self, during: Duration) -> Vec<Duration> {
        self.watch.start_timing();
        self.watch.start_delays();
        tokio::time::sleep(during).await;
        let seen = self.watch.end_delays();
        let delay = |(end, at): (i64, Instant)| {
            let closable = end + LAG_MS;
            Duration::from_millis(u64::try_from(self.clock.ms_at(at) - closable).unwrap_or(0))
        };
        let mut delays: Vec<_> = seen.into_iter().map(delay).collect();
        delays.sort_unstable();
        delays
    }

    /// How long each fault of its kind let the curve stand still, in their order.
    #[must_use]
    pub fn times(&self) -> &BTreeMap<Fault, Vec<Duration>> {
        &self.times
    }

    /// What can be seen of the drill while it goes on, and after.
    #[must_use]
    pub fn sight(&self) -> Sight {
        let (clock, watch) = (self.clock, Arc::clone(&self.watch));
        Sight {
            clock,
            watch,
            orders: self.generator.counter(),
        }
    }

    /// A checker that goes along with the drill.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn live_checker(&self) -> Result<LiveChecker> {
        LiveChecker::new(&self.medium)
    }

    /// What each reader has seen so far, for the live checker.
    #[must_use]
    pub fn copies(&self) -> Vec<Copy> {
        self.watch.copies()
    }

    /// Ends the input, brings every replica up, waits until the last window is published everywhere, reads everything
    /// afresh, and compares all of it with the input: what was read now, and what was seen while it happened.
    ///
    /// # Errors
    /// The input or the rows cannot be read, or a replica crashed. Rows that never come are no error but gaps.
    pub async fn finish(mut self) -> Result<Report> {
        self.cluster.ensure_none_crashed()?;
        let orders = self.generator.stop()?;
        self.cluster.restart_all()?;
        let input = Input::open(&self.medium)?;
        let read = tokio::task::spawn_blocking(move || -> Result<Expectation> {
            let (mut input, mut expectation) = (input, Expectation::default());
            input.read_into(&mut expectation)?;
            Ok(expectation)
        });
        let expectation = read.await.context("reading the input panicked")??;
        let deadline = Instant::now() + COMPLETE_WITHIN;
        self.watch.everyone_has(expectation.len(), deadline).await;
        tokio::time::sleep(SETTLE).await;
        self.cluster.ensure_none_crashed()?;
        let mut copies = self.watch.copies();
        copies.extend(read_afresh(&self.cluster, &self.medium).await?);
        let verdict = check(&expectation, &copies, Demand::All);
        if let Medium::Kafka {
            brokers,
            input,
            output,
            frontier,
            ..
        } = &self.medium
            && verdict.is_clean()
        {
            self.cluster.kill_all()?;
            kafka::delete_topics(brokers, &[input, output, frontier]).await?;
        }
        Ok(Report {
            verdict,
            times: self.times,
            orders,
            late: expectation.late(),
        })
    }

    /// Waits until all replicas have the same digest at the same row.
    ///
    /// # Errors
    /// Two replicas differ at the same row, or do not come to the same row within a minute.
    pub async fn digests_agree(&mut self) -> Result<()> {
        let deadline = Instant::now() + COMPLETE_WITHIN;
        let numbers: Vec<u16> = self.cluster.addresses().into_keys().collect();
        let mut met = 0;
        while met < 3 {
            if Instant::now() > deadline {
                bail!("the replicas were never seen at the same row within {COMPLETE_WITHIN:?}");
            }
            self.cluster.ensure_none_crashed()?;
            let asked = numbers.iter().map(|&number| self.cluster.pipeline(number));
            let mut views = Vec::new();
            for view in asked {
                views.extend(view.await);
            }
            let same_row = views.iter().all(|view| view.next_seq == views[0].next_seq);
            if views.len() == numbers.len() && same_row {
                if views.iter().any(|view| view.digest != views[0].digest) {
                    bail!("replicas differ at the same row: {views:?}");
                }
                met += 1;
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        Ok(())
    }
}

/// Where each replica reads, if it reads files.
fn copies(options: &StageOptions) -> Vec<PathBuf> {
    let copy = |number| Path::new(&options.dir).join(format!("unisono-{number}/input"));
    (1..=NODES).map(copy).collect()
}

/// Makes the input's place: folders or topics of its own.
async fn prepare(options: &StageOptions, clock: Clock) -> Result<Medium> {
    let Some(brokers) = &options.kafka else {
        let dir = options.dir.join("orders");
        FileTarget::create(&dir, &copies(options))?;
        return Ok(Medium::Files { dir });
    };
    let run = format!("{:x}-{:x}", clock.now_ms(), std::process::id());
    let (input, output) = (format!("orders-{run}"), format!("orders-stats-{run}"));
    let frontier = format!("unisono-frontier-{run}");
    // One partition for the rows: a person who reads the topic then sees them in order.
    let lanes = i32::try_from(LANES)?;
    kafka::create_topics(brokers, &[(&input, lanes), (&output, 1)]).await?;
    let (brokers, transactional_id) = (brokers.clone(), format!("unisono-demo-{run}"));
    Ok(Medium::Kafka {
        brokers,
        input,
        output,
        frontier,
        transactional_id,
    })
}

/// Everything that is published now, from the beginning.
async fn read_afresh(cluster: &Cluster, medium: &Medium) -> Result<Vec<Copy>> {
    if let Medium::Kafka {
        brokers, output, ..
    } = medium
    {
        let (brokers, output) = (brokers.clone(), output.clone());
        let name = format!("topic {output}, read again");
        let read =
            tokio::task::spawn_blocking(move || TopicReader::read_committed(&brokers, &output));
        let texts = read.await.context("reading the output topic panicked")??;
        return Ok(vec![Copy::of_texts(&name, &texts)]);
    }
    let mut copies = Vec::new();
    for (number, address) in cluster.addresses() {
        let reader = RowReader::new(http::client()?, &address);
        let step = reader.read_all(PAGE).await?;
        let mut copy = Copy::of_texts(&format!("replica {number}, read again"), &step.rows);
        copy.broken.extend(step.broken);
        copies.push(copy);
    }
    Ok(copies)
}
