//! The open panes of one pipeline on one lane.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::group::dictionary::Dictionary;
use crate::share::Shared;
use crate::spec::{PipelineSpec, Timestamp, ValueSpec, WindowSpec};
use crate::spill::Run;
use crate::stats::count;
use crate::window::PaneKey;

pub(crate) mod table;

use table::PaneTable;

/// Panes by their start and by the window from which on they count.
///
/// Invariant: `index` names each slot in use once; the others are in `free`.
#[derive(Debug, Default)]
pub(crate) struct PaneStore {
    index: BTreeMap<PaneKey, usize>,
    slots: Vec<Shared<PaneTable>>,
    free: Vec<usize>,
    /// What of panes is on disk: none for a pane that has never been there.
    runs: BTreeMap<PaneKey, Vec<Run>>,
    /// Most records fall into the same pane as the one before.
    last: Option<LastPane>,
    /// Groups in all panes that are in memory.
    groups: u64,
    /// Grows when a pane comes or goes.
    changes: u64,
}

#[derive(Clone, Copy, Debug)]
struct LastPane {
    key: PaneKey,
    /// The end of the first window that holds it: also its own.
    end: i64,
    slot: usize,
}

/// A pane as a reader sees it.
pub(crate) type LentPane = (PaneKey, Arc<PaneTable>);

impl PaneStore {
    /// The pane of the last record, if the time lies in it too and all its windows are still to
    /// come.
    #[inline]
    pub(crate) fn last_if_holds(
        &self,
        time: Timestamp,
        complete_to: Option<Timestamp>,
    ) -> Option<PaneKey> {
        let LastPane { key, end, .. } = self.last?;
        let holds = key.start <= time.0
            && time.0 < end
            && key.first_end == end
            && complete_to.is_none_or(|limit| limit.0 < end);
        holds.then_some(key)
    }

    /// The pane's groups, and the place of one of them, which the pane holds from now on.
    #[inline]
    pub(crate) fn table(
        &mut self,
        key: PaneKey,
        group: u32,
        spec: &PipelineSpec,
        dictionary: &mut Dictionary,
    ) -> (&mut PaneTable, usize) {
        let slot = match self.last {
            Some(last) if last.key == key => last.slot,
            _ => self.find_or_add(key, spec),
        };
        let table = self.slots[slot].get_mut();
        let (place, is_new) = table.place_or_add(group, dictionary.bound());
        if is_new {
            dictionary.hold(group);
            count(&mut self.groups, 1);
        }
        (table, place)
    }

    /// Makes sure that the pane is there, if without groups.
    pub(crate) fn add(&mut self, key: PaneKey, spec: &PipelineSpec) {
        if self.last.is_none_or(|last| last.key != key) {
            self.find_or_add(key, spec);
        }
    }

    fn find_or_add(&mut self, key: PaneKey, spec: &PipelineSpec) -> usize {
        let changes = &mut self.changes;
        let slot = *self.index.entry(key).or_insert_with(|| {
            count(changes, 1);
            let table = Shared::Own(PaneTable::new(&spec.values));
            match self.free.pop() {
                Some(slot) => {
                    self.slots[slot] = table;
                    slot
                }
                None => {
                    let slot = self.slots.len();
                    self.slots.push(table);
                    slot
                }
            }
        });
        let end = spec.window.first_end(key.start);
        self.last = Some(LastPane { key, end, slot });
        slot
    }

    /// All panes, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = PaneKey> + '_ {
        self.index.keys().copied()
    }

    /// Panes that start in this range, ascending.
    pub(crate) fn keys_in(&self, starts: Range<i64>) -> impl Iterator<Item = PaneKey> + '_ {
        self.index.range(between(starts)).map(|(&key, _)| key)
    }

    /// Whether the pane holds the group.
    pub(crate) fn holds(&self, key: PaneKey, group: u32) -> bool {
        let slot = self.index.get(&key);
        slot.is_some_and(|&slot| self.slots[slot].get().place(group).is_some())
    }

    /// Those of the panes that start in this range that are `wanted`, for a reader, ascending.
    pub(crate) fn lend_in(
        &mut self,
        starts: Range<i64>,
        wanted: impl Fn(PaneKey) -> bool,
    ) -> Vec<LentPane> {
        let panes = self.index.range(between(starts));
        panes
            .filter(|&(&key, _)| wanted(key))
            .map(|(&key, &slot)| (key, self.slots[slot].share()))
            .collect()
    }

    /// All panes for a reader, ascending.
    pub(crate) fn lend(&mut self) -> Vec<LentPane> {
        let panes = self.index.iter();
        panes
            .map(|(&key, &slot)| (key, self.slots[slot].share()))
            .collect()
    }

    /// What of such panes is on disk.
    pub(crate) fn runs_in(
        &self,
        starts: Range<i64>,
        wanted: impl Fn(PaneKey) -> bool,
    ) -> Vec<(PaneKey, Run)> {
        let runs = self.runs.range(between(starts));
        all_runs(runs.filter(|&(&key, _)| wanted(key)))
    }

    /// Whether some of the pane is on disk.
    pub(crate) fn has_runs(&self, pane: PaneKey) -> bool {
        self.runs.contains_key(&pane)
    }

    /// What of all panes is on disk.
    pub(crate) fn runs(&self) -> Vec<(PaneKey, Run)> {
        all_runs(self.runs.iter())
    }

    /// One pane for a reader, and what of it is on disk.
    pub(crate) fn lend_pane(&mut self, pane: PaneKey) -> (Vec<LentPane>, Vec<(PaneKey, Run)>) {
        let slot = self.index.get(&pane).copied();
        let table = slot.map(|slot| (pane, self.slots[slot].share()));
        (
            table.into_iter().collect(),
            all_runs(self.runs.get_key_value(&pane).into_iter()),
        )
    }

    /// Panes with groups in memory, with their number of groups and their bytes.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (PaneKey, usize, usize)> + '_ {
        let tables = self.index.iter();
        let tables = tables.map(|(&key, &slot)| (key, self.slots[slot].get()));
        let tables = tables.filter(|(_, table)| table.len() > 0);
        tables.map(|(key, table)| (key, table.len(), table.memory()))
    }

    /// The pane's groups are in the run, and go from memory; `is_whole`: so are all its older runs.
    pub(crate) fn leave_to(
        &mut self,
        pane: PaneKey,
        run: Run,
        is_whole: bool,
        values: &[ValueSpec],
        dictionary: &mut Dictionary,
    ) {
        let Some(&slot) = self.index.get(&pane) else {
            return;
        };
        let fresh = Shared::Own(PaneTable::new(values));
        let table = std::mem::replace(&mut self.slots[slot], fresh);
        self.release(table.get(), dictionary);
        let runs = self.runs.entry(pane).or_default();
        if is_whole {
            runs.clear();
        }
        runs.push(run);
    }

    fn release(&mut self, table: &PaneTable, dictionary: &mut Dictionary) {
        for (group, _) in table.groups() {
            dictionary.release(group);
        }
        self.groups = self.groups.saturating_sub(table.len() as u64);
    }

    /// Forgets the panes whose last window ends at or before `closed_through`, with their memory.
    pub(crate) fn drop_closed(
        &mut self,
        window: &WindowSpec,
        closed_through: Timestamp,
        dictionary: &mut Dictionary,
    ) {
        while let Some(entry) = self.index.first_entry() {
            if entry.key().last_end(window) > closed_through.0 {
                break;
            }
            self.runs.remove(entry.key());
            let slot = entry.remove();
            let table = std::mem::take(&mut self.slots[slot]).give_away();
            self.release(&table, dictionary);
            count(&mut self.changes, 1);
            self.free.push(slot);
            self.last = None;
        }
        if self.index.is_empty() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
    }

    /// Number of panes.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Groups in all panes that are in memory.
    pub(crate) fn group_count(&self) -> u64 {
        self.groups
    }

    /// The same as long as no pane comes or goes.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Bytes that all panes take.
    pub(crate) fn memory(&self) -> usize {
        self.slots.iter().map(|table| table.get().memory()).sum()
    }
}

fn all_runs<'a>(runs: impl Iterator<Item = (&'a PaneKey, &'a Vec<Run>)>) -> Vec<(PaneKey, Run)> {
    let each = runs.flat_map(|(&pane, runs)| runs.iter().map(move |run| (pane, run.clone())));
    each.collect()
}

fn between(starts: Range<i64>) -> Range<PaneKey> {
    // A range of the index must not end before it begins.
    first_from(starts.start)..first_from(starts.end.max(starts.start))
}

fn first_from(start: i64) -> PaneKey {
    PaneKey {
        start,
        first_end: i64::MIN,
    }
}
