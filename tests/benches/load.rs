//! What a crowded machine does to three replicas: 50 threads of another process take all the processor time that they get. Tells how
//! often another leader was elected, whether a minute was without rows, and how late rows were; all rows are compared with what
//! the load must give.
//!
//! `cargo bench -p unisono-tests --bench load`; `UNISONO_BENCH_SECONDS` (default 300) is how long, `UNISONO_BENCH_HOGS` (default 50)
//! how many threads, `UNISONO_BENCH_SINK` `builtin` (default: asked of all replicas by HTTP) or `kafka` (by transactions to a topic
//! of the same broker), `UNISONO` another program to measure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use unisono_tests::bench::live::{LANES, Load, Reader, SeenRow, now_ms, quantile, streams};
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
    broker.create_topic("in", LANES)?;
    broker.create_topic("out", 1)?;
    broker.create_topic_with("frontiers", 1, &[("cleanup.policy", "compact")])?;
    let sections = match kafka {
        true => to_topic(&address),
        false => streams(&address, "in", 1),
    };
    let mut replicas = Cluster::start(REPLICAS, "", &sections)?;
    replicas.wait_pipeline("live0", |_| true)?;
    let readers: Vec<Reader> = match kafka {
        true => vec![Reader::start(&address, "out")?],
        false => (1..=REPLICAS)
            .map(|node| Reader::of_replica(replicas.http(node), "live0"))
            .collect::<Result<_>>()?,
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
        ensure!(
            verdict.gaps + verdict.duplicates + verdict.wrong == 0,
            "rows are not as they must be"
        );
    }
    tell(&first_seen(&copies), (from, to), after - before)?;
    println!("terms as they were seen: {terms:?}; the load was at most {worst} ms late");
    Ok(())
}

fn to_topic(address: &str) -> String {
    let sink = format!(
        "[[sink]]\nname = \"out\"\nkafka = {{ brokers = {address:?}, topic = \"out\", frontier_topic = \"frontiers\", \
         transactional_id = \"bench\" }}\n"
    );
    let streams = streams(address, "in", 1);
    let streams = streams.replace("[[pipeline]]\n", "[[pipeline]]\nsink = \"out\"\n");
    format!("{sink}{streams}")
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

/// Each row as whoever saw it first.
fn first_seen(copies: &[Vec<SeenRow>]) -> Vec<SeenRow> {
    let mut first: BTreeMap<u64, SeenRow> = BTreeMap::new();
    for row in copies.iter().flatten() {
        let known = first.entry(row.seq).or_insert(*row);
        if row.at_ms < known.at_ms {
            *known = *row;
        }
    }
    first.into_values().collect()
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
