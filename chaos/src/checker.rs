//! The independent checker: computes every window from the input with plain code and compares the rows that were seen.
//!
//! It uses nothing of the engine. Its own idea of the result is: sort the paid orders into windows and cities, leave
//! out what its own lane had already passed, fold. Because windows close in order and a tick's rows are sorted, the rows
//! by `seq` are the windows by (end, city): that order is checked too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::row::{Key, SeenRow};

mod expectation;
mod input;

pub use expectation::{Expectation, Expected};
pub use input::FileInput;

/// How many faults are described in words; all are counted.
const NOTES: usize = 20;

/// The rows that one reader saw, in the order in which they were read.
#[derive(Clone, Debug, Default)]
pub struct Copy {
    /// Where they were read: a replica or a topic.
    pub name: String,
    /// The rows that could be read.
    pub rows: Vec<Arc<SeenRow>>,
    /// What was read and is no row, or what the reader saw change behind its back: each counts as wrong.
    pub broken: Vec<String>,
}

/// How much of the expectation must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Everything: the input has ended and every window can close.
    All,
    /// Of each copy, what lies before its own last row: it is still growing.
    SoFar,
}

/// What the comparison found. All three are zero or the promise is broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Windows that the input has.
    pub windows: usize,
    /// Different rows seen, by number.
    pub rows: usize,
    /// Rows that are missing in any copy.
    pub gaps: usize,
    /// Rows that are there more than once in any copy.
    pub duplicates: usize,
    /// Rows that differ from the input, from another copy's row of the same number, that are out of order, or that
    /// the input knows nothing of.
    pub wrong: usize,
    /// The first faults in words.
    pub notes: Vec<String>,
}

impl Copy {
    /// Reads rows' texts; what is no row goes to `broken`.
    #[must_use]
    pub fn of_texts(name: &str, texts: &[String]) -> Self {
        let mut copy = Self {
            name: name.to_owned(),
            ..Self::default()
        };
        for text in texts {
            match SeenRow::parse(text) {
                Ok(row) => copy.rows.push(Arc::new(row)),
                Err(problem) => copy.broken.push(problem),
            }
        }
        copy
    }
}

impl Verdict {
    /// No gap, no duplicate, nothing wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.gaps == 0 && self.duplicates == 0 && self.wrong == 0
    }
}

#[derive(Default)]
struct Findings {
    missing_keys: BTreeSet<Key>,
    missing_seqs: BTreeSet<u64>,
    doubled: BTreeSet<u64>,
    wrong: BTreeSet<u64>,
    broken: BTreeSet<String>,
    notes: Vec<String>,
}

impl Findings {
    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.notes.len() < NOTES {
            self.notes.push(text());
        }
    }
}

/// Compares what was seen with what the input says.
#[must_use]
pub fn check(expectation: &Expectation, copies: &[Copy], demand: Demand) -> Verdict {
    let mut findings = Findings::default();
    let mut texts: BTreeMap<u64, (&str, &str)> = BTreeMap::new();
    for copy in copies {
        for broken in &copy.broken {
            if findings.broken.insert(broken.clone()) {
                findings.note(|| format!("{}: {broken}", copy.name));
            }
        }
        check_rows(expectation, copy, &mut findings);
        check_gaps(expectation, copy, demand, &mut findings);
        for row in &copy.rows {
            let (first_name, first_text) = *texts.entry(row.seq).or_insert((&copy.name, &row.text));
            if first_text != row.text && findings.wrong.insert(row.seq) {
                let (name, text) = (&copy.name, &row.text);
                findings.note(|| format!("{name} says {text}, but {first_name} says {first_text}"));
            }
        }
    }
    Verdict {
        windows: expectation.windows(),
        rows: texts.len(),
        // A missing row is seen twice, as a hole in the numbers and as a window without a row: it is one gap.
        gaps: findings.missing_keys.len().max(findings.missing_seqs.len()),
        duplicates: findings.doubled.len(),
        wrong: findings.wrong.len() + findings.broken.len(),
        notes: findings.notes,
    }
}

/// Every row there is: once, in order, and with the input's values.
fn check_rows(expectation: &Expectation, copy: &Copy, findings: &mut Findings) {
    let name = &copy.name;
    let mut seqs = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for row in &copy.rows {
        let new_seq = seqs.insert(row.seq);
        let new_key = keys.insert(&row.key);
        if !(new_seq && new_key) && findings.doubled.insert(row.seq) {
            findings.note(|| format!("{name}: again: {}", row.text));
        }
        let problem = match expectation.get(&row.key) {
            Some(Expected::Values(values)) if *values == row.values => continue,
            Some(expected) => format!("the input says {expected:?}"),
            None => "the input has nothing there".to_owned(),
        };
        if findings.wrong.insert(row.seq) {
            findings.note(|| format!("{name}: {}, but {problem}", row.text));
        }
    }
    let by_seq: BTreeMap<u64, &SeenRow> = copy
        .rows
        .iter()
        .map(|row| (row.seq, row.as_ref()))
        .collect();
    for (before, after) in by_seq.values().zip(by_seq.values().skip(1)) {
        if before.key > after.key && findings.wrong.insert(after.seq) {
            findings.note(|| format!("{name}: out of order: {}", after.text));
        }
    }
}

/// Every number from 0 on, and every window and group of the input.
fn check_gaps(expectation: &Expectation, copy: &Copy, demand: Demand, findings: &mut Findings) {
    let name = &copy.name;
    let seqs: BTreeSet<u64> = copy.rows.iter().map(|row| row.seq).collect();
    let keys: BTreeSet<&Key> = copy.rows.iter().map(|row| &row.key).collect();
    let next_seq = seqs.last().map_or(0, |last| last + 1);
    if next_seq != seqs.len() as u64 {
        for seq in (0..next_seq).filter(|seq| !seqs.contains(seq)) {
            if findings.missing_seqs.insert(seq) {
                findings.note(|| format!("{name}: no row has seq {seq}"));
            }
        }
    }
    for key in expectation.keys() {
        let demanded = match demand {
            Demand::All => true,
            Demand::SoFar => keys.last().is_some_and(|last| key < *last),
        };
        if demanded && !keys.contains(key) && findings.missing_keys.insert(key.clone()) {
            findings.note(|| format!("{name}: no row for the window up to {} in {}", key.0, key.1));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
