//! Records that wait to be judged.

use std::collections::BTreeMap;

use super::{Id, LentWaiting};
use crate::share::Shared;
use crate::spec::Timestamp;
use crate::window::PaneKey;

/// A record that waits: 48 bytes, and those of what it holds for its values.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: Id,
    pub(crate) time: i64,
    pub(crate) offset: i64,
    /// Where in `held` its fields begin.
    start: usize,
    /// Of its lane's dictionary, which it holds.
    pub(crate) group: u32,
    len: u32,
}

/// The records of one pane on one lane, in the order of the lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    entries: Vec<Entry>,
    held: Vec<u8>,
}

impl Waiting {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What a record holds for its values: see [`super::held`].
    pub(crate) fn held(&self, entry: &Entry) -> &[u8] {
        let held = self.held.get(entry.start..).unwrap_or(&[]);
        held.get(..entry.len as usize).unwrap_or(&[])
    }

    /// Adds a record; `hold` appends what it holds.
    pub(crate) fn push(
        &mut self,
        id: Id,
        (time, offset): (Timestamp, i64),
        group: u32,
        hold: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.held.len();
        hold(&mut self.held);
        // A record is far below 4 GiB.
        let len = u32::try_from(self.held.len().saturating_sub(start)).unwrap_or(u32::MAX);
        self.entries.push(Entry {
            id,
            time: time.0,
            offset,
            start,
            group,
            len,
        });
    }

    fn memory(&self) -> usize {
        let entries = self.entries.capacity();
        let entries = entries.saturating_mul(size_of::<Entry>());
        entries.saturating_add(self.held.capacity())
    }
}

/// All that waits of one pipeline on one lane.
#[derive(Debug, Default)]
pub(crate) struct WaitingStore {
    panes: BTreeMap<PaneKey, Shared<Waiting>>,
    records: u64,
}

impl WaitingStore {
    /// The pane's records, to which one more comes.
    pub(crate) fn pane(&mut self, key: PaneKey) -> &mut Waiting {
        self.records = self.records.saturating_add(1);
        self.panes.entry(key).or_default().get_mut()
    }

    /// Takes those whose first window ends at or before `to`.
    pub(crate) fn take_through(&mut self, to: Timestamp) -> Vec<LentWaiting> {
        let is_due = |key: &PaneKey| key.first_end <= to.0;
        let due: Vec<PaneKey> = self.panes.keys().copied().filter(is_due).collect();
        let panes = due.into_iter().filter_map(|key| {
            let waiting = self.panes.remove(&key)?.give_away();
            self.records = self.records.saturating_sub(waiting.entries.len() as u64);
            Some((key, waiting))
        });
        panes.collect()
    }

    /// All for a reader.
    pub(crate) fn lend(&mut self) -> Vec<LentWaiting> {
        let panes = self.panes.iter_mut();
        panes
            .map(|(&key, waiting)| (key, waiting.share()))
            .collect()
    }

    /// How many records wait.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Bytes that all take.
    pub(crate) fn memory(&self) -> usize {
        let panes = self.panes.values().map(|waiting| waiting.get().memory());
        panes.fold(0, usize::saturating_add)
    }
}

const _: () = assert!(size_of::<Entry>() == 48, "docs/configuration.md says so");
