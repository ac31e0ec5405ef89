//! `top(field, n)`: the most frequent values. All values are counted, so the list is exact; how much
//! memory that takes depends on how many different values there are.

use xxhash_rust::xxh3::xxh3_64;

use super::kept::{Kept, compare, write_input};
use super::{Input, State, WindowLength};
use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};
use crate::render::write_unsigned;
use crate::stats::count;

const FALSE: u8 = 0;
const TRUE: u8 = 1;
const NUMBER: u8 = 2;
const TEXT: u8 = 3;
/// A number's kind, mantissa and scale.
const NUMBER_BYTES: usize = 18;

#[derive(Clone, Copy, Debug)]
struct Entry {
    count: u64,
    /// Where its bytes are.
    start: usize,
    len: u32,
    hash: u32,
}

/// Each value seen, and how often.
///
/// Invariant: `slots` is a power of two in length and at most half full, or empty; a slot is the
/// number of an entry plus one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Top {
    slots: Vec<u32>,
    entries: Vec<Entry>,
    /// A kind, and what tells values of that kind apart.
    bytes: Vec<u8>,
}

impl Top {
    #[inline]
    pub(crate) fn add(&mut self, input: Input<'_>) {
        if Kept::can_keep(input) {
            self.add_times(input, 1);
        }
    }

    #[inline]
    fn add_times(&mut self, input: Input<'_>, times: u64) {
        match input {
            Input::Null | Input::Other => {}
            Input::Bool(false) => self.count(&[FALSE], times),
            Input::Bool(true) => self.count(&[TRUE], times),
            Input::Number(number) => self.count(&number_bytes(number), times),
            Input::Text(text) => self.count_text(text, times),
        }
    }

    #[inline]
    #[allow(clippy::arithmetic_side_effects, reason = "texts are short")]
    fn count_text(&mut self, text: &[u8], times: u64) {
        // Short texts, which nearly all are, need no memory of their own.
        let mut short = [TEXT; 64];
        if let Some(room) = short.get_mut(1..=text.len()) {
            room.copy_from_slice(text);
            self.count(&short[..=text.len()], times);
        } else {
            self.count(&[&[TEXT], text].concat(), times);
        }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "half of the hash does")]
    fn count(&mut self, key: &[u8], times: u64) {
        let hash = xxh3_64(key) as u32;
        if !self.slots.is_empty() {
            let at = self.slots[self.slot(hash, key)];
            if let Some(entry) = (at as usize).checked_sub(1) {
                return count(&mut self.entries[entry].count, times);
            }
        }
        self.insert(hash, key, times);
    }

    #[inline]
    fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start..][..entry.len as usize]
    }

    /// The slot of the key, or the empty one where it belongs. There are slots.
    #[inline]
    #[allow(clippy::arithmetic_side_effects, reason = "places in memory, masked")]
    fn slot(&self, hash: u32, key: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match (self.slots[at] as usize).checked_sub(1) {
                None => return at,
                Some(entry) => {
                    let entry = &self.entries[entry];
                    if entry.hash == hash && self.key(entry) == key {
                        return at;
                    }
                }
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    #[allow(
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        reason = "lengths of what is in memory: four billion entries of one group do not fit"
    )]
    fn insert(&mut self, hash: u32, key: &[u8], times: u64) {
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.slots = vec![0; (self.slots.len() * 2).max(8)];
            for at in 0..self.entries.len() {
                let entry = self.entries[at];
                let slot = self.slot(entry.hash, self.key(&entry));
                self.slots[slot] = at as u32 + 1;
            }
        }
        let slot = self.slot(hash, key);
        let entry = Entry {
            count: times,
            start: self.bytes.len(),
            len: key.len() as u32,
            hash,
        };
        self.bytes.extend_from_slice(key);
        self.entries.push(entry);
        self.slots[slot] = self.entries.len() as u32;
    }

    fn values(&self) -> Vec<(Input<'_>, u64)> {
        let entries = self.entries.iter();
        let pair = |entry: &Entry| (value(self.key(entry)), entry.count);
        entries.map(pair).collect()
    }
}

fn number_bytes(number: Decimal) -> [u8; NUMBER_BYTES] {
    let mut bytes = [NUMBER; NUMBER_BYTES];
    bytes[1..17].copy_from_slice(&number.mantissa().to_le_bytes());
    // A scale is at most 30.
    bytes[17] = u8::try_from(number.scale()).unwrap_or_default();
    bytes
}

/// What a key was made of.
fn value(key: &[u8]) -> Input<'_> {
    match key.split_first() {
        Some((&FALSE, _)) => Input::Bool(false),
        Some((&TRUE, _)) => Input::Bool(true),
        Some((&TEXT, text)) => Input::Text(text),
        Some((&NUMBER, parts)) => {
            let mantissa = parts.first_chunk().map(|bytes| i128::from_le_bytes(*bytes));
            let scale = parts.last().copied().unwrap_or_default();
            let number = Decimal::from_parts(mantissa.unwrap_or_default(), u32::from(scale));
            number.map_or(Input::Null, Input::Number)
        }
        _ => Input::Null,
    }
}

impl State for Top {
    type How = usize;

    fn merge(&mut self, other: &Self) {
        for entry in &other.entries {
            self.count(other.key(entry), entry.count);
        }
    }

    fn write_to(&self, most: &usize, _: WindowLength, out: &mut Vec<u8>) {
        let mut values = self.values();
        let by_count = |left: &(Input<'_>, u64), right: &(Input<'_>, u64)| {
            let by_count = right.1.cmp(&left.1);
            by_count.then_with(|| compare(left.0, right.0))
        };
        if values.len() > *most {
            values.select_nth_unstable_by(*most, by_count);
            values.truncate(*most);
        }
        values.sort_unstable_by(by_count);
        out.push(b'[');
        for (at, (value, count)) in values.into_iter().enumerate() {
            out.extend_from_slice(if at == 0 {
                b"{\"value\":"
            } else {
                b",{\"value\":"
            });
            write_input(value, out);
            out.extend_from_slice(b",\"count\":");
            write_unsigned(count, out);
            out.push(b'}');
        }
        out.push(b']');
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let mut values = self.values();
        values.sort_unstable_by(|left, right| compare(left.0, right.0));
        out.length(values.len());
        let mut kept = Kept::Nothing;
        for (value, count) in values {
            kept.set(value);
            kept.encode(out);
            out.unsigned(count);
        }
    }

    fn decode(_: &usize, input: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut top = Self::default();
        for _ in 0..input.length()? {
            let kept = Kept::decode(input)?;
            let times = input.unsigned()?;
            top.add_times(kept.as_input(), times);
        }
        Ok(top)
    }

    fn heap(&self) -> usize {
        let slots = self.slots.capacity().saturating_mul(size_of::<u32>());
        let entries = self.entries.capacity().saturating_mul(size_of::<Entry>());
        let bytes = self.bytes.capacity();
        slots.saturating_add(entries).saturating_add(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_laws, input, shown, state};
    use super::*;

    fn add(top: &mut Top, text: &str) {
        top.add(input(text));
    }

    #[test]
    fn the_most_frequent_come_first_and_ties_go_by_value() {
        let letters: Vec<&str> = ["'c'", "'a'", "'b'"].repeat(5);
        let expected = r#"[{"value":"a","count":5},{"value":"b","count":5}]"#;
        assert_eq!(shown(&state(&letters, add), &2), expected);
        let mixed = [
            "'x'", "1", "1.0", "true", "false", "null", "'1'", "-3", "1e0",
        ];
        let expected = r#"[{"value":1,"count":3},{"value":false,"count":1},{"value":true,"count":1},{"value":-3,"count":1},{"value":"1","count":1},{"value":"x","count":1}]"#;
        assert_eq!(shown(&state(&mixed, add), &10), expected);
        assert_eq!(shown(&state(&[], add), &3), "[]");
        let long = format!("'{}'", "x".repeat(1025));
        assert_eq!(shown(&state(&[&long], add), &3), "[]");
    }

    #[test]
    fn many_values_are_counted_like_by_a_map() {
        let mut counts = std::collections::BTreeMap::new();
        let mut top = Top::default();
        for at in 0..20_000_u64 {
            let text = format!(
                "value number {} of some length beyond sixty-four bytes, {}",
                at * at % 3001,
                at % 2
            );
            *counts.entry(text.clone()).or_insert(0_u64) += 1;
            top.add(Input::Text(text.as_bytes()));
        }
        let mut expected: Vec<(String, u64)> = counts.into_iter().collect();
        expected.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
        let expected: Vec<String> = expected[..50]
            .iter()
            .map(|(value, count)| format!(r#"{{"value":"{value}","count":{count}}}"#))
            .collect();
        assert_eq!(shown(&top, &50), format!("[{}]", expected.join(",")));
    }

    #[test]
    fn neither_order_nor_grouping_shows() {
        let texts: Vec<String> = (0..300).map(|at| format!("'v{}'", at * at % 41)).collect();
        let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        texts.extend(["1", "1", "true", "null", "1e-30", "''"]);
        check_laws(&texts, &5, add);
        check_laws(&texts[295..], &1, add);
    }
}
