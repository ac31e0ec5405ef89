//! What it adds that a second replica confirms each tick, and each batch of rows before it is published: how long the leader of
//! three healthy replicas waits for that word, at a tick every 25 ms and rows every 100 ms. Input are files.
//!
//! `cargo bench -p unisono-tests --bench confirm`; `UNISONO_BENCH_SECONDS` (default 20) is how long it is measured, `UNISONO`
//! another program to measure.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use unisono_tests::bench::{Cluster, Table, Waits, append_now, get, program, setting};

const LANES: u32 = 3;
const LINE_EVERY: Duration = Duration::from_millis(5);
const SETTLE: Duration = Duration::from_secs(5);

fn main() -> Result<()> {
    let time = Duration::from_secs(setting("UNISONO_BENCH_SECONDS", 20)?);
    println!("program: {}", program().display());
    let dir = tempfile::tempdir()?;
    (0..LANES).try_for_each(|lane| append_now(dir.path(), lane))?;
    let mut cluster = Cluster::start(3, "", &streams(dir.path()))?;
    cluster.wait("/v1/cluster", |view| view["leader"].is_number())?;
    feed(dir.path(), SETTLE)?;
    let leader = get(cluster.http(1), "/v1/cluster")?;
    let leader = serde_json::from_slice::<Value>(&leader)?["leader"].as_u64();
    let address = cluster
        .http(u16::try_from(leader.context("no leader")?)?)
        .to_owned();
    let ticks = Waits::before(&address, "tick")?;
    let rows = Waits::before(&address, "rows")?;
    feed(dir.path(), time)?;
    let mut table = Table::new(&[
        "waited for",
        "times",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "mean ms",
    ]);
    for (what, before) in [("tick", ticks), ("rows", rows)] {
        let waits = Waits::before(&address, what)?.since(&before);
        let of = |share| format!("{:.2}", waits.quantile(share) * 1e3);
        table.line(&[
            what.to_owned(),
            format!("{:.0}", waits.count()),
            of(0.5),
            of(0.9),
            of(0.99),
            format!("{:.2}", waits.mean() * 1e3),
        ]);
    }
    table.print();
    Ok(())
}

fn streams(input: &Path) -> String {
    format!(
        "[[source]]\nname = \"events\"\nfiles = {{ dir = {input:?}, pattern = \"*.ndjson\" }}\n[[pipeline]]\nname = \"events\"\n\
         sources = [\"events\"]\ntime = {{ field = \"at\", format = \"ms\" }}\ngroup_by = [\"city\"]\nwindow = {{ size = \"100ms\" }}\n\
         close = {{ lag = \"20ms\" }}\nvalues = {{ events = \"count()\" }}\n"
    )
}

/// Appends lines, to each lane by turns, for so long.
fn feed(input: &Path, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    for lane in (0..LANES).cycle() {
        if Instant::now() > end {
            break;
        }
        append_now(input, lane)?;
        std::thread::sleep(LINE_EVERY);
    }
    Ok(())
}
