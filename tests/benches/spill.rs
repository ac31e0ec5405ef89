//! `unisono eval` of five million groups in one window, with budgets for state and without: CPU, peak memory, and whether the rows
//! are the same.
//!
//! `cargo bench -p unisono-tests --bench spill`; `UNISONO_BENCH_GROUPS` (default 5,000,000), `UNISONO_BENCH_BUDGETS` (default
//! `256MiB`, several with commas between), `UNISONO`, the program. Each group comes twice, far apart.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use unisono_tests::bench::{T0, Table, Used, finished, program, setting};

fn main() -> Result<()> {
    let groups = setting("UNISONO_BENCH_GROUPS", 5_000_000)?;
    let budgets = std::env::var("UNISONO_BENCH_BUDGETS").unwrap_or_else(|_| "256MiB".to_owned());
    println!("program: {}", program().display());
    let dir = tempfile::tempdir()?;
    write_events(&dir.path().join("events.ndjson"), groups)?;
    std::fs::write(dir.path().join("p.toml"), pipeline())?;
    let headings = ["budget", "CPU-s", "s", "peak MiB", "said"];
    let mut table = Table::new(&headings);
    let (none, plain) = measure(dir.path(), None, &mut table)?;
    ensure!(plain.contains(&format!(" {groups} rows")), "said: {plain}");
    let digest = |said: &str| {
        said.rsplit("digest ")
            .next()
            .map(str::trim)
            .map(str::to_owned)
    };
    for budget in budgets.split(',') {
        let (used, said) = measure(dir.path(), Some(budget), &mut table)?;
        ensure!(digest(&said) == digest(&plain), "other rows: {said}");
        println!("{budget}: {:.2} times the CPU", used.cpu / none.cpu);
    }
    table.print();
    Ok(())
}

fn pipeline() -> &'static str {
    "name = \"p\"\nsources = [\"events\"]\ntime = { field = \"t\", format = \"ms\" }\ngroup_by = [\"user\"]\n\
     window = { size = \"1 day\" }\nvalues = { n = \"count()\", sum = \"sum(x)\", last = \"max(t)\" }\n"
}

fn write_events(file: &Path, groups: u64) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    for index in 0..groups * 2 {
        // An odd factor visits all of them before it repeats one.
        let user = index.wrapping_mul(7_368_787) % groups;
        let (t, x) = (T0 + index / 1000, index % 1000);
        writeln!(out, r#"{{"user":"user-{user:09}","t":{t},"x":{x}.25}}"#)?;
    }
    out.flush()?;
    Ok(())
}

fn measure(dir: &Path, budget: Option<&str>, table: &mut Table) -> Result<(Used, String)> {
    let said = dir.join("said");
    let mut command = Command::new(program());
    command.current_dir(dir).env("TMPDIR", dir);
    command.args(["eval", "p.toml", "events.ndjson", "--format", "ndjson"]);
    command.args(budget.map(|budget| format!("--state-memory={budget}")));
    let began = Instant::now();
    let child = command
        .stdout(Stdio::null())
        .stderr(File::create(&said)?)
        .spawn()?;
    let used = finished(child)?;
    let seconds = began.elapsed().as_secs_f64();
    let said = std::fs::read_to_string(&said).context("nothing was said")?;
    table.line(&[
        budget.unwrap_or("none").to_owned(),
        format!("{:.1}", used.cpu),
        format!("{seconds:.1}"),
        format!("{:.0}", used.peak),
        said.lines().next().unwrap_or_default().to_owned(),
    ]);
    Ok((used, said))
}
