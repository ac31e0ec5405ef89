//! Replicas with a small engine each: it keeps what its cursor gave, and its checkpoint is all of that.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use unisono_replication::{
    CursorEvent, IncomingSnapshot, LogCursor, LogError, PortLimits, Position, ProposeError,
    Replica, ReplicaConfig, Secret, Snapshots, StartError, StoredSnapshot, View,
};

/// Far more than anything takes on a busy machine; a test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(40);

pub type Entries = Vec<(Position, Vec<u8>)>;

/// A payload that tells its number.
pub fn payload(number: u32) -> Vec<u8> {
    format!("entry {number}").into_bytes()
}

/// The engine of a node: in memory `live`, on its disk `stored`.
#[derive(Default)]
struct Engine {
    live: Mutex<Live>,
    stored: Mutex<Option<Stored>>,
    /// Transfers that break off in the midst.
    break_off: AtomicUsize,
    installs: AtomicUsize,
    stopping: AtomicBool,
}

/// A checkpoint on the engine's disk.
#[derive(Clone)]
struct Stored {
    raft: Vec<u8>,
    data: Vec<u8>,
}

#[derive(Default)]
struct Live {
    entries: Entries,
    raft: Option<Vec<u8>>,
    /// A checkpoint was installed: the cursor must begin anew behind it.
    moved: bool,
}

impl Engine {
    /// Reads the log until the replica or the test ends.
    fn run(&self, replica: &Replica) {
        let mut cursor = self.cursor(replica);
        while !self.stopping.load(Ordering::SeqCst) {
            let event = cursor.next(Duration::from_millis(20));
            let mut live = self.live.lock().unwrap();
            if live.moved {
                live.moved = false;
                drop(live);
                cursor = self.cursor(replica);
                continue;
            }
            match event {
                Ok(CursorEvent::Entry { position, payload }) => {
                    live.entries
                        .extend(payload.map(|bytes| (position, bytes.to_vec())));
                    live.raft = Some(cursor.raft_state());
                }
                Ok(CursorEvent::Idle) => {}
                Ok(CursorEvent::Closed) => return,
                // The install that replaces the log is on its way.
                Err(_) => drop(live),
            }
        }
    }

    fn cursor(&self, replica: &Replica) -> LogCursor {
        let raft = self.live.lock().unwrap().raft.clone();
        replica.cursor(raft.as_deref()).unwrap()
    }

    /// As after the start of a process: what was not in the checkpoint is gone.
    fn reload(&self) {
        let mut live = self.live.lock().unwrap();
        *live = Live::default();
        if let Some(stored) = self.stored.lock().unwrap().as_ref() {
            live.entries = postcard::from_bytes(&stored.data).unwrap();
            live.raft = Some(stored.raft.clone());
        }
        self.stopping.store(false, Ordering::SeqCst);
    }
}

impl Snapshots for Engine {
    fn current(&self) -> io::Result<Option<StoredSnapshot>> {
        let Some(Stored { raft, data }) = self.stored.lock().unwrap().clone() else {
            return Ok(None);
        };
        let breaks = self
            .break_off
            .try_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        let write = move |out: &mut dyn io::Write| match breaks {
            Ok(_) => {
                out.write_all(&data[..data.len() / 2])?;
                Err(io::ErrorKind::BrokenPipe.into())
            }
            Err(_) => out.write_all(&data),
        };
        Ok(Some(StoredSnapshot {
            raft,
            data: Box::new(write),
        }))
    }

    fn build(&self) -> io::Result<Option<Vec<u8>>> {
        let live = self.live.lock().unwrap();
        let Some(raft) = live.raft.clone() else {
            return Ok(None);
        };
        let data = postcard::to_stdvec(&live.entries).unwrap();
        *self.stored.lock().unwrap() = Some(Stored {
            raft: raft.clone(),
            data,
        });
        Ok(Some(raft))
    }

    fn install(&self, snapshot: IncomingSnapshot) -> io::Result<()> {
        let IncomingSnapshot { raft, file } = snapshot;
        let data = std::fs::read(file.path())?;
        let mut live = self.live.lock().unwrap();
        live.entries = postcard::from_bytes(&data).unwrap();
        live.raft = Some(raft.clone());
        live.moved = true;
        *self.stored.lock().unwrap() = Some(Stored { raft, data });
        self.installs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn answer(&self, question: &[u8]) -> io::Result<Vec<u8>> {
        match question {
            b"refuse" => Err(io::ErrorKind::NotFound.into()),
            question => Ok([question, b" me"].concat()),
        }
    }
}

struct Node {
    replica: Replica,
    reader: JoinHandle<()>,
}

/// When a leader is heard, and when it is missed.
#[derive(Clone, Copy)]
pub struct Pace {
    pub heartbeat: Duration,
    pub election_timeout: (Duration, Duration),
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(50),
            election_timeout: (Duration::from_millis(250), Duration::from_millis(500)),
        }
    }
}

pub struct Cluster {
    pace: Pace,
    root: PathBuf,
    peers: BTreeMap<u16, String>,
    engines: BTreeMap<u16, Arc<Engine>>,
    running: BTreeMap<u16, Node>,
    /// The cluster's secret, as each node has it.
    pub secrets: BTreeMap<u16, String>,
}

impl Cluster {
    /// Three fresh replicas, with files in a folder of this test's own.
    pub async fn start(name: &str) -> Cluster {
        Self::start_with(name, Pace::default()).await
    }

    /// The same, at another pace.
    pub async fn start_with(name: &str, pace: Pace) -> Cluster {
        Self::start_secret(name, pace, BTreeMap::new()).await
    }

    /// The same, with secrets.
    pub async fn start_secret(name: &str, pace: Pace, secrets: BTreeMap<u16, String>) -> Cluster {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}", std::process::id()));
        let listeners: BTreeMap<u16, TcpListener> = (1..=3)
            .map(|number| (number, TcpListener::bind("127.0.0.1:0").unwrap()))
            .collect();
        let peers = listeners
            .iter()
            .map(|(number, listener)| (*number, listener.local_addr().unwrap().to_string()))
            .collect();
        let engines = (1..=3).map(|number| (number, Arc::default())).collect();
        let mut cluster = Cluster {
            pace,
            root,
            peers,
            engines,
            running: BTreeMap::new(),
            secrets,
        };
        for (number, listener) in listeners {
            let replica = cluster.open(number, listener).unwrap();
            cluster.run(number, replica);
        }
        cluster
    }

    fn open(&self, number: u16, listener: TcpListener) -> Result<Replica, StartError> {
        listener.set_nonblocking(true).unwrap();
        let config = ReplicaConfig {
            number,
            peers: self.peers.clone(),
            secret: self
                .secrets
                .get(&number)
                .map(|text| Secret::new(text.as_bytes()).unwrap()),
            heartbeat: self.pace.heartbeat,
            election_timeout: self.pace.election_timeout,
            keep_log_entries: 10,
            forget_learners: Duration::from_secs(60),
            port: PortLimits::default(),
        };
        let engine = Arc::clone(&self.engines[&number]);
        // It waits for its own runtime, which a test's runtime does not allow on its threads.
        let dir = self.root.join(number.to_string());
        tokio::task::block_in_place(|| Replica::start(config, listener, &dir, engine))
    }

    fn run(&mut self, number: u16, replica: Replica) {
        let engine = Arc::clone(&self.engines[&number]);
        let read = replica.clone();
        let reader = thread::spawn(move || engine.run(&read));
        self.running.insert(number, Node { replica, reader });
    }

    pub fn replica(&self, number: u16) -> &Replica {
        &self.running[&number].replica
    }

    /// Where a node listens for peers.
    pub fn address(&self, number: u16) -> &str {
        &self.peers[&number]
    }

    pub fn view(&self, number: u16) -> View {
        self.replica(number).view().borrow().clone()
    }

    /// How many checkpoints of peers this node has taken in.
    pub fn installs(&self, number: u16) -> usize {
        self.engines[&number].installs.load(Ordering::SeqCst)
    }

    /// Has a node's next transfers of its checkpoint break off in the midst.
    pub fn break_off(&self, number: u16, transfers: usize) {
        self.engines[&number]
            .break_off
            .store(transfers, Ordering::SeqCst);
    }

    /// How many transfers have yet to break off.
    pub fn left_to_break_off(&self, number: u16) -> usize {
        self.engines[&number].break_off.load(Ordering::SeqCst)
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, holds: impl Fn(&Cluster) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            if Instant::now() > deadline {
                let views: Vec<_> = self
                    .running
                    .keys()
                    .map(|number| self.view(*number))
                    .collect();
                panic!("not so in time: {what}; views: {views:#?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until `number` has heard of `peer` once more.
    pub async fn exchanged(&self, number: u16, peer: u16) {
        let heard = |cluster: &Cluster| {
            let peers = cluster.replica(number).peers();
            let found = peers.iter().find(|status| status.number == peer);
            found.map(|status| status.received)
        };
        let before = heard(self);
        self.until("one hears of the other", |cluster| heard(cluster) > before)
            .await;
    }

    /// Whether the log of a running node no longer begins with the first entry.
    pub fn is_purged(&self, number: u16) -> bool {
        let mut cursor = self.replica(number).cursor(None).unwrap();
        matches!(
            cursor.next(Duration::ZERO),
            Err(LogError::Superseded { .. })
        )
    }

    /// The number of a leader that may propose.
    pub async fn leader(&self) -> u16 {
        let leads = |cluster: &Cluster| {
            cluster
                .running
                .keys()
                .copied()
                .find(|number| cluster.view(*number).blank_applied)
        };
        self.until("one leads", |cluster| leads(cluster).is_some())
            .await;
        leads(self).unwrap_or_else(|| *self.running.keys().next().unwrap())
    }

    /// Proposes until it is written; a test that counts entries has no change of leader under way.
    pub async fn propose(&self, payload: Vec<u8>) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let leader = self.leader().await;
            match self.replica(leader).propose(payload.clone()).await {
                Ok(_) => return,
                Err(ProposeError::NotLeader { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("not written: {error}"),
            }
        }
    }

    /// The entries, once every running node has `count` of them; they are the same on all.
    pub async fn settled(&self, count: usize) -> Entries {
        let read = |number: &u16| self.engines[number].live.lock().unwrap().entries.clone();
        self.until("all have read all", |cluster| {
            cluster
                .running
                .keys()
                .all(|number| read(number).len() >= count)
        })
        .await;
        let mut all = self.running.keys().map(read);
        let first = all.next().unwrap();
        assert_eq!(first.len(), count);
        assert!(
            all.all(|other| other == first),
            "every cursor gives the same entries"
        );
        first
    }

    /// Ends a replica without handing over.
    pub async fn stop(&mut self, number: u16) {
        let node = self.running.remove(&number).unwrap();
        self.engines[&number].stopping.store(true, Ordering::SeqCst);
        node.replica.shutdown().await;
        tokio::task::spawn_blocking(move || node.reader.join().unwrap())
            .await
            .unwrap();
    }

    pub async fn stop_all(&mut self) {
        let numbers: Vec<_> = self.running.keys().copied().collect();
        for number in numbers {
            self.stop(number).await;
        }
    }

    /// Takes a stopped node's disk away.
    pub fn wipe(&mut self, number: u16) {
        std::fs::remove_dir_all(self.root.join(number.to_string())).unwrap();
        self.engines.insert(number, Arc::default());
    }

    /// Starts a stopped node again, as a new process would: from its disk, at its old address.
    pub async fn restart(&mut self, number: u16) {
        self.engines[&number].reload();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let started = match TcpListener::bind(&self.peers[&number]) {
                Ok(listener) => self.open(number, listener),
                Err(error) => Err(StartError::Runtime(error)),
            };
            match started {
                Ok(replica) => return self.run(number, replica),
                // The old one lets go of its port and its files a moment after its end.
                Err(StartError::Runtime(_) | StartError::InUse { .. })
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("not started: {error}"),
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A failed test leaves its files for whoever looks for the cause.
        if !thread::panicking() {
            std::fs::remove_dir_all(&self.root).ok();
        }
    }
}
