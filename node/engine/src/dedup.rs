//! Copies of records, found over all lanes of a feed.
//!
//! A record that carries an id is not folded when it comes: its pane keeps what is needed to fold it
//! later. When the first window that it counts in closes, all records of that end, of all lanes, are
//! judged in the order of event time, lane and offset: one counts unless another with its id was
//! counted less than `within` away. Which records have that end hangs on their own lanes alone, and
//! ends are judged in ascending order, so neither ticks nor the interleaving of lanes can change
//! which copy counts. A record that is late is a dead letter and stands in nobody's way.
//!
//! "Less than `within` away" looks to both sides: in overlapping windows a record that was late for its
//! first windows is judged after younger ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use crate::part::codec::{Fault, Reader, Writer};
use crate::spec::{Timestamp, WindowSpec};
use crate::window::PaneKey;

pub(crate) mod held;
mod part;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use part::{read_waiting, write_waiting};
pub(crate) use waiting::{Entry, Waiting, WaitingStore};

/// An id as all replicas know it: 128 bits of hash (XXH3, seed 0) of the encoded key. Of a thousand
/// million different ids at once two are alike with a probability of about 1.5 · 10⁻²¹.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id([u64; 2]);

impl Id {
    #[inline]
    pub(crate) fn of(key: &[u8]) -> Self {
        Self::of_bits(xxh3_128(key))
    }

    /// Halves, so that an entry needs the alignment of 64 bits only.
    #[allow(clippy::cast_possible_truncation, reason = "halves")]
    fn of_bits(bits: u128) -> Self {
        Self([(bits >> 64) as u64, bits as u64])
    }

    fn bits(self) -> u128 {
        u128::from(self.0[0]) << 64 | u128::from(self.0[1])
    }
}

/// Fewer counted ids than this are not swept.
const FEWEST_SWEPT: usize = 1024;

/// The ids that were counted, with their event times: those that a record may still meet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    counted: BTreeSet<(Id, i64)>,
    /// What is left below so many is not looked through again.
    sweep_from: usize,
}

impl Seen {
    /// Whether a record of this id and time counts; if so, it is known from now on.
    fn admits(&mut self, id: Id, time: i64, within_ms: i64) -> bool {
        let reach = within_ms.saturating_sub(1);
        let near = (id, time.saturating_sub(reach))..=(id, time.saturating_add(reach));
        self.counted.range(near).next().is_none() && self.counted.insert((id, time))
    }

    /// Forgets what no record from `horizon` on can meet; now and then, so that it costs little.
    pub(crate) fn sweep(&mut self, horizon: i64, within_ms: i64) {
        if self.counted.len() <= self.sweep_from.max(FEWEST_SWEPT) {
            return;
        }
        self.counted
            .retain(|&(_, time)| matters(time, horizon, within_ms));
        self.sweep_from = self.counted.len().saturating_mul(2);
    }

    /// Bytes that it takes: an entry has 24, and nodes are two thirds full.
    pub(crate) fn memory(&self) -> usize {
        let entries = self.counted.len();
        entries.saturating_mul(size_of::<(Id, i64)>().saturating_mul(3)) / 2
    }

    /// Writes what matters from `horizon` on: the same bytes, whenever it was swept.
    pub(crate) fn encode(&self, horizon: i64, within_ms: i64, out: &mut Writer<'_>) {
        let matters = |entry: &&(Id, i64)| matters(entry.1, horizon, within_ms);
        out.length(self.counted.iter().filter(matters).count());
        for (id, time) in self.counted.iter().filter(matters) {
            out.fixed(&id.bits().to_be_bytes());
            out.signed(*time);
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut seen = Self::default();
        for _ in 0..input.length()? {
            let id = Id::of_bits(u128::from_be_bytes(input.fixed()?));
            seen.counted.insert((id, input.signed()?));
        }
        Ok(seen)
    }
}

fn matters(time: i64, horizon: i64, within_ms: i64) -> bool {
    time.saturating_add(within_ms) > horizon
}

/// No record that counts from now on is older, once windows are closed through here.
pub(crate) fn horizon(window: &WindowSpec, closed_through: Option<Timestamp>) -> i64 {
    let Some(Timestamp(through)) = closed_through else {
        return i64::MIN;
    };
    match window.fixed() {
        // The last window of its pane ends beyond.
        Some(fixed) => through.saturating_sub(fixed.size_ms()),
        None => window.pane_of(through).0,
    }
}

/// A pane's waiting records for a reader.
pub(crate) type LentWaiting = (PaneKey, Arc<Waiting>);

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Counts,
    Copy,
}

/// Judges what waits on each lane, and tells what becomes of each record.
pub(crate) fn judge(
    lanes: &[Vec<LentWaiting>],
    within_ms: i64,
    seen: &mut Seen,
    mut judged: impl FnMut(usize, PaneKey, (&Waiting, &Entry), Verdict),
) {
    let all = || {
        let lanes = lanes.iter().enumerate();
        lanes.flat_map(|(lane, panes)| panes.iter().map(move |pane| (lane, pane)))
    };
    let ends: BTreeSet<i64> = all().map(|(_, (key, _))| key.first_end).collect();
    let mut order = Vec::new();
    for end in ends {
        order.clear();
        for (lane, (key, waiting)) in all().filter(|(_, (key, _))| key.first_end == end) {
            let entries = waiting.entries().iter();
            order.extend(entries.map(|entry| (entry, lane, *key, &**waiting)));
        }
        order.sort_unstable_by_key(|(entry, lane, ..)| (entry.time, *lane, entry.offset));
        for &(entry, lane, key, waiting) in &order {
            let verdict = match seen.admits(entry.id, entry.time, within_ms) {
                true => Verdict::Counts,
                false => Verdict::Copy,
            };
            judged(lane, key, (waiting, entry), verdict);
        }
    }
}
