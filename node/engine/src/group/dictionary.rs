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
/// keys.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    /// The group's number plus one; 0 is empty.
    group: u32,
}

const EMPTY: Slot = Slot { hash: 0, group: 0 };

/// The keys of consecutive numbers.
#[derive(Clone, Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Start and length of each key.
    spans: Vec<(u32, u32)>,
    /// Bytes of keys that were replaced.
    waste: usize,
}

impl Chunk {
    #[inline]
    fn key(&self, at: usize) -> &[u8] {
        let (start, len) = self.spans[at];
        &self.bytes[start as usize..start as usize + len as usize]
    }

    /// Puts a key at a place, or behind the last one.
    fn put(&mut self, at: usize, key: &[u8]) {
        let span = (position(self.bytes.len()), position(key.len()));
        self.bytes.extend_from_slice(key);
        if let Some(place) = self.spans.get_mut(at) {
            self.waste += place.1 as usize;
            *place = span;
        } else {
            self.spans.push(span);
        }
        self.compact();
    }

    /// Keeps the first `len` keys.
    fn truncate(&mut self, len: usize) {
        let gone = self.spans.drain(len.min(self.spans.len())..);
        self.waste += gone.map(|(_, len)| len as usize).sum::<usize>();
        self.compact();
    }

    /// Once most bytes are of keys that are gone, keeps the others alone.
    fn compact(&mut self) {
        if self.waste <= self.bytes.len() / 2 {
            return;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.waste);
        for span in &mut self.spans {
            let start = position(bytes.len());
            bytes.extend_from_slice(&self.bytes[span.0 as usize..][..span.1 as usize]);
            span.0 = start;
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
    #[inline]
    pub(crate) fn key(&self, group: u32) -> &[u8] {
        let group = group as usize;
        self.chunks[group / CHUNK].key(group % CHUNK)
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
        let hash = xxh3_64(key);
        match self.find(hash, key) {
            Ok(group) => group,
            Err(_) => self.add(hash, key),
        }
    }

    /// The group with the key, or the empty slot where it belongs.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    fn find(&self, hash: u64, key: &[u8]) -> Result<u32, usize> {
        if self.slots.is_empty() {
            return Err(0);
        }
        let half = (hash >> 32) as u32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.group == 0 {
                return Err(at);
            }
            if slot.hash == half && self.key(slot.group - 1) == key {
                return Ok(slot.group - 1);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn key(&self, group: u32) -> &[u8] {
        let group = group as usize;
        self.chunks[group / CHUNK].get().key(group % CHUNK)
    }

    #[cold]
    fn add(&mut self, hash: u64, key: &[u8]) -> u32 {
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
    #[allow(clippy::cast_possible_truncation)]
    fn enter(&mut self, hash: u64, group: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].group != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = Slot {
            hash: (hash >> 32) as u32,
            group: group + 1,
        };
    }

    /// Makes the index anew, of the keys that are not free.
    fn index(&mut self, slots: usize) {
        let mut is_free = vec![false; self.uses.len()];
        for &group in &self.free {
            is_free[group as usize] = true;
        }
        self.slots = vec![EMPTY; slots];
        for group in 0..self.bound() {
            if !is_free[group as usize] {
                self.enter(xxh3_64(self.key(group)), group);
            }
        }
    }

    /// Frees the numbers of groups that no pane holds.
    fn sweep(&mut self) {
        self.free = (0..self.bound())
            .rev()
            .filter(|&group| self.uses[group as usize] == 0)
            .collect();
        self.unused = 0;
        // Those at the end go altogether: after a flood of groups the memory comes back.
        let mut bound = self.uses.len();
        let at_end = self.free.iter().take_while(|&&group| {
            let is_last = group as usize + 1 == bound;
            bound -= usize::from(is_last);
            is_last
        });
        let at_end = at_end.count();
        self.free.drain(..at_end);
        self.uses.truncate(bound);
        self.uses.shrink_to_fit();
        self.chunks.truncate(bound.div_ceil(CHUNK));
        if let (Some(last), rest) = (self.chunks.last_mut(), bound % CHUNK)
            && rest > 0
        {
            last.get_mut().truncate(rest);
        }
        let known = self.uses.len() - self.free.len();
        self.index((known * 2).next_power_of_two().max(FEWEST_SLOTS));
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
