//! A simulation: an executor of one thread whose time is its own, and which draws all chance from one seed.
//!
//! Everything of a run lives on one thread of the system; several runs go on several threads. A task belongs to the node whose
//! task spawned it; node 0 is the world (faults, clients, checks). A node can be paused (its tasks stand still, time goes on)
//! and killed (its tasks are dropped as they stand).
//!
//! The same seed gives the same run: tasks that were woken run in an order that only the seed decides, whoever woke them
//! first. tokio's channels may wake their waiters in any order.
//!
//! After the spike of an executor as openraft's `AsyncRuntime`; tokio's paused time, turmoil and madsim were tried and are not
//! repeatable, or too old.

mod disk;
mod join;
mod net;
mod thread;
mod timer;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};

pub use disk::Disk;
pub use join::{Ended, JoinHandle};
pub(super) use net::connect;
pub use net::{Conditions, Listener, Network, listen};
pub use thread::{SimulatedThread, Waiters, block_on, spawn_thread_on};
pub(super) use thread::{lock, spawn_blocking, spawn_thread};
pub use timer::Sleep;
use timer::Timers;

/// A simulated machine's number; 0 is the world.
pub type Node = usize;
/// The tasks that are no node's.
pub const WORLD: Node = 0;

/// The wall clock at the beginning, since 1970: 2026-01-01.
const BEGIN: Duration = Duration::from_secs(1_767_225_600);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Slot {
    /// Absent while it is polled.
    work: Option<Work>,
    waker: Arc<TaskWaker>,
    node: Node,
}

struct TaskWaker {
    id: usize,
    dead: AtomicBool,
    woken: Arc<Mutex<BTreeSet<usize>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.dead.load(Ordering::Relaxed) {
            let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            woken.insert(self.id);
        }
    }
}

/// One run.
struct Run {
    begin: Instant,
    /// Since `begin`, in nanoseconds.
    now: Cell<u64>,
    /// Whose task runs.
    current: Cell<Node>,
    /// Destructors of a killed node's tasks run: they start nothing.
    dying: Cell<bool>,
    tasks: RefCell<Vec<Option<Slot>>>,
    free: RefCell<Vec<usize>>,
    woken: Arc<Mutex<BTreeSet<usize>>>,
    /// What runs in this round.
    round: RefCell<Vec<usize>>,
    nodes: RefCell<Vec<NodeState>>,
    timers: RefCell<Timers>,
    network: RefCell<Network>,
    chance: RefCell<SmallRng>,
    trace: Cell<u64>,
    polls: Cell<u64>,
}

#[derive(Default)]
struct NodeState {
    paused: bool,
    /// Tasks that were woken while it was paused.
    parked: BTreeSet<usize>,
    /// How far its wall clock is from the world's, in milliseconds.
    wall_ms: i64,
}

thread_local! {
    static RUN: RefCell<Option<std::rc::Rc<Run>>> = const { RefCell::new(None) };
}

fn run() -> Option<std::rc::Rc<Run>> {
    // Not at the thread's end, when destructors of other locals may ask.
    RUN.try_with(|run| run.borrow().clone()).ok().flatten()
}

fn with<T>(look: impl FnOnce(&Run) -> T) -> T {
    look(&run().expect("only a simulation's tasks ask"))
}

/// Whether a simulation runs on this thread.
#[must_use]
pub fn is_active() -> bool {
    run().is_some()
}

pub(super) fn now() -> Option<Instant> {
    Some(run()?.instant())
}

pub(super) fn wall() -> Option<Duration> {
    let run = run()?;
    let offset = run.nodes.borrow()[run.current.get()].wall_ms;
    let wall = BEGIN + Duration::from_nanos(run.now.get());
    let offset_by = Duration::from_millis(offset.unsigned_abs());
    Some(match offset < 0 {
        true => wall.saturating_sub(offset_by),
        false => wall + offset_by,
    })
}

pub(super) fn random() -> Option<u64> {
    Some(run()?.chance.borrow_mut().next_u64())
}

pub(super) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    spawn_on(with(|run| run.current.get()), future)
}

pub(super) fn sleep(duration: Duration) -> Sleep {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    Sleep::until(with(|run| run.now.get()).saturating_add(nanos))
}

/// How much simulated time has passed.
#[must_use]
pub fn elapsed() -> Duration {
    Duration::from_nanos(with(|run| run.now.get()))
}

/// Whose task this is.
#[must_use]
pub fn current_node() -> Node {
    with(|run| run.current.get())
}

/// Draws a number from `range`.
#[must_use]
pub fn between(range: std::ops::Range<u64>) -> u64 {
    with(|run| run.chance.borrow_mut().random_range(range))
}

/// True in `percent` of all cases.
#[must_use]
pub fn chance(percent: u64) -> bool {
    between(0..100) < percent
}

/// A sum over all that has happened, and the number of times that a task ran.
#[must_use]
pub fn traced() -> (u64, u64) {
    with(|run| (run.trace.get(), run.polls.get()))
}

/// Sets how far a node's wall clock is from the world's.
pub fn set_wall(node: Node, offset_ms: i64) {
    with(|run| run.nodes.borrow_mut()[node].wall_ms = offset_ms);
}

/// A node's tasks stand still, until [`resume`]. Time goes on for it.
pub fn pause(node: Node) {
    with(|run| run.nodes.borrow_mut()[node].paused = true);
}

/// They go on.
pub fn resume(node: Node) {
    with(|run| {
        let mut nodes = run.nodes.borrow_mut();
        nodes[node].paused = false;
        let parked = std::mem::take(&mut nodes[node].parked);
        run.woken().extend(parked);
    });
}

/// Drops all tasks of a node as they stand. Who was connected to it learns so, as of a process that has ended.
pub fn kill(node: Node) {
    resume(node);
    with(|run| run.kill(node));
}

/// Runs `future` as a task of `node`.
pub fn spawn_on<F>(node: Node, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (handle, work) = join::joined(future);
    with(|run| run.add(node, Box::pin(work)));
    handle
}

/// Network conditions may be changed between nodes.
pub fn network(change: impl FnOnce(&mut Network)) {
    with(|run| change(&mut run.network.borrow_mut()));
}

/// Runs `world` to its end, on `nodes` nodes, from nothing.
///
/// # Panics
/// A task has panicked, or none can ever go on.
pub fn simulate<T: Send + 'static>(
    seed: u64,
    nodes: usize,
    world: impl Future<Output = T> + Send + 'static,
) -> T {
    let fresh = Run::new(seed, nodes);
    RUN.with(|run| *run.borrow_mut() = Some(std::rc::Rc::clone(&fresh)));
    let output: Arc<Mutex<Option<T>>> = Arc::default();
    let slot = Arc::clone(&output);
    spawn_on(WORLD, async move {
        let value = world.await;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    });
    let ended = catch_unwind(AssertUnwindSafe(|| {
        loop {
            let ready = output.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(value) = ready {
                break value;
            }
            assert!(fresh.step(), "no task can go on, and no timer is set");
        }
    }));
    for node in 0..=nodes {
        fresh.kill(node);
    }
    RUN.with(|run| *run.borrow_mut() = None);
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

impl Run {
    fn new(seed: u64, nodes: usize) -> std::rc::Rc<Self> {
        std::rc::Rc::new(Self {
            begin: Instant::now(),
            now: Cell::new(0),
            current: Cell::new(WORLD),
            dying: Cell::new(false),
            tasks: RefCell::default(),
            free: RefCell::default(),
            woken: Arc::default(),
            round: RefCell::default(),
            nodes: RefCell::new((0..=nodes).map(|_| NodeState::default()).collect()),
            timers: RefCell::default(),
            network: RefCell::new(Network::new(nodes)),
            chance: RefCell::new(SmallRng::seed_from_u64(seed)),
            trace: Cell::new(seed),
            polls: Cell::new(0),
        })
    }

    fn instant(&self) -> Instant {
        self.begin + Duration::from_nanos(self.now.get())
    }

    fn woken(&self) -> std::sync::MutexGuard<'_, BTreeSet<usize>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trace(&self, of: u64) {
        let mixed = self.trace.get() ^ of;
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.trace.set(mixed ^ (mixed >> 29));
    }

    fn add(&self, node: Node, work: Work) {
        if self.dying.get() {
            return;
        }
        let mut tasks = self.tasks.borrow_mut();
        let id = self.free.borrow_mut().pop().unwrap_or_else(|| {
            tasks.push(None);
            tasks.len() - 1
        });
        let waker = Arc::new(TaskWaker {
            id,
            dead: AtomicBool::new(false),
            woken: Arc::clone(&self.woken),
        });
        let work = Some(work);
        tasks[id] = Some(Slot { work, waker, node });
        self.woken().insert(id);
    }

    /// Runs one task, or lets time pass until one can run. False: none ever will.
    fn step(&self) -> bool {
        let next = self.round.borrow_mut().pop();
        if let Some(id) = next {
            self.poll(id);
            return true;
        }
        let mut round: Vec<usize> = std::mem::take(&mut *self.woken()).into_iter().collect();
        if round.is_empty() {
            let fired = self.timers.borrow_mut().next();
            return fired.is_some_and(|(at, waker)| {
                self.now.set(self.now.get().max(at));
                waker.wake();
                true
            });
        }
        if round.len() > 1 {
            round.shuffle(&mut *self.chance.borrow_mut());
        }
        *self.round.borrow_mut() = round;
        true
    }

    fn poll(&self, id: usize) {
        let (mut work, waker, node) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(slot) = tasks[id].as_mut() else {
                return;
            };
            let node = &mut self.nodes.borrow_mut()[slot.node];
            if node.paused {
                node.parked.insert(id);
                return;
            }
            let Some(work) = slot.work.take() else {
                return;
            };
            (work, Arc::clone(&slot.waker), slot.node)
        };
        self.trace(((id as u64) << 40) ^ ((node as u64) << 56) ^ self.now.get());
        self.polls.set(self.polls.get() + 1);
        self.current.set(node);
        let as_waker = Waker::from(Arc::clone(&waker));
        let polled = work.as_mut().poll(&mut Context::from_waker(&as_waker));
        // It may have killed its own node.
        let is_over = polled.is_ready() || waker.dead.load(Ordering::Relaxed);
        if is_over {
            drop(work);
        } else if let Some(slot) = self.tasks.borrow_mut()[id].as_mut() {
            slot.work = Some(work);
        }
        if polled.is_ready() && !waker.dead.swap(true, Ordering::Relaxed) {
            self.tasks.borrow_mut()[id] = None;
            self.free.borrow_mut().push(id);
        }
        self.current.set(WORLD);
    }

    fn kill(&self, node: Node) {
        let mut doomed = Vec::new();
        for (id, slot) in self.tasks.borrow_mut().iter_mut().enumerate() {
            if let Some(killed) = slot.take_if(|slot| slot.node == node) {
                killed.waker.dead.store(true, Ordering::Relaxed);
                self.free.borrow_mut().push(id);
                doomed.push(killed);
            }
        }
        let before = (self.current.replace(node), self.dying.replace(true));
        drop(doomed);
        self.current.set(before.0);
        self.dying.set(before.1);
    }
}
