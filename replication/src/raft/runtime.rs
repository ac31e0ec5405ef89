//! Raft's own thread: messages, heartbeats and elections. The log has another one that writes.
//!
//! One thread is enough, for nothing there takes long: what does (a checkpoint, the disk) is handed to others. And it
//! wakes nobody to have a message passed on.

mod handing;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{Config, RaftMetrics, SnapshotPolicy};
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};

use super::applier::{Mark, StateMachine};
use super::entry::Tracker;
use super::log_store::LogStore;
use super::members::{self, Members};
use super::network::{Network, ask};
use super::server::{Peers, Turns, accept};
use super::takeover::Takeover;
use super::transfer::prepare;
use super::types::{
    Payload, Raft, SnapshotMeta, TypeConfig, decode_raft_state, index_of, position,
};
use crate::cursor::{LogCursor, Position};
use crate::detector::Detector;
use crate::error::{CheckpointError, ProposeError, RemoveError, StartError};
use crate::gossip::{Gossip, ask_all};
use crate::handle::ReplicaConfig;
use crate::identity::number_of;
use crate::link::{Link, Port};
use crate::rt::{self, Listener};
use crate::snapshots::Snapshots;
use crate::view::{Pulse, Role, View};

/// A proposal that is not committed for so long has an unknown outcome: there is no quorum.
const PROPOSE: Duration = Duration::from_secs(5);
/// How long a hand-over may take.
const HAND_OVER: Duration = Duration::from_secs(2);
/// Who is named to take over may lack so many entries: it gets them before it stands.
const NEARLY: u64 = 100;
/// Entries in one message: with ticks of a few hundred bytes, far below a megabyte.
const MESSAGE_ENTRIES: u64 = 256;

/// A running replica.
pub(crate) struct Inner {
    raft: Raft,
    log: LogStore,
    mark: Arc<Mark>,
    snapshots: Arc<dyn Snapshots>,
    incoming: Arc<Path>,
    pub(crate) gossip: Arc<Gossip>,
    pub(crate) view: watch::Receiver<View>,
    pub(crate) fatal: watch::Receiver<Option<String>>,
    network: Network,
    pub(crate) port: Arc<Port>,
    takeover: Arc<Takeover>,
    /// Held through a change of members.
    changing: Arc<tokio::sync::Mutex<()>>,
    /// Ends Raft's thread when it is dropped.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Inner {
    pub(crate) fn start(
        config: ReplicaConfig,
        (listener, dir): (TcpListener, &Path),
        snapshots: Arc<dyn Snapshots>,
    ) -> Result<Self, StartError> {
        let (fatal, _) = watch::channel(None);
        let log = LogStore::open(dir, config.number, fatal.clone())?;
        let incoming = incoming(dir)?;
        let runtime = runtime()?;
        let stored = log.clone();
        let inner = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener);
            let listener = Listener::Tcp(listener.map_err(StartError::Runtime)?);
            Self::assemble(config, listener, (stored, incoming), snapshots, fatal).await
        })?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("raft".into())
            .spawn(move || {
                // The sender is dropped, never used.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
                log.end();
            });
        put(&inner.stop, stop);
        put(&inner.thread, thread.map_err(StartError::Runtime)?);
        Ok(inner)
    }

    /// A replica whose disk and port are simulated, as a task of a simulation's node.
    #[cfg(feature = "simulation")]
    pub(crate) async fn simulate(
        config: ReplicaConfig,
        (disk, dir): (&rt::simulated::Disk, &Path),
        snapshots: Arc<dyn Snapshots>,
    ) -> Result<Self, StartError> {
        let (fatal, _) = watch::channel(None);
        let log = LogStore::simulate(disk, config.number, fatal.clone());
        let address = config.peers.get(&config.number).map_or("", String::as_str);
        let listener = Listener::Simulated(rt::simulated::listen(address));
        let incoming = incoming(dir)?;
        Self::assemble(config, listener, (log, incoming), snapshots, fatal).await
    }

    /// Puts the parts together, on the runtime that this is called on.
    async fn assemble(
        config: ReplicaConfig,
        listener: Listener,
        (log, incoming): (LogStore, Arc<Path>),
        snapshots: Arc<dyn Snapshots>,
        fatal: watch::Sender<Option<String>>,
    ) -> Result<Self, StartError> {
        if !config.peers.contains_key(&config.number) {
            let reason = format!("the peers lack replica {} itself", config.number);
            return Err(StartError::Config(reason));
        }
        let settings = settings(&config)?;
        let checkpoint = stored_checkpoint(snapshots.as_ref(), &log)?;
        let mark = Arc::new(Mark::new(checkpoint));
        let machine = StateMachine {
            mark: Arc::clone(&mark),
            snapshots: Arc::clone(&snapshots),
        };
        let network = Network {
            peers: Arc::new(config.peers),
            secret: config.secret.clone(),
        };
        let gossip = Arc::new(Gossip::new(config.number, log.node_id(), !log.is_fresh()));
        let (views, view) = watch::channel(View::unknown(config.number));
        let made = Raft::new(
            log.node_id(),
            settings,
            network.clone(),
            log.clone(),
            machine,
        );
        let raft = made
            .await
            .map_err(|error| StartError::Raft(error.to_string()))?;
        let (detector, node_id) = (Detector::new(config.heartbeat), log.node_id());
        let takeover = Takeover::new(raft.clone(), config.number, node_id, &network, detector);
        let inner = Self {
            raft,
            log,
            mark,
            snapshots,
            incoming,
            gossip,
            view,
            fatal: fatal.subscribe(),
            network,
            port: Arc::new(Port::new(config.secret, config.port)),
            takeover,
            changing: Arc::default(),
            stop: Mutex::default(),
            thread: Mutex::default(),
        };
        let pace = (config.heartbeat, config.forget_learners);
        inner.spawn_tasks(pace, listener, views, fatal);
        Ok(inner)
    }

    /// Starts what runs beside openraft, on the runtime that this is called on.
    fn spawn_tasks(
        &self,
        (heartbeat, forget_learners): (Duration, Duration),
        listener: Listener,
        views: watch::Sender<View>,
        fatal: watch::Sender<Option<String>>,
    ) {
        let number = self.view.borrow().number;
        let peers = Peers {
            takeover: Arc::clone(&self.takeover),
            raft: self.raft.clone(),
            node_id: self.log.node_id(),
            gossip: Arc::clone(&self.gossip),
            snapshots: Arc::clone(&self.snapshots),
            incoming: Arc::clone(&self.incoming),
            port: Arc::clone(&self.port),
            turns: Turns::default(),
        };
        rt::spawn(accept(listener, peers));
        let others = self.network.peers.keys();
        let others = others.filter(|&&other| other != number);
        let links = others.filter_map(|&other| Some((other, self.network.link(other)?)));
        ask_all(&self.gossip, links, &self.takeover);
        rt::spawn(Arc::clone(&self.takeover).run(self.view.clone()));
        let members = Members {
            raft: self.raft.clone(),
            number,
            node_id: self.log.node_id(),
            peers: Arc::clone(&self.network.peers),
            gossip: Arc::clone(&self.gossip),
            forget_learners,
            changing: Arc::clone(&self.changing),
            heard: BTreeMap::new(),
        };
        rt::spawn(members.run());
        self.raft.runtime_config().heartbeat(false);
        rt::spawn(beat(self.raft.clone(), self.view.clone(), heartbeat));
        let (raft, mark) = (self.raft.clone(), Arc::clone(&self.mark));
        rt::spawn(watch_state(raft, mark, number, views, fatal));
    }

    pub(crate) async fn propose(&self, payload: Vec<u8>) -> Result<Position, ProposeError> {
        let written = self.raft.client_write(Payload(payload.into()));
        match rt::timeout(PROPOSE, written).await {
            Ok(Ok(response)) => Ok(position(&response.log_id)),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward)))) => {
                Err(ProposeError::NotLeader {
                    leader: forward.leader_id.map(number_of),
                })
            }
            Ok(Err(RaftError::APIError(_))) | Err(_) => Err(ProposeError::Unknown),
            Ok(Err(RaftError::Fatal(_))) => Err(ProposeError::Shutdown),
        }
    }

    pub(crate) fn cursor(&self, raft: Option<&[u8]>) -> io::Result<LogCursor> {
        Ok(LogCursor::new(
            self.log.clone(),
            Arc::clone(&self.mark),
            Tracker::at(raft)?,
        ))
    }

    pub(crate) async fn trigger_checkpoint(&self) -> Result<bool, CheckpointError> {
        let snapshots = Arc::clone(&self.snapshots);
        let built = rt::blocking(move || snapshots.build()).await;
        let Some(raft) = built.map_err(|_| CheckpointError::Shutdown)?? else {
            return Ok(false);
        };
        let meta = decode_raft_state(&raft)?;
        // It has newer parts, and the same place: nothing more can be purged.
        if !self.mark.set_checkpoint(meta) {
            return Ok(true);
        }
        self.raft
            .trigger()
            .snapshot()
            .await
            .map_err(|_| CheckpointError::Shutdown)?;
        Ok(true)
    }

    /// Bytes of the log's files, and how many entries they hold.
    pub(crate) fn log_size(&self) -> (u64, u64) {
        self.log.size()
    }

    /// Removes all entries below the last checkpoint, those too that are kept for peers.
    pub(crate) async fn purge_to_checkpoint(&self) {
        let snapshot = self.raft.metrics().borrow_watched().snapshot;
        if let Some(snapshot) = snapshot {
            // It fails only when Raft has ended.
            let _ = self.raft.trigger().purge_log(snapshot.index).await;
        }
    }

    pub(crate) async fn ask(&self, number: u16, question: Vec<u8>) -> io::Result<Vec<u8>> {
        ask(&self.network, number, &question).await
    }

    /// A link to a peer.
    pub(crate) fn link(&self, number: u16) -> Option<Link> {
        self.network.link(number)
    }

    pub(crate) async fn remove_member(&self, number: u16) -> Result<(), RemoveError> {
        members::remove(&self.raft, &self.changing, number).await
    }

    pub(crate) fn suspected(&self, term: u64) -> Option<Instant> {
        self.takeover.suspected(term)
    }

    pub(crate) fn pulse(&self) -> Pulse {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let leads = metrics.state.is_leader();
        let membership = metrics.membership_config.membership();
        // Nobody acknowledges to a voter that is alone.
        let alone = membership.voter_ids().eq([self.log.node_id()]);
        let acked = metrics.last_quorum_acked.map(|acked| acked.elapsed());
        let (written, writing) = self.log.writes();
        Pulse {
            heard: self.takeover.silence(metrics.current_term),
            quorum: match alone {
                true => Some(Duration::ZERO),
                false => acked,
            }
            .filter(|_| leads),
            written,
            writing,
        }
    }

    #[cfg(test)]
    pub(crate) fn raft(&self) -> &Raft {
        &self.raft
    }

    pub(crate) async fn shutdown(&self) {
        // It fails only if Raft's task panicked, which has been reported as fatal.
        let _ = self.raft.shutdown().await;
        self.mark.close();
        self.log.close();
        drop(take(&self.stop));
        // The port and the log can be opened again only when it has ended.
        if let Some(thread) = take(&self.thread) {
            let _ = rt::blocking(move || thread.join()).await;
        }
    }
}

/// Where peers' checkpoints are received.
fn incoming(dir: &Path) -> Result<Arc<Path>, StartError> {
    let path = dir.to_owned();
    let prepared = prepare(dir).map_err(|cause| StartError::Io { path, cause })?;
    Ok(prepared.into())
}

fn put<T>(slot: &Mutex<Option<T>>, value: T) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.mark.close();
        self.log.close();
        // The thread ends by itself: it must not be waited for on a thread of another runtime.
        drop(take(&self.stop));
    }
}

/// Raft's own: nothing else of the node can starve its heartbeats.
fn runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Runtime)
}

/// Where the node's last checkpoint stands; refused if the log has been purged beyond it.
fn stored_checkpoint(
    snapshots: &dyn Snapshots,
    log: &LogStore,
) -> Result<Option<SnapshotMeta>, StartError> {
    let unusable = |error: io::Error| StartError::Raft(error.to_string());
    let stored = snapshots.current().map_err(unusable)?;
    let checkpoint = stored.map(|stored| decode_raft_state(&stored.raft));
    let checkpoint = checkpoint.transpose().map_err(unusable)?;
    let stands_at = checkpoint.as_ref().and_then(|meta| meta.last_log_id);
    let stands_at = index_of(stands_at.as_ref());
    match log.purged().filter(|&purged| purged > stands_at) {
        None => Ok(checkpoint),
        Some(purged) => Err(StartError::Hole {
            path: log.folder().to_path_buf(),
            checkpoint: stands_at,
            purged,
        }),
    }
}

fn settings(config: &ReplicaConfig) -> Result<Arc<Config>, StartError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let least = millis(config.election_timeout.0);
    let settings = Config {
        cluster_name: "unisono".to_owned(),
        // The heartbeats are sent by a task of ours. Here it paces openraft's clock, which ticks five times in it, and only
        // for the time-outs.
        heartbeat_interval: least / 2,
        // A follower that has just acknowledged entries needs no heartbeat.
        heartbeat_min_interval: Some((millis(config.heartbeat) / 2).min(least / 4)),
        election_timeout_min: least,
        election_timeout_max: millis(config.election_timeout.1),
        enable_pre_vote: Some(true),
        enable_leader_restore: Some(false),
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: config.keep_log_entries,
        max_payload_entries: MESSAGE_ENTRIES,
        ..Config::default()
    };
    let checked = settings
        .validate()
        .map_err(|error| StartError::Config(error.to_string()))?;
    Ok(Arc::new(checked))
}

/// Sends the heartbeats while this replica leads.
async fn beat(raft: Raft, mut view: watch::Receiver<View>, interval: Duration) {
    // Both end when the replica does.
    while view.wait_for(View::is_leader).await.is_ok() && raft.trigger().heartbeat().await.is_ok() {
        rt::sleep(interval).await;
    }
}

/// Turns openraft's state into views, for as long as it runs. Its metrics change with every message; whoever waits for a
/// view is woken only when the part that this replica plays changes, and finds the rest as of the last applied entry.
async fn watch_state(
    raft: Raft,
    mark: Arc<Mark>,
    number: u16,
    views: watch::Sender<View>,
    fatal: watch::Sender<Option<String>>,
) {
    let (metrics, mut server) = (raft.metrics(), raft.server_metrics());
    let (mut applied, mut snapshot) = (raft.watch_apply_progress(), raft.watch_snapshot_progress());
    loop {
        let next = view(&metrics.borrow_watched(), &mark, number);
        views.send_if_modified(|known| {
            let notable = !known.plays_as(&next);
            *known = next;
            notable
        });
        let changed = tokio::select! {
            biased;
            changed = server.changed() => changed,
            changed = applied.changed() => changed,
            changed = snapshot.changed() => changed,
        };
        if changed.is_err() {
            break;
        }
    }
    if let Err(error) = &metrics.borrow_watched().running_state {
        let reason = format!("raft stopped: {error}");
        fatal.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(reason);
            first
        });
    }
}

fn view(now: &RaftMetrics<TypeConfig>, mark: &Mark, number: u16) -> View {
    let membership = now.membership_config.membership();
    let role = match () {
        () if now.state.is_leader() => Role::Leader,
        () if now.state.is_candidate() => Role::Candidate,
        () if now.state.is_learner() => Role::Learner,
        () => Role::Follower,
    };
    let applied = now.last_applied.as_ref();
    let own_term = applied.is_some_and(|applied| position(applied).term == now.current_term);
    View {
        number,
        term: now.current_term,
        role,
        leader: now.current_leader.map(number_of),
        blank_applied: role == Role::Leader && own_term,
        applied: index_of(applied),
        last_log: now.last_log_index.unwrap_or(0),
        committed: index_of(now.local_committed.as_ref()),
        voters: membership.voter_ids().map(number_of).collect(),
        learners: membership.learner_ids().map(number_of).collect(),
        joint: membership.get_joint_config().len() > 1,
        snapshot: mark.checkpoint_index(),
    }
}
