//! The log on a simulated disk.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use chunked_wal::Callback;
use tokio::sync::watch;

use super::index::{Index, Place};
use super::record::{Marks, Record};
use super::state::State;
use super::writer::{Core, Files, Flushed};
use super::{LogStore, Shared, User};
use crate::identity::new_node_id;
use crate::raft::types::{Entry, decode};
use crate::rt;
use crate::rt::simulated::Disk;

impl LogStore {
    /// Opens what a process before has left on the disk.
    pub(crate) fn simulate(
        disk: &Disk,
        number: u16,
        fatal: watch::Sender<Option<String>>,
    ) -> LogStore {
        let mut marks = Marks {
            node_id: disk.identity(|| new_node_id(number)),
            ..Marks::default()
        };
        let mut index = Index::default();
        let mut start = 0;
        while let Some(bytes) = disk.read(start) {
            let record: Record = decode(&bytes).expect("it was encoded here");
            let change = record.change();
            marks.pass(&change);
            index.pass(&change, place(start, bytes.len()));
            start += 1;
        }
        let node_id = marks.node_id;
        let shared = Shared {
            folder: PathBuf::new(),
            state: Mutex::new(State {
                last: marks.last,
                purged: marks.purged,
                committed: marks.committed,
                vote: marks.vote,
                index,
                ..State::default()
            }),
            core: Mutex::new(Some(Core {
                files: Files::Simulated(disk.clone()),
                marks,
            })),
            idle: Condvar::new(),
            fatal,
            simulated: Some(disk.clone()),
        };
        LogStore {
            node_id,
            user: Arc::new(User(Arc::new(shared))),
        }
    }
}

fn place(start: u64, length: usize) -> Place {
    Place {
        chunk: 0,
        start,
        length: u32::try_from(length).unwrap_or(u32::MAX),
    }
}

pub(super) fn append(disk: &Disk, bytes: Vec<u8>) -> Place {
    let length = bytes.len();
    place(disk.append(bytes), length)
}

pub(super) fn sync(disk: &Disk, flushed: Flushed) {
    let disk = disk.clone();
    rt::spawn(async move {
        disk.sync().await;
        flushed.send(Ok(()));
    });
}

pub(super) fn read(disk: &Disk, places: &[Place]) -> io::Result<Vec<Entry>> {
    let read = |place: &Place| {
        let bytes = disk.read(place.start).ok_or(io::ErrorKind::NotFound)?;
        match decode(&bytes)? {
            Record::Entry(entry) => Ok(entry),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    };
    places.iter().map(read).collect()
}
