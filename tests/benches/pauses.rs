//! The longest time without a new row of a small, steady pipeline while a replica holds two million groups of another one:
//! with nothing else to do, while the open windows of the large one are asked for, and while checkpoints are made of it. The
//! large one reads the same source, then another.
//!
//! `cargo bench -p unisono-tests --bench pauses`; `UNISONO_BENCH_GROUPS` (default 2,000,000), `UNISONO_BENCH_SECONDS` (of a
//! phase, default 15), `UNISONO`, the program. The small pipeline has a row for every 10 ms; rows are asked for over HTTP, at
//! the replica that is disturbed, 2 ms after each answer. A machine that is busy with something else shows in the first phase.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;
use unisono_tests::bench::{Cluster, Table, get, median, memory, program, setting};

const FEED_EVERY: Duration = Duration::from_millis(5);
const ASK_EVERY: Duration = Duration::from_millis(2);
const SETTLE: Duration = Duration::from_secs(2);
/// Checkpoints that are waited for, at most so long.
const CHECKPOINTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(120);
const NO_CHECKPOINTS: &str = "checkpoint_interval = \"1h\"";
const OFTEN: &str = "checkpoint_interval = \"4s\"";

fn main() -> Result<()> {
    let groups = setting("UNISONO_BENCH_GROUPS", 2_000_000)?;
    let phase = Duration::from_secs(setting("UNISONO_BENCH_SECONDS", 15)?);
    println!("program: {}", program().display());
    println!("{groups} groups, {} s a phase", phase.as_secs());
    let headings = [
        "the large one reads",
        "while",
        "times",
        "took, median ms",
        "longest gap ms",
    ];
    let mut table = Table::new(&headings);
    for (name, source) in [("the same source", "small"), ("another one", "large")] {
        let bytes = measure(source, groups, phase, &mut |cells| {
            table.line(&[&[name.to_owned()], cells].concat());
        })?;
        println!("{name}: {bytes:.0} bytes of memory a group, with its key of 13 bytes");
    }
    table.print();
    Ok(())
}

/// All phases, with the groups in this source; gives the memory that a group takes.
fn measure(
    source: &str,
    groups: u64,
    phase: Duration,
    line: &mut dyn FnMut(&[String]),
) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    for name in ["large", "small"] {
        std::fs::create_dir(dir.path().join(name))?;
        File::create(dir.path().join(name).join("0.ndjson"))?;
    }
    let streams = streams(dir.path(), source);
    let _feeder = Feeder::start(&dir.path().join("small/0.ndjson"))?;
    let mut cluster = Cluster::start(1, NO_CHECKPOINTS, &streams)?;
    let mut watch = Watch::of(&mut cluster)?;
    let before = memory(&cluster.process(1))?;
    write_groups(&dir.path().join(source).join("0.ndjson"), groups)?;
    wait_groups(&mut cluster, groups)?;
    let held = memory(&cluster.process(1))? - before;
    // What was read before is let go.
    watch.during((SETTLE, 0), || Ok(true))?;
    let gap = watch.during((phase, 0), || Ok(true))?.1;
    line(&cells("nothing", None, gap));
    for path in [
        "/v1/pipelines/large/open",
        "/v1/pipelines/large/open?limit=10",
    ] {
        let http = cluster.http(1).to_owned();
        let (took, gap) = watch.during((phase, 1), || get(&http, path).map(|_| true))?;
        line(&cells(path, Some((took.len(), Some(median(&took)))), gap));
    }
    cluster.restart(OFTEN, &streams)?;
    wait_groups(&mut cluster, groups)?;
    let mut watch = Watch::of(&mut cluster)?;
    let (http, last) = (cluster.http(1).to_owned(), AtomicU64::new(0));
    let (seen, gap) = watch.during((phase, CHECKPOINTS), || checkpointed(&http, &last))?;
    line(&cells("checkpoints", Some((seen.len(), None)), gap));
    Ok(held * 1_048_576.0 / groups as f64)
}

fn cells(name: &str, done: Option<(usize, Option<f64>)>, gap: Duration) -> [String; 4] {
    let took = done.and_then(|(_, took)| took);
    [
        name.to_owned(),
        done.map(|(times, _)| times.to_string()).unwrap_or_default(),
        took.map(|took| format!("{took:.0}")).unwrap_or_default(),
        format!("{:.0}", gap.as_secs_f64() * 1e3),
    ]
}

fn streams(dir: &Path, large: &str) -> String {
    let source = |name: &str| {
        let dir = dir.join(name);
        format!(
            "[[source]]\nname = \"{name}\"\nfiles = {{ dir = {dir:?}, pattern = \"*.ndjson\" }}\n"
        )
    };
    let pipeline = |name: &str, source: &str, size: &str, group: &str| {
        format!(
            "[[pipeline]]\nname = \"{name}\"\nsources = [\"{source}\"]\n{group}time = {{ field = \"t\", format = \"ms\" }}\n\
             window = {{ size = \"{size}\" }}\nclose = {{ idle = \"never\" }}\nvalues = {{ n = \"count()\" }}\n"
        )
    };
    [
        source("large"),
        source("small"),
        pipeline("large", large, "1 day", "group_by = [\"g\"]\n"),
        pipeline("small", "small", "10ms", ""),
    ]
    .concat()
}

fn now_ms() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis()
}

/// Appends an event for each group, in whole lines: the feeder may append to the same file.
fn write_groups(path: &Path, groups: u64) -> Result<()> {
    use std::fmt::Write as _;
    let mut file = OpenOptions::new().append(true).open(path)?;
    for some in (0..groups).step_by(10_000) {
        let now = now_ms();
        let mut lines = String::new();
        for group in some..groups.min(some + 10_000) {
            writeln!(lines, r#"{{"t":{now},"g":"group-{group:07}"}}"#)?;
        }
        file.write_all(lines.as_bytes())?;
    }
    Ok(())
}

fn wait_groups(cluster: &mut Cluster, groups: u64) -> Result<()> {
    cluster.wait_pipeline("large", |answer| {
        let records = answer["counters"]["records"].as_u64();
        records.is_some_and(|records| records >= groups)
    })
}

/// Whether a checkpoint was made since the last call; at first, none was.
fn checkpointed(http: &str, last: &AtomicU64) -> Result<bool> {
    let answer: Value = serde_json::from_slice(&get(http, "/v1/cluster")?)?;
    let index = answer["checkpoint"]["index"].as_u64().unwrap_or(0);
    let before = last.swap(index, Ordering::Relaxed);
    Ok(before > 0 && index > before)
}

/// Appends an event to the small source every few milliseconds, until it is dropped.
struct Feeder {
    stop: Arc<AtomicBool>,
}

impl Feeder {
    fn start(path: &Path) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let mut file = OpenOptions::new().append(true).open(path)?;
        std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let line = format!("{{\"t\":{}}}\n", now_ms());
                if file.write_all(line.as_bytes()).is_err() {
                    return;
                }
                std::thread::sleep(FEED_EVERY);
            }
        });
        Ok(Self { stop })
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One who follows the rows of the small pipeline.
struct Watch {
    http: String,
    cursor: String,
    last: Instant,
}

impl Watch {
    /// Begins where the rows are now, once they flow.
    fn of(cluster: &mut Cluster) -> Result<Self> {
        cluster.wait_pipeline("small", |answer| {
            answer["published"].as_u64().is_some_and(|rows| rows > 100)
        })?;
        let http = cluster.http(1).to_owned();
        let answer: Value = serde_json::from_slice(&get(&http, "/v1/pipelines")?)?;
        let pipelines = answer["pipelines"].as_array().context("no pipelines")?;
        let small = pipelines.iter().find(|one| one["name"] == "small");
        let incarnation = small.and_then(|small| small["incarnation"].as_u64());
        let incarnation = incarnation.context("no incarnation")?;
        let mut watch = Self {
            cursor: format!("w.{incarnation:x}.0"),
            http,
            last: Instant::now(),
        };
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            watch.ask()?;
        }
        Ok(watch)
    }

    /// Asks for new rows once; gives the time since the last ones, if there are any.
    fn ask(&mut self) -> Result<Option<Duration>> {
        let path = format!(
            "/v1/pipelines/small/windows?limit=10000&cursor={}",
            self.cursor
        );
        let page: Value = serde_json::from_slice(&get(&self.http, &path)?)?;
        let rows = page["rows"].as_array().context("no rows")?;
        let since = self.last.elapsed();
        let Some(seq) = rows.last().and_then(|row| row["seq"].as_u64()) else {
            std::thread::sleep(ASK_EVERY);
            return Ok(None);
        };
        let (head, _) = self.cursor.rsplit_once('.').context("no cursor")?;
        self.cursor = format!("{head}.{:x}", seq + 1);
        self.last = Instant::now();
        Ok(Some(since))
    }

    /// Follows the rows for so long and until another thread, which does `work` again and again, has done so many times what
    /// counts. Gives what each time took, in ms, and the longest gap: new rows begin and end it.
    fn during(
        &mut self,
        (phase, times): (Duration, usize),
        work: impl Fn() -> Result<bool> + Sync,
    ) -> Result<(Vec<f64>, Duration)> {
        while self.ask()?.is_none() {}
        let (ended, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        let started = Instant::now();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut took = Vec::new();
                while !ended.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    if work()? {
                        took.push(began.elapsed().as_secs_f64() * 1e3);
                        done.store(took.len(), Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                Ok(took)
            });
            let longest = self.longest(|| {
                let enough = done.load(Ordering::Relaxed) >= times;
                started.elapsed() > phase && (enough || started.elapsed() > PATIENCE)
            });
            ended.store(true, Ordering::Relaxed);
            let took: Result<Vec<f64>> = worker.join().unwrap_or_else(|_| Ok(Vec::new()));
            Ok((took?, longest?))
        })
    }

    fn longest(&mut self, over: impl Fn() -> bool) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        loop {
            let gap = self.ask()?;
            longest = longest.max(gap.unwrap_or_default());
            if gap.is_some() && over() {
                return Ok(longest);
            }
        }
    }
}
