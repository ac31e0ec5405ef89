//! `unisono eval` of a file of 1 GB, counted by 10 groups and by a million: CPU, peak memory, and the bytes that a group takes.
//! Beside it DuckDB on one thread: the same count, of the same file, in the same run.
//!
//! `cargo bench -p unisono-tests --bench eval`; `UNISONO_BENCH_MB` (default 1,000), `UNISONO_BENCH_ROUNDS` (default 3),
//! `UNISONO`, the program, and `UNISONO_BENCH_PYTHON` (default `python3`), a Python that has DuckDB. To make one:
//! `python3 -m venv /tmp/duckdb && /tmp/duckdb/bin/pip install duckdb`, then `UNISONO_BENCH_PYTHON=/tmp/duckdb/bin/python`.
//! DuckDB's CPU time is that of the query alone (its rows are in no order, ours are), ours that of the whole process. A
//! group's bytes are the difference between both peaks: its state, its key and what writing its row takes at the end.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use unisono_tests::bench::{T0, Table, Used, figure, finished, median, program, setting};

const FEW: u64 = 10;
const MANY: u64 = 1_000_000;
/// Bytes of a line with its newline.
const LINE: u64 = 238;
/// All events lie in one window, so that all groups are held at once.
const QUERY: &str = r#"
import resource, sys
import duckdb
path, group = sys.argv[1:]
connection = duckdb.connect()
connection.execute("SET threads=1")
connection.execute("SET enable_progress_bar=false")
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
before = used()
connection.execute(f"""COPY (SELECT t // 3600000 AS hour, {group}, count(*) AS n
  FROM read_json('{path}', format = 'newline_delimited', columns = {{t: 'BIGINT', {group}: 'VARCHAR'}})
  GROUP BY ALL) TO '/dev/null' (FORMAT json)""")
print(used() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, duckdb.__version__)
"#;

/// A value for each round.
#[derive(Default)]
struct Line {
    cpu: Vec<f64>,
    peak: Vec<f64>,
}

impl Line {
    fn add(&mut self, used: Used) {
        self.cpu.push(used.cpu);
        self.peak.push(used.peak);
    }
}

fn main() -> Result<()> {
    let lines = setting("UNISONO_BENCH_MB", 1_000)? * 1_000_000 / LINE;
    let rounds = setting("UNISONO_BENCH_ROUNDS", 3)?;
    println!("program: {}", program().display());
    let python = std::env::var("UNISONO_BENCH_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let peer = version(&python);
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("events.ndjson");
    write_events(&file, lines)?;
    println!(
        "{lines} events, {} bytes, {rounds} rounds; DuckDB: {}",
        std::fs::metadata(&file)?.len(),
        peer.as_deref()
            .unwrap_or("not there, see the benchmark's source")
    );
    let mut ours = [Line::default(), Line::default()];
    let mut theirs = [Line::default(), Line::default()];
    for _ in 0..rounds {
        for (at, group) in ["few", "many"].into_iter().enumerate() {
            ours[at].add(eval(dir.path(), &file, group)?);
            if peer.is_some() {
                theirs[at].add(duckdb(&python, &file, group)?);
            }
        }
    }
    report(&ours, &theirs, lines);
    Ok(())
}

fn report(ours: &[Line; 2], theirs: &[Line; 2], lines: u64) {
    let headings = ["groups", "CPU-s", "DuckDB", "ratio", "peak MiB", "DuckDB"];
    let mut table = Table::new(&headings);
    for ((name, ours), theirs) in [FEW, MANY].into_iter().zip(ours).zip(theirs) {
        let (mut cpu, mut peak, mut ratio) = (String::new(), String::new(), String::new());
        if !theirs.cpu.is_empty() {
            cpu = figure(&theirs.cpu, 2);
            peak = figure(&theirs.peak, 0);
            ratio = format!("{:.2}", median(&ours.cpu) / median(&theirs.cpu));
        }
        table.line(&[
            name.to_string(),
            figure(&ours.cpu, 2),
            cpu,
            ratio,
            figure(&ours.peak, 0),
            peak,
        ]);
    }
    table.print();
    let more = median(&ours[1].peak) - median(&ours[0].peak);
    let groups = MANY.min(lines);
    println!(
        "bytes a group, key and row included: {:.0}",
        more * 1_048_576.0 / groups as f64
    );
}

fn write_events(file: &Path, lines: u64) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    let mut text = String::new();
    for index in 0..lines {
        use std::fmt::Write as _;
        text.clear();
        // An odd factor visits all of them before it repeats one, in no order that a table could like.
        let many = index.wrapping_mul(7_368_787) % MANY;
        let (a, b) = (index.wrapping_mul(0x9E37_79B9_7F4A_7C15), index % 100_000);
        write!(
            text,
            r#"{{"user_id":"{a:032x}","page_id":"{b:032x}","few":"g{}","many":"user-{many:07}","event_type":"view","t":{},"note":""#,
            index % FEW,
            T0 + index / 50,
        )?;
        let padding = LINE as usize - 3 - text.len();
        text.extend(std::iter::repeat_n('x', padding));
        text.push_str("\"}\n");
        out.write_all(text.as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn eval(dir: &Path, file: &Path, group: &str) -> Result<Used> {
    let pipeline = dir.join("pipeline.toml");
    let text = format!(
        "name = \"p\"\nsources = [\"events\"]\ntime = {{ field = \"t\", format = \"ms\" }}\n\
         group_by = [\"{group}\"]\nwindow = {{ size = \"1h\" }}\nvalues = {{ n = \"count()\" }}\n"
    );
    std::fs::write(&pipeline, text)?;
    let child = Command::new(program())
        .arg("eval")
        .args([&pipeline, file])
        .args(["--format", "ndjson"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    finished(child)
}

/// DuckDB's version, if this Python has it.
fn version(python: &str) -> Option<String> {
    let mut command = Command::new(python);
    command.args(["-c", "import duckdb; print(duckdb.__version__)"]);
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn duckdb(python: &str, file: &Path, group: &str) -> Result<Used> {
    let mut command = Command::new(python);
    command.args(["-c", QUERY]).arg(file).arg(group);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "DuckDB failed: {said}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut figures = text.split_whitespace().map(str::parse);
    let mut next = || -> Result<f64> { Ok(figures.next().context("DuckDB said nothing")??) };
    Ok(Used {
        cpu: next()?,
        peak: next()?,
    })
}
