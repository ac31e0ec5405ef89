//! What three replicas cost when nothing happens, and at a tick every 25 ms: CPU in per cent of a core and wake-ups a second
//! (voluntary context switches), for each replica and each of its threads. Input are files; a feeder appends lines.
//!
//! `cargo bench -p unisono-tests --bench idle`; `UNISONO_BENCH_SECONDS` (default 10) is how long each figure is measured,
//! `UNISONO` another program to measure.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use unisono_chaos::cluster::{Cluster, Setup};
use unisono_tests::bench::{append_now, program};

const NODES: u16 = 3;
const FILES: u32 = 3;
/// Long enough that what a start costs is over.
const SETTLE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<()> {
    let seconds = match std::env::var("UNISONO_BENCH_SECONDS") {
        Ok(text) => text
            .parse()
            .context("UNISONO_BENCH_SECONDS must be a number")?,
        Err(_) => 10,
    };
    let time = Duration::from_secs(seconds);
    let binary = program();
    println!("program: {}", binary.display());
    let dir = tempfile::tempdir()?;
    let input = dir.path().join("input");
    fs::create_dir(&input)?;
    for file in 0..FILES {
        append_now(&input, file)?;
    }
    let setup = Setup {
        binary,
        dir: dir.path().to_owned(),
        nodes: NODES,
        checkpoint_interval: None,
        streams: streams(&input),
        pipeline: "events".to_owned(),
    };
    let mut cluster = Cluster::start_setup(&setup)?;
    cluster.wait_ready().await?;
    tokio::time::sleep(SETTLE).await;
    measure("idle", &mut cluster, dir.path(), time).await?;
    let feeder = Feeder::start(&input);
    tokio::time::sleep(SETTLE).await;
    measure("a line every 5 ms", &mut cluster, dir.path(), time).await?;
    feeder.stop()
}

fn streams(input: &Path) -> String {
    format!(
        r#"[[source]]
name = "events"
files = {{ dir = "{}", pattern = "*.ndjson" }}
[[pipeline]]
name = "events"
sources = ["events"]
sink = "builtin"
time = {{ field = "at", format = "ms" }}
group_by = ["city"]
window = {{ size = "10s" }}
close = {{ lag = "1s", idle = "2s" }}
values = {{ events = "count()" }}
"#,
        input.display()
    )
}

/// Appends lines until it is stopped.
struct Feeder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Feeder {
    fn start(input: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, input) = (Arc::clone(&stop), input.to_owned());
        let thread = std::thread::spawn(move || {
            for file in (0..FILES).cycle() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                append_now(&input, file)?;
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        });
        Self { stop, thread }
    }

    fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| anyhow::bail!("the feeder panicked"))
    }
}

async fn measure(what: &str, cluster: &mut Cluster, dir: &Path, time: Duration) -> Result<()> {
    let leader = cluster.wait_leader().await?;
    let mut before = BTreeMap::new();
    for number in 1..=NODES {
        before.insert(number, Sample::of(pid(dir, number)?)?);
    }
    let (ticks, started) = (applied(cluster, leader)?, Instant::now());
    tokio::time::sleep(time).await;
    let entries = applied(cluster, leader)? - ticks;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{what}: {:.0} log entries a second",
        entries as f64 / seconds
    );
    for (number, before) in before {
        let role = if number == leader {
            "leader"
        } else {
            "follower"
        };
        let spent = Sample::of(pid(dir, number)?)?.since(&before);
        let (cpu, wakes) = spent.total();
        let per_second = |value: f64| value / seconds;
        println!(
            "  {role:<8} {number}: {:5.2} % of a core, {:5.0} wake-ups a second",
            per_second(cpu) * 100.0,
            per_second(wakes)
        );
        for (thread, (cpu, wakes)) in &spent.0 {
            println!(
                "    {thread:<16} {:5.2} % {:5.0}",
                per_second(*cpu) * 100.0,
                per_second(*wakes)
            );
        }
    }
    Ok(())
}

/// Entries of the agreed log that a node has applied.
fn applied(cluster: &Cluster, number: u16) -> Result<u64> {
    let address = &cluster.addresses()[&number];
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let name = "unisono_raft_applied_index ";
    let value = answer.lines().find_map(|line| line.strip_prefix(name));
    let value: f64 = value
        .context("no applied index among the metrics")?
        .parse()?;
    Ok(value as u64)
}

/// The process that runs on this config.
fn pid(dir: &Path, number: u16) -> Result<u32> {
    let config = dir.join(format!("unisono-{number}.toml"));
    let config = config.to_string_lossy().into_owned();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // It may have ended meanwhile.
        let command = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if command.split('\0').any(|word| word == config) {
            return Ok(pid);
        }
    }
    anyhow::bail!("node {number} does not run")
}

/// Seconds of CPU and wake-ups of a process's threads, by name.
struct Sample(BTreeMap<String, (f64, f64)>);

impl Sample {
    fn of(pid: u32) -> Result<Self> {
        let mut threads: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            let read = |file: &str| fs::read_to_string(task.join(file));
            // A thread may end while it is looked at.
            let (Ok(name), Ok(times), Ok(status)) =
                (read("comm"), read("schedstat"), read("status"))
            else {
                continue;
            };
            let first = times.split_whitespace().next();
            let nanos: f64 = first.context("an empty schedstat")?.parse()?;
            let switches = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let wakes: f64 = switches.context("no count of switches")?.trim().parse()?;
            let known = threads.entry(name.trim().to_owned()).or_default();
            known.0 += nanos / 1e9;
            known.1 += wakes;
        }
        Ok(Self(threads))
    }

    fn since(&self, before: &Self) -> Self {
        let spent = |(name, &(cpu, wakes)): (&String, &(f64, f64))| {
            let known = before.0.get(name).copied().unwrap_or_default();
            // Threads that ended took their share with them.
            (
                name.clone(),
                ((cpu - known.0).max(0.0), (wakes - known.1).max(0.0)),
            )
        };
        Self(self.0.iter().map(spent).collect())
    }

    fn total(&self) -> (f64, f64) {
        let add = |sum: (f64, f64), value: &(f64, f64)| (sum.0 + value.0, sum.1 + value.1);
        self.0.values().fold((0.0, 0.0), add)
    }
}
