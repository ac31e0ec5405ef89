//! Drills on real replica processes: a fault is dealt while orders flow, then everything published is compared.
//!
//! Short by default; `UNISONO_DRILL_KILLS=50` and `UNISONO_DRILL_OUTAGE=60` (seconds) make them long. `UNISONO_BINARY` names another program to put to the
//! drill than the one built from this tree.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use unisono_chaos::folder::DrillFolder;
use unisono_chaos::gate::Place;
use unisono_chaos::generator::GeneratorOptions;
use unisono_chaos::report::Report;
use unisono_chaos::stage::{Stage, StageOptions};

use crate::unisono_binary;

pub mod faults;

/// What a drill runs on.
#[derive(Clone, Debug)]
pub struct Drill {
    /// A Kafka broker for input and output; `None`: files and the built-in sink.
    pub kafka: Option<String>,
    /// Each replica's own way to that broker.
    pub gates: Vec<Place>,
    /// How long a way from one replica to another one and back takes; `None`: they go straight.
    pub round_trip: Option<Duration>,
    /// Which share of the orders is late.
    pub late_share: f64,
    /// How often a replica checkpoints.
    pub checkpoint_interval: Option<String>,
}

impl Drill {
    /// On files and the built-in sink.
    #[must_use]
    pub fn on_files() -> Self {
        Self {
            kafka: None,
            gates: Vec::new(),
            round_trip: None,
            late_share: 0.0,
            checkpoint_interval: None,
        }
    }

    /// On a broker's topics.
    #[must_use]
    pub fn on_kafka(address: String) -> Self {
        Self {
            kafka: Some(address),
            ..Self::on_files()
        }
    }

    /// Runs the drill: starts everything, deals the faults, ends the orders, and compares.
    ///
    /// # Panics
    /// If anything published is missing, doubled or wrong, or a replica ends by itself; all evidence is kept in a folder
    /// that the message names.
    pub fn run(self, deal: impl AsyncFnOnce(&mut Stage) -> Result<()>) {
        // Several clusters at once would measure each other's load.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
        let folder = DrillFolder::create().expect("the temporary folder can be written");
        let outcome = runtime.block_on(self.course(&folder, deal));
        match outcome {
            Ok(report) => println!("{}", report.text()),
            Err(error) => panic!("{error:#}\nevidence is in {}", folder.keep().display()),
        }
    }

    async fn course(
        &self,
        folder: &DrillFolder,
        deal: impl AsyncFnOnce(&mut Stage) -> Result<()>,
    ) -> Result<Report> {
        let options = StageOptions {
            binary: binary(),
            dir: folder.path().to_owned(),
            kafka: self.kafka.clone(),
            gates: self.gates.clone(),
            round_trip: self.round_trip,
            generator: GeneratorOptions {
                rate: 1_000,
                seed: 42,
                late_share: self.late_share,
            },
            checkpoint_interval: self.checkpoint_interval.clone(),
        };
        let mut stage = Stage::start(&options).await?;
        stage.wait_for_new_row(Duration::from_secs(30)).await?;
        deal(&mut stage).await?;
        let report = stage.finish().await?;
        ensure!(report.verdict.is_clean(), "{}", report.text());
        // A checker that was given nothing finds nothing wrong.
        ensure!(
            report.verdict.windows > 5,
            "only {} windows",
            report.verdict.windows
        );
        ensure!(
            (self.late_share > 0.0) == (report.late > 0),
            "{} orders were late",
            report.late
        );
        Ok(report)
    }
}

fn binary() -> PathBuf {
    std::env::var_os("UNISONO_BINARY").map_or_else(unisono_binary, PathBuf::from)
}
