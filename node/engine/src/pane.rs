//! The open panes of one lane.

use std::collections::BTreeMap;

use crate::checkpoint::codec::{Fault, Reader, Writer};
use crate::group::table::GroupTable;
use crate::spec::{PipelineSpec, Timestamp, ValueSpec};
use crate::window::{PaneKey, panes_of};

/// Panes by their start and by the window from which on they count.
///
/// Invariant: `index` names each slot in use once; the others are in `free`.
#[derive(Debug, Default)]
pub(crate) struct PaneStore {
    index: BTreeMap<PaneKey, usize>,
    slots: Vec<GroupTable>,
    free: Vec<usize>,
    /// Most records fall into the same pane as the one before.
    last: Option<(PaneKey, usize)>,
}

impl PaneStore {
    /// The pane of the last record, if the time lies in it too and all its windows are still to
    /// come.
    #[inline]
    pub(crate) fn last_if_holds(
        &self,
        time: Timestamp,
        complete_to: Option<Timestamp>,
        slide_ms: i64,
    ) -> Option<PaneKey> {
        let (key, _) = self.last?;
        let end = key.start + slide_ms;
        let holds = key.start <= time.0
            && time.0 < end
            && key.first_end == end
            && complete_to.is_none_or(|limit| limit.0 < end);
        holds.then_some(key)
    }

    /// The pane's groups; an empty table if it is new.
    #[inline]
    pub(crate) fn table(&mut self, key: PaneKey) -> &mut GroupTable {
        let slot = match self.last {
            Some((last, slot)) if last == key => slot,
            _ => self.find_or_add(key),
        };
        &mut self.slots[slot]
    }

    fn find_or_add(&mut self, key: PaneKey) -> usize {
        let slot = *self.index.entry(key).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.slots.push(GroupTable::default());
                self.slots.len() - 1
            })
        });
        self.last = Some((key, slot));
        slot
    }

    /// Panes that start before `limit`, ascending.
    pub(crate) fn keys_before(&self, limit: i64) -> impl Iterator<Item = PaneKey> + '_ {
        self.index
            .range(
                ..PaneKey {
                    start: limit,
                    first_end: i64::MIN,
                },
            )
            .map(|(&key, _)| key)
    }

    /// All panes, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = PaneKey> + '_ {
        self.index.keys().copied()
    }

    /// The tables that count in the window with this end.
    pub(crate) fn tables_of_window(
        &self,
        spec: &PipelineSpec,
        end: i64,
    ) -> impl Iterator<Item = &GroupTable> {
        let starts = panes_of(spec.window, end);
        let from = PaneKey {
            start: starts.start,
            first_end: i64::MIN,
        };
        let to = PaneKey {
            start: starts.end,
            first_end: i64::MIN,
        };
        let in_window = self
            .index
            .range(from..to)
            .filter(move |(key, _)| key.first_end <= end);
        in_window.map(|(_, &slot)| &self.slots[slot])
    }

    /// Forgets the panes whose last window ends at or before `closed_through`, with their memory.
    pub(crate) fn drop_closed(&mut self, size_ms: i64, closed_through: Timestamp) {
        while let Some(entry) = self.index.first_entry() {
            if entry.key().start.saturating_add(size_ms) > closed_through.0 {
                break;
            }
            let slot = entry.remove();
            self.slots[slot] = GroupTable::default();
            self.free.push(slot);
            self.last = None;
        }
        if self.index.is_empty() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
    }

    /// Groups in all panes.
    pub(crate) fn group_count(&self) -> u64 {
        self.index
            .values()
            .map(|&slot| self.slots[slot].len() as u64)
            .sum()
    }

    pub(crate) fn encode(&self, specs: &[ValueSpec], out: &mut Writer) {
        out.length(self.index.len());
        for (key, &slot) in &self.index {
            out.signed(key.start);
            out.signed(key.first_end);
            self.slots[slot].encode(specs, out);
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>, spec: &PipelineSpec) -> Result<Self, Fault> {
        let mut store = Self::default();
        for _ in 0..input.length()? {
            let key = PaneKey {
                start: input.signed()?,
                first_end: input.signed()?,
            };
            let earliest = key.start.checked_add(spec.window.slide_ms());
            let latest = key.start.checked_add(spec.window.size_ms());
            if earliest.is_none_or(|end| end > key.first_end)
                || latest.is_none_or(|end| end < key.first_end)
            {
                return Err(Fault("a pane lies outside of its windows"));
            }
            *store.table(key) = GroupTable::decode(input, &spec.values, spec.group_by.len())?;
        }
        Ok(store)
    }
}
