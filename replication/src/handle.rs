//! A replica of the agreed log, as the node uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::cursor::{LogCursor, Position};
use crate::error::{CheckpointError, HandOverError, ProposeError, RemoveError, StartError};
use crate::gossip::PeerStatus;
use crate::link::{Link, PortLimits, PortStatus, Secret, Topic};
use crate::raft::runtime::Inner;
use crate::snapshots::Snapshots;
use crate::view::{Pulse, View};

/// What a replica is told.
pub struct ReplicaConfig {
    /// This replica's number; unique in the cluster.
    pub number: u16,
    /// Every replica's number and address for peers, this one's too.
    pub peers: BTreeMap<u16, String>,
    /// What all replicas of the cluster have and nobody else; `None`: whoever reaches the port is a peer.
    pub secret: Option<Secret>,
    /// How often a leader tells its followers that it is there.
    pub heartbeat: Duration,
    /// Bounds between which each election's time-out is drawn, after the leader's lease.
    pub election_timeout: (Duration, Duration),
    /// Entries that are kept below a checkpoint, so that a peer that was away for a while needs no checkpoint.
    pub keep_log_entries: u64,
    /// A node that joins and is not heard of for so long is removed from the members again.
    pub forget_learners: Duration,
    /// How many connections the peers' port holds.
    pub port: PortLimits,
}

/// A connection to the node of a peer, for small questions.
pub struct Line {
    link: Link,
}

impl Line {
    /// Asks, and waits for the answer at most `within`.
    ///
    /// # Errors
    /// The peer is out of reach, does not answer in time, or cannot answer; the question may be asked again.
    pub async fn ask(&mut self, question: &[u8], within: Duration) -> io::Result<Vec<u8>> {
        let answer = self.link.call(Topic::Confirm, 0, question, within).await;
        answer.map_err(io::Error::other)
    }
}

/// A running replica. Clones share it; all calls work from any thread and any runtime.
#[derive(Clone)]
pub struct Replica {
    inner: Arc<Inner>,
}

impl Replica {
    /// Starts a replica on a runtime of its own, so that nothing else can starve its heartbeats. `listener` is the bound
    /// socket for peers; log, vote and identity are kept in `dir`.
    ///
    /// # Errors
    /// What is wrong with the config or the files.
    pub fn start(
        config: ReplicaConfig,
        listener: TcpListener,
        dir: &Path,
        snapshots: Arc<dyn Snapshots>,
    ) -> Result<Self, StartError> {
        Inner::start(config, (listener, dir), snapshots).map(|inner| Self {
            inner: Arc::new(inner),
        })
    }

    /// Starts a replica on a simulation's node, with a simulated disk; what peers send is received in `dir`, and not simulated.
    ///
    /// # Errors
    /// What is wrong with the config.
    #[cfg(feature = "simulation")]
    pub async fn simulate(
        config: ReplicaConfig,
        disk: &crate::rt::simulated::Disk,
        dir: &Path,
        snapshots: Arc<dyn Snapshots>,
    ) -> Result<Self, StartError> {
        let inner = Inner::simulate(config, (disk, dir), snapshots).await?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    #[cfg(test)]
    pub(crate) fn raft(&self) -> &crate::raft::types::Raft {
        self.inner.raft()
    }

    /// Appends an entry; returns its place once it is committed and cursors may read it.
    ///
    /// # Errors
    /// What became of it is in [`ProposeError`].
    pub async fn propose(&self, payload: Vec<u8>) -> Result<Position, ProposeError> {
        self.inner.propose(payload).await
    }

    /// The replica's view of the cluster, as it changes.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<View> {
        self.inner.view.clone()
    }

    /// How fresh the view is, and how the disk of the log does.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.inner.pulse()
    }

    /// Who of the voters has made durable what this replica, which leads, is still writing.
    #[must_use]
    pub fn durable_elsewhere(&self) -> BTreeSet<u16> {
        self.inner.durable_elsewhere()
    }

    /// A cursor behind the checkpoint with these [`LogCursor::raft_state`] bytes; `None`: from the log's beginning.
    ///
    /// # Errors
    /// The bytes are not of this version.
    pub fn cursor(&self, raft: Option<&[u8]>) -> io::Result<LogCursor> {
        self.inner.cursor(raft)
    }

    /// Has the node make a checkpoint, then purges the log below it. Whether there is a new one.
    ///
    /// # Errors
    /// It could not be made; the log stays as it is.
    pub async fn trigger_checkpoint(&self) -> Result<bool, CheckpointError> {
        self.inner.trigger_checkpoint().await
    }

    /// Bytes of the log's files, and how many entries they hold. It looks at the disk.
    #[must_use]
    pub fn log_size(&self) -> (u64, u64) {
        self.inner.log_size()
    }

    /// Removes all of the log below the last checkpoint, also what is kept for peers: one that lacks it takes a checkpoint.
    pub async fn purge_to_checkpoint(&self) {
        self.inner.purge_to_checkpoint().await;
    }

    /// What peers are told of this node.
    pub fn set_status(&self, status: Vec<u8>) {
        self.inner.gossip.set_status(status);
    }

    /// What was heard of the peers, by number; those never heard of are missing.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.inner.gossip.peers()
    }

    /// Asks the node of a peer, whose [`Snapshots::answer`] answers.
    ///
    /// # Errors
    /// There is no such peer, it gave no answer within 30 seconds, or it cannot answer: ask another, or again later.
    pub async fn ask(&self, number: u16, question: Vec<u8>) -> io::Result<Vec<u8>> {
        self.inner.ask(number, question).await
    }

    /// A line to the node of a peer, whose [`Snapshots::confirm`] answers; `None`: there is no such peer. It is connected
    /// when it is used, on the runtime that it is used on.
    #[must_use]
    pub fn line(&self, number: u16) -> Option<Line> {
        self.inner.link(number).map(|link| Line { link })
    }

    /// The peers' port: what it holds, and whom it refused.
    #[must_use]
    pub fn port(&self) -> PortStatus {
        self.inner.port.status()
    }

    /// Peers that refuse what this replica says, and why.
    #[must_use]
    pub fn refusing(&self) -> BTreeMap<u16, String> {
        self.inner.gossip.refusing()
    }

    /// When this replica first had evidence against the leader that it succeeded in `term`, or agreed with another one's;
    /// `None`: the lead was given to it, or Raft's own time-outs ran out.
    #[must_use]
    pub fn suspected(&self, term: u64) -> Option<Instant> {
        self.inner.suspected(term)
    }

    /// If this replica leads: makes the voter that lacks least lead instead, and waits until it does.
    ///
    /// # Errors
    /// Why not; this replica may still lead then.
    pub async fn hand_over(&self) -> Result<(), HandOverError> {
        self.inner.hand_over(&[]).await
    }

    /// If this replica leads: makes the first of these voters lead that is there and lacks little.
    ///
    /// # Errors
    /// Why not; this replica may still lead then.
    pub async fn hand_over_to(&self, preferred: &[u16]) -> Result<(), HandOverError> {
        match preferred {
            [] => Err(HandOverError::NoCandidate),
            _ => self.inner.hand_over(preferred).await,
        }
    }

    /// If this replica leads: takes a node out of the members, for good unless the peers still name it.
    ///
    /// # Errors
    /// Why not.
    pub async fn remove_member(&self, number: u16) -> Result<(), RemoveError> {
        self.inner.remove_member(number).await
    }

    /// Why the replica cannot go on, once that is so: the process must end.
    #[must_use]
    pub fn fatal(&self) -> watch::Receiver<Option<String>> {
        self.inner.fatal.clone()
    }

    /// Ends the replica: its connections close, cursors end, the files are closed.
    pub async fn shutdown(&self) {
        self.inner.shutdown().await;
    }
}
