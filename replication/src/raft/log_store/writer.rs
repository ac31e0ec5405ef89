//! The thread that makes the log durable. It writes whatever is waiting as one commit, so that a slow
//! disk makes larger groups and not a longer queue, and never blocks the Raft runtime.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use openraft::storage::IOFlushed;
use redb::Database;
use tokio::sync::{oneshot, watch};

use super::Shared;
use super::database;
use crate::raft::types::{LogId, TypeConfig, Vote};

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
    Close,
}

pub(super) struct Writer {
    pub path: PathBuf,
    pub database: Arc<Database>,
    pub operations: Receiver<Operation>,
    pub shared: Arc<Shared>,
    /// Index of the last entry that is written.
    pub last: Option<u64>,
    pub fatal: watch::Sender<Option<String>>,
}

impl Writer {
    /// Runs until `Close` or until nobody can send any more.
    pub(super) fn run(mut self) {
        let mut marked: Option<LogId> = None;
        let mut failed = false;
        loop {
            let (group, open) = self.next_group();
            self.pass(&group);
            let committed = self.committed().filter(|&mark| marked != Some(mark));
            if !failed && (!group.is_empty() || committed.is_some()) {
                let result = database::write(&self.database, &group, committed.as_ref());
                failed = self.report(group, result);
                marked = committed.or(marked);
            } else {
                answer(group, failed.then(|| self.refusal()));
            }
            if !open {
                break;
            }
        }
        self.shared.close();
    }

    /// How far the log reaches when `group` is written.
    fn pass(&mut self, group: &[Operation]) {
        for operation in group {
            match operation {
                Operation::Append { entries, .. } => {
                    self.last = entries.last().map(|(index, _)| *index).or(self.last);
                }
                Operation::TruncateFrom { first } => self.last = first.checked_sub(1),
                Operation::Purge { upto } => self.last = self.last.max(Some(upto.index)),
                Operation::Vote { .. } | Operation::Close => {}
            }
        }
    }

    /// The committed mark. It goes with whatever is written, and wakes nobody: without the newest one a restart only
    /// applies a little less. It never goes beyond the entries that are on this disk.
    fn committed(&self) -> Option<LogId> {
        let committed = self.shared.lock().committed;
        committed.filter(|committed| Some(committed.index) <= self.last)
    }

    /// Waits for one operation and takes what else is waiting; `false` when it is time to end.
    fn next_group(&self) -> (Vec<Operation>, bool) {
        let Ok(first) = self.operations.recv() else {
            return (Vec::new(), false);
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
