//! Drills on a log of DNS answers: dealt over the partitions of a topic, read by three replicas, published to another topic
//! while faults are dealt. A `read_committed` consumer must see, byte for byte, what an independent computation and
//! `unisono eval` find in the same lines.
//!
//! Short by default; `UNISONO_DRILL_KILLS=20` and `UNISONO_DRILL_LONG=1` make the drills long.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use unisono_chaos::cluster::{Cluster, Setup};
use unisono_chaos::folder::DrillFolder;
use unisono_chaos::kafka::create_topics;

use crate::events::Random;
use crate::kafka::TestBroker;
use crate::unisono_binary;

mod expected;
pub mod faults;
mod feeder;
mod pipelines;
mod published;

use expected::Expected;
use feeder::Feeder;

/// Partitions of the input topic, and files for `eval`.
const LANES: usize = 3;
const NODES: u16 = 3;
const WAIT_STEP: Duration = Duration::from_millis(20);
/// How long the log may take to get so far; not a promise.
const PATIENCE: Duration = Duration::from_secs(120);

/// A drill that is going on; dropping it kills every replica.
pub struct DnsDrill {
    /// The replicas, to deal faults to.
    pub cluster: Cluster,
    /// Says when faults are dealt: the same moments for the same seed.
    random: Random,
    expected: &'static Expected,
    feeder: Feeder,
    broker: &'static TestBroker,
    output: String,
}

/// Runs a drill: starts the log and then the replicas, deals the faults, lets the log end, and compares.
///
/// `lines_per_second` says how fast the log flows while it is released, which is for `deal` to say. Returns at once where
/// the environment says to leave out what needs Kafka.
///
/// # Panics
/// If anything published is missing, doubled or other than expected, a digest differs, or a replica ends by itself; the
/// evidence is kept in a folder that the message names.
pub fn run(lines_per_second: usize, deal: impl AsyncFnOnce(&mut DnsDrill) -> Result<()>) {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    // Several clusters at once would only wait for each other.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
    let folder = DrillFolder::create().expect("the temporary folder can be written");
    let course = async {
        let mut drill = DnsDrill::start(broker, &folder, lines_per_second).await?;
        deal(&mut drill).await?;
        drill.finish().await
    };
    match runtime.block_on(course) {
        Ok(rows) => {
            println!("{rows} rows, each once and as expected; all digests are those of eval")
        }
        Err(error) => panic!("{error:#}\nevidence is in {}", folder.keep().display()),
    }
}

/// Lines of the log in all: from this and the time that a drill should take follows how fast it flows.
#[must_use]
pub fn log_lines() -> usize {
    Expected::get().lines
}

impl DnsDrill {
    async fn start(
        broker: &'static TestBroker,
        folder: &DrillFolder,
        lines_per_second: usize,
    ) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (input, output) = (format!("dns-{number}"), format!("dns-stats-{number}"));
        let lanes = i32::try_from(LANES)?;
        // One partition for the rows: their order is then the order of their publication.
        create_topics(&broker.address(), &[(&input, lanes), (&output, 1)]).await?;
        let expected = Expected::get();
        // Before the replicas: to them, partitions without a record would be idle, and the windows of 2018 long over.
        let feeder = Feeder::start(broker, &input, &expected.log, lines_per_second)?;
        let mut drill = Self {
            cluster: Cluster::start_setup(&Setup {
                binary: unisono_binary(),
                dir: folder.path().to_owned(),
                nodes: NODES,
                checkpoint_interval: Some("2s".to_owned()),
                streams: pipelines::streams(&broker.address(), &input, &output),
                pipeline: pipelines::PROMPT.name.to_owned(),
            })?,
            random: Random::new(4711),
            expected,
            feeder,
            broker,
            output,
        };
        drill.cluster.wait_ready().await?;
        Ok(drill)
    }

    /// Lets the log flow at its full pace up to this share of its lines, in percent. Beyond, it trickles: it must not stop,
    /// or its partitions would grow idle.
    pub fn release(&self, percent: usize) {
        self.feeder.release(self.expected.lines * percent / 100);
    }

    /// Waits until this share of the log, in percent, was produced.
    ///
    /// # Errors
    /// That does not come, or a replica crashed.
    pub async fn wait_produced(&mut self, percent: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.feeder.sent() < self.expected.lines * percent / 100 {
            ensure!(
                Instant::now() < deadline,
                "the log has come to line {} of {} in {PATIENCE:?}",
                self.feeder.sent(),
                self.expected.lines
            );
            self.cluster.ensure_none_crashed()?;
            tokio::time::sleep(WAIT_STEP).await;
        }
        Ok(())
    }

    /// A pause of a random length below `most`.
    pub async fn pause(&mut self, most: Duration) {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        tokio::time::sleep(Duration::from_millis(self.random.below(most))).await;
    }

    /// Lines of the log that were produced so far.
    #[must_use]
    pub fn produced(&self) -> usize {
        self.feeder.sent()
    }

    /// Lets the log end, brings every replica up, and compares all that they computed and published. Returns how many rows
    /// that were.
    async fn finish(mut self) -> Result<usize> {
        self.cluster.ensure_none_crashed()?;
        let feeder = self.feeder;
        tokio::task::spawn_blocking(move || feeder.finish()).await??;
        self.cluster.restart_all()?;
        published::await_digests(&mut self.cluster, self.expected).await?;
        let rows = published::compare(self.broker, &self.output, self.expected).await?;
        self.cluster.ensure_none_crashed()?;
        Ok(rows)
    }
}
