//! Overlapping windows of one lane, one after another, without merging all panes for each.
//!
//! States can be merged, never taken apart again, so a window that moves on by a slide cannot give
//! back the pane that leaves it. The known way is two stacks (Tangwongsan, Hirzel, Schneider,
//! "General Incremental Sliding-Window Aggregation", 2015): the older panes are kept with all that
//! follows them merged in, the newer ones merged into one; when the older ones have left, the newer
//! ones take their place. Here each *group* has such a stack of its own: a pane in front keeps, for
//! each group that it holds itself, the group's states from there on, and which pane of the front has
//! the group next. So each pane is merged twice in its life, a window costs a merge for each group,
//! and the front takes what its panes take and four bytes a group: not a table of all groups for each
//! pane.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "lengths and places of what is in memory"
)]

use std::sync::Arc;

use crate::pane::LentPane;
use crate::pane::table::PaneTable;
use crate::spec::{PipelineSpec, ValueSpec, WindowSpec};
use crate::value::Column;

/// Windows of no more panes than this are merged anew for each: cheaper than to keep anything.
pub(crate) const MERGED_DIRECTLY: i64 = 4;
/// The front is made anew once so many panes have come to it that count in its later windows only.
const MOST_LATECOMERS: usize = 16;
/// No pane of the front.
const NONE: u32 = u32::MAX;

/// What is kept of a lane from window to window. No row depends on whether it is.
#[derive(Debug, Default)]
pub(crate) struct LaneHops {
    /// Ascending by start; what has left is `None`.
    front: Vec<Option<FrontPane>>,
    /// How many of them have left.
    left: usize,
    /// For each group, the first pane of the front that holds it.
    first: Vec<u32>,
    /// Panes that start here or later are not in front.
    middle: i64,
    /// Those, merged.
    back: PaneTable,
    /// Panes that start before `middle` and came after the front was made: records that were late for
    /// their first windows.
    latecomers: Vec<LentPane>,
    /// The end of the last window.
    end: Option<i64>,
    /// What it took when the front was made.
    made_bytes: usize,
}

#[derive(Debug)]
struct FrontPane {
    start: i64,
    /// Its groups, each with the states of the panes that follow.
    table: PaneTable,
    /// For each of its groups, in their order there, the next pane that holds it.
    next: Vec<u32>,
}

impl LaneHops {
    /// Moves on to the window with this end, which is later than all before. `panes` are the lane's,
    /// ascending, at least those of the window; what counts in windows of the past must not change.
    pub(crate) fn advance(&mut self, spec: &PipelineSpec, end: i64, panes: &[LentPane]) {
        let window = &spec.window;
        let start = window.start_of(end);
        let done = self.end.replace(end);
        let Some(done) = done.filter(|_| start < self.middle) else {
            return self.make_front(&spec.values, window, end, panes);
        };
        self.leave_before(start);
        // What counts from a window after the last one on starts no earlier than that did.
        let from = panes.partition_point(|(key, _)| key.start < start);
        let to = panes.partition_point(|(key, _)| key.start < end);
        let come = panes[from..to].iter();
        for pane in come.filter(|(key, _)| done < key.first_end && key.first_end <= end) {
            if pane.0.start >= self.middle {
                self.back.merge(&pane.1);
            } else {
                self.latecomers.push((pane.0, Arc::clone(&pane.1)));
            }
        }
        if self.latecomers.len() > MOST_LATECOMERS {
            self.make_front(&spec.values, window, end, panes);
        }
    }

    /// Forgets the panes of the front that start before.
    fn leave_before(&mut self, start: i64) {
        while let Some(slot) = self.front.get_mut(self.left) {
            let Some(pane) = slot.take_if(|pane| pane.start < start) else {
                break;
            };
            for ((group, _), next) in pane.table.groups().zip(pane.next) {
                self.first[group as usize] = next;
            }
            self.left += 1;
        }
        self.latecomers.retain(|(key, _)| key.start >= start);
    }

    /// Puts all panes of the window in front.
    fn make_front(
        &mut self,
        values: &[ValueSpec],
        window: &WindowSpec,
        end: i64,
        panes: &[LentPane],
    ) {
        let from = panes.partition_point(|(key, _)| key.start < window.start_of(end));
        let counts = |pane: &&LentPane| pane.0.counts_in(window, end);
        let panes: Vec<&LentPane> = panes[from..].iter().filter(counts).collect();
        self.front = std::iter::repeat_with(|| None).take(panes.len()).collect();
        self.left = 0;
        self.first.clear();
        self.middle = end;
        self.back = PaneTable::new(values);
        self.latecomers = Vec::new();
        for (at, (key, table)) in panes.into_iter().enumerate().rev() {
            self.front[at] = Some(self.front_pane(at, key.start, table));
        }
        self.made_bytes = self.memory();
    }

    /// A pane with what follows it merged in; those that follow are there.
    fn front_pane(&mut self, at: usize, start: i64, table: &PaneTable) -> FrontPane {
        let mut merged = table.clone();
        let mut next = Vec::with_capacity(table.len());
        for (group, place) in table.groups() {
            let index = group as usize;
            if index >= self.first.len() {
                self.first.resize(index + 1, NONE);
            }
            if let Some((columns, from)) = self.in_front(group) {
                for (into, other) in merged.columns_mut().iter_mut().zip(columns) {
                    into.merge_at(place, other, from);
                }
            }
            next.push(self.first[index]);
            // Panes by the billion do not fit.
            self.first[index] = u32::try_from(at).unwrap_or(NONE);
        }
        FrontPane {
            start,
            table: merged,
            next,
        }
    }

    fn in_front(&self, group: u32) -> Option<(&[Column], usize)> {
        let first = *self.first.get(group as usize)?;
        let pane = self.front.get(first as usize)?.as_ref()?;
        Some((pane.table.columns(), pane.table.place(group)?))
    }

    /// Calls `found` with the columns and the place of each part of the group's state in the window.
    pub(crate) fn each_part<'a>(&'a self, group: u32, mut found: impl FnMut(&'a [Column], usize)) {
        if let Some((columns, place)) = self.in_front(group) {
            found(columns, place);
        }
        let latecomers = self.latecomers.iter().map(|(_, table)| &**table);
        for table in std::iter::once(&self.back).chain(latecomers) {
            if let Some(place) = table.place(group) {
                found(table.columns(), place);
            }
        }
    }

    /// Bytes that it took when it took most of late.
    pub(crate) fn about_memory(&self) -> usize {
        self.made_bytes
    }

    /// Bytes that it takes.
    pub(crate) fn memory(&self) -> usize {
        let panes = self.front.iter().flatten();
        let panes = panes.map(|pane| pane.table.memory() + pane.next.capacity() * size_of::<u32>());
        let front = self.front.capacity() * size_of::<Option<FrontPane>>();
        let first = self.first.capacity() * size_of::<u32>();
        panes.sum::<usize>() + front + first + self.back.memory()
    }
}
