//! A replica, composed: everything that can be wrong is checked or bound first, then the parts start in order.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use unisono_replication::rt::mpsc::channel;
use unisono_replication::rt::{self, Handle};
use unisono_replication::{PortLimits, Replica, ReplicaConfig, Secret, Snapshots, StartError};

use crate::admin;
use crate::checkpoint::CheckpointStore;
use crate::config::NodeConfig;
use crate::core::Core;
use crate::definition::BUILTIN_SINK;
use crate::driver::Driver;
use crate::handles::Handles;
use crate::health::succession::Election;
use crate::ingest::Workers;
use crate::publish::sink::builtin::BuiltinSink;
use crate::publish::{self, Publishers, report_frontiers};
use crate::results::{Limits, ResultsLog};
use crate::service::NodeService;
use crate::snapshots::NodeSnapshots;
use crate::threads::{self, Role, Thread, spawn, spawn_task};

/// Bytes after which a segment of the results log ends.
const SEGMENT_BYTES: u64 = 16 << 20;
/// A node that joins and is not heard of for so long is no learner any more.
const FORGET_LEARNERS: Duration = Duration::from_secs(60);
/// How often peers are asked for a feed's state that this node wants.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long the clean end of a replica may take before the process ends anyway.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Why a replica could not start, or had to end.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
pub enum ServeError {
    /// The address is taken or not this machine's: correct the config, or stop the other program.
    #[error("cannot listen on {address} ({key}): {error}")]
    Listen {
        key: &'static str,
        address: String,
        error: io::Error,
    },
    /// What only members know cannot be had. Put the file right; do not restart before.
    #[error("cannot use {path} (cluster.secret_file): {reason}")]
    Secret { path: String, reason: String },
    /// The data directory cannot be used.
    #[error("{0}")]
    Data(String),
    /// Raft could not start.
    #[error(transparent)]
    Replica(#[from] unisono_replication::StartError),
    /// The system refused a thread or a signal handler.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The running process cannot go on; a restart may.
    #[error("{0}")]
    Fatal(String),
}

/// What is had before anything else starts.
struct Listeners {
    http: TcpListener,
    raft: TcpListener,
    secret: Option<Secret>,
}

impl Listeners {
    fn bind(config: &NodeConfig) -> Result<Self, ServeError> {
        let raft = &config.cluster.peers[&config.node.id];
        Ok(Self {
            secret: secret(config)?,
            http: listen("node.http", &config.node.http)?,
            raft: listen("cluster.peers", raft)?,
        })
    }
}

fn secret(config: &NodeConfig) -> Result<Option<Secret>, ServeError> {
    let Some(file) = &config.cluster.secret_file else {
        if !config.cluster.is_on_loopback() {
            tracing::warn!(
                "cluster.secret_file is not set: whoever reaches the peers' port takes part in the cluster, and can change what \
                 is agreed"
            );
        }
        return Ok(None);
    };
    let refused = |reason: String| ServeError::Secret {
        path: file.display().to_string(),
        reason,
    };
    let bytes = std::fs::read(file).map_err(|error| refused(error.to_string()))?;
    let secret = Secret::new(&bytes).map_err(|error| refused(error.to_string()))?;
    Ok(Some(secret))
}

fn listen(key: &'static str, address: &str) -> Result<TcpListener, ServeError> {
    let bound = TcpListener::bind(address);
    let listener = bound.map_err(|error| ServeError::Listen {
        key,
        address: address.to_owned(),
        error,
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Runs a replica until it is asked to stop (SIGTERM, SIGINT) or cannot go on.
///
/// # Errors
/// Why it could not start, or had to end.
pub fn serve(config: NodeConfig, stop: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
    let listeners = Listeners::bind(&config)?;
    let runtime = threads::runtime()?;
    let mut node = Node::start(config, listeners, &runtime)?;
    let ended = runtime.block_on(async {
        tokio::select! {
            biased;
            () = stop => None,
            reason = node.fatal.recv() => Some(reason.unwrap_or_default()),
        }
    });
    match ended {
        None => {
            tracing::info!("stopping");
            if node.stop(&runtime) {
                runtime.shutdown_timeout(STOP_WITHIN);
            } else {
                leave_running(runtime);
            }
            Ok(())
        }
        // Nothing is tidied up: what is durable is durable, and the rest comes back from the log.
        Some(reason) => {
            leave_running(runtime);
            Err(ServeError::Fatal(reason))
        }
    }
}

pub(crate) struct Node {
    pub(crate) core: Arc<Core>,
    pub(crate) fatal: mpsc::Receiver<String>,
    threads: Vec<Thread>,
    publishers: Arc<Publishers>,
}

impl Node {
    fn start(
        config: NodeConfig,
        listeners: Listeners,
        runtime: &Runtime,
    ) -> Result<Self, ServeError> {
        let Listeners { http, raft, secret } = listeners;
        let handle = Handle::Real(runtime.handle().clone());
        let node = Self::compose(config, &handle, |config, snapshots| {
            let dir = config.data_dir.join("raft");
            Replica::start(
                raft_config(config, secret, Handles::granted().port),
                raft,
                &dir,
                snapshots,
            )
        })?;
        spawn_http(&node.core, http, runtime)?;
        let (id, http) = (node.core.config.node.id, &node.core.config.node.http);
        tracing::info!(node = id, http, "serving");
        Ok(node)
    }

    /// All of a node but its HTTP service, on the replica that `start` starts.
    pub(crate) fn compose(
        config: NodeConfig,
        runtime: &Handle,
        start: impl FnOnce(&NodeConfig, Arc<dyn Snapshots>) -> Result<Replica, StartError>,
    ) -> Result<Self, ServeError> {
        let data = |error: &dyn std::fmt::Display| ServeError::Data(error.to_string());
        let limits = Limits {
            max_bytes_per_stream: config.results.max_bytes,
            segment_bytes: SEGMENT_BYTES,
        };
        let results = ResultsLog::open(&config.data_dir.join("results"), limits)
            .map_err(|error| data(&error))?;
        let store = CheckpointStore::open(config.data_dir.join("checkpoints"))
            .map_err(|error| data(&error))?;
        let checkpoint = store.load().map_err(|error| data(&error))?;
        let (requests, receiver) = channel();
        let (asks, asked) = channel();
        let snapshots = NodeSnapshots::new(
            store.clone(),
            results.clone(),
            requests,
            asks,
            config.cluster.keep_log_entries,
        );
        let snapshots = Arc::new(snapshots);
        let replica = start(&config, Arc::clone(&snapshots) as Arc<dyn Snapshots>)?;
        let workers = Workers::start(config.node.workers)?;
        let (core, fatal) = Core::new(config, replica, results, store, workers);
        snapshots.take_others(admin::for_peers(&core, runtime));
        snapshots.know(&core, runtime);
        let driver = Driver::new(Arc::clone(&core), receiver, checkpoint)?;
        let mut threads = vec![spawn(Role::Driver, None, move || driver.run())?];
        let own = Arc::clone(&core);
        let answer = move || crate::lead::answer_all(&own, &asked);
        // It ends with the process: it waits for questions and holds nothing.
        drop(spawn(Role::Confirm, None, answer)?);
        let own = Arc::clone(&core);
        let propose = move || crate::proposer::run(own);
        threads.push(spawn(Role::Proposer, None, propose)?);
        threads.push(spawn_builtin(&core, runtime)?);
        let publishers = Arc::new(Publishers::default());
        let sinks = publish::tend_sinks(Arc::clone(&core), Arc::clone(&publishers));
        spawn_task(Role::Sinks, runtime, sinks);
        spawn_tasks(&core, snapshots, runtime);
        Ok(Self {
            core,
            fatal,
            threads,
            publishers,
        })
    }

    /// A clean stop: hand the lead over, keep what is known, end. Says whether all threads have ended.
    fn stop(mut self, runtime: &Runtime) -> bool {
        runtime.block_on(async {
            if let Err(error) = crate::status::give_away(&self.core).await {
                tracing::debug!(%error, "no hand-over");
            }
            self.core.stop();
            // Only so that the next start has less to replay: a feed that waits for its records must not hold up the end.
            let last = self.core.replica.trigger_checkpoint();
            if !matches!(rt::timeout(STOP_WITHIN, last).await, Ok(Ok(_))) {
                tracing::debug!("no checkpoint at the end");
            }
            self.core.replica.shutdown().await;
        });
        self.threads.extend(self.publishers.take());
        join_within(self.threads, STOP_WITHIN)
    }
}

/// The runtime ends with the process: a thread that still waits on it would panic if it went first.
fn leave_running(runtime: Runtime) {
    std::mem::forget(runtime);
}

/// Waits for threads to end, and says whether they have; those that hang (a broker that does not answer) end with the
/// process.
fn join_within(threads: Vec<Thread>, most: Duration) -> bool {
    let end = rt::now() + most;
    for thread in &threads {
        while !thread.is_finished() && rt::now() < end {
            rt::thread::sleep(Duration::from_millis(10));
        }
    }
    threads.iter().all(Thread::is_finished)
}

pub(crate) fn raft_config(
    config: &NodeConfig,
    secret: Option<Secret>,
    port: PortLimits,
) -> ReplicaConfig {
    ReplicaConfig {
        number: config.node.id,
        peers: config.cluster.peers.clone(),
        secret,
        heartbeat: config.cluster.heartbeat,
        election_timeout: config.cluster.election_timeout,
        keep_log_entries: config.cluster.keep_log_entries,
        forget_learners: FORGET_LEARNERS,
        port,
    }
}

/// The thread of the built-in sink; others come as they are agreed.
fn spawn_builtin(core: &Arc<Core>, runtime: &Handle) -> io::Result<Thread> {
    let (core, handle) = (Arc::clone(core), runtime.clone());
    spawn(Role::Sink, Some(BUILTIN_SINK), move || {
        let connect = || Ok(BuiltinSink::new(Arc::clone(&core), handle.clone()));
        publish::run(&core, BUILTIN_SINK, &handle, connect, || true);
    })
}

fn spawn_tasks(core: &Arc<Core>, snapshots: Arc<NodeSnapshots>, runtime: &Handle) {
    let own = || Arc::clone(core);
    spawn_task(Role::Frontiers, runtime, report_frontiers(own()));
    let doubts = crate::mending::run(own(), Arc::clone(&snapshots));
    spawn_task(Role::Doubts, runtime, doubts);
    spawn_task(Role::Checkpoints, runtime, checkpoints(own(), snapshots));
    spawn_task(Role::Backfill, runtime, crate::backfill::run(own()));
    spawn_task(Role::Status, runtime, crate::status::tell(own()));
    spawn_task(Role::Fitness, runtime, crate::status::watch_fitness(own()));
    spawn_task(Role::Leaders, runtime, tell_leaders(own()));
    let mut failed = core.replica.fatal();
    let watched = Arc::clone(core);
    spawn_task(Role::Faults, runtime, async move {
        if let Ok(reason) = failed.wait_for(Option::is_some).await {
            watched.fail(reason.clone().unwrap_or_default());
        }
    });
}

fn spawn_http(core: &Arc<Core>, http: TcpListener, runtime: &Runtime) -> io::Result<()> {
    let service = Arc::new(NodeService::new(Arc::clone(core)));
    let app = unisono_api::router(service);
    let _in_runtime = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(http)?;
    let served = Arc::clone(core);
    let handle = Handle::Real(runtime.handle().clone());
    spawn_task(Role::Http, &handle, async move {
        if let Err(error) = unisono_api::serve(listener, app, Handles::granted().http).await {
            served.fail(format!("the http server ended: {error}"));
        }
    });
    Ok(())
}

/// Logs who leads, once for each term.
async fn tell_leaders(core: Arc<Core>) {
    let mut view = core.replica.view();
    let mut told = None;
    loop {
        let (term, leader) = {
            let view = view.borrow_and_update();
            (view.term, view.leader)
        };
        if let Some(leader) = leader
            && told != Some((term, leader))
        {
            tracing::info!(term, leader, "elected");
            told = Some((term, leader));
            if leader == core.config.node.id {
                core.successions.elected(Election {
                    term,
                    at: rt::now(),
                    suspected: core.replica.suspected(term),
                });
            }
        }
        if view.changed().await.is_err() {
            return;
        }
    }
}

/// Until it is time, or a decision makes others want one. States that this node wants itself are asked for meanwhile.
async fn wait_for_checkpoint(core: &Arc<Core>, snapshots: &Arc<NodeSnapshots>, interval: Duration) {
    let next = rt::now() + interval;
    loop {
        let left = next.saturating_duration_since(rt::now());
        if left.is_zero() {
            return;
        }
        let wants = !crate::snapshots::wanted(core).is_empty();
        let pause = if wants { left.min(ASK_AGAIN) } else { left };
        tokio::select! {
            biased;
            () = core.health.due.notified() => return,
            () = rt::sleep(pause) => {}
        }
        if wants {
            crate::snapshots::heal(core, snapshots).await;
        }
    }
}

/// Makes a checkpoint every interval, each replica at a moment of its own, so that not all are busy at once.
async fn checkpoints(core: Arc<Core>, snapshots: Arc<NodeSnapshots>) {
    let interval = core.config.cluster.checkpoint_interval;
    let nodes = u32::try_from(core.config.cluster.peers.len()).unwrap_or(1);
    let before = core
        .config
        .cluster
        .peers
        .keys()
        .filter(|&&id| id < core.config.node.id)
        .count();
    let stagger = interval / nodes * u32::try_from(before).unwrap_or(0);
    rt::sleep(stagger).await;
    loop {
        wait_for_checkpoint(&core, &snapshots, interval).await;
        match core.replica.trigger_checkpoint().await {
            Ok(false) => {}
            Ok(true) => {
                core.counters
                    .checkpoints
                    .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                *threads::lock(&core.health.checkpoint) = Some(rt::now());
            }
            Err(error) => tracing::warn!(%error, "no checkpoint; trying again later"),
        }
        crate::snapshots::heal(&core, &snapshots).await;
        crate::snapshots::bound_log(&core).await;
    }
}
