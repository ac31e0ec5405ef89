//! Replicas as processes, with their folder, until they are dropped.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::{Network, cpu, peak, program};
use crate::serve::Addresses;

const PATIENCE: Duration = Duration::from_secs(900);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Some replicas of one cluster on this machine.
pub struct Cluster {
    dir: TempDir,
    addresses: Addresses,
    replicas: u16,
    children: Vec<Child>,
    /// Those that are started from now on run on this core alone.
    core: Option<usize>,
}

impl Cluster {
    /// Starts so many replicas: `cluster` is the rest of that section, `streams` the sections of sources and pipelines.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(replicas: u16, cluster: &str, streams: &str) -> Result<Self> {
        let mut made = Self::of(replicas)?;
        made.configure(cluster, streams)?;
        made.run()?;
        Ok(made)
    }

    /// Starts so many replicas that reach each other and the broker by a network that can be cut: `streams` are the sections
    /// where the broker has this address.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start_in(
        network: &Network,
        replicas: u16,
        streams: impl Fn(&str) -> String,
    ) -> Result<Self> {
        let mut made = Self::of(replicas)?;
        let direct = (1..=replicas).map(|node| (node, made.addresses.raft(node).to_owned()));
        let direct = direct.collect();
        for node in 1..=replicas {
            let peers = network.peers_of(node, &direct)?;
            made.configure_one(node, &peers, "", &streams(&network.broker_of(node)))?;
        }
        made.run()?;
        Ok(made)
    }

    fn of(replicas: u16) -> Result<Self> {
        Ok(Self {
            dir: tempfile::tempdir()?,
            addresses: Addresses::of(replicas),
            replicas,
            children: Vec::new(),
            core: None,
        })
    }

    /// Stops all replicas, and starts them with other sections and the same data.
    ///
    /// # Errors
    /// A replica does not end well, or cannot be started.
    pub fn restart(&mut self, cluster: &str, streams: &str) -> Result<()> {
        for child in &self.children {
            let pid = child.id().to_string();
            Command::new("kill").args(["-TERM", &pid]).status()?;
        }
        for mut child in self.children.drain(..) {
            child.wait()?;
        }
        self.configure(cluster, streams)?;
        self.run()
    }

    fn configure(&self, cluster: &str, streams: &str) -> Result<()> {
        let peers = (1..=self.replicas).map(|node| (node, self.addresses.raft(node).to_owned()));
        let peers: BTreeMap<u16, String> = peers.collect();
        (1..=self.replicas).try_for_each(|node| self.configure_one(node, &peers, cluster, streams))
    }

    fn configure_one(
        &self,
        node: u16,
        peers: &BTreeMap<u16, String>,
        cluster: &str,
        streams: &str,
    ) -> Result<()> {
        let peers = peers
            .iter()
            .map(|(node, address)| format!("{node} = {address:?}"));
        let text = format!(
            "data_dir = \"data{node}\"\n[node]\nid = {node}\nhttp = {:?}\n[cluster]\npeers = {{ {} }}\n{cluster}\n{streams}",
            self.addresses.http(node),
            peers.collect::<Vec<_>>().join(", "),
        );
        std::fs::write(self.dir.path().join(format!("u{node}.toml")), text)?;
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        for node in 1..=self.replicas {
            let child = self.spawn(node)?;
            self.children.push(child);
        }
        Ok(())
    }

    fn spawn(&self, node: u16) -> Result<Child> {
        let mut options = OpenOptions::new();
        let log: File = options.create(true).append(true).open(self.log(node))?;
        let mut command = match self.core {
            None => Command::new(program()),
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string()]).arg(program());
                command
            }
        };
        command
            .args(["serve", "--log", "warn", "--config"])
            .arg(self.dir.path().join(format!("u{node}.toml")))
            .args(["--parent-pid", &std::process::id().to_string()])
            .env_remove("UNISONO_LOG")
            .env("UNISONO_DIE_IN_TRANSACTION", self.death_file())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program().display()))
    }

    /// Sends a signal, such as `-TERM`, to a replica.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, node: u16, signal: &str) -> Result<()> {
        let pid = self.process(node);
        let sent = Command::new("kill").args([signal, &pid]).status()?;
        ensure!(sent.success(), "replica {node} takes no {signal}");
        Ok(())
    }

    /// Replicas that are started from now on run on this core alone.
    pub fn pin_next(&mut self, core: usize) {
        self.core = Some(core);
    }

    /// Once this file is there, the next replica that stands within a transaction of a sink takes it away and kills itself, if
    /// the program has the feature `faults`.
    #[must_use]
    pub fn death_file(&self) -> PathBuf {
        self.dir.path().join("die-in-transaction")
    }

    /// A replica whose process has ended.
    ///
    /// # Errors
    /// The system's.
    pub fn ended(&mut self) -> Result<Option<u16>> {
        for (node, child) in (1..).zip(&mut self.children) {
            if child.try_wait()?.is_some() {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// How many replicas there are.
    #[must_use]
    pub fn replicas(&self) -> u16 {
        self.replicas
    }

    /// Waits until all replicas say that they are ready.
    ///
    /// # Errors
    /// They do not.
    pub fn wait_ready(&self, patience: Duration) -> Result<()> {
        let began = Instant::now();
        let is_ready = |node| get(self.http(node), "/readyz").is_ok();
        while !(1..=self.replicas).all(is_ready) {
            ensure!(began.elapsed() < patience, "not all are ready");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Starts a replica again, once its process has ended.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn revive(&mut self, node: u16) -> Result<()> {
        let child = &mut self.children[usize::from(node) - 1];
        child.wait()?;
        self.children[usize::from(node) - 1] = self.spawn(node)?;
        Ok(())
    }

    /// Who leads, as far as any replica knows that answers.
    #[must_use]
    pub fn leader(&self) -> Option<u16> {
        (1..=self.replicas).find_map(|node| {
            let answer = get(self.http(node), "/v1/cluster").ok()?;
            let view: Value = serde_json::from_slice(&answer).ok()?;
            // Only whoever leads, and can, says so of itself.
            let leads = view["role"] == "leader" && view["node"] == node;
            leads.then_some(node)
        })
    }

    fn log(&self, node: u16) -> std::path::PathBuf {
        self.dir.path().join(format!("log{node}"))
    }

    /// Where a replica, numbered from 1, answers.
    #[must_use]
    pub fn http(&self, node: u16) -> &str {
        self.addresses.http(node)
    }

    /// The process of a replica, numbered from 1.
    #[must_use]
    pub fn process(&self, node: u16) -> String {
        self.children[usize::from(node) - 1].id().to_string()
    }

    /// CPU seconds of all replicas together since their starts.
    ///
    /// # Errors
    /// One has ended.
    pub fn cpu(&self) -> Result<f64> {
        (1..=self.replicas)
            .map(|node| cpu(&self.process(node)))
            .sum()
    }

    /// The peak memory, in MiB, of the replica that has the highest.
    ///
    /// # Errors
    /// One has ended.
    pub fn peak(&self) -> Result<f64> {
        (1..=self.replicas).try_fold(0.0, |most, node| Ok(peak(&self.process(node))?.max(most)))
    }

    /// Waits until all pipelines of all replicas, `pipelines` of them, have taken in at least so many records.
    ///
    /// # Errors
    /// They do not.
    pub fn wait_records(&mut self, pipelines: usize, records: u64) -> Result<()> {
        self.wait("/v1/pipelines", |answer| {
            let found = answer["pipelines"].as_array();
            found.is_some_and(|found| {
                let taken = |one: &Value| one["counters"]["records"].as_u64().unwrap_or(0);
                found.len() == pipelines && found.iter().all(|one| taken(one) >= records)
            })
        })
    }

    /// Waits until a pipeline is as wanted on each replica.
    ///
    /// # Errors
    /// It never is.
    pub fn wait_pipeline(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        self.wait("/v1/pipelines", |answer| {
            let found = answer["pipelines"].as_array();
            found.is_some_and(|found| found.iter().any(|one| one["name"] == name && wanted(one)))
        })
    }

    /// Waits until the answer of each replica to this path is as wanted.
    ///
    /// # Errors
    /// It never is, or a replica ended; with what that one said.
    pub fn wait(&mut self, path: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        let started = Instant::now();
        for node in 1..=self.replicas {
            loop {
                // It may not answer yet.
                let answer = get(self.http(node), path).unwrap_or_default();
                if wanted(&serde_json::from_slice(&answer).unwrap_or_default()) {
                    break;
                }
                let log = self.log(node);
                let said = || std::fs::read_to_string(&log).unwrap_or_default();
                if let Some(status) = self.children[usize::from(node) - 1].try_wait()? {
                    bail!("replica {node} ended with {status}; it said\n{}", said());
                }
                if started.elapsed() > PATIENCE {
                    let answer = String::from_utf8_lossy(&answer).into_owned();
                    bail!("waited in vain: {answer}\nit said\n{}", said());
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The body of a GET request.
///
/// # Errors
/// No whole answer, or one of another status than 200.
pub fn get(http: &str, path: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(http)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {http}\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = answer.split_off(end.context("no head")? + 4);
    ensure!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{path}: {} {}",
        String::from_utf8_lossy(&answer),
        String::from_utf8_lossy(&body)
    );
    Ok(body)
}
