//! The agreed configuration: what files propose, what commands change, and what is shown where a file drifts.
#![allow(clippy::unwrap_used)]

#[path = "agreement/budget.rs"]
mod budget;
#[path = "agreement/commands.rs"]
mod commands;
#[path = "agreement/leads.rs"]
mod leads;
#[path = "agreement/members.rs"]
mod members;
#[path = "agreement/refused.rs"]
mod refused;
#[path = "agreement/sinks.rs"]
mod sinks;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use unisono_tests::serve::{Addresses, Served, event};
use unisono_tests::unisono_binary;

const NODES: u16 = 3;

/// A pipeline of counts in windows of so many seconds of the field `t`, closed by the data alone.
fn pipeline(name: &str, seconds: u32, more: &str) -> String {
    format!(
        "[[pipeline]]\nname = \"{name}\"\nsources = [\"events\"]\ntime = {{ field = \"t\", format = \"ms\" }}\n\
         group_by = [\"g\"]\nwindow = {{ size = \"{seconds}s\" }}\nclose = {{ lag = \"0s\", idle = \"1h\" }}\n\
         values = {{ n = \"count()\" }}\n{more}\n"
    )
}

/// Replicas over one folder of files, each with a config of its own.
struct Replicas {
    dir: TempDir,
    addresses: Addresses,
    running: Vec<Served>,
}

impl Replicas {
    /// So many replicas, with the same files.
    fn start(nodes: u16, files: &str) -> Self {
        Self::starting(nodes, |_| files.to_owned())
    }

    fn starting(nodes: u16, files: impl Fn(u16) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        let mut replicas = Self {
            dir,
            addresses: Addresses::of(nodes),
            running: Vec::new(),
        };
        for node in 1..=nodes {
            let folder = replicas.folder(node);
            std::fs::create_dir(&folder).unwrap();
            symlink(replicas.dir.path().join("in"), folder.join("in")).unwrap();
            let served = replicas.served(node, &files(node));
            replicas.running.push(served);
        }
        replicas
    }

    fn folder(&self, node: u16) -> PathBuf {
        self.dir.path().join(node.to_string())
    }

    fn served(&self, node: u16, files: &str) -> Served {
        let streams = format!(
            "checkpoint_interval = \"1s\"\n[[source]]\nname = \"events\"\nfiles = {{ dir = \"in\" }}\n{files}"
        );
        let mut served = Served::new(&self.folder(node), node, &self.addresses, &streams);
        served.start();
        served
    }

    fn node(&mut self, node: u16) -> &mut Served {
        &mut self.running[usize::from(node) - 1]
    }

    /// Ends a replica cleanly, starts it with other files, and waits until it answers.
    fn restart(&mut self, node: u16, files: &str) {
        assert_eq!(self.node(node).terminate().unwrap(), 0);
        let served = self.served(node, files);
        *self.node(node) = served;
        let answers = |served: &Served| cluster(served).ok();
        self.node(node).wait("an answer", answers).unwrap();
    }

    /// SIGKILL; returns when the process is gone.
    fn kill(&mut self, node: u16) {
        let served = self.node(node);
        let pid = served.pid().unwrap().to_string();
        let killed = Command::new("kill").args(["-KILL", &pid]).status();
        assert!(killed.unwrap().success());
        assert_eq!(served.ended().unwrap(), -1);
    }

    fn config(&self, node: u16) -> PathBuf {
        self.folder(node).join("unisono.toml")
    }

    /// Adds an event for each of these seconds.
    fn events(&self, seconds: std::ops::Range<i64>) {
        let lines: String = seconds.map(|second| event(second, "x")).collect();
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true);
        let path = self.dir.path().join("in/0.ndjson");
        let mut file = file.open(path).unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }

    fn leader(&mut self) -> u16 {
        let leader = self.running[0].wait("a leader", |served| {
            u16::try_from(cluster(served).ok()?["leader"].as_u64()?).ok()
        });
        leader.unwrap()
    }

    /// Waits until every replica's view of the cluster fits.
    fn all(&mut self, what: &str, fits: impl Fn(&Value) -> bool) {
        for served in &mut self.running {
            let look = |served: &Served| fits(&cluster(served).ok()?).then_some(());
            served.wait(what, look).unwrap();
        }
    }

    /// Waits until every replica knows so many rows of a pipeline as published.
    fn published(&mut self, name: &str, rows: u64) {
        for served in &mut self.running {
            let look =
                |served: &Served| (info(served, name).ok()?["published"] == rows).then_some(());
            served
                .wait(&format!("{rows} rows of {name}"), look)
                .unwrap();
        }
    }
}

fn json(served: &Served, path: &str) -> Result<Value> {
    let (status, body) = served.get(path)?;
    ensure!(status == 200, "{status} {body}");
    Ok(serde_json::from_str(&body)?)
}

fn cluster(served: &Served) -> Result<Value> {
    json(served, "/v1/cluster")
}

fn info(served: &Served, pipeline: &str) -> Result<Value> {
    let listed = json(served, "/v1/pipelines")?;
    let pipelines = listed["pipelines"].as_array().context("no list")?;
    let found = pipelines.iter().find(|found| found["name"] == pipeline);
    found.cloned().context("no such pipeline")
}

/// Whether a node's file is shown to drift so.
fn drifts(cluster: &Value, node: u16, name: &str, state: &str) -> bool {
    let mut drifts = cluster["drifts"].as_array().into_iter().flatten();
    drifts.any(|it| it["node"] == node && it["name"] == name && it["state"] == state)
}

/// Runs the program against a node.
fn command(served: &Served, arguments: &[&str]) -> Output {
    let mut command = Command::new(unisono_binary());
    command.args(arguments).args(["--url", &served.url()]);
    command.output().unwrap()
}

/// The same; gives what it said on standard output. It must succeed.
fn succeeds(served: &Served, arguments: &[&str]) -> String {
    let output = command(served, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same; gives what it said on standard error. It must fail.
fn fails(served: &Served, arguments: &[&str]) -> String {
    let output = command(served, arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_pipeline_added_by_a_rolling_restart_is_created_by_a_leader_whose_file_lacks_it() {
    let before = pipeline("p", 1, "");
    let after = format!("{before}{}", pipeline("q", 2, ""));
    let mut replicas = Replicas::start(NODES, &before);
    replicas.events(0..10);
    replicas.published("p", 9);
    let leader = replicas.leader();
    let mut followers = (1..=NODES).filter(|&node| node != leader);
    let (first, second) = (followers.next().unwrap(), followers.next().unwrap());

    // One of three is no majority: it is drift, and keeps nobody from being ready.
    replicas.restart(first, &after);
    replicas.node(first).wait_ready(200, "true").unwrap();
    replicas.all("the drift of the first", |cluster| {
        drifts(cluster, first, "q", "not_agreed")
    });
    assert!(
        info(replicas.node(first), "q").is_err(),
        "a minority's pipeline"
    );
    assert_eq!(replicas.leader(), leader);

    replicas.restart(second, &after);
    replicas.published("q", 4);
    assert_eq!(replicas.leader(), leader, "its file lacks the pipeline");
    replicas.all("the leader's drift", |cluster| {
        drifts(cluster, leader, "q", "absent") && !drifts(cluster, first, "q", "not_agreed")
    });
    replicas.node(leader).wait_ready(200, "true").unwrap();
    replicas.restart(leader, &after);
    replicas.all("no drift", |cluster| {
        cluster["drifts"] == Value::Array(vec![])
    });
}

#[test]
fn a_leader_whose_file_lacks_the_source_too_asks_a_peer_for_its_lanes() {
    let before = pipeline("p", 1, "");
    let more = "[[source]]\nname = \"more\"\nfiles = { dir = \"in\", pattern = \"0*\" }\n";
    let of_more = pipeline("q", 2, "").replace("events", "more");
    let after = format!("{more}{before}{of_more}");
    let mut replicas = Replicas::start(NODES, &before);
    replicas.events(0..10);
    replicas.published("p", 9);
    let leader = replicas.leader();
    for node in (1..=NODES).filter(|&node| node != leader) {
        replicas.restart(node, &after);
    }
    replicas.all("it is created", |cluster| {
        drifts(cluster, leader, "q", "absent") && drifts(cluster, leader, "more", "absent")
    });
    replicas.restart(leader, &after);
    replicas.published("q", 4);
}

#[test]
fn a_file_that_differs_is_shown_on_every_replica_with_its_keys_and_changes_nothing() {
    let mut replicas = Replicas::start(NODES, &pipeline("p", 1, ""));
    replicas.events(0..5);
    replicas.published("p", 4);
    let incarnation = info(replicas.node(1), "p").unwrap()["incarnation"].clone();
    replicas.restart(2, &pipeline("p", 10, ""));
    replicas.node(2).wait_ready(200, "true").unwrap();
    replicas.all("the drift", |cluster| {
        let mut drifts = cluster["drifts"].as_array().into_iter().flatten();
        drifts.any(|it| {
            it["node"] == 2
                && it["keys"] == serde_json::json!(["window.size_ms", "window.slide_ms"])
        })
    });
    let status = succeeds(replicas.node(3), &["status"]);
    let told = "file of node 2: pipeline p window.size_ms is 10000 in the file and 1000 as agreed";
    assert!(status.contains(told), "{status}");
    let (_, metrics) = replicas.node(2).get("/metrics").unwrap();
    for line in [
        "unisono_config_drifts 1",
        "unisono_config_drift{kind=\"pipeline\",name=\"p\",state=\"differs\",keys=\"window.size_ms,window.slide_ms\"} 1",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    replicas.events(5..10);
    replicas.published("p", 9);
    assert_eq!(
        info(replicas.node(2), "p").unwrap()["incarnation"],
        incarnation
    );
    let lines = |served: &Served| {
        let said = served.said();
        let lines = said
            .matches("this node's file is not what is agreed")
            .count();
        (lines > 0).then_some(lines)
    };
    assert_eq!(replicas.node(2).wait("a line", lines).unwrap(), 1);
}

#[test]
fn at_the_beginning_too_a_majority_must_have_the_same() {
    let mut replicas = Replicas::starting(NODES, |node| pipeline("p", u32::from(node), ""));
    replicas.events(0..10);
    for node in 1..=NODES {
        replicas.all("each file is drift", |cluster| {
            drifts(cluster, node, "p", "not_agreed")
        });
    }
    assert!(
        info(replicas.node(1), "p").is_err(),
        "a minority's pipeline"
    );
    replicas.restart(1, &pipeline("p", 2, ""));
    replicas.published("p", 4);
    replicas.all("only one file drifts", |cluster| {
        drifts(cluster, 3, "p", "differs") && cluster["drifts"].as_array().unwrap().len() == 1
    });
}
