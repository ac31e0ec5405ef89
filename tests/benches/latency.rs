//! How long after a window's end its rows can be read: three replicas with default settings, 10,000 events a second on four
//! partitions, windows of 200 ms in ten groups, rows by transactions to a topic, a `read_committed` reader. The event that
//! closes a window is due 0.1 ms after its end; what it takes to produce it counts. All rows are compared with what the load
//! must give.
//!
//! `cargo bench -p unisono-tests --bench latency`; `UNISONO_BENCH_SECONDS` (default 30) is how long it is measured,
//! `UNISONO_BENCH_CLUSTER` lines for that section of the config, `UNISONO` another program to measure.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use unisono_tests::bench::live::{
    FIRST, Load, Reader, SeenRow, make_topics, now_ms, quantile, streams, to_topic,
};
use unisono_tests::bench::{Cluster, Table, Waits, get, program, setting};
use unisono_tests::kafka::TestBroker;

const REPLICAS: u16 = 3;
/// Before it is measured.
const WARM: Duration = Duration::from_secs(8);

fn main() -> Result<()> {
    let time = Duration::from_secs(setting("UNISONO_BENCH_SECONDS", 30)?);
    let cluster = std::env::var("UNISONO_BENCH_CLUSTER").unwrap_or_default();
    println!("program: {}", program().display());
    let broker = TestBroker::start()?;
    let address = broker.address();
    make_topics(&broker)?;
    let streams = to_topic(&address, &streams(&address, "in", 1));
    let mut replicas = Cluster::start(REPLICAS, &cluster, &streams)?;
    replicas.wait_pipeline(FIRST, |_| true)?;
    let reader = Reader::of_topic(&address, "out")?;
    let mut load = Load::start(&address, "in")?;
    std::thread::sleep(WARM);
    let (since, cpu) = (now_ms(), replicas.cpu()?);
    let _ = load.worst_ms();
    let leader = replicas.leader().context("nobody leads")?;
    let waits = Waits::before(replicas.http(leader), "rows")?;
    std::thread::sleep(time);
    let waits = Waits::before(replicas.http(leader), "rows")?.since(&waits);
    let cpu = (replicas.cpu()? - cpu) / time.as_secs_f64();
    let worst = load.worst_ms();
    load.stop()?;
    std::thread::sleep(Duration::from_secs(1));
    let rows = reader.end()?;
    let verdict = load.judge(&rows);
    let measured: Vec<&SeenRow> = rows
        .iter()
        .filter(|row| row.start_ms as f64 > since)
        .collect();
    ensure!(
        !measured.is_empty(),
        "no rows, but {:?}",
        get(replicas.http(1), "/v1/pipelines")
            .map(|told| String::from_utf8_lossy(&told).into_owned())
    );
    let visible: Vec<f64> = measured.iter().map(|row| row.lateness()).collect();
    let made: Vec<f64> = measured
        .iter()
        .filter_map(|row| Some(row.made_ms? as f64 - row.at_ms + row.lateness()))
        .collect();
    let mut table = Table::new(&["after a window's end, ms", "p50", "p90", "p99", "max"]);
    for (what, values) in [("given to the sink", made), ("readable", visible)] {
        let of = |share| format!("{:.1}", quantile(&values, share));
        table.line(&[what.to_owned(), of(0.5), of(0.9), of(0.99), of(1.0)]);
    }
    table.print();
    println!(
        "the leader waited for another one's word before {:.0} transactions: p50 {:.2}, p99 {:.2}, mean {:.2} ms",
        waits.count(),
        waits.quantile(0.5) * 1e3,
        waits.quantile(0.99) * 1e3,
        waits.mean() * 1e3,
    );
    println!(
        "{verdict:?}; the load was at most {worst} ms late; CPU of the three replicas: {:.1} % of a core",
        cpu * 100.0
    );
    verdict.accept()
}
