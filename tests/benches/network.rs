//! What the way between replicas costs: ticks a second, the time from a window's last record to its row, and takeovers, of three
//! replicas whose ways to each other take their time.
//!
//! `cargo bench --profile dev -p unisono-tests --bench network`; `UNISONO` is another program to measure; `UNISONO_BENCH_KILLS` (default 5) leaders are killed at each distance
//! that `UNISONO_BENCH_ROUND_TRIPS` (default `0,1,20,80,200`, in milliseconds) names.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use unisono_chaos::folder::DrillFolder;
use unisono_chaos::generator::GeneratorOptions;
use unisono_chaos::stage::{Stage, StageOptions};
use unisono_tests::bench::{Table, program, setting};

const PATIENCE: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(10);
/// Between two deaths: whoever started lately stands only where no other can.
const BETWEEN: Duration = Duration::from_secs(4);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let asked = std::env::var("UNISONO_BENCH_ROUND_TRIPS");
    let asked = asked.unwrap_or_else(|_| "0,1,20,80,200".to_owned());
    let kills = setting("UNISONO_BENCH_KILLS", 5)?;
    let mut table = Table::new(&[
        "round trip ms",
        "ticks/s",
        "row after its last record ms, p50",
        "p99",
        "takeover ms, p50",
        "max",
        "elections by mistake",
    ]);
    for part in asked.split(',') {
        let round_trip: u64 = part
            .trim()
            .parse()
            .context("round trips are milliseconds")?;
        let line = runtime.block_on(measure(Duration::from_millis(round_trip), kills))?;
        table.line(&line);
    }
    table.print();
    Ok(())
}

async fn measure(round_trip: Duration, kills: u64) -> Result<Vec<String>> {
    let folder = DrillFolder::create()?;
    let options = StageOptions {
        binary: program(),
        dir: folder.path().to_owned(),
        kafka: None,
        gates: Vec::new(),
        round_trip: Some(round_trip).filter(|both| !both.is_zero()),
        generator: GeneratorOptions {
            rate: 1_000,
            seed: 42,
            late_share: 0.0,
        },
        checkpoint_interval: None,
    };
    let mut stage = Stage::start(&options).await?;
    stage.wait_for_new_row(PATIENCE).await?;
    tokio::time::sleep(SETTLE).await;
    let (before, term) = (ticks(&stage).await?, term(&stage).await?);
    let began = Instant::now();
    let delays = stage.delays(MEASURED).await;
    let per_second = (ticks(&stage).await? - before) / began.elapsed().as_secs_f64();
    let mistakes = self::term(&stage).await? - term;
    let mut takeovers = Vec::new();
    for _ in 0..kills {
        tokio::time::sleep(BETWEEN).await;
        let takeover = stage.kill_leader().await?;
        takeovers.push(takeover.time);
        stage.cluster.restart(takeover.killed)?;
        stage.cluster.wait_ready().await?;
    }
    takeovers.sort_unstable();
    let report = stage.finish().await?;
    ensure!(report.verdict.is_clean(), "{}", report.text());
    let of = |sorted: &[Duration], share: f64| {
        let index = (sorted.len() as f64 * share) as usize;
        let at = sorted.get(index.min(sorted.len().saturating_sub(1)));
        at.map_or_else(|| "-".to_owned(), |time| format!("{}", time.as_millis()))
    };
    Ok(vec![
        round_trip.as_millis().to_string(),
        format!("{per_second:.1}"),
        of(&delays, 0.5),
        of(&delays, 0.99),
        of(&takeovers, 0.5),
        of(&takeovers, 1.0),
        mistakes.to_string(),
    ])
}

async fn ticks(stage: &Stage) -> Result<f64> {
    let ticks = stage.cluster.metric(1, "unisono_ticks_total").await;
    ticks.context("no metrics")
}

async fn term(stage: &Stage) -> Result<u64> {
    Ok(stage.cluster.view(1).await.context("no answer")?.term)
}
