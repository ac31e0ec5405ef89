//! The groups of one lane: a number for each key.
//!
//! Panes keep their states by number, so a record's key is hashed once, however many panes and
//! pipelines share the dictionary, and panes of one lane are merged without looking at keys. A
//! group that no pane holds any more keeps its number until many such have gathered: in tumbling
//! windows most come again. The hash only finds groups: rows are ordered by key.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "lengths and places of what is in memory"
)]

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::share::Shared;

const FEWEST_SLOTS: usize = 8;
/// Keys of a chunk: what a reader holds is cloned in such pieces, if a key comes to them.
const CHUNK: usize = 1024;
/// Unused groups are swept when there are more of them than this, and than of used ones.
const FEWEST_SWEPT: usize = 1024;

/// A place of the hash index. Half of the hash is kept here: it spares most looks at other groups'
/// keys, and all of them when the index grows.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    /// The group's number plus one; 0 is empty.
    group: u32,
}

const EMPTY: Slot = Slot { hash: 0, group: 0 };

/// The length of a key that is gone: its number waits for another.
const GONE: u32 = u32::MAX;

/// The keys of consecutive numbers.
#[derive(Clone, Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Start and length of each key.
    spans: Vec<(u32, u32)>,
    /// Bytes of keys that are gone.
    waste: usize,
}

impl Chunk {
    #[inline]
    fn key(&self, at: usize) -> &[u8] {
        let (start, len) = self.spans[at];
        &self.bytes[start as usize..start as usize + len as usize]
    }

    /// Puts a key at a place whose key is gone, or behind the last one.
    fn put(&mut self, at: usize, key: &[u8]) {
        let span = (position(self.bytes.len()), position(key.len()));
        self.bytes.extend_from_slice(key);
        match self.spans.get_mut(at) {
            Some(place) => *place = span,
            None => self.spans.push(span),
        }
    }

    /// Forgets a key.
    fn remove(&mut self, at: usize) {
        let len = std::mem::replace(&mut self.spans[at].1, GONE);
        self.waste += if len == GONE { 0 } else { len as usize };
    }

    /// Keeps the first `len` places; once most bytes are of keys that are gone, keeps the others
    /// alone.
    fn tidy(&mut self, len: usize) {
        for at in len..self.spans.len() {
            self.remove(at);
        }
        self.spans.truncate(len);
        if self.waste <= self.bytes.len() / 2 {
            return;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.waste);
        for (start, len) in self.spans.iter_mut().filter(|(_, len)| *len != GONE) {
            let moved = position(bytes.len());
            bytes.extend_from_slice(&self.bytes[*start as usize..][..*len as usize]);
            *start = moved;
        }
        self.bytes = bytes;
        self.waste = 0;
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<(u32, u32)>()
    }
}

/// Keys and their numbers.
///
/// Invariant: `slots` is a power of two in length and at most three quarters full; each number below
/// `uses.len()` is in `slots` or in `free`.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    slots: Vec<Slot>,
    chunks: Vec<Shared<Chunk>>,
    /// How many panes hold each group.
    uses: Vec<u32>,
    free: Vec<u32>,
    /// Numbers with a key that no pane holds.
    unused: usize,
    /// Grows with each key that gets a number.
    generation: u64,
}

/// The keys at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    chunks: Vec<Arc<Chunk>>,
    /// The same for the same keys of the same dictionary.
    pub(crate) generation: u64,
    /// Numbers are below.
    pub(crate) bound: u32,
}

impl Keys {
    /// The key of a number that has one.
    #[inline]
    pub(crate) fn key(&self, group: u32) -> &[u8] {
        let group = group as usize;
        self.chunks[group / CHUNK].key(group % CHUNK)
    }

    /// The numbers that have a key.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let spans = self.chunks.iter().flat_map(|chunk| &chunk.spans);
        let numbered = (0_u32..).zip(spans);
        numbered.filter_map(|(group, &(_, len))| (len != GONE).then_some(group))
    }
}

impl Dictionary {
    /// Numbers are below this.
    #[inline]
    pub(crate) fn bound(&self) -> u32 {
        position(self.uses.len())
    }

    /// The number of a key, made if it has none. A new one is to be held before the next is asked
    /// for: what nobody holds may be swept.
    #[inline]
    pub(crate) fn number(&mut self, key: &[u8]) -> u32 {
        let hash = hash_of(key);
        match self.find(hash, key) {
            Some(group) => group,
            None => self.add(hash, key),
        }
    }

    /// The number of a key, if it has one.
    pub(crate) fn known(&self, key: &[u8]) -> Option<u32> {
        self.find(hash_of(key), key)
    }

    #[inline]
    fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.group == 0 {
                return None;
            }
            if slot.hash == hash && self.key(slot.group - 1) == key {
                return Some(slot.group - 1);
            }
            at = (at + 1) & mask;
        }
    }

    /// The key of a number that has one.
    #[inline]
    pub(crate) fn key(&self, group: u32) -> &[u8] {
        let group = group as usize;
        self.chunks[group / CHUNK].get().key(group % CHUNK)
    }

    #[cold]
    fn add(&mut self, hash: u32, key: &[u8]) -> u32 {
        if self.unused > FEWEST_SWEPT && self.unused > self.uses.len() / 2 {
            self.sweep();
        }
        let known = self.uses.len() - self.free.len();
        if (known + 1) * 4 > self.slots.len() * 3 {
            self.index((self.slots.len() * 2).max(FEWEST_SLOTS));
        }
        let group = self.free.pop().unwrap_or_else(|| {
            self.uses.push(0);
            position(self.uses.len() - 1)
        });
        self.put(group, key);
        self.unused += 1;
        self.generation += 1;
        self.enter(hash, group);
        group
    }

    fn put(&mut self, group: u32, key: &[u8]) {
        let at = group as usize;
        if at / CHUNK == self.chunks.len() {
            self.chunks.push(Shared::default());
        }
        self.chunks[at / CHUNK].get_mut().put(at % CHUNK, key);
    }

    /// Puts a group that is not there into the index.
    fn enter(&mut self, hash: u32, group: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].group != 0 {
            at = (at + 1) & mask;
        }
        let group = group + 1;
        self.slots[at] = Slot { hash, group };
    }

    /// Makes the index anew, of the numbers that have a key.
    fn index(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; slots]);
        for slot in old.into_iter().filter(|slot| slot.group != 0) {
            if self.has_key(slot.group - 1) {
                self.enter(slot.hash, slot.group - 1);
            }
        }
    }

    fn has_key(&self, group: u32) -> bool {
        let at = group as usize;
        let chunk = self.chunks.get(at / CHUNK).map(Shared::get);
        let span = chunk.and_then(|chunk| chunk.spans.get(at % CHUNK));
        span.is_some_and(|&(_, len)| len != GONE)
    }

    /// Forgets the groups that no pane holds: their numbers are free. Those at the end go
    /// altogether, so that after a flood of groups the memory comes back.
    fn sweep(&mut self) {
        let used = self.uses.iter().rposition(|&uses| uses > 0);
        let bound = used.map_or(0, |last| last + 1);
        self.uses.truncate(bound);
        self.uses.shrink_to_fit();
        self.free.clear();
        for group in (0..self.bound()).rev() {
            let at = group as usize;
            if self.uses[at] == 0 {
                self.free.push(group);
                self.chunks[at / CHUNK].get_mut().remove(at % CHUNK);
            }
        }
        self.chunks.truncate(bound.div_ceil(CHUNK));
        for (at, chunk) in self.chunks.iter_mut().enumerate() {
            chunk.get_mut().tidy((bound - at * CHUNK).min(CHUNK));
        }
        self.unused = 0;
        self.generation += 1;
        let known = self.uses.len() - self.free.len();
        self.index((known * 2).next_power_of_two().max(FEWEST_SLOTS));
    }

    /// Gives the memory of groups back that no pane holds, where it is worth it.
    pub(crate) fn give_back(&mut self) {
        if self.unused > FEWEST_SWEPT {
            self.sweep();
        }
    }

    /// Number of groups that some pane holds.
    pub(crate) fn used(&self) -> usize {
        self.uses.len() - self.free.len() - self.unused
    }

    /// A pane holds the group from now on.
    #[inline]
    pub(crate) fn hold(&mut self, group: u32) {
        let uses = &mut self.uses[group as usize];
        self.unused -= usize::from(*uses == 0);
        *uses += 1;
    }

    /// A pane holds the group no more.
    #[inline]
    pub(crate) fn release(&mut self, group: u32) {
        let uses = &mut self.uses[group as usize];
        *uses -= 1;
        self.unused += usize::from(*uses == 0);
    }

    /// The keys for a reader.
    pub(crate) fn keys(&mut self) -> Keys {
        Keys {
            chunks: self.chunks.iter_mut().map(Shared::share).collect(),
            generation: self.generation,
            bound: self.bound(),
        }
    }

    /// Bytes that it takes.
    pub(crate) fn memory(&self) -> usize {
        let chunks = self.chunks.iter().map(|chunk| chunk.get().memory());
        self.slots.capacity() * size_of::<Slot>()
            + (self.uses.capacity() + self.free.capacity()) * size_of::<u32>()
            + chunks.sum::<usize>()
    }
}

/// The lower half: the index keeps no more of it.
#[inline]
#[allow(clippy::cast_possible_truncation)]
fn hash_of(key: &[u8]) -> u32 {
    xxh3_64(key) as u32
}

/// Four billion groups, or a chunk of four billion bytes, do not fit into any memory budget.
fn position(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> [u8; 8] {
        number.to_be_bytes()
    }

    /// The number of a key that a pane holds from now on.
    fn held(dictionary: &mut Dictionary, key: &[u8]) -> u32 {
        let number = dictionary.number(key);
        dictionary.hold(number);
        number
    }

    #[test]
    fn a_key_keeps_its_number_and_a_number_its_key() {
        let mut dictionary = Dictionary::default();
        let numbers: Vec<u32> = (0..5000)
            .map(|at| held(&mut dictionary, &key(at)))
            .collect();
        for (at, &number) in (0..).zip(&numbers) {
            assert_eq!(dictionary.number(&key(at)), number);
            assert_eq!(dictionary.keys().key(number), key(at));
        }
        let mut sorted = numbers;
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 5000);
    }

    #[test]
    fn groups_that_never_come_again_take_no_memory() {
        let mut dictionary = Dictionary::default();
        let kept = held(&mut dictionary, b"kept");
        for window in 0..200 {
            let groups: Vec<u32> = (0..3000)
                .map(|at| held(&mut dictionary, &key(window * 3000 + at)))
                .collect();
            groups.iter().for_each(|&group| dictionary.release(group));
        }
        assert!(dictionary.memory() < 500_000, "{}", dictionary.memory());
        assert_eq!(dictionary.number(b"kept"), kept);
    }

    #[test]
    fn a_reader_keeps_the_keys_of_its_moment() {
        let mut dictionary = Dictionary::default();
        let first = dictionary.number(b"first");
        let seen = dictionary.keys();
        // Swept, and its number given to another.
        for at in 0..5000 {
            let number = held(&mut dictionary, &key(at));
            dictionary.release(number);
        }
        assert_eq!(seen.key(first), b"first");
        assert_ne!(seen.generation, dictionary.keys().generation);
    }
}
