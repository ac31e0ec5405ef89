//! Replica processes of a drill: started, killed, frozen, woken and asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::http::{self, ClusterView, PipelineView};
use crate::order::PIPELINE;
use crate::ways::Ways;

mod config;
mod ports;
mod process;

pub use config::Medium;

use config::{node_config, orders};
pub use ports::free_ports;
use process::NodeProcess;

/// How long a started cluster may take to answer and to have a leader.
const READY_WITHIN: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// What is started.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The `unisono` binary.
    pub binary: PathBuf,
    /// Where configs, data and logs go; it must exist.
    pub dir: PathBuf,
    /// How many replicas.
    pub nodes: u16,
    /// Input and output.
    pub medium: Medium,
    /// How often a replica checkpoints, as in its config (`"2s"`); `None`: the default.
    pub checkpoint_interval: Option<String>,
}

/// What is started, with sources, sinks and pipelines of the caller's own.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The `unisono` binary.
    pub binary: PathBuf,
    /// Where configs, data and logs go; it must exist.
    pub dir: PathBuf,
    /// How many replicas.
    pub nodes: u16,
    /// How often a replica checkpoints, as in its config (`"2s"`); `None`: the default.
    pub checkpoint_interval: Option<String>,
    /// The part of the config that all replicas have in common: `[[source]]`, `[[sink]]` and `[[pipeline]]`. Replica 1
    /// runs in the folder `unisono-1` of `dir`, and so on.
    pub streams: String,
    /// The pipeline by which `Cluster::pipeline` and `Cluster::wait_ready` judge how far a replica has come.
    pub pipeline: String,
}

/// What one node has for itself.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// What it finds in its environment at each start.
    pub environment: Vec<(String, String)>,
    /// The brokers as all know them, and as it does.
    pub brokers: Option<(String, String)>,
    /// The ways by which it reaches the others.
    pub ways: Option<Arc<Ways>>,
}

/// `unisono serve` processes, numbered from 1. All are killed when this is dropped, and end by themselves when this
/// process dies.
#[derive(Debug)]
pub struct Cluster {
    nodes: BTreeMap<u16, NodeProcess>,
    client: reqwest::Client,
    pipeline: String,
    dir: PathBuf,
}

impl Cluster {
    /// Writes the configs and starts all nodes, with the demo's pipeline; `own` tells what each has for itself.
    ///
    /// # Errors
    /// What could not be written or started.
    pub fn start(options: &ClusterOptions, own: impl Fn(u16) -> Own) -> Result<Self> {
        let setup = Setup {
            binary: options.binary.clone(),
            dir: options.dir.clone(),
            nodes: options.nodes,
            checkpoint_interval: options.checkpoint_interval.clone(),
            streams: orders(&options.medium),
            pipeline: PIPELINE.to_owned(),
        };
        Self::start_within(&setup, own)
    }

    /// Writes the configs and starts all nodes, with pipelines of the caller's own.
    ///
    /// # Errors
    /// What could not be written or started.
    pub fn start_setup(setup: &Setup) -> Result<Self> {
        Self::start_within(setup, |_| Own::default())
    }

    fn start_within(setup: &Setup, own: impl Fn(u16) -> Own) -> Result<Self> {
        let ports = free_ports(usize::from(setup.nodes) * 2)?;
        let (http_ports, raft_ports) = ports.split_at(usize::from(setup.nodes));
        let addresses = |ports: &[u16]| -> BTreeMap<u16, String> {
            (1..)
                .zip(ports.iter().map(|port| format!("127.0.0.1:{port}")))
                .collect()
        };
        let (http, raft) = (addresses(http_ports), addresses(raft_ports));
        let mut nodes = BTreeMap::new();
        for (&number, address) in &http {
            let own = own(number);
            let raft = match &own.ways {
                Some(ways) => ways.seen_from(number, &raft)?,
                None => raft.clone(),
            };
            let config = setup.dir.join(format!("unisono-{number}.toml"));
            std::fs::write(&config, node_config(setup, number, &http, &raft, &own))
                .with_context(|| format!("cannot write {}", config.display()))?;
            let log = setup.dir.join(format!("node-{number}.log"));
            let mut node = NodeProcess::new(&setup.binary, config, log, address.clone());
            node.keep_in_environment(own.environment);
            node.start()?;
            nodes.insert(number, node);
        }
        Ok(Self {
            nodes,
            client: http::client()?,
            pipeline: setup.pipeline.clone(),
            dir: setup.dir.clone(),
        })
    }

    fn node(&mut self, number: u16) -> Result<&mut NodeProcess> {
        self.nodes
            .get_mut(&number)
            .with_context(|| format!("there is no node {number}"))
    }

    /// All nodes' HTTP addresses by number.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<u16, String> {
        self.nodes
            .iter()
            .map(|(&number, node)| (number, node.address().to_owned()))
            .collect()
    }

    /// The folder that a node runs in; its config stands beside it, under the same name.
    #[must_use]
    pub fn folder(&self, number: u16) -> PathBuf {
        self.dir.join(format!("unisono-{number}"))
    }

    /// Where a node writes what it logs.
    #[must_use]
    pub fn log(&self, number: u16) -> Option<&Path> {
        self.nodes.get(&number).map(NodeProcess::log)
    }

    /// Whether a node was started and neither killed nor ended since; a frozen one is running.
    pub fn is_running(&mut self, number: u16) -> bool {
        self.nodes
            .get_mut(&number)
            .is_some_and(NodeProcess::is_running)
    }

    /// SIGKILL; returns when the process is gone.
    ///
    /// # Errors
    /// There is no such node, or it does not run.
    pub fn kill(&mut self, number: u16) -> Result<()> {
        self.node(number)?.kill()
    }

    /// SIGKILL to every node, all before the first is waited for.
    ///
    /// # Errors
    /// A node could not be killed.
    pub fn kill_all(&mut self) -> Result<()> {
        for node in self.nodes.values_mut() {
            node.send_kill()?;
        }
        self.nodes.values_mut().try_for_each(NodeProcess::kill)
    }

    /// SIGSTOP: the node is frozen, its connections stay open.
    ///
    /// # Errors
    /// There is no such node, or it does not run.
    pub fn stop(&mut self, number: u16) -> Result<()> {
        self.node(number)?.signal(rustix::process::Signal::STOP)
    }

    /// SIGCONT to a frozen node.
    ///
    /// # Errors
    /// There is no such node, or it does not run.
    pub fn cont(&mut self, number: u16) -> Result<()> {
        self.node(number)?.signal(rustix::process::Signal::CONT)
    }

    /// SIGTERM, as for a planned stop; returns when the process has ended by itself.
    ///
    /// # Errors
    /// It has not ended within 20 seconds.
    pub async fn terminate(&mut self, number: u16) -> Result<()> {
        let node = self.node(number)?;
        node.signal(rustix::process::Signal::TERM)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while node.is_running() {
            if Instant::now() > deadline {
                bail!("node {number} has not ended 20 s after SIGTERM");
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        node.forget_ended();
        Ok(())
    }

    /// Waits until a node has ended by itself; gives its exit code, -1 after a signal. That is no crash then.
    ///
    /// # Errors
    /// It runs on for a minute.
    pub async fn wait_end(&mut self, number: u16) -> Result<i32> {
        let node = self.node(number)?;
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = node.crashed() {
                node.forget_ended();
                return Ok(status.code().unwrap_or(-1));
            }
            if Instant::now() > deadline {
                bail!("node {number} has not ended after {READY_WITHIN:?}");
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// What a node finds in its environment from its next start on.
    ///
    /// # Errors
    /// There is no such node.
    pub fn set_environment(&mut self, number: u16, variables: &[(&str, &str)]) -> Result<()> {
        self.node(number)?.set_environment(variables);
        Ok(())
    }

    /// Starts a node again on its own data.
    ///
    /// # Errors
    /// It runs already, or could not be started.
    pub fn restart(&mut self, number: u16) -> Result<()> {
        self.node(number)?.start()
    }

    /// Starts every node that does not run.
    ///
    /// # Errors
    /// One could not be started.
    pub fn restart_all(&mut self) -> Result<()> {
        let stopped = self
            .nodes
            .values_mut()
            .filter_map(|node| (!node.is_running()).then_some(node));
        stopped.into_iter().try_for_each(NodeProcess::start)
    }

    /// Fails if a node has ended without being told to: with the end of its log.
    ///
    /// # Errors
    /// Which node, with which status, and the last lines that it logged.
    pub fn ensure_none_crashed(&mut self) -> Result<()> {
        for (number, node) in &mut self.nodes {
            if let Some(status) = node.crashed() {
                let log = node.log().display().to_string();
                bail!(
                    "node {number} ended by itself ({status}), see {log}:\n{}",
                    node.log_end()
                );
            }
        }
        Ok(())
    }

    /// How a node sees the cluster; `None` where it does not answer.
    pub async fn view(&self, number: u16) -> Option<ClusterView> {
        http::cluster_view(&self.client, self.nodes.get(&number)?.address())
            .await
            .ok()
    }

    /// Why a node says that it is not ready, empty where it is; `None` where it does not answer.
    pub async fn not_ready(&self, number: u16) -> Option<Vec<String>> {
        let address = self.nodes.get(&number)?.address();
        http::not_ready(&self.client, address).await.ok()
    }

    /// A figure without labels of a node's metrics; `None` where it does not answer, or has no such figure.
    pub async fn metric(&self, number: u16, name: &str) -> Option<f64> {
        let address = self.nodes.get(&number)?.address();
        http::metric(&self.client, address, name).await.ok()
    }

    /// How far a node's pipeline has come; `None` where it does not answer.
    pub async fn pipeline(&self, number: u16) -> Option<PipelineView> {
        self.pipeline_named(number, &self.pipeline).await
    }

    /// How far a node has come with one of several pipelines; `None` where it does not answer, or has no such pipeline.
    pub async fn pipeline_named(&self, number: u16, pipeline: &str) -> Option<PipelineView> {
        let address = self.nodes.get(&number)?.address();
        http::pipeline_view(&self.client, address, pipeline)
            .await
            .ok()
    }

    /// The node that takes itself for the leader, of the highest term where there are two.
    ///
    /// A follower's word would not do: for a while after a leader's death it still names the dead one.
    pub async fn leader(&self) -> Option<u16> {
        let mut found: Option<ClusterView> = None;
        for &number in self.nodes.keys() {
            let Some(view) = self.view(number).await else {
                continue;
            };
            let newer = found.as_ref().is_none_or(|other| other.term < view.term);
            if view.role == "leader" && newer {
                found = Some(view);
            }
        }
        found.map(|view| view.node)
    }

    /// Waits until there is a leader.
    ///
    /// # Errors
    /// A node crashed, or there is no leader within a minute.
    pub async fn wait_leader(&mut self) -> Result<u16> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Some(leader) = self.leader().await {
                return Ok(leader);
            }
            self.ensure_none_crashed()?;
            if Instant::now() > deadline {
                bail!(
                    "no node leads after {READY_WITHIN:?}; {}",
                    self.describe_logs()
                );
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Waits until every running node knows a leader and has come as far as the furthest was when it was asked.
    ///
    /// # Errors
    /// A node crashed, or does not get there within a minute.
    pub async fn wait_ready(&mut self) -> Result<()> {
        self.wait_leader().await?;
        let deadline = Instant::now() + READY_WITHIN;
        let numbers: Vec<u16> = self.nodes.keys().copied().collect();
        let mut target = 0;
        for &number in &numbers {
            target = target.max(self.pipeline(number).await.map_or(0, |view| view.next_seq));
        }
        for number in numbers {
            while self.is_running(number) && !self.is_ready(number, target).await {
                self.ensure_none_crashed()?;
                if Instant::now() > deadline {
                    let logs = self.describe_logs();
                    bail!("node {number} has not come to row {target} in {READY_WITHIN:?}; {logs}");
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        }
        Ok(())
    }

    async fn is_ready(&self, number: u16, target: u64) -> bool {
        let follows = self
            .view(number)
            .await
            .is_some_and(|view| view.leader.is_some());
        follows
            && self
                .pipeline(number)
                .await
                .is_some_and(|view| view.next_seq >= target)
    }

    fn describe_logs(&self) -> String {
        let ends = self.nodes.iter().map(|(number, node)| {
            format!(
                "node {number}, {}:\n{}",
                node.log().display(),
                node.log_end()
            )
        });
        ends.collect::<Vec<_>>().join("\n")
    }
}
