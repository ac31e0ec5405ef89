//! How much later rows come when something happens to the leader: three replicas with default settings, 10,000 events a
//! second on four partitions of a real broker, windows of 200 ms in ten groups. All rows are compared with what the load must
//! give.
//!
//! *Added*: of each fault, the latest window that was due within a second after it: when its last row could be read, minus
//! the window's end, minus the median of that where nothing happened. *To the next row*: from the fault to the first row of a
//! window that ended after it, the wait for that end included.
//!
//! `cargo bench -p unisono-tests --bench takeover`; `UNISONO_BENCH_FAULTS` (default 30) is how many there are of each kind,
//! `UNISONO_BENCH_KINDS` which, separated by commas (kill, kill-and-start, kill-open, freeze, cut, term, transfer, restart-all, followers;
//! default all), `UNISONO_BENCH_SINK` `kafka` (default: by transactions to a topic, read by a `read_committed` consumer) or
//! `builtin` (asked of all replicas by HTTP; it has no transactions, so no kill-open), `UNISONO_BENCH_PIPELINES` (default 1) how
//! many pipelines there are, of which the first is read, `UNISONO` another program to measure; for kill-open it needs the feature
//! `faults`, as the one has that is built for this.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use unisono_tests::bench::fault::{Fault, PATIENCE};
use unisono_tests::bench::live::{
    FIRST, GROUPS, Load, Reader, SeenRow, Verdict, WINDOW_MS, first_seen, make_topics, quantile,
    streams, to_topic,
};
use unisono_tests::bench::{Cluster, Network, Table, program, setting};
use unisono_tests::kafka::TestBroker;

const REPLICAS: u16 = 3;
const WARM: Duration = Duration::from_secs(8);
/// So long after a fault rows are looked at.
const AFTERMATH_MS: f64 = 1_000.0;
/// From one fault to the next, once all are well: long enough that there are windows that nothing happened to.
const PAUSE: Duration = Duration::from_millis(2_500);

fn main() -> Result<()> {
    let faults = setting("UNISONO_BENCH_FAULTS", 30)?;
    let pipelines = usize::try_from(setting("UNISONO_BENCH_PIPELINES", 1)?)?;
    let builtin = std::env::var("UNISONO_BENCH_SINK").is_ok_and(|sink| sink == "builtin");
    let kinds = match std::env::var("UNISONO_BENCH_KINDS") {
        Ok(kinds) => kinds.split(',').map(Fault::named).collect::<Result<_>>()?,
        Err(_) => Vec::from(Fault::ALL.map(|(_, fault)| fault)),
    };
    let fits = |fault: &Fault| !builtin || *fault != Fault::KillOpen;
    println!("program: {}", program().display());
    let mut table = Table::new(&[
        "fault",
        "times",
        "added ms p50",
        "p90",
        "p99",
        "max",
        "to the next row ms p50",
        "p99",
        "gaps, duplicates, wrong",
        "median of the undisturbed",
    ]);
    for kind in kinds.into_iter().filter(fits) {
        let ran = run(kind, faults, pipelines, builtin);
        // What was measured before is not lost.
        let ran = ran.inspect_err(|_| table.print())?;
        println!("{kind}: {:?}", ran.verdict);
        let verdict = ran.verdict;
        let added = |share| format!("{:.0}", quantile(&ran.added, share));
        let next = |share| format!("{:.0}", quantile(&ran.next, share));
        table.line(&[
            kind.to_string(),
            ran.added.len().to_string(),
            added(0.5),
            added(0.9),
            added(0.99),
            added(1.0),
            next(0.5),
            next(0.99),
            format!(
                "{}, {}, {} of {}",
                verdict.gaps, verdict.duplicates, verdict.wrong, verdict.rows
            ),
            format!("{:.1}", ran.usual),
        ]);
    }
    table.print();
    Ok(())
}

struct Ran {
    added: Vec<f64>,
    next: Vec<f64>,
    usual: f64,
    verdict: Verdict,
}

/// One kind, on a broker and replicas of its own.
fn run(kind: Fault, faults: u64, pipelines: usize, builtin: bool) -> Result<Ran> {
    let cuts = kind == Fault::Cut;
    let broker = match cuts {
        true => TestBroker::start_gated(usize::from(REPLICAS))?,
        false => TestBroker::start()?,
    };
    let address = broker.address();
    make_topics(&broker)?;
    let sections = |address: &str| {
        let sections = streams(address, "in", pipelines);
        match builtin {
            true => sections,
            false => to_topic(address, &sections),
        }
    };
    let network = cuts.then(|| Network::build(&broker.gates())).transpose()?;
    let mut replicas = match &network {
        Some(network) => Cluster::start_in(network, REPLICAS, sections)?,
        None => Cluster::start(REPLICAS, settings(kind), &sections(&address))?,
    };
    replicas.wait_pipeline(FIRST, |_| true)?;
    let readers: Vec<Reader> = match builtin {
        false => vec![Reader::of_topic(&address, "out")?],
        true => Reader::of_all(&replicas)?,
    };
    let mut load = Load::start(&address, "in")?;
    std::thread::sleep(WARM);
    let mut times = Vec::new();
    for number in 0..faults {
        replicas.wait_ready(PATIENCE)?;
        // All phases of windows and ticks.
        std::thread::sleep(PAUSE + Duration::from_micros(number * 7_919_000 % 997_000));
        times.push(kind.deal(&mut replicas, network.as_ref())?);
    }
    replicas.wait_ready(PATIENCE)?;
    std::thread::sleep(Duration::from_secs(2));
    load.stop()?;
    std::thread::sleep(Duration::from_secs(1));
    let copies = readers
        .into_iter()
        .map(Reader::end)
        .collect::<Result<Vec<_>>>()?;
    let verdict = copies
        .iter()
        .map(|rows| load.judge(rows))
        .fold(Verdict::default(), Verdict::and);
    verdict.accept().with_context(|| kind.to_string())?;
    Ok(measure(&copies, &times, verdict))
}

/// Followers that come back replay all that came since the cluster began.
fn settings(kind: Fault) -> &'static str {
    match kind {
        Fault::Followers => "checkpoint_interval = \"10m\"\n",
        _ => "",
    }
}

fn measure(copies: &[Vec<SeenRow>], times: &[(f64, f64)], verdict: Verdict) -> Ran {
    // When the last row of each window could be read, from whomever first.
    let first = first_seen(copies);
    let mut windows: BTreeMap<i64, (i64, f64)> = BTreeMap::new();
    for row in first.values() {
        let (rows, at) = windows.entry(row.start_ms + WINDOW_MS).or_insert((0, 0.0));
        (*rows, *at) = (*rows + 1, row.at_ms.max(*at));
    }
    windows.retain(|_, (rows, _)| *rows == GROUPS);
    let late = |(&end, &(_, at)): (&i64, &(i64, f64))| (end as f64, at - end as f64);
    let windows: Vec<(f64, f64)> = windows.iter().map(late).collect();
    // The windows whose rows were still on their way when it happened count too.
    let touched = |(from, to): (f64, f64), end| end > from - 100.0 && end < to + AFTERMATH_MS;
    let disturbed = |end: f64| {
        let mut times = times.iter();
        times.any(|&(from, to)| end > from - 300.0 && end < to + 3_500.0)
    };
    let mut usual: Vec<f64> = windows
        .iter()
        .filter(|(end, _)| !disturbed(*end))
        .map(|(_, late)| *late)
        .collect();
    if usual.is_empty() {
        usual = windows.iter().map(|(_, late)| *late).collect();
    }
    let usual = quantile(&usual, 0.5);
    let worst = |&time: &(f64, f64)| {
        let of = windows.iter().filter(|(end, _)| touched(time, *end));
        of.map(|(_, late)| late - usual).fold(0.0, f64::max)
    };
    let next = |&(at, _): &(f64, f64)| {
        let later = first
            .values()
            .filter(|row| (row.start_ms + WINDOW_MS) as f64 > at);
        later.map(|row| row.at_ms).fold(f64::INFINITY, f64::min) - at
    };
    Ran {
        added: times.iter().map(worst).collect(),
        next: times.iter().map(next).collect(),
        usual,
        verdict,
    }
}
