//! Whole clusters on simulated time, network, disks, source and sink: what a seed does to them, and what must hold whatever
//! it does.
//!
//! At each step: all replicas have the same published rows, the sink has them once and in order without a gap. At the end,
//! when all faults are mended: every record is counted in exactly one row or is a dead letter, everywhere.

mod check;
mod faults;
pub mod prompt;
pub mod skew;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tempfile::TempDir;
use unisono::simulation::{self, Log, Outside, Seen};
use unisono_replication::rt::simulated::{self, Disk, Node};
use unisono_replication::rt::{self, sleep};

use check::Check;
pub use faults::Fault;

/// Replicas of a cluster, by seed.
const NODES: [usize; 4] = [3, 3, 5, 3];
const LANES: usize = 3;
/// Faults are made for so long.
const TROUBLE: Duration = Duration::from_secs(16);
/// The producer goes on for so long after that.
const CALM: Duration = Duration::from_secs(3);
/// The size of one pipeline's windows.
const WINDOW: &str = "1s";
/// All must be counted and published within so long after all is well.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// A sum over all that has happened: the same seed, the same sum.
    pub trace: u64,
    /// How often a task ran.
    pub polls: u64,
    /// Records that were read.
    pub records: usize,
    /// Rows and dead letters that were published.
    pub rows: usize,
    /// How long it took, in simulated milliseconds.
    pub millis: u128,
    /// Most of the rows and dead letters that one process published by its own word alone.
    pub alone: u64,
    /// Checkpoints that replicas took from others.
    pub taken: u64,
    /// Times a replica's rows were not those of most, feeds that were computed again, and feeds that took a peer's state.
    pub doubted: (u64, u64, u64),
    /// Checkpoints that were made, that no other replica could compare, and that were not kept, for another had other states.
    pub checkpoints: (u64, u64, u64),
    /// How often an operator ended ticks.
    pub ends: usize,
    /// The faults that were made.
    pub faults: Vec<Fault>,
}

/// Each fault is told when it is made: for who looks at one seed.
pub static TELLS: AtomicBool = AtomicBool::new(false);

/// Runs one seed.
///
/// # Panics
/// Something that must hold does not.
#[must_use]
pub fn run(seed: u64, kinds: &'static [Fault]) -> Ran {
    let nodes = NODES[(seed % 4) as usize];
    simulate(seed, nodes, move |outside, path| async move {
        let mut world = World::new(outside, path, nodes);
        // What is taken from a peer's checkpoint has not been compared: who was away reads it from the log.
        world.keeps_log |= kinds.contains(&Fault::WrongAlone);
        (1..=nodes).for_each(|node| world.start(node));
        world.go(kinds).await
    })
}

/// Runs what `body` makes of an outside without records and a directory for the nodes' data.
fn simulate<R, F>(seed: u64, nodes: usize, body: impl FnOnce(Outside, PathBuf) -> F) -> R
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let outside = Outside {
        log: Log::new(LANES),
        ..Outside::default()
    };
    simulation::enter(&outside);
    let dir = TempDir::new_in(memory()).expect("a directory for the nodes' data");
    let path = dir.path().to_owned();
    simulated::simulate(seed, nodes, body(outside, path))
}

/// A place for files that no disk holds up.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    match memory.is_dir() {
        true => memory,
        false => std::env::temp_dir(),
    }
}

/// The cluster and all around it.
struct World {
    nodes: usize,
    outside: Outside,
    dir: PathBuf,
    disks: Vec<Disk>,
    seen: Vec<Seen>,
    check: Check,
    faults: Vec<Fault>,
    /// The log is long enough for all who are away for a while.
    keeps_log: bool,
    /// What is other in the nodes' config.
    alter: fn(String) -> String,
}

impl World {
    fn new(outside: Outside, dir: PathBuf, nodes: usize) -> Self {
        Self {
            nodes,
            outside,
            dir,
            disks: (0..=nodes).map(|_| Disk::new(100..1500)).collect(),
            seen: vec![Seen::default(); nodes + 1],
            check: Check::default(),
            faults: Vec::new(),
            keeps_log: nodes == 5,
            alter: |config| config,
        }
    }

    fn start(&mut self, node: Node) {
        self.start_with(node, WINDOW);
    }

    /// Starts a process in whose file the windows of one pipeline have this size.
    fn start_with(&mut self, node: Node, window: &str) {
        let path = self.dir.join(format!("{node}.toml"));
        self.seen[node] = Seen::default();
        let config = (self.alter)(config(node, self.nodes, window, self.keeps_log));
        simulation::start(node, &path, &config, &self.disks[node], &self.seen[node]);
    }

    /// The process ends as it stands.
    fn kill(&mut self, node: Node) {
        simulated::kill(node);
        self.disks[node].crash();
        self.seen[node] = Seen::default();
    }

    async fn go(mut self, kinds: &[Fault]) -> Ran {
        let log = std::sync::Arc::clone(&self.outside.log);
        let produced = rt::spawn(produce(log, TROUBLE + CALM));
        while simulated::elapsed() < TROUBLE {
            self.rest(Duration::from_millis(simulated::between(50..1500)))
                .await;
            if !kinds.is_empty() {
                let kind = simulated::between(0..kinds.len() as u64) as usize;
                self.make(kinds[kind]).await;
            }
        }
        self.mend();
        produced.await.expect("the producer goes on");
        let deadline = simulated::elapsed() + PATIENCE;
        let total = self.outside.log.len();
        while !self.check.all_counted(&self.seen, &self.outside, total) {
            let late = simulated::elapsed() > deadline;
            assert!(!late, "{}", self.standing(total));
            // Lanes rest for some seconds before they are read again.
            match kinds.contains(&Fault::WrongAlone) {
                true => self.decide(Duration::from_secs(1)).await,
                false => self.rest(Duration::from_millis(200)).await,
            }
        }
        self.check.exact(&self.outside);
        while !self.seen[1..]
            .iter()
            .all(|seen| seen.look().is_some_and(|look| look.is_whole()))
        {
            let late = simulated::elapsed() > deadline;
            assert!(!late, "not whole: {}", self.standing(total));
            self.rest(Duration::from_millis(200)).await;
        }
        self.check.look_at_all(&self.seen);
        self.until_all_vote(deadline).await;
        let (trace, polls) = simulated::traced();
        Ran {
            trace,
            polls,
            records: total,
            rows: self.check.rows(),
            alone: self.check.alone(),
            taken: self.check.taken(),
            doubted: self.check.doubted(),
            checkpoints: self.check.checkpoints(),
            ends: self.check.ends(),
            millis: simulated::elapsed().as_millis(),
            faults: self.faults,
        }
    }

    /// Time passes, and is looked at.
    async fn rest(&mut self, time: Duration) {
        let end = simulated::elapsed() + time;
        while simulated::elapsed() < end {
            sleep(Duration::from_millis(50)).await;
            self.check.look(&self.seen, &self.outside);
            for node in 1..=self.nodes {
                if let Some(reason) = self.seen[node].ended() {
                    // As a supervisor would.
                    println!("{:?}: node {node} ends: {reason}", simulated::elapsed());
                    self.kill(node);
                    self.start(node);
                }
            }
        }
    }

    /// A change of members that was cut short must be completed.
    async fn until_all_vote(&mut self, deadline: Duration) {
        let nodes = self.nodes;
        let votes = move |seen: &Seen| {
            seen.look()
                .is_some_and(|look| look.voters() == (nodes, false))
        };
        while !self.seen[1..].iter().all(votes) {
            assert!(
                simulated::elapsed() < deadline,
                "not all vote: {}",
                self.standing(0)
            );
            self.rest(Duration::from_millis(200)).await;
        }
    }

    fn standing(&self, total: usize) -> String {
        use std::fmt::Write;
        let mut text = format!("{total} records are not all counted:");
        let _ = write!(text, " {} in rows", self.check.counted());
        for node in 1..=self.nodes {
            if let Some(look) = self.seen[node].look() {
                let (leads, agreed) = (look.leads(), look.agreed_records());
                let (stopped, published) = (look.stopped(), look.published());
                let _ = write!(
                    text,
                    "; node {node} of {:?} leads {leads:?}, agreed {agreed}, published {published:?}, stopped {stopped:?}",
                    look.voters(),
                );
            }
        }
        let _ = write!(text, "; faults {:?}", self.faults);
        text
    }
}

/// Appends records whose time is the world's, for so long; lanes are quiet now and then.
async fn produce(log: std::sync::Arc<Log>, time: Duration) {
    let mut quiet = [Duration::ZERO; LANES];
    while simulated::elapsed() < time {
        sleep(Duration::from_millis(simulated::between(5..60))).await;
        let lane = simulated::between(0..LANES as u64) as usize;
        let now = simulated::elapsed();
        if now < quiet[lane] {
            continue;
        }
        if simulated::chance(1) {
            quiet[lane] = now + Duration::from_millis(simulated::between(500..4000));
        }
        let at = rt::wall().as_millis();
        let group = simulated::between(0..3);
        let record = format!("{{\"t\":{at},\"g\":{group},\"v\":1}}");
        log.append(lane, i64::try_from(at).unwrap_or(0), record.as_bytes());
    }
}

/// A cluster of which one pipeline goes to the built-in sink, the other to the simulated one.
fn config(node: Node, nodes: usize, window: &str, keeps_log: bool) -> String {
    let peers: Vec<String> = (1..=nodes)
        .map(|node| format!("{node} = \"node-{node}:1\""))
        .collect();
    let peers = peers.join(", ");
    // Few: who was away for a moment takes a checkpoint.
    let keep = if keeps_log { 20_000 } else { 20 };
    format!(
        r#"
data_dir = "{node}"
[node]
id = {node}
http = "node-{node}:2"
workers = 1
[cluster]
peers = {{ {peers} }}
checkpoint_interval = "3s"
keep_log_entries = {keep}
[[source]]
name = "events"
kafka = {{ brokers = "simulated:1", topic = "events" }}
[[sink]]
name = "out"
kafka = {{ brokers = "simulated:1", topic = "rows" }}
[[pipeline]]
name = "all"
sources = ["events"]
time = {{ field = "t", format = "ms" }}
window = {{ size = "{window}" }}
close = {{ lag = "0s", idle = "1s" }}
max_future = "4s"
values = {{ n = "count()" }}
[[pipeline]]
name = "by_group"
sources = ["events"]
sink = "out"
time = {{ field = "t", format = "ms" }}
group_by = ["g"]
window = {{ size = "500ms" }}
close = {{ lag = "0s", idle = "1s" }}
max_future = "4s"
values = {{ n = "count()" }}
"#
    )
}
