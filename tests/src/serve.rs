//! Replicas as a user runs them: a config file, a process, what it says on standard error, its exit code.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use unisono_chaos::cluster::free_ports;

use crate::unisono_binary;

/// How long anything may take before a test gives up; not a promise.
pub const PATIENCE: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The pipeline of these tests: counts by group `g` in windows of one second of the field `t`, closed by the data alone.
pub const PIPELINE: &str = r#"
[[pipeline]]
name = "p"
sources = ["events"]
time = { field = "t", format = "ms" }
group_by = ["g"]
window = { size = "1s" }
close = { lag = "0s", idle = "1h" }
[pipeline.values]
n = "count()"
"#;

/// One line of input at second `second`: `{"t":…,"g":"…"}`.
#[must_use]
pub fn event(second: i64, group: &str) -> String {
    let t = 1_700_000_000_000 + second * 1_000;
    format!("{{\"t\":{t},\"g\":\"{group}\"}}\n")
}

/// The drills' pipeline: events and their sum, in windows of a second, of the files in `input` of each replica's own folder.
#[must_use]
pub fn sums_of_own_folder(max_future: &str, idle: &str) -> String {
    format!(
        r#"[[source]]
name = "events"
files = {{ dir = "/proc/self/cwd/input", pattern = "*.ndjson" }}
[[pipeline]]
name = "{}"
sources = ["events"]
sink = "builtin"
time = {{ field = "at", format = "ms" }}
max_future = "{max_future}"
window = {{ size = "1s" }}
close = {{ lag = "0s", idle = "{idle}" }}
values = {{ events = "count()", total = "sum(v)" }}
"#,
        unisono_chaos::order::PIPELINE
    )
}

/// The addresses of a cluster's replicas.
#[derive(Clone, Debug)]
pub struct Addresses {
    http: BTreeMap<u16, String>,
    raft: BTreeMap<u16, String>,
}

impl Addresses {
    /// Free ones on the loopback for so many replicas, numbered from 1.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn of(nodes: u16) -> Self {
        let ports = free_ports(usize::from(nodes) * 2).expect("free ports");
        let address = |port: &u16| format!("127.0.0.1:{port}");
        let (http, raft) = ports.split_at(usize::from(nodes));
        Self {
            http: (1..).zip(http.iter().map(address)).collect(),
            raft: (1..).zip(raft.iter().map(address)).collect(),
        }
    }

    /// With another replica's addresses as in `other`.
    #[must_use]
    pub fn with(mut self, node: u16, other: &Self) -> Self {
        self.http.insert(node, other.http[&node].clone());
        self.raft.insert(node, other.raft[&node].clone());
        self
    }

    /// Without a replica.
    #[must_use]
    pub fn without(mut self, node: u16) -> Self {
        self.http.remove(&node);
        self.raft.remove(&node);
        self
    }

    /// Where a replica serves HTTP.
    #[must_use]
    pub fn http(&self, node: u16) -> &str {
        &self.http[&node]
    }

    /// Where a replica talks with its peers.
    #[must_use]
    pub fn raft(&self, node: u16) -> &str {
        &self.raft[&node]
    }
}

/// One replica's folder, config and process. The process is killed when this is dropped.
#[derive(Debug)]
pub struct Served {
    config: PathBuf,
    log: PathBuf,
    http: String,
    child: Option<Child>,
    /// How many files the process may open, as a hard limit.
    files: Option<u32>,
}

impl Served {
    /// Writes the config of replica `node` into `dir`, with its data in `dir/data`; starts nothing.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn new(dir: &Path, node: u16, addresses: &Addresses, streams: &str) -> Self {
        Self::with_data(dir, &dir.join("data"), node, addresses, streams)
    }

    /// As [`Self::new`], with the data in another directory.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn with_data(
        dir: &Path,
        data: &Path,
        node: u16,
        addresses: &Addresses,
        streams: &str,
    ) -> Self {
        let map = |addresses: &BTreeMap<u16, String>| {
            let entries = addresses
                .iter()
                .map(|(node, address)| format!("{node} = {address:?}"));
            entries.collect::<Vec<_>>().join(", ")
        };
        let text = format!(
            "data_dir = {data:?}\n[node]\nid = {node}\nhttp = {http:?}\n[cluster]\npeers = {{ {raft} }}\n\
             http_peers = {{ {peers} }}\n{streams}",
            http = addresses.http(node),
            raft = map(&addresses.raft),
            peers = map(&addresses.http),
        );
        let config = dir.join("unisono.toml");
        std::fs::write(&config, text).expect("the test's folder can be written");
        Self {
            config,
            log: dir.join("log"),
            http: addresses.http(node).to_owned(),
            child: None,
            files: None,
        }
    }

    /// The process may open so many files and no more, and begins with half of that, from its next start on.
    pub fn limit_files(&mut self, most: u32) {
        self.files = Some(most);
    }

    /// Starts the process, with `RUST_BACKTRACE=1`: what a user sees must not depend on it.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn start(&mut self) {
        let mut options = OpenOptions::new();
        let log: File = options
            .create(true)
            .append(true)
            .open(&self.log)
            .expect("a log");
        let mut command = match self.files {
            None => Command::new(unisono_binary()),
            Some(most) => {
                let mut shell = Command::new("sh");
                let limits = format!("ulimit -Sn {}; ulimit -Hn {most}; exec \"$@\"", most / 2);
                shell.args(["-c", &limits, "sh"]).arg(unisono_binary());
                shell
            }
        };
        let child = command
            .args(["serve", "--config"])
            .arg(&self.config)
            .args(["--parent-pid", &std::process::id().to_string()])
            .env("RUST_BACKTRACE", "1")
            .env_remove("UNISONO_LOG")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("the program starts"));
    }

    /// The process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// All that the replica has said so far.
    #[must_use]
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits for the process to end by itself; gives its exit code (-1 after a signal).
    ///
    /// # Errors
    /// It still runs.
    pub fn ended(&mut self) -> Result<i32> {
        let child = self.child.as_mut().context("not started")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(status.code().unwrap_or(-1));
            }
            if Instant::now() > deadline {
                bail!("the replica still runs; it said\n{}", self.said());
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Sends SIGTERM; gives the exit code.
    ///
    /// # Errors
    /// It does not end.
    pub fn terminate(&mut self) -> Result<i32> {
        let child = self.child.as_ref().context("not started")?;
        let pid = child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        self.ended()
    }

    /// Where it answers, for `--url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// The status and body of a GET request.
    ///
    /// # Errors
    /// No whole answer.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(&self.http)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, body.to_owned()))
    }

    /// Waits until `/readyz` has this status and its body this text.
    ///
    /// # Errors
    /// It does not come to that; with all that the replica said.
    pub fn wait_ready(&mut self, status: u16, text: &str) -> Result<()> {
        let want = format!("readyz {status} with {text:?}");
        self.wait(&want, |served| {
            let (found, body) = served.get("/readyz").ok()?;
            (found == status && body.contains(text)).then_some(())
        })
    }

    /// Waits until pipeline `p` has published at least `count` rows; gives them all as `second group n`.
    ///
    /// # Errors
    /// It does not come to that.
    pub fn wait_rows(&mut self, count: usize) -> Result<Vec<String>> {
        self.wait(&format!("{count} rows"), |served| {
            served.rows().ok().filter(|rows| rows.len() >= count)
        })
    }

    /// The published rows of pipeline `p` as `second group n`.
    ///
    /// # Errors
    /// No answer.
    pub fn rows(&self) -> Result<Vec<String>> {
        let (_, body) = self.get("/v1/pipelines/p/windows?limit=10000")?;
        let page: Value = serde_json::from_str(&body)?;
        let rows = page["rows"]
            .as_array()
            .with_context(|| format!("no rows: {body}"))?;
        let text = |row: &Value| {
            let start = row["start"].as_str().unwrap_or_default();
            let second = start.get(14..19).unwrap_or(start);
            let group = row["group"]["g"].as_str().unwrap_or("null");
            format!("{second} {group} {}", row["values"]["n"])
        };
        Ok(rows.iter().map(text).collect())
    }

    /// Waits until `find` finds something.
    ///
    /// # Errors
    /// It never does, or the process ended; with all that the replica said.
    pub fn wait<T>(&mut self, what: &str, mut find: impl FnMut(&Self) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = find(self) {
                return Ok(found);
            }
            let child = self.child.as_mut().context("not started")?;
            if let Some(status) = child.try_wait()? {
                bail!("ended with {status}; it said\n{}", self.said());
            }
            if Instant::now() > deadline {
                let ready = self.get("/readyz").map(|answer| answer.1);
                bail!(
                    "waited in vain for {what}; rows {:?}, {ready:?}, it said\n{}",
                    self.rows().ok(),
                    self.said()
                );
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
