//! Every thread and every long task of the process, in one table: what each does, on what it may block, and what
//! follows if it panics. The same table stands in ARCHITECTURE.md; a test compares them.
//!
//! A panic anywhere ends `unisono serve` at once. A dead process is taken over in milliseconds; one that is half dead
//! would answer heartbeats and publish nothing.

mod end;
#[cfg(feature = "faults")]
mod faults;

use std::io;
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

pub use unisono_replication::rt::thread::Thread;
use unisono_replication::rt::{self, Condvar, Handle};

pub use end::{EXIT_PANIC, end_process_on_panic};
#[cfg(feature = "faults")]
pub use faults::{test_death_in_transaction, test_panic};

tokio::task_local! {
    /// The long task that a runtime's thread is working on.
    static TASK: Role;
}

/// How something runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A thread of its own.
    Thread,
    /// Threads that a runtime starts.
    Pool,
    /// A task on the runtime `tokio`: it must never block.
    Task,
    /// A C library's threads, which run no code of ours.
    Foreign,
}

/// What the table says of a thread or task.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// How it runs.
    pub kind: Kind,
    /// What the system and log lines call it; where there are several, a suffix follows: `feed-3`.
    pub name: &'static str,
    /// What it is there for.
    pub does: &'static str,
    /// On what it may block; for a task, for what it waits.
    pub blocks_on: &'static str,
    /// What follows its panic, after the end of the process.
    pub after_panic: &'static str,
}

macro_rules! roles {
    ($($role:ident $kind:ident $name:literal: $does:literal; blocks on $blocks_on:literal; panic: $after:literal.)+) => {
        /// A thread or long task of the process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Role {
            $(#[doc = $does] $role,)+
        }

        impl Role {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$role,)+];

            /// What the table says of it.
            #[must_use]
            pub const fn entry(self) -> Entry {
                match self {
                    $(Self::$role => Entry {
                        kind: Kind::$kind,
                        name: $name,
                        does: $does,
                        blocks_on: $blocks_on,
                        after_panic: $after,
                    },)+
                }
            }
        }
    };
}

roles! {
    Main Thread "main":
        "starts the parts, waits for a signal or a fatal fault, ends them in order";
        blocks on "the end of other threads, 5 s at most";
        panic: "a restart goes on from disk".
    Driver Thread "driver":
        "reads the agreed log, applies it to the agreed state, hands ticks to feeds";
        blocks on "reads of Raft's log, the install of a peer's checkpoint";
        panic: "a restart reads the log from its checkpoint on".
    Worker Thread "worker":
        "one a core: decodes and folds the records of its lanes";
        blocks on "nothing but the lack of work: a lane whose records have not arrived waits in its buffer";
        panic: "a restart computes the ticks since the checkpoint again and compares".
    Feed Thread "feed":
        "one a feed: hands ticks to the lanes' workers, closes windows, writes rows to the results log";
        blocks on "the lanes of a tick at the barrier, a feed that joins it, the disk of the results log";
        panic: "a restart computes the ticks since the checkpoint again and compares".
    Fetch Thread "fetch":
        "one a source: reads blocks of records into the lanes' buffers";
        blocks on "its signal, the disk where lanes are files";
        panic: "a restart reads from the checkpoint's cuts on".
    Survey Thread "survey":
        "one a source: looks which lanes there are, which are new and which are gone";
        blocks on "the source, the close of its clients";
        panic: "as for fetch".
    KafkaEnds Thread "kafka-ends":
        "one a Kafka source that librdkafka reads: asks the brokers for the ends of the partitions";
        blocks on "a broker's answer";
        panic: "as for fetch".
    KafkaRead Thread "kafka-read":
        "one a Kafka source: its connections, what they fetch, where partitions are led";
        blocks on "nothing but its connections, all at once";
        panic: "as for fetch".
    Sink Thread "sink":
        "one a sink: fences, reads the frontier back, publishes while this node leads";
        blocks on "the sink, the quorum's answer, the disk of the results log";
        panic: "a peer fences the sink and goes on from its frontier".
    KafkaTokens Thread "kafka-tokens":
        "gives tokens to librdkafka's clients, where brokers ask for OAUTHBEARER";
        blocks on "nothing but the token endpoints, all at once";
        panic: "as for sink".
    KafkaWarm Thread "kafka-warm":
        "connects spare producers, then ends";
        blocks on "a broker's answer";
        panic: "as for sink".
    KafkaRetire Thread "kafka-retire":
        "destroys a producer, then ends";
        blocks on "the client library";
        panic: "as for sink".
    Librdkafka Foreign "rdk":
        "the Kafka client's own: one for each broker and each handle";
        blocks on "the network";
        panic: "a fault there is a signal; a restart goes on from disk".
    Raft Pool "raft":
        "Raft's runtime: heartbeats, votes, replication, checkpoints on their way";
        blocks on "nothing; files are read on its blocking threads";
        panic: "a restart goes on with the log and the vote on disk".
    RaftLog Thread "raft-log":
        "writes Raft's log and vote";
        blocks on "the disk";
        panic: "what was not acknowledged is not counted".
    Proposer Thread "proposer":
        "makes ticks and creates feeds and pipelines while this node leads";
        blocks on "the read-back of its proposal, a source's list of lanes";
        panic: "the next leader builds on the last accepted tick".
    Confirm Thread "confirm":
        "tells the leader which records are held here and which rows were computed";
        blocks on "the agreed state's lock, reads of the results log";
        panic: "the leader goes on with another replica's word".
    Tokio Pool "tokio":
        "the node's runtime: the tasks below, and blocking calls such as HTTP queries";
        blocks on "its blocking threads on the results log, a source's list of lanes, the agreed state's lock";
        panic: "as for the task".
    Lines Task "lines":
        "one a peer, of the proposer, of each sink and of fitness: asks the peer what it holds and has computed";
        blocks on "the peer's answer";
        panic: "the next leader asks".
    Sinks Task "sinks":
        "starts a thread for each agreed sink";
        blocks on "news of the agreed state";
        panic: "a restart starts them".
    Frontiers Task "frontiers":
        "copies the sinks' frontiers into the agreed log while this node leads";
        blocks on "the read-back of its proposal";
        panic: "the next leader copies them".
    Checkpoints Task "checkpoints":
        "asks for a checkpoint each interval, and peers for the state of a feed that does not move here";
        blocks on "the checkpoint, a peer's answer";
        panic: "the last whole checkpoint is used".
    Doubts Task "doubts":
        "compares rows with those of others where nobody asked, and sees to feeds whose rows differ";
        blocks on "a peer's answer, the disk, the driver";
        panic: "a restart compares all again".
    Backfill Task "backfill":
        "copies older rows from peers";
        blocks on "a peer's answer, the disk";
        panic: "a restart goes on with what is missing".
    Status Task "status":
        "tells the peers how far this node has read";
        blocks on "nothing";
        panic: "peers believe what was told for 2 s".
    Fitness Task "fitness":
        "gives the lead to a fitter replica";
        blocks on "a hand-over, 2 s at most";
        panic: "a restart looks again".
    Leaders Task "leaders":
        "logs who leads";
        blocks on "news of Raft";
        panic: "a restart logs on".
    Faults Task "faults":
        "ends the process when Raft cannot go on";
        blocks on "news of Raft";
        panic: "the process ends as it was to".
    Http Task "http":
        "serves queries, status and metrics";
        blocks on "clients, its blocking calls";
        panic: "clients ask another replica".
    End Thread "end":
        "after a panic: ends the process if the message about it cannot be written";
        blocks on "nothing";
        panic: "the panicked thread ends the process".
}

impl Role {
    /// The name of one of several.
    fn name_of(self, one: Option<&str>) -> String {
        let name = self.entry().name;
        one.map_or_else(|| name.to_owned(), |one| format!("{name}-{one}"))
    }
}

/// Starts a thread; `one` tells it from others of its role.
///
/// # Errors
/// The system has no thread left.
pub fn spawn(
    role: Role,
    one: Option<&str>,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<Thread> {
    rt::thread::spawn(role.name_of(one), run)
}

/// Starts a long task on the node's runtime.
pub fn spawn_task(role: Role, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
    // Nobody waits for its end: it ends with the runtime, or by a panic with the process.
    runtime.spawn(TASK.scope(role, task));
}

/// The runtime of the node's tasks.
///
/// # Errors
/// The system has no thread left.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(Role::Tokio.entry().name)
        .enable_all()
        .build()
}

/// Where a test asks for it, panics in this thread or task; see `UNISONO_PANIC` in the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline]
pub const fn test_panic(_role: Role) {}

/// Where a test asks for it, kills this process; see `UNISONO_DIE_IN_TRANSACTION` in the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline]
pub const fn test_death_in_transaction() {}

const NOBODY: &str = "nobody goes on after the panic of a thread that held a lock";

/// Locks. Nobody finds a poisoned lock in `serve`: the process has ended. Elsewhere the panic goes on here.
///
/// # Panics
/// A thread panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    rt::thread::lock(mutex).expect(NOBODY)
}

/// Waits on a condition variable for as long as `condition` holds.
///
/// # Panics
/// As [`lock`].
pub fn wait_while<'a, T>(
    (condvar, mutex): (&Condvar, &'a Mutex<T>),
    guard: MutexGuard<'a, T>,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    condvar.wait_while(mutex, guard, condition).expect(NOBODY)
}

/// As [`wait_while`], at most `timeout`.
///
/// # Panics
/// As [`lock`].
pub fn wait_timeout_while<'a, T>(
    (condvar, mutex): (&Condvar, &'a Mutex<T>),
    guard: MutexGuard<'a, T>,
    timeout: Duration,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let waited = condvar.wait_timeout_while(mutex, guard, timeout, condition);
    waited.expect(NOBODY)
}

/// As [`lock`], to read.
///
/// # Panics
/// A thread panicked while it held the lock.
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().expect(NOBODY)
}

/// As [`lock`], to write.
///
/// # Panics
/// A thread panicked while it held the lock.
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().expect(NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_have_the_same_name() {
        for (index, role) in Role::ALL.iter().enumerate() {
            let same = |other: &Role| other.entry().name == role.entry().name;
            assert_eq!(Role::ALL.iter().position(same), Some(index), "{role:?}");
        }
    }

    #[test]
    fn names_fit_the_system() {
        for role in Role::ALL {
            assert!(role.entry().name.len() <= 15, "{role:?}");
        }
    }
}
