//! Workers: as many threads as the node has cores, each with lanes of its own. Whoever decodes a record folds it: what a
//! worker takes from its lanes' buffers crosses no other thread.
//!
//! A worker never blocks on a lane: a tick whose records have not arrived is left where it is, and the lane's buffer wakes
//! the worker when they have. A big tick is folded block by block, by turns with the worker's other lanes.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use unisono_replication::rt::Condvar;

use super::fold::{FoldLane, Turn};

use crate::threads::{Role, Thread, lock, spawn, test_panic, wait_while};

/// All workers of a node; dropping it ends them.
pub struct Workers {
    workers: Vec<Arc<Worker>>,
    threads: Vec<Thread>,
}

/// One worker, as its lanes know it.
#[derive(Default)]
pub struct Worker {
    queue: Mutex<Queue>,
    ready: Condvar,
    lanes: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    lanes: VecDeque<Arc<FoldLane>>,
    stop: bool,
}

impl Workers {
    /// Starts `count` workers, at least one.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(count: usize) -> io::Result<Self> {
        let workers: Vec<Arc<Worker>> = (0..count.max(1)).map(|_| Arc::default()).collect();
        let mut threads = Vec::with_capacity(workers.len());
        for (number, worker) in workers.iter().enumerate() {
            let worker = Arc::clone(worker);
            let name = number.to_string();
            threads.push(spawn(Role::Worker, Some(&name), move || worker.run())?);
        }
        Ok(Self { workers, threads })
    }

    /// The worker with the fewest lanes, which gets one more.
    #[must_use]
    pub fn assign(&self) -> Arc<Worker> {
        let lanes = |worker: &&Arc<Worker>| worker.lanes.load(Ordering::Relaxed);
        // There is at least one.
        let worker = self.workers.iter().min_by_key(lanes);
        let worker = worker.map_or_else(Arc::default, Arc::clone);
        worker.lanes.fetch_add(1, Ordering::Relaxed);
        worker
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.lock().stop = true;
            worker.ready.notify_one();
        }
        for thread in self.threads.drain(..) {
            // A panic has ended the process already.
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// A lane has something to do.
    pub(super) fn push(&self, lane: Arc<FoldLane>) {
        let mut queue = self.lock();
        queue.lanes.push_back(lane);
        drop(queue);
        self.ready.notify_one();
    }

    /// One of its lanes is gone.
    pub(super) fn leave(&self) {
        self.lanes.fetch_sub(1, Ordering::Relaxed);
    }

    fn next(&self) -> Option<Arc<FoldLane>> {
        let queue = self.lock();
        let idle = |queue: &mut Queue| queue.lanes.is_empty() && !queue.stop;
        let mut queue = wait_while((&self.ready, &self.queue), queue, idle);
        if queue.stop {
            return None;
        }
        queue.lanes.pop_front()
    }

    fn run(&self) {
        while let Some(lane) = self.next() {
            test_panic(Role::Worker);
            if lane.turn() == Turn::GoesOn {
                self.push(lane);
            }
        }
    }
}
