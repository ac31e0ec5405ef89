//! The groups of one pane, and what is computed for each.
//!
//! Compact: a group takes its key's bytes, 16 to 24 bytes of index and its accumulators, and no
//! allocation of its own. The hash only finds groups: rows are ordered by key.

use xxhash_rust::xxh3::xxh3_64;

use super::is_sound;
use crate::checkpoint::codec::{Fault, Reader, Writer};
use crate::spec::ValueSpec;
use crate::value::Accumulator;

const FEWEST_SLOTS: usize = 8;

/// A place of the hash index. Half of the hash is kept here: it spares most looks at other groups'
/// keys.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    /// The group's number plus one; 0 is empty.
    group: u32,
}

const EMPTY: Slot = Slot { hash: 0, group: 0 };

/// Groups in the order of their first record.
///
/// Invariant: `slots` is a power of two in length (or empty, below two groups) and at most three
/// quarters full; `values` holds the same number of accumulators for each group.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupTable {
    slots: Vec<Slot>,
    keys: Vec<u8>,
    /// Where each key ends in `keys`.
    key_ends: Vec<usize>,
    values: Vec<Accumulator>,
}

impl GroupTable {
    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.key_ends.len()
    }

    pub(crate) fn key(&self, group: usize) -> &[u8] {
        let start = if group == 0 {
            0
        } else {
            self.key_ends[group - 1]
        };
        &self.keys[start..self.key_ends[group]]
    }

    pub(crate) fn values(&self, group: usize, specs: &[ValueSpec]) -> &[Accumulator] {
        let first = group * specs.len();
        &self.values[first..first + specs.len()]
    }

    /// The accumulators of the group with this key, made anew if it is not there.
    #[inline]
    pub(crate) fn values_of(&mut self, key: &[u8], specs: &[ValueSpec]) -> &mut [Accumulator] {
        // Without `group_by` there is one group, with an empty key.
        let group = if key.is_empty() && self.len() == 1 {
            0
        } else {
            self.find_or_add(key, specs)
        };
        let first = group * specs.len();
        &mut self.values[first..first + specs.len()]
    }

    fn find_or_add(&mut self, key: &[u8], specs: &[ValueSpec]) -> usize {
        if (self.len() + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let (at, hash) = self.probe(key);
        match self.slots[at].group {
            0 => {
                let group = self.len();
                self.slots[at] = Slot {
                    hash,
                    group: number_after(group),
                };
                self.keys.extend_from_slice(key);
                self.key_ends.push(self.keys.len());
                self.values
                    .extend(specs.iter().map(|spec| Accumulator::new(spec.function)));
                group
            }
            group => group as usize - 1,
        }
    }

    /// The slot of the key, or the empty one where it belongs; and its half of the hash.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    fn probe(&self, key: &[u8]) -> (usize, u32) {
        let hash = xxh3_64(key);
        let half = (hash >> 32) as u32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.group == 0 || (slot.hash == half && self.key(slot.group as usize - 1) == key) {
                return (at, half);
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(FEWEST_SLOTS);
        self.slots.clear();
        self.slots.resize(slots, EMPTY);
        for group in 0..self.len() {
            let (at, hash) = self.probe(self.key(group));
            self.slots[at] = Slot {
                hash,
                group: number_after(group),
            };
        }
    }

    /// Adds all groups of another table to this one.
    pub(crate) fn merge(&mut self, other: &Self, specs: &[ValueSpec]) {
        for group in 0..other.len() {
            let into = self.values_of(other.key(group), specs);
            for (into, from) in into.iter_mut().zip(other.values(group, specs)) {
                into.merge(from);
            }
        }
    }

    /// The groups' numbers in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.len()).collect();
        groups.sort_unstable_by(|&left, &right| self.key(left).cmp(self.key(right)));
        groups
    }

    pub(crate) fn encode(&self, specs: &[ValueSpec], out: &mut Writer) {
        out.length(self.len());
        for group in 0..self.len() {
            out.slice(self.key(group));
            for value in self.values(group, specs) {
                value.encode(out);
            }
        }
    }

    pub(crate) fn decode(
        input: &mut Reader<'_>,
        specs: &[ValueSpec],
        fields: usize,
    ) -> Result<Self, Fault> {
        let mut table = Self::default();
        let groups = input.length()?;
        for group in 0..groups {
            let key = input.slice()?;
            if !is_sound(key, fields) {
                return Err(Fault("a group's key is damaged"));
            }
            let values = table.values_of(key, specs);
            for (value, spec) in values.iter_mut().zip(specs) {
                *value = Accumulator::decode(spec.function, input)?;
            }
            if table.len() != group + 1 {
                return Err(Fault("a group is there twice"));
            }
        }
        Ok(table)
    }
}

/// A pane with four billion groups does not fit into any memory budget.
fn number_after(group: usize) -> u32 {
    u32::try_from(group + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decimal::Decimal;
    use crate::record::Cell;
    use crate::spec::{Column, Function};
    use crate::value::Input;

    fn specs() -> Vec<ValueSpec> {
        let value = |name: &str, function| ValueSpec {
            name: name.into(),
            function,
        };
        vec![
            value("n", Function::CountAll),
            value("s", Function::Sum(Column(0))),
        ]
    }

    fn key(number: i64) -> Vec<u8> {
        let mut key = Vec::new();
        crate::group::push_cell(&mut key, Cell::Number(Decimal::from_i64(number)));
        key
    }

    fn add(table: &mut GroupTable, number: i64) {
        let input = Input::Number(Decimal::from_i64(1));
        let specs = specs();
        for value in table.values_of(&key(number), &specs) {
            value.add(input);
        }
    }

    fn shown(table: &GroupTable) -> Vec<(Vec<u8>, String)> {
        let show = |&group: &usize| {
            let values = table.values(group, &specs());
            (table.key(group).to_vec(), format!("{values:?}"))
        };
        table.sorted().iter().map(show).collect()
    }

    #[test]
    fn groups_are_found_again_and_merged_whole() {
        let (mut all, mut left, mut right) = Default::default();
        for number in 0..3000 {
            let number = number * 7919 % 1000;
            add(&mut all, number);
            add(
                if number % 3 == 0 {
                    &mut left
                } else {
                    &mut right
                },
                number,
            );
        }
        assert_eq!(all.len(), 1000);
        left.merge(&right, &specs());
        assert_eq!(shown(&left), shown(&all));
        let order: Vec<_> = (0..1000).map(key).collect();
        assert_eq!(
            shown(&all)
                .into_iter()
                .map(|(key, _)| key)
                .collect::<Vec<_>>(),
            order
        );
    }

    #[test]
    fn a_table_comes_back_from_its_bytes() {
        let mut table = GroupTable::default();
        (0..100).for_each(|number| add(&mut table, number % 40));
        let mut out = Writer::default();
        table.encode(&specs(), &mut out);
        let mut input = Reader::new(&out.bytes);
        let restored = GroupTable::decode(&mut input, &specs(), 1).map(|table| shown(&table));
        assert_eq!(restored, Ok(shown(&table)));
        assert!(input.is_at_end());
    }
}
