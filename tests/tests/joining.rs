//! Pipelines that are added later share the reading of their sources with those that were there, once they have caught up;
//! and nothing of that shows in a row.
#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use unisono_tests::serve::{Addresses, PATIENCE, Served};
use unisono_tests::unisono_binary;

const NODES: u16 = 3;
const LANES: u64 = 3;
/// No timer fires within the test: rows follow from the records alone.
const CLOSE: &str = r#"{ lag = "2s", idle = "1h" }"#;

/// The pipeline that is there from the start, and the one that is added later: of other fields, windows and groups.
fn pipelines() -> [(&'static str, String); 2] {
    let first = format!(
        "name = \"first\"\nsources = [\"events\"]\ntime = {{ field = \"t\", format = \"ms\" }}\n\
         group_by = [\"g\"]\nwindow = {{ size = \"1s\" }}\nclose = {CLOSE}\nvalues = {{ n = \"count()\" }}\n"
    );
    let later = format!(
        "name = \"later\"\nsources = [\"events\"]\ntime = {{ field = \"t\", format = \"ms\" }}\n\
         where = \"v > 3\"\ngroup_by = [\"h\"]\nwindow = {{ size = \"4s\", slide = \"2s\" }}\nclose = {CLOSE}\n\
         values = {{ n = \"count()\", sum = \"sum(v)\", most = \"max(w)\" }}\n"
    );
    [("first", first), ("later", later)]
}

/// One line, the `number`th of its lane; one in eleven comes too late.
fn event(lane: u64, number: u64) -> String {
    let late = if number.is_multiple_of(11) {
        3_500
    } else {
        number % 7 * 150
    };
    let t = 1_700_000_010_000 + number * 20 - late;
    let (g, h, v, w) = (
        number % 3,
        (number + lane) % 4,
        number % 10,
        number * 7 % 31,
    );
    format!("{{\"w\":{w},\"g\":\"g{g}\",\"t\":{t},\"v\":{v},\"h\":\"h{h}\"}}\n")
}

/// Adds lines to all lanes until it is told to stop.
struct Feeder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Feeder {
    fn start(input: &Path, mut number: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut lanes: Vec<File> = (0..LANES).map(|lane| open(input, lane)).collect();
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                for (lane, file) in (0..).zip(&mut lanes) {
                    file.write_all(event(lane, number).as_bytes()).unwrap();
                }
                number += 1;
                // The pace of the input, which the test waits for nowhere.
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn lane(input: &Path, lane: u64) -> PathBuf {
    input.join(format!("{lane}.ndjson"))
}

/// Adds the first lines of a lane.
fn begin(input: &Path, of: u64, lines: u64) {
    let lines: String = (0..lines).map(|number| event(of, number)).collect();
    open(input, of).write_all(lines.as_bytes()).unwrap();
}

/// With this all windows so far are closed, as `eval` closes them at the end of its input.
fn end(input: &Path, of: u64) {
    let end = "{\"t\":1700900000000,\"g\":\"g0\",\"h\":\"h0\",\"v\":9,\"w\":0}\n";
    open(input, of).write_all(end.as_bytes()).unwrap();
}

fn open(input: &Path, of: u64) -> File {
    let mut options = OpenOptions::new();
    options
        .create(true)
        .append(true)
        .open(lane(input, of))
        .unwrap()
}

struct Replicas {
    dir: PathBuf,
    addresses: Addresses,
    running: Vec<Served>,
}

impl Replicas {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            addresses: Addresses::of(NODES),
            running: Vec::new(),
        }
    }

    /// Of a node's config, data and input.
    fn folder(&self, node: u16) -> PathBuf {
        self.dir.join(node.to_string())
    }

    /// How often a replica has joined feeds.
    fn joins(&self, node: u16) -> usize {
        let said = self.running[usize::from(node) - 1].said();
        said.matches("feeds joined").count()
    }

    /// Starts all replicas.
    fn start(&mut self, pipelines: &[(&str, String)]) {
        self.running = (1..=NODES)
            .map(|node| self.served(node, pipelines))
            .collect();
    }

    /// Waits until a replica has made a checkpoint of what it knows now.
    fn wait_for_checkpoint(&mut self, node: u16) -> Result<()> {
        let index = |served: &Served| {
            let cluster = json(served, "/v1/cluster").ok()?;
            cluster["checkpoint"]["index"].as_u64()
        };
        let served = &mut self.running[usize::from(node) - 1];
        // One may have been on its way.
        for _ in 0..2 {
            let before = index(served);
            served.wait("a checkpoint", |served| {
                (index(served)? > before.unwrap_or(0)).then_some(())
            })?;
        }
        Ok(())
    }

    fn served(&self, node: u16, pipelines: &[(&str, String)]) -> Served {
        let mut streams = "checkpoint_interval = \"1s\"\n[[source]]\nname = \"events\"\n\
             files = { dir = \"in\", pattern = \"*.ndjson\" }\n"
            .to_owned();
        for (_, pipeline) in pipelines {
            streams += "[[pipeline]]\n";
            streams += pipeline;
        }
        let mut served = Served::new(&self.folder(node), node, &self.addresses, &streams);
        served.start();
        served
    }

    /// The node that leads.
    fn leader(&mut self) -> Result<u16> {
        self.running[0].wait("a leader", |served| {
            let leader = json(served, "/v1/cluster").ok()?["leader"].as_u64()?;
            u16::try_from(leader).ok()
        })
    }

    /// Ends a replica, with or without a warning, and starts it with these pipelines.
    fn restart(&mut self, node: u16, kills: bool, pipelines: &[(&str, String)]) -> Result<()> {
        let at = usize::from(node) - 1;
        if !kills {
            ensure!(
                self.running[at].terminate()? == 0,
                "{}",
                self.running[at].said()
            );
        }
        drop(self.running.remove(at));
        let served = self.served(node, pipelines);
        self.running.insert(at, served);
        Ok(())
    }

    /// Waits until every replica has a pipeline's row of at least this number.
    fn wait_for_rows(&mut self, pipeline: &str, count: u64) -> Result<()> {
        for served in &mut self.running {
            served.wait(&format!("{count} rows of {pipeline}"), |served| {
                let info = info(served, pipeline).ok()?;
                (info["next_seq"].as_u64()? >= count).then_some(())
            })?;
        }
        Ok(())
    }

    /// The number of the next row of the replica that is ahead.
    fn next_row(&self, pipeline: &str) -> Result<u64> {
        let infos = self
            .running
            .iter()
            .filter_map(|served| info(served, pipeline).ok());
        let next = infos.filter_map(|info| info["next_seq"].as_u64());
        next.max().context("no replica answers")
    }
}

fn json(served: &Served, path: &str) -> Result<Value> {
    let (status, body) = served.get(path)?;
    ensure!(status == 200, "{status} {body}");
    Ok(serde_json::from_str(&body)?)
}

fn info(served: &Served, pipeline: &str) -> Result<Value> {
    let listed = json(served, "/v1/pipelines")?;
    let pipelines = listed["pipelines"].as_array().context("no list")?;
    let found = pipelines.iter().find(|found| found["name"] == pipeline);
    found.cloned().context("no such pipeline")
}

fn feeds(served: &Served) -> Result<usize> {
    let cluster = json(served, "/v1/cluster")?;
    Ok(cluster["feeds"].as_array().context("no feeds")?.len())
}

/// The rows of a pipeline over the files as they are, and their digest.
fn eval(dir: &Path, definition: &str) -> (Vec<Value>, String) {
    let file = dir.join("eval.toml");
    std::fs::write(&file, definition).unwrap();
    let mut command = Command::new(unisono_binary());
    command.args(["eval", "--format", "ndjson"]).arg(&file);
    command.args((0..LANES).map(|of| lane(&dir.join("in"), of)));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let rows = String::from_utf8(output.stdout).unwrap();
    let rows = rows.lines().map(|row| serde_json::from_str(row).unwrap());
    let (_, digest) = said
        .split_once("digest ")
        .unwrap_or_else(|| panic!("{said}"));
    (rows.collect(), digest.trim().to_owned())
}

#[test]
fn a_pipeline_that_is_added_later_joins_and_its_rows_are_those_of_eval() {
    let dir = tempfile::tempdir().unwrap();
    let mut replicas = Replicas::new(dir.path());
    let input = dir.path().join("in");
    std::fs::create_dir(&input).unwrap();
    let before = 3_000;
    (0..LANES).for_each(|of| begin(&input, of, before));
    for node in 1..=NODES {
        let folder = replicas.folder(node);
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&input, folder.join("in")).unwrap();
    }
    let all = pipelines();
    replicas.start(&all[..1]);
    replicas.wait_for_rows("first", 50).unwrap();
    let feeder = Feeder::start(&input, before);
    for node in 1..=NODES {
        replicas.restart(node, false, &all).unwrap();
    }
    for served in &mut replicas.running {
        let is_joined = |served: &Served| {
            info(served, "later").ok()?;
            (feeds(served).ok()? == 1).then_some(())
        };
        served
            .wait("one feed of both pipelines", is_joined)
            .unwrap();
    }
    // It goes on, and comes back from what was before or after the join.
    for kill_the_leader in [true, false] {
        let leader = replicas.leader().unwrap();
        let killed = if kill_the_leader {
            leader
        } else {
            leader % NODES + 1
        };
        if !kill_the_leader {
            replicas.wait_for_checkpoint(killed).unwrap();
        }
        let joins = replicas.joins(killed);
        replicas.restart(killed, true, &all).unwrap();
        let next = replicas.next_row("later").unwrap();
        replicas.wait_for_rows("later", next + 40).unwrap();
        // What it took from a checkpoint after the join is one feed from the start.
        assert!(kill_the_leader || replicas.joins(killed) == joins);
    }
    feeder.stop();
    let expected: Vec<_> = all.iter().map(|(_, text)| eval(dir.path(), text)).collect();
    (0..LANES).for_each(|of| end(&input, of));
    for ((name, _), (rows, digest)) in all.iter().zip(&expected) {
        assert!(rows.len() > 100, "{name}: {} rows", rows.len());
        replicas.wait_for_rows(name, rows.len() as u64).unwrap();
        for served in &mut replicas.running {
            let found = info(served, name).unwrap();
            assert_eq!(found["next_seq"], rows.len(), "{name}");
            assert_eq!(found["digest"], digest.as_str(), "{name}");
            assert_eq!(published(served, name, rows.len()), *rows, "{name}");
            assert_eq!(feeds(served).unwrap(), 1);
            served.wait_ready(200, "").unwrap();
        }
    }
}

/// The rows that a replica serves, once they are so many.
fn published(served: &Served, pipeline: &str, count: usize) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = json(
            served,
            &format!("/v1/pipelines/{pipeline}/windows?limit=10000"),
        );
        let rows = page.map(|page| page["rows"].as_array().cloned().unwrap_or_default());
        match rows {
            Ok(rows) if rows.len() >= count => return rows,
            other => assert!(Instant::now() < deadline, "{count} rows: {other:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_replica_whose_file_was_rewritten_is_held_alone_also_when_it_restarts_and_joins_when_it_is_restored()
 {
    let dir = tempfile::tempdir().unwrap();
    let mut replicas = Replicas::new(dir.path());
    let input = |replicas: &Replicas, node| replicas.folder(node).join("in");
    for node in 1..=NODES {
        std::fs::create_dir_all(input(&replicas, node)).unwrap();
        begin(&input(&replicas, node), 0, 3_000);
    }
    let all = pipelines();
    replicas.start(&all[..1]);
    replicas.wait_for_rows("first", 50).unwrap();
    // What the first pipeline goes on from lies behind these bytes; the later one would read them.
    let odd = replicas.leader().unwrap() % NODES + 1;
    replicas.wait_for_checkpoint(odd).unwrap();
    let altered = lane(&input(&replicas, odd), 0);
    let at = std::fs::read_to_string(&altered)
        .unwrap()
        .find("g0")
        .unwrap();
    let write_at = |text: &str| {
        let mut file = File::options().write(true).open(&altered).unwrap();
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    write_at("g9");
    // The odd one last, so that it does not lead.
    for node in (1..=NODES).filter(|&node| node != odd).chain([odd]) {
        replicas.restart(node, false, &all).unwrap();
    }
    (1..=NODES).for_each(|node| end(&input(&replicas, node), 0));
    let rows = |served: &Served| info(served, "later").ok()?["next_seq"].as_u64();
    let has_rows = |served: &Served| (rows(served)? > 50).then_some(());
    for node in 1..=NODES {
        let served = &mut replicas.running[usize::from(node) - 1];
        let joined = |served: &Served| (feeds(served).ok()? == 1).then_some(());
        if node == odd {
            let reason = "was rewritten or replaced by another file";
            served.wait_ready(503, reason).unwrap();
        } else {
            served.wait("rows of both", has_rows).unwrap();
            served.wait_ready(200, "").unwrap();
        }
        served.wait("one feed", joined).unwrap();
    }
    // A checkpoint made while the join waits has both feeds where they stood, though the log knows one; so has a restart.
    let folder = replicas.folder(odd).join("data/checkpoints");
    let newest = || {
        let files = std::fs::read_dir(&folder).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".checkpoint")).max()
    };
    for _ in 0..2 {
        let before = newest();
        let served = &mut replicas.running[usize::from(odd) - 1];
        served
            .wait("a checkpoint", |_| (newest() > before).then_some(()))
            .unwrap();
    }
    replicas.restart(odd, true, &all).unwrap();
    let served = &mut replicas.running[usize::from(odd) - 1];
    served
        .wait_ready(503, "was rewritten or replaced by another file")
        .unwrap();
    assert!(has_rows(served).is_none());
    write_at("g0");
    served.wait("rows of both", has_rows).unwrap();
    served.wait_ready(200, "").unwrap();
}
