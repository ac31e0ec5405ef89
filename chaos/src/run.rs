//! The demo's course: orders flow, leaders are killed or made unfit one after the other, and the progress is there to be shown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::RngExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::checker::Verdict;
use crate::fault::Fault;
use crate::http::{self, ClusterView};
use crate::report::Report;
use crate::stage::{LiveChecker, Sight, Stage, StageOptions};
use crate::watch::Picture;

/// How long a killed replica stays down.
const DOWN_FOR: Duration = Duration::from_millis(1_500);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const STEP: Duration = Duration::from_millis(20);
/// No kill so close before the end of the orders: a row of a later window shows the succession.
const MARGIN: Duration = Duration::from_millis(1_000);
const CHECK_EVERY: Duration = Duration::from_secs(2);
const EVENTS: usize = 50;

/// What the demo does.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// What it runs on.
    pub stage: StageOptions,
    /// How long orders flow.
    pub duration: Duration,
    /// What the leaders meet with, by turns.
    pub faults: Vec<Fault>,
    /// From one fault to the next; `None`: there is none.
    pub fault_every: Option<Duration>,
}

/// What a replica is doing, as far as one can see from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It answers: its role and its term.
    Up {
        /// `leader`, `follower`, `candidate` or `learner`.
        role: String,
        /// The Raft term.
        term: u64,
    },
    /// Its process runs and does not answer (yet).
    Silent,
    /// Its process was killed.
    Killed,
}

/// A moment of the run.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What is going on, in a few words.
    pub phase: &'static str,
    /// Since the orders began to flow.
    pub elapsed: Duration,
    /// Every replica's state by number.
    pub nodes: BTreeMap<u16, NodeState>,
    /// How long the curve stood still, by the kind of fault.
    pub times: BTreeMap<Fault, Vec<Duration>>,
    /// What the checker found so far.
    pub verdict: Verdict,
    /// Orders written so far.
    pub orders: u64,
    /// The curve and the newest rows.
    pub picture: Picture,
    /// The time on the orders' clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// What happened, with the time since the start, the newest last; numbered from the first.
    pub events: VecDeque<(u64, Duration, String)>,
    /// When leaders were killed or made unfit, on the orders' clock.
    pub fault_times: Vec<i64>,
    /// Nodes whose process was killed and not started again yet.
    pub killed: BTreeSet<u16>,
    /// How many events there were in all.
    pub events_count: u64,
}

/// Shows the run to a view.
pub type SharedProgress = Arc<Mutex<Progress>>;

/// A copy of the current progress.
#[must_use]
pub fn snapshot(progress: &SharedProgress) -> Progress {
    progress
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Runs the whole demo. It ends early, with a verdict, when `stop` becomes true.
///
/// # Errors
/// What could not be started, a replica that crashed, or a leader that nobody succeeded within 30 seconds.
pub async fn run(
    options: &RunOptions,
    progress: &SharedProgress,
    stop: watch::Receiver<bool>,
) -> Result<Report> {
    let mut run = Run {
        progress: Arc::clone(progress),
        stop,
        started: Instant::now(),
    };
    run.update(|progress| progress.phase = "starting three replicas");
    let stage = Stage::start(&options.stage).await?;
    run.started = Instant::now();
    run.event("three replicas are up, orders are flowing".into());
    run.update(|progress| progress.phase = "running");
    let addresses = stage.cluster.addresses();
    let look = look(
        Arc::clone(progress),
        stage.sight(),
        addresses,
        http::client()?,
        run.started,
    );
    let _looking = EndsWithRun(tokio::spawn(look));
    let checker = Some(stage.live_checker()?);
    let mut drive = Drive {
        stage,
        checker,
        down: None,
        next_check: Instant::now(),
        faults: VecDeque::new(),
    };
    run.choose_faults(options, &mut drive);
    run.drive(options, &mut drive).await?;
    run.update(|progress| progress.killed.clear());
    run.update(|progress| progress.phase = "waiting for the last windows, then comparing all");
    run.event("the orders have ended; comparing all rows with the input".into());
    let report = drive.stage.finish().await?;
    run.update(|progress| progress.verdict = report.verdict.clone());
    Ok(report)
}

fn show(progress: &SharedProgress, change: impl FnOnce(&mut Progress)) {
    change(&mut progress.lock().unwrap_or_else(PoisonError::into_inner));
}

struct Run {
    progress: SharedProgress,
    stop: watch::Receiver<bool>,
    started: Instant,
}

struct Drive {
    stage: Stage,
    /// `None` while a check is under way.
    checker: Option<LiveChecker>,
    /// The killed node, and when it is to be started again.
    down: Option<(u16, Instant)>,
    next_check: Instant,
    /// The next one first.
    faults: VecDeque<Fault>,
}

impl Run {
    fn update(&self, change: impl FnOnce(&mut Progress)) {
        show(&self.progress, change);
    }

    fn event(&self, text: String) {
        let elapsed = self.started.elapsed();
        self.update(|progress| {
            progress
                .events
                .push_back((progress.events_count, elapsed, text));
            progress.events_count += 1;
            while progress.events.len() > EVENTS {
                progress.events.pop_front();
            }
        });
    }

    /// Leaves out what cannot be dealt here, and says so.
    fn choose_faults(&self, options: &RunOptions, drive: &mut Drive) {
        for &fault in &options.faults {
            match drive.stage.obstacle(fault) {
                Some(obstacle) => self.event(format!("no fault {}: {obstacle}", fault.name())),
                None => drive.faults.push_back(fault),
            }
        }
    }

    async fn drive(&self, options: &RunOptions, drive: &mut Drive) -> Result<()> {
        let end = self.started + options.duration;
        let mut next_fault = options.fault_every.map(|every| self.started + every);
        while Instant::now() < end && !*self.stop.borrow() {
            drive.stage.cluster.ensure_none_crashed()?;
            self.restart_when_due(drive).await?;
            // A kill in the last moment would not leave time to see its succession.
            let due = next_fault.filter(|&at| at <= Instant::now() && at + MARGIN < end);
            if let (Some(due), None) = (due, drive.down) {
                self.deal(drive).await?;
                // A fault may take longer than the time between two.
                next_fault = options
                    .fault_every
                    .map(|every| (due + every).max(Instant::now() + every / 2));
            }
            if drive.next_check <= Instant::now() {
                self.check_live(drive).await?;
                drive.next_check = Instant::now() + CHECK_EVERY;
            }
            tokio::time::sleep(STEP).await;
        }
        Ok(())
    }

    async fn deal(&self, drive: &mut Drive) -> Result<()> {
        let Some(fault) = drive.faults.pop_front() else {
            return Ok(());
        };
        drive.faults.push_back(fault);
        match fault {
            Fault::Kill => self.kill_leader(drive).await?,
            _ => self.make_unfit(drive, fault).await?,
        }
        let times = drive.stage.times().clone();
        self.update(|progress| progress.times = times);
        Ok(())
    }

    async fn make_unfit(&self, drive: &mut Drive, fault: Fault) -> Result<()> {
        let now_ms = drive.stage.sight().now_ms();
        self.update(|progress| progress.fault_times.push(now_ms));
        self.event(format!("a leader {}", fault.words()));
        let unfit = drive.stage.make_unfit(fault).await?;
        let (leader, millis) = (unfit.leader, unfit.time.as_millis());
        let leads = match unfit.next == leader {
            true => String::new(),
            false => format!(", replica {} leads", unfit.next),
        };
        let words = fault.words();
        self.event(format!(
            "replica {leader} {words}: {millis} ms without a row{leads}"
        ));
        Ok(())
    }

    async fn kill_leader(&self, drive: &mut Drive) -> Result<()> {
        // Kills at even times would always meet the windows and ticks at the same point.
        let jitter = Duration::from_millis(rand::rng().random_range(0..200));
        tokio::time::sleep(jitter).await;
        let leader = drive.stage.cluster.wait_leader().await?;
        let now_ms = drive.stage.sight().now_ms();
        self.update(|progress| {
            progress.killed.insert(leader);
            progress.fault_times.push(now_ms);
        });
        let takeover = drive.stage.kill_timed(leader).await?;
        let millis = takeover.time.as_millis();
        self.event(format!(
            "killed the leader, replica {leader}: next row after {millis} ms"
        ));
        drive.down = Some((leader, Instant::now() + DOWN_FOR));
        Ok(())
    }

    /// The node counts as down until it has caught up: with two down of three there is no majority.
    async fn restart_when_due(&self, drive: &mut Drive) -> Result<()> {
        let Some((number, at)) = drive.down else {
            return Ok(());
        };
        if at > Instant::now() {
            return Ok(());
        }
        drive.stage.cluster.restart(number)?;
        self.update(|progress| {
            progress.killed.remove(&number);
        });
        let starting = Instant::now();
        drive.stage.cluster.wait_ready().await?;
        let millis = starting.elapsed().as_millis();
        self.event(format!(
            "replica {number} is back and has caught up after {millis} ms"
        ));
        drive.down = None;
        Ok(())
    }

    async fn check_live(&self, drive: &mut Drive) -> Result<()> {
        let Some(mut checker) = drive.checker.take() else {
            return Ok(());
        };
        let copies = drive.stage.copies();
        let checked = tokio::task::spawn_blocking(move || {
            let verdict = checker.check(&copies);
            (checker, verdict)
        });
        let (checker, verdict) = checked.await.context("the checker panicked")?;
        drive.checker = Some(checker);
        let verdict = verdict?;
        self.update(|progress| progress.verdict = verdict);
        Ok(())
    }
}

/// Ends the looking when the run ends, in whatever way.
struct EndsWithRun(JoinHandle<()>);

impl Drop for EndsWithRun {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps the view fresh, also while the run waits for a succession.
async fn look(
    progress: SharedProgress,
    sight: Sight,
    addresses: BTreeMap<u16, String>,
    client: reqwest::Client,
    started: Instant,
) {
    loop {
        let mut views = BTreeMap::new();
        for (&number, address) in &addresses {
            let asked = http::cluster_view(&client, address);
            // A frozen replica must not hold up the view.
            let view = tokio::time::timeout(LOOK_EVERY, asked).await;
            views.insert(number, view.ok().and_then(Result::ok));
        }
        let (orders, picture, now_ms) = (sight.orders(), sight.picture(), sight.now_ms());
        let elapsed = started.elapsed();
        show(&progress, |shown| {
            let killed = shown.killed.clone();
            let state = |(number, view): (u16, Option<ClusterView>)| {
                let state = match view {
                    _ if killed.contains(&number) => NodeState::Killed,
                    Some(view) => NodeState::Up {
                        role: view.role,
                        term: view.term,
                    },
                    None => NodeState::Silent,
                };
                (number, state)
            };
            shown.nodes = views.into_iter().map(state).collect();
            (shown.orders, shown.picture, shown.now_ms) = (orders, picture, now_ms);
            shown.elapsed = elapsed;
        });
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
