//! The thread that makes the log durable. It writes whatever is waiting as one commit, so that a slow
//! disk makes larger groups and not a longer queue, and never blocks the Raft runtime.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use openraft::storage::IOFlushed;
use redb::{Database, Durability};
use tokio::sync::{oneshot, watch};

use super::Shared;
use super::database;
use crate::raft::types::{LogId, TypeConfig, Vote};

/// How long a committed mark may wait for company: without it a restart only applies a little less.
const COMMITTED_WAIT: Duration = Duration::from_millis(200);
const GROUP_LIMIT: usize = 1024;

/// One thing to be written; they take effect in the order sent.
pub(super) enum Operation {
    Append {
        sequence: u64,
        entries: Vec<(u64, Vec<u8>)>,
        flushed: IOFlushed<TypeConfig>,
    },
    TruncateFrom {
        first: u64,
    },
    Purge {
        upto: LogId,
    },
    Vote {
        vote: Vote,
        done: oneshot::Sender<io::Result<()>>,
    },
    Committed {
        committed: LogId,
    },
    Close,
}

pub(super) struct Writer {
    pub path: PathBuf,
    pub database: Arc<Database>,
    pub operations: Receiver<Operation>,
    pub shared: Arc<Shared>,
    pub fatal: watch::Sender<Option<String>>,
}

impl Writer {
    /// Runs until `Close` or until nobody can send any more.
    pub(super) fn run(self) {
        let mut committed: Option<LogId> = None;
        let mut failed = false;
        loop {
            let (group, open) = self.next_group(committed.is_some());
            if let Some(last) = last_committed(&group) {
                committed = Some(last);
            }
            let only_committed = group
                .iter()
                .all(|operation| matches!(operation, Operation::Committed { .. }));
            // A committed mark alone waits for the next append; it costs no write of its own.
            if only_committed && !group.is_empty() && open {
                continue;
            }
            let durability = if only_committed && open {
                Durability::None
            } else {
                Durability::Immediate
            };
            if !failed && (!group.is_empty() || committed.is_some()) {
                let mark = committed.take();
                let result = database::write(&self.database, &group, mark.as_ref(), durability);
                failed = self.report(group, result);
            } else {
                answer(group, failed.then(|| self.refusal()));
            }
            if !open {
                break;
            }
        }
        self.shared.close();
    }

    /// Waits for one operation and takes what else is waiting; `false` when it is time to end.
    fn next_group(&self, committed_waits: bool) -> (Vec<Operation>, bool) {
        let first = if committed_waits {
            match self.operations.recv_timeout(COMMITTED_WAIT) {
                Ok(operation) => operation,
                Err(RecvTimeoutError::Timeout) => return (Vec::new(), true),
                Err(RecvTimeoutError::Disconnected) => return (Vec::new(), false),
            }
        } else {
            match self.operations.recv() {
                Ok(operation) => operation,
                Err(_) => return (Vec::new(), false),
            }
        };
        let mut group = Vec::new();
        let mut next = Some(first);
        while let Some(operation) = next {
            if matches!(operation, Operation::Close) {
                return (group, false);
            }
            group.push(operation);
            next = if group.len() < GROUP_LIMIT {
                self.operations.try_recv().ok()
            } else {
                None
            };
        }
        (group, true)
    }

    /// Tells everybody who waits; returns whether the disk failed.
    fn report(&self, group: Vec<Operation>, result: io::Result<()>) -> bool {
        let sequence = group.iter().filter_map(|operation| match operation {
            Operation::Append { sequence, .. } => Some(*sequence),
            _ => None,
        });
        match result {
            Ok(()) => {
                if let Some(sequence) = sequence.max() {
                    self.shared.written(sequence);
                }
                answer(group, None);
                false
            }
            Err(error) => {
                let text = format!(
                    "cannot write {}: {error}; free space or repair the disk, then start again",
                    self.path.display()
                );
                answer(group, Some(io::Error::new(error.kind(), text.clone())));
                self.fatal.send_if_modified(|fatal| {
                    let first = fatal.is_none();
                    fatal.get_or_insert(text);
                    first
                });
                true
            }
        }
    }

    fn refusal(&self) -> io::Error {
        io::Error::other(format!("{} failed before", self.path.display()))
    }
}

fn last_committed(group: &[Operation]) -> Option<LogId> {
    group.iter().rev().find_map(|operation| match operation {
        Operation::Committed { committed } => Some(*committed),
        _ => None,
    })
}

fn answer(group: Vec<Operation>, error: Option<io::Error>) {
    let result = || match &error {
        Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
        None => Ok(()),
    };
    for operation in group {
        match operation {
            Operation::Append { flushed, .. } => flushed.io_completed(result()),
            // Nobody listens any more if Raft is shutting down.
            Operation::Vote { done, .. } => drop(done.send(result())),
            _ => {}
        }
    }
}
