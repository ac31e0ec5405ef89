//! A replica that was away comes back to a backlog: how fast it catches up while all else goes on, against how fast it does
//! where nothing comes meanwhile, and whether the leader's rows are later while it does. Three replicas on a topic of four
//! partitions, rows by transactions to a topic, read by a `read_committed` consumer; all rows are compared with what the load
//! must give.
//!
//! `cargo bench -p unisono-tests --bench backlog`; a follower is killed for `UNISONO_BENCH_SECONDS` (default 600), twice, at
//! `UNISONO_BENCH_RATE` (default 50,000) events a second; `UNISONO_BENCH_CLUSTER` are lines for that section of the config (such as
//! `keep_log_entries = 1000000`: it then reads all of it again, and takes no checkpoint from others), `UNISONO` another program to
//! measure.
//!
//! Replicas have machines of their own, so the one that comes back has a core for itself, and all else has the others, if there
//! are two at least, unless `UNISONO_BENCH_PIN` is 0.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use unisono_tests::bench::live::{
    FIRST, Load, Reader, SeenRow, make_topics, now_ms, quantile, streams, to_topic,
};
use unisono_tests::bench::{Cluster, Table, get, program, setting};
use unisono_tests::kafka::TestBroker;

const REPLICAS: u16 = 3;
const WARM: Duration = Duration::from_secs(8);
/// The leader's rows are looked at for so long before the replica comes back.
const BEFORE_MS: f64 = 10_000.0;
const LOOK_EVERY: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(600);
/// It has caught up when it lacks less than what comes in so long.
const LAG_MS: u64 = 100;

fn main() -> Result<()> {
    let away = Duration::from_secs(setting("UNISONO_BENCH_SECONDS", 600)?);
    let rate = setting("UNISONO_BENCH_RATE", 50_000)?;
    let cluster = std::env::var("UNISONO_BENCH_CLUSTER").unwrap_or_default();
    println!("program: {}", program().display());
    let core = keep_a_core()?;
    let broker = TestBroker::start()?;
    let address = broker.address();
    make_topics(&broker)?;
    let streams = to_topic(&address, &streams(&address, "in", 1));
    let mut replicas = Cluster::start(REPLICAS, &cluster, &streams)?;
    replicas.wait_pipeline(FIRST, |_| true)?;
    if let Some(core) = core {
        replicas.pin_next(core);
    }
    let reader = Reader::of_topic(&address, "out")?;
    let mut load = Load::start_at(&address, "in", i64::try_from(rate / 1000)?)?;
    std::thread::sleep(WARM);
    let lag = rate * LAG_MS / 1000;
    let beside = come_back(&mut replicas, away, lag, || Ok(()))?;
    std::thread::sleep(WARM);
    let alone = come_back(&mut replicas, away, lag, || load.stop())?;
    std::thread::sleep(Duration::from_secs(1));
    let rows = reader.end()?;
    let verdict = load.judge(&rows);
    tell(&rows, &beside, &alone)?;
    println!("{verdict:?}");
    verdict.accept()
}

/// Leaves the last core to whom is to have it: what is started from here on runs on the others.
fn keep_a_core() -> Result<Option<usize>> {
    let cores = std::thread::available_parallelism()?.get();
    if cores < 2 || setting("UNISONO_BENCH_PIN", 1)? == 0 {
        return Ok(None);
    }
    let (last, process) = (cores - 1, std::process::id().to_string());
    let others = format!("0-{}", last - 1);
    let done = Command::new("taskset")
        .args(["-a", "-p", "-c", &others, &process])
        .output()
        .context("taskset, of util-linux, or UNISONO_BENCH_PIN=0")?;
    ensure!(done.status.success(), "taskset: {}", done.status);
    println!("the replica that comes back runs on core {last}, all else on {others}");
    Ok(Some(last))
}

/// How a replica caught up.
struct Caught {
    /// Records between its first word and its last.
    records: u64,
    /// So long after its start it first told how far it is.
    told: Duration,
    took: Duration,
    /// From its start until it had caught up, in milliseconds since 1970.
    span: (f64, f64),
    leader: u16,
}

impl Caught {
    fn per_second(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64()
    }
}

/// Kills a follower, waits, does `then`, starts it and waits until it has what the leader has.
fn come_back(
    replicas: &mut Cluster,
    away: Duration,
    lag: u64,
    then: impl FnOnce() -> Result<()>,
) -> Result<Caught> {
    let leader = replicas.leader().context("nobody leads")?;
    let follower = leader % REPLICAS + 1;
    let had = records(replicas, follower).context("it does not tell what it has")?;
    replicas.signal(follower, "-KILL")?;
    std::thread::sleep(away);
    then()?;
    let (began, from) = (Instant::now(), now_ms());
    replicas.revive(follower)?;
    let mut told = None;
    loop {
        ensure!(began.elapsed() < PATIENCE, "it does not catch up");
        std::thread::sleep(LOOK_EVERY);
        let Some(has) = records(replicas, follower) else {
            continue;
        };
        let told = *told.get_or_insert_with(|| began.elapsed());
        let wanted = records(replicas, leader).context("the leader does not answer")?;
        if has + lag >= wanted {
            return Ok(Caught {
                records: has.saturating_sub(had),
                told,
                took: began.elapsed(),
                span: (from, now_ms()),
                leader,
            });
        }
    }
}

/// What a replica's pipeline has taken in.
fn records(replicas: &Cluster, node: u16) -> Option<u64> {
    let answer = get(replicas.http(node), "/v1/pipelines").ok()?;
    let answer: Value = serde_json::from_slice(&answer).ok()?;
    answer["pipelines"][0]["counters"]["records"].as_u64()
}

fn tell(rows: &[SeenRow], beside: &Caught, alone: &Caught) -> Result<()> {
    let median = |from: f64, to: f64| {
        let within = rows.iter().filter(|row| row.at_ms > from && row.at_ms < to);
        let late: Vec<f64> = within.map(SeenRow::lateness).collect();
        ensure!(!late.is_empty(), "no rows from {from} to {to}");
        Ok((quantile(&late, 0.5), quantile(&late, 0.99)))
    };
    let mut table = Table::new(&[
        "comes back",
        "events",
        "first word after ms",
        "took s",
        "events/s",
    ]);
    for (how, caught) in [("beside the load", beside), ("nothing comes", alone)] {
        table.line(&[
            how.to_owned(),
            caught.records.to_string(),
            caught.told.as_millis().to_string(),
            format!("{:.2}", caught.took.as_secs_f64()),
            format!("{:.0}", caught.per_second()),
        ]);
    }
    table.print();
    let (from, to) = beside.span;
    let (before, meanwhile) = (median(from - BEFORE_MS, from)?, median(from, to)?);
    println!(
        "{:.2} of its plain rate; rows of leader {} late by p50 {:.1} (p99 {:.1}) ms before, {:.1} ({:.1}) meanwhile",
        beside.per_second() / alone.per_second(),
        beside.leader,
        before.0,
        before.1,
        meanwhile.0,
        meanwhile.1,
    );
    Ok(())
}
