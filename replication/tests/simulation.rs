//! Raft as it runs, on simulated time, network and disks: kills, stops, cuts and disks that hang, from seeds. Every entry is
//! the same everywhere, what was acknowledged is never lost, and once all is well the replicas agree again.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unisono_replication::rt;
use unisono_replication::rt::simulated::{self, Disk, Node};
use unisono_replication::{
    CursorEvent, IncomingSnapshot, PortLimits, Position, Replica, ReplicaConfig, Snapshots,
    StoredSnapshot,
};

const NODES: usize = 3;
const SECONDS: u64 = 20;

struct NoEngine;

impl Snapshots for NoEngine {
    fn current(&self) -> io::Result<Option<StoredSnapshot>> {
        Ok(None)
    }
    fn build(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn install(&self, _: IncomingSnapshot) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What was seen of the log anywhere.
#[derive(Default)]
struct Seen {
    entries: BTreeMap<u64, (u64, Option<Vec<u8>>)>,
    acknowledged: BTreeMap<u64, Vec<u8>>,
    reached: BTreeMap<Node, u64>,
}

impl Seen {
    fn entry(&mut self, node: Node, position: Position, payload: Option<Vec<u8>>) {
        let acknowledged = self.acknowledged.get(&position.index);
        assert!(acknowledged.is_none_or(|it| Some(it) == payload.as_ref()));
        let known = self.entries.entry(position.index);
        let known = known.or_insert_with(|| (position.term, payload.clone()));
        assert_eq!(*known, (position.term, payload), "entry {}", position.index);
        self.reached.insert(node, position.index);
    }

    fn acknowledged(&mut self, position: Position, payload: Vec<u8>) {
        if let Some((_, known)) = self.entries.get(&position.index) {
            assert_eq!(known.as_ref(), Some(&payload));
        }
        self.acknowledged.insert(position.index, payload);
    }
}

fn config(number: u16) -> ReplicaConfig {
    let address = |number: u16| (number, format!("node-{number}"));
    ReplicaConfig {
        number,
        peers: (1..=NODES as u16).map(address).collect(),
        secret: None,
        heartbeat: Duration::from_millis(100),
        election_timeout: (Duration::from_millis(500), Duration::from_secs(1)),
        keep_log_entries: 1000,
        forget_learners: Duration::from_secs(60),
        port: PortLimits::default(),
    }
}

async fn node(node: Node, disk: Disk, seen: Arc<Mutex<Seen>>) {
    let number = u16::try_from(node).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let replica = Replica::simulate(config(number), &disk, dir.path(), Arc::new(NoEngine));
    let replica = replica.await.unwrap();
    let proposer = replica.clone();
    let acknowledged = Arc::clone(&seen);
    rt::spawn(async move {
        for count in 0_u64.. {
            rt::sleep(Duration::from_millis(25)).await;
            if !proposer.view().borrow().blank_applied {
                continue;
            }
            let payload = [rt::random(), count].map(u64::to_be_bytes).concat();
            if let Ok(position) = proposer.propose(payload.clone()).await {
                acknowledged.lock().unwrap().acknowledged(position, payload);
            }
        }
    });
    let mut cursor = replica.cursor(None).unwrap();
    loop {
        match cursor.next(Duration::ZERO).unwrap() {
            CursorEvent::Entry { position, payload } => {
                let payload = payload.map(|bytes| bytes.to_vec());
                seen.lock().unwrap().entry(node, position, payload);
            }
            CursorEvent::Idle => rt::sleep(Duration::from_millis(5)).await,
            CursorEvent::Closed => return,
        }
    }
}

async fn world() -> usize {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let disks: Vec<Disk> = (0..=NODES).map(|_| Disk::new(200..2000)).collect();
    let start = |number: Node| {
        let (disk, seen) = (disks[number].clone(), Arc::clone(&seen));
        simulated::spawn_on(number, node(number, disk, seen));
    };
    (1..=NODES).for_each(start);
    while simulated::elapsed() < Duration::from_secs(SECONDS) {
        rt::sleep(Duration::from_millis(simulated::between(100..1500))).await;
        let one = usize::try_from(simulated::between(1..NODES as u64 + 1)).unwrap();
        let a_while = Duration::from_millis(simulated::between(10..2000));
        match simulated::between(0..4) {
            0 => {
                simulated::kill(one);
                disks[one].crash();
                rt::sleep(a_while).await;
                start(one);
            }
            1 => {
                simulated::pause(one);
                rt::sleep(a_while).await;
                simulated::resume(one);
            }
            2 => {
                cut_off(one, true);
                rt::sleep(a_while).await;
                cut_off(one, false);
            }
            _ => {
                disks[one].set_hangs(true);
                rt::sleep(a_while).await;
                disks[one].set_hangs(false);
            }
        }
    }
    rt::sleep(Duration::from_secs(5)).await;
    let before = seen.lock().unwrap().entries.len();
    rt::sleep(Duration::from_secs(1)).await;
    let seen = seen.lock().unwrap();
    assert!(seen.entries.len() > before, "nothing is agreed any more");
    let last = *seen.entries.keys().last().unwrap();
    assert!(seen.reached.values().all(|&reached| reached + 5 > last));
    seen.entries.len()
}

fn cut_off(one: Node, cut: bool) {
    simulated::network(|network| {
        for other in 1..=NODES {
            network.way(one, other).cut = cut;
            network.way(other, one).cut = cut;
        }
    });
}

fn run(seed: u64) -> (usize, (u64, u64)) {
    simulated::simulate(seed, NODES, async {
        let entries = world().await;
        (entries, simulated::traced())
    })
}

#[test]
fn replicas_agree_whatever_happens_and_the_same_seed_is_the_same_run() {
    let seeds = std::env::var("UNISONO_SEEDS").ok();
    let seeds = seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(10);
    for seed in 0..seeds {
        let ran = run(seed);
        println!("seed {seed}: {ran:?}");
        if seed < 3 {
            assert_eq!(ran, run(seed), "seed {seed}");
        }
    }
}
