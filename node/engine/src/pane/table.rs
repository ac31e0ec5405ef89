//! The groups of one pane: a state for each value, found by the group's number in its lane's
//! dictionary.
//!
//! Dense where the pane holds a good part of all numbers: a bit a group, and states at the group's
//! own place. Sparse where it holds few of many: in hopping windows over a million users each pane
//! sees some.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "lengths and places of what is in memory"
)]

use crate::spec::{Timestamp, ValueSpec};
use crate::value::{Column, Input};

/// Below so many numbers a pane is dense, whatever it holds.
const ALWAYS_DENSE: usize = 4096;
/// A sparse pane becomes dense when it holds one in so many of the numbers up to its largest.
const DENSE_FROM: usize = 4;
/// A dense pane becomes sparse when it would hold fewer than one in so many.
const SPARSE_FROM: usize = 16;

/// The groups' states.
#[derive(Clone, Debug, Default)]
pub(crate) struct PaneTable {
    index: Index,
    columns: Vec<Column>,
    groups: usize,
}

#[derive(Clone, Debug)]
enum Index {
    /// A bit for each number; a group's states are at its number.
    Dense {
        present: Vec<u64>,
    },
    Sparse(SparseIndex),
}

impl Default for Index {
    fn default() -> Self {
        Self::Dense {
            present: Vec::new(),
        }
    }
}

impl PaneTable {
    pub(crate) fn new(values: &[ValueSpec]) -> Self {
        Self {
            columns: values
                .iter()
                .map(|value| Column::new(&value.function))
                .collect(),
            ..Self::default()
        }
    }

    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.groups
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.columns
    }

    /// Takes one record with this event time into the values of the group at `place`; `input` gives
    /// what it holds for each of them.
    #[inline]
    pub(crate) fn add<'a>(
        &mut self,
        place: usize,
        time: Timestamp,
        input: impl Fn(usize) -> Input<'a>,
    ) {
        for (at, column) in self.columns.iter_mut().enumerate() {
            column.add(place, time, input(at));
        }
    }

    /// Where the group's states are; `None` if it has none here.
    #[inline]
    pub(crate) fn place(&self, group: u32) -> Option<usize> {
        match &self.index {
            Index::Dense { present } => {
                let word = present.get(group as usize / 64)?;
                (word >> (group % 64) & 1 == 1).then_some(group as usize)
            }
            Index::Sparse(index) => index.place(group),
        }
    }

    /// Where the group's states are, and whether they were made for it now. Numbers are below
    /// `bound`, as far as is known.
    #[inline]
    pub(crate) fn place_or_add(&mut self, group: u32, bound: u32) -> (usize, bool) {
        match self.place(group) {
            Some(place) => (place, false),
            None => (self.add_group(group, bound as usize), true),
        }
    }

    #[cold]
    fn add_group(&mut self, group: u32, bound: usize) -> usize {
        self.groups += 1;
        self.choose_index(group as usize + 1);
        let (place, len) = match &mut self.index {
            Index::Dense { present } => {
                let at = group as usize;
                if at / 64 >= present.len() {
                    present.resize(at / 64 + 1, 0);
                }
                present[at / 64] |= 1 << (at % 64);
                (at, at + 1)
            }
            Index::Sparse(index) => (index.add(group), self.groups),
        };
        for column in &mut self.columns {
            if column.len() < len {
                column.resize(len, bound);
            }
        }
        place
    }

    fn choose_index(&mut self, bound: usize) {
        match &self.index {
            Index::Dense { present } => {
                let bound = bound.max(present.len() * 64);
                if bound > ALWAYS_DENSE && self.groups * SPARSE_FROM < bound {
                    self.make_sparse();
                }
            }
            Index::Sparse(index) => {
                if self.groups * DENSE_FROM >= bound.max(index.bound as usize) {
                    self.make_dense();
                }
            }
        }
    }

    fn make_sparse(&mut self) {
        let groups: Vec<u32> = self.groups().map(|(group, _)| group).collect();
        let mut index = SparseIndex::default();
        for column in &mut self.columns {
            let moves = groups.iter().enumerate();
            *column = column.rearranged(groups.len(), moves.map(|(to, &from)| (from as usize, to)));
        }
        for &group in &groups {
            index.add(group);
        }
        self.index = Index::Sparse(index);
    }

    fn make_dense(&mut self) {
        let Index::Sparse(index) = std::mem::take(&mut self.index) else {
            return;
        };
        let bound = index.bound as usize;
        let mut present = vec![0_u64; bound.div_ceil(64)];
        for &group in &index.groups {
            present[group as usize / 64] |= 1 << (group % 64);
        }
        for column in &mut self.columns {
            let moves = index.groups.iter().enumerate();
            *column = column.rearranged(bound, moves.map(|(from, &to)| (from, to as usize)));
        }
        self.index = Index::Dense { present };
    }

    /// Each group and the place of its states.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let (present, sparse): (&[u64], &[u32]) = match &self.index {
            Index::Dense { present } => (present, &[]),
            Index::Sparse(index) => (&[], &index.groups),
        };
        let dense = (0_u32..).zip(present).flat_map(|(at, &word)| Bits {
            word,
            first: at * 64,
        });
        let sparse = sparse
            .iter()
            .enumerate()
            .map(|(place, &group)| (group, place));
        dense.map(|group| (group, group as usize)).chain(sparse)
    }

    /// Takes in all groups of another table of the same dictionary and values.
    pub(crate) fn merge(&mut self, other: &Self) {
        if let (Index::Dense { present }, Index::Dense { present: others }) =
            (&mut self.index, &other.index)
        {
            if present.len() < others.len() {
                present.resize(others.len(), 0);
            }
            for (word, other) in present.iter_mut().zip(others) {
                *word |= other;
            }
            self.groups = present.iter().map(|word| word.count_ones() as usize).sum();
            for (column, other) in self.columns.iter_mut().zip(&other.columns) {
                if column.len() < other.len() {
                    column.resize(other.len(), other.len());
                }
                column.merge_all(other);
            }
            return;
        }
        for (group, from) in other.groups() {
            let (place, _) = self.place_or_add(group, group);
            for (column, other) in self.columns.iter_mut().zip(&other.columns) {
                column.merge_at(place, other, from);
            }
        }
    }

    /// Bytes that it takes.
    pub(crate) fn memory(&self) -> usize {
        let index = match &self.index {
            Index::Dense { present } => present.capacity() * size_of::<u64>(),
            Index::Sparse(index) => {
                (index.slots.capacity() * 2 + index.groups.capacity()) * size_of::<u32>()
            }
        };
        index + self.columns.iter().map(Column::memory).sum::<usize>()
    }
}

/// The numbers of the bits that are set.
struct Bits {
    word: u64,
    first: u32,
}

impl Iterator for Bits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.word == 0 {
            return None;
        }
        let bit = self.word.trailing_zeros();
        self.word &= self.word - 1;
        Some(self.first + bit)
    }
}

/// Numbers to places, in the order in which they came.
///
/// Invariant: `slots` is a power of two in length and at most half full.
#[derive(Clone, Debug, Default)]
struct SparseIndex {
    /// A group's number plus one, and its place.
    slots: Vec<(u32, u32)>,
    groups: Vec<u32>,
    /// Numbers are below.
    bound: u32,
}

impl SparseIndex {
    /// The slot of the group, or the empty one where it belongs.
    fn slot(&self, group: u32) -> usize {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing: numbers that follow each other spread.
        let mut at = (u64::from(group).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[at].0 != 0 && self.slots[at].0 != group + 1 {
            at = (at + 1) & mask;
        }
        at
    }

    fn place(&self, group: u32) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let (found, place) = self.slots[self.slot(group)];
        (found != 0).then_some(place as usize)
    }

    #[allow(clippy::cast_possible_truncation, reason = "numbers have 32 bits")]
    fn add(&mut self, group: u32) -> usize {
        if (self.groups.len() + 1) * 2 > self.slots.len() {
            self.slots = vec![(0, 0); (self.slots.len() * 2).max(16)];
            for place in 0..self.groups.len() {
                let slot = self.slot(self.groups[place]);
                self.slots[slot] = (self.groups[place] + 1, place as u32);
            }
        }
        let (slot, place) = (self.slot(group), self.groups.len());
        self.slots[slot] = (group + 1, place as u32);
        self.groups.push(group);
        self.bound = self.bound.max(group + 1);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Function;
    use crate::value::WindowLength;

    fn values() -> Vec<ValueSpec> {
        vec![ValueSpec {
            name: "n".into(),
            function: Function::CountAll,
        }]
    }

    fn table(groups: impl IntoIterator<Item = u32>) -> PaneTable {
        let mut table = PaneTable::new(&values());
        for group in groups {
            let (place, _) = table.place_or_add(group, group);
            table.add(place, Timestamp(0), |_| Input::Other);
        }
        table
    }

    /// Groups with their counts, by number.
    fn shown(table: &PaneTable) -> Vec<(u32, String)> {
        let mut shown: Vec<_> = table
            .groups()
            .map(|(group, place)| {
                let mut out = Vec::new();
                table.columns[0].write_to(place, WindowLength(0), &mut out);
                (group, String::from_utf8_lossy(&out).into_owned())
            })
            .collect();
        shown.sort();
        shown
    }

    #[test]
    fn few_of_many_groups_are_kept_sparsely_and_many_densely() {
        let few = table((0..100).map(|at| at * 10_000));
        assert!(matches!(few.index, Index::Sparse(_)));
        assert!(few.memory() < 5000, "{}", few.memory());
        let many = table((0..100_000).rev());
        assert!(matches!(many.index, Index::Dense { .. }));
        assert!(many.memory() < 100_000 * 10, "{}", many.memory());
        for table in [&few, &many] {
            assert!(shown(table).iter().all(|(_, count)| count == "1"));
            assert_eq!(table.len(), table.groups().count());
        }
    }

    #[test]
    fn merging_adds_each_group_once_whatever_the_index() {
        let kinds: [Vec<u32>; 4] = [
            (0..50).collect(),
            (0..100).map(|at| at * 9000).collect(),
            (0..20_000).collect(),
            vec![],
        ];
        for left in &kinds {
            for right in &kinds {
                let mut merged = table(left.iter().copied());
                merged.merge(&table(right.iter().copied()));
                let mut all: Vec<u32> = left.iter().chain(right).copied().collect();
                let both = table(all.iter().copied());
                assert_eq!(shown(&merged), shown(&both));
                all.sort_unstable();
                all.dedup();
                assert_eq!(merged.len(), all.len());
            }
        }
    }
}
