//! What a crowded machine does to three replicas: 50 threads of another process take all the processor time that they get. Tells how
//! often another leader was elected, whether a minute was without rows, and how late rows were; all rows are compared with what
//! the load must give.
//!
//! `cargo bench -p unisono-tests --bench load`; `UNISONO_BENCH_SECONDS` (default 300) is how long, `UNISONO_BENCH_HOGS` (default 50)
//! how many threads, `UNISONO_BENCH_SINK` `builtin` (default: asked of all replicas by HTTP) or `kafka` (by transactions to a topic
//! of the same broker), `UNISONO` another program to measure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use unisono_tests::bench::live::{
    FIRST, Load, Reader, SeenRow, first_seen, make_topics, now_ms, quantile, streams, to_topic,
};
use unisono_tests::bench::{Cluster, Hogs, Table, get, program, setting};
use unisono_tests::kafka::TestBroker;

const REPLICAS: u16 = 3;
const WARM: Duration = Duration::from_secs(8);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const MINUTE_MS: f64 = 60_000.0;
/// After the load: what is still on its way on such a machine.
const SETTLE: Duration = Duration::from_secs(5);
/// What is wanted of five minutes.
const MOST_ELECTIONS: u64 = 3;

fn main() -> Result<()> {
    if Hogs::run_if_asked()? {
        return Ok(());
    }
    let time = Duration::from_secs(setting("UNISONO_BENCH_SECONDS", 300)?);
    let threads = setting("UNISONO_BENCH_HOGS", 50)?;
    let kafka = std::env::var("UNISONO_BENCH_SINK").is_ok_and(|sink| sink == "kafka");
    println!("program: {}", program().display());
    let broker = TestBroker::start()?;
    let address = broker.address();
    make_topics(&broker)?;
    let sections = match kafka {
        true => to_topic(&address, &streams(&address, "in", 1)),
        false => streams(&address, "in", 1),
    };
    let mut replicas = Cluster::start(REPLICAS, "", &sections)?;
    replicas.wait_pipeline(FIRST, |_| true)?;
    let readers: Vec<Reader> = match kafka {
        true => vec![Reader::of_topic(&address, "out")?],
        false => Reader::of_all(&replicas)?,
    };
    let mut load = Load::start(&address, "in")?;
    std::thread::sleep(WARM);
    let (from, before) = (now_ms(), term(&replicas).context("nobody tells the term")?);
    let hogs = Hogs::start(threads, time)?;
    let terms = watch(&replicas, time);
    let to = now_ms();
    drop(hogs);
    let worst = load.worst_ms();
    load.stop()?;
    std::thread::sleep(SETTLE);
    let after = term(&replicas).context("nobody tells the term")?;
    let copies = readers
        .into_iter()
        .map(Reader::end)
        .collect::<Result<Vec<_>>>()?;
    for rows in &copies {
        let verdict = load.judge(rows);
        println!("{verdict:?}");
        verdict.accept()?;
    }
    let rows: Vec<SeenRow> = first_seen(&copies).into_values().collect();
    tell(&rows, (from, to), after - before)?;
    println!("terms as they were seen: {terms:?}; the load was at most {worst} ms late");
    Ok(())
}

/// The highest term that any replica tells of.
fn term(replicas: &Cluster) -> Option<u64> {
    let of = |node| {
        let answer = get(replicas.http(node), "/v1/cluster").ok()?;
        serde_json::from_slice::<Value>(&answer).ok()?["term"].as_u64()
    };
    (1..=REPLICAS).filter_map(of).max()
}

fn watch(replicas: &Cluster, time: Duration) -> BTreeSet<u64> {
    let end = Instant::now() + time;
    let mut terms = BTreeSet::new();
    while Instant::now() < end {
        terms.extend(term(replicas));
        std::thread::sleep(LOOK_EVERY);
    }
    terms
}

fn tell(rows: &[SeenRow], (from, to): (f64, f64), elections: u64) -> Result<()> {
    let within = |row: &&SeenRow| row.at_ms >= from && row.at_ms < to;
    let rows: Vec<&SeenRow> = rows.iter().filter(within).collect();
    ensure!(!rows.is_empty(), "no rows at all");
    // The last one may be longer: on such a machine the end comes late.
    let minutes = (((to - from) / MINUTE_MS) as usize).max(1);
    let mut counts = vec![0_u64; minutes];
    for row in &rows {
        counts[(((row.at_ms - from) / MINUTE_MS) as usize).min(minutes - 1)] += 1;
    }
    let empty = counts.iter().filter(|&&count| count == 0).count();
    let late: Vec<f64> = rows.iter().map(|row| row.lateness()).collect();
    let mut at: Vec<f64> = rows.iter().map(|row| row.at_ms).collect();
    at.extend([from, to]);
    at.sort_by(f64::total_cmp);
    let longest = at.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max);
    let mut table = Table::new(&[
        "minutes",
        "elections",
        "minutes without rows",
        "longest time without a row ms",
        "lateness ms p50",
        "p99",
    ]);
    table.line(&[
        minutes.to_string(),
        elections.to_string(),
        empty.to_string(),
        format!("{longest:.0}"),
        format!("{:.0}", quantile(&late, 0.5)),
        format!("{:.0}", quantile(&late, 0.99)),
    ]);
    table.print();
    println!("rows of each minute: {counts:?}");
    let most = MOST_ELECTIONS * (minutes as u64).div_ceil(5);
    ensure!(
        elections <= most && empty == 0,
        "wanted: at most {most} elections, and rows in each minute"
    );
    Ok(())
}
