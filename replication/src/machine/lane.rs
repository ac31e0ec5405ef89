//! One lane: how far it is taken in, and by what it is known again.

use serde::{Deserialize, Serialize};

use crate::command::LaneEntry;

/// So far from the start lies the first mark, in offsets: of a file, bytes.
const HEAD: i64 = 4096;
/// So far apart are marks, at least.
const APART: i64 = 1 << 20;

/// What is agreed of one lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// Index into the feed's sources.
    pub source: u32,
    /// The partition's number, or the file's name.
    pub name: String,
    /// By what the source knows the lane again; empty: it cannot tell.
    pub identity: String,
    /// The last cut: all records below it are taken in.
    pub cut: i64,
    /// The fingerprint of what was read up to the cut.
    pub fingerprint: u64,
    /// Earlier cuts.
    pub marks: Marks,
    /// Where it is agreed to hold no record.
    pub hole: Hole,
    /// A tick said that the lane was at its end at this cut.
    pub ended: bool,
    /// Nothing more comes of it, and it holds nothing back.
    pub retired: bool,
}

/// Offsets of which none holds a record: markers of transactions, and what was compacted away. It says something of a lane
/// that stands at `from`, and of no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hole {
    /// The cut that it begins at.
    pub from: i64,
    /// The first offset that may hold a record again.
    pub to: i64,
}

impl Hole {
    /// Where a lane that stands at `cut` may hold a record again, as far as is known.
    #[must_use]
    pub fn of(self, cut: i64) -> i64 {
        match self.from == cut {
            true => self.to.max(cut),
            false => cut,
        }
    }
}

/// An earlier cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// One past the last record below it.
    pub offset: i64,
    /// The fingerprint of all records below it.
    pub fingerprint: u64,
}

/// A few earlier cuts of a lane: between two of them whoever can read them again can tell whether they are the same
/// records, without reading all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Where the lane began to be read; the fingerprint is 0 there.
    pub start: i64,
    /// The first cut that lies a few kilobytes beyond the start.
    pub head: Option<Mark>,
    /// A cut that lies at least a megabyte below the last one, once there is such a one; before that the start.
    pub earlier: Mark,
    /// What `earlier` will be next.
    pub later: Mark,
    /// The cut before the last one; at first the start.
    pub before: Mark,
    /// The last one.
    pub last: Mark,
}

impl Marks {
    /// Those of a lane that begins at `start`.
    #[must_use]
    pub fn new(start: i64) -> Self {
        let begin = Mark {
            offset: start,
            fingerprint: 0,
        };
        Self {
            start,
            head: None,
            earlier: begin,
            later: begin,
            before: begin,
            last: begin,
        }
    }

    /// The lane has come to a further cut.
    pub fn pass(&mut self, offset: i64, fingerprint: u64) {
        let mark = Mark {
            offset,
            fingerprint,
        };
        if self.head.is_none() && offset.saturating_sub(self.start) >= HEAD {
            self.head = Some(mark);
        }
        if offset.saturating_sub(self.later.offset) >= APART {
            self.earlier = std::mem::replace(&mut self.later, mark);
        }
        self.before = std::mem::replace(&mut self.last, mark);
    }
}

impl Lane {
    pub(super) fn new(entry: &LaneEntry) -> Self {
        Self {
            source: entry.source,
            name: entry.name.clone(),
            identity: entry.identity.clone(),
            cut: entry.start,
            fingerprint: 0,
            marks: Marks::new(entry.start),
            hole: Hole::default(),
            ended: false,
            retired: false,
        }
    }

    pub(super) fn take_in(&mut self, cut: i64, fingerprint: u64) {
        self.cut = cut;
        self.fingerprint = fingerprint;
        self.marks.pass(cut, fingerprint);
        self.ended = false;
    }

    /// From here on it is read, and fingerprints begin anew.
    pub(super) fn begin_at(&mut self, offset: i64) {
        (self.cut, self.fingerprint) = (offset, 0);
        self.marks = Marks::new(offset);
        self.ended = false;
    }

    /// What no two lanes of a feed have in common. Names are free again once their lane is retired.
    pub(super) fn key(&self) -> (u32, &str, Option<(i64, i64)>) {
        let past = self.retired.then_some((self.marks.start, self.cut));
        (self.source, &self.name, past)
    }

    /// Whether a lane of the same name has the same records below the same cut. Chains of fingerprints that began at
    /// different offsets cannot be compared; a file's identity may have been taken when it was shorter.
    pub(super) fn took_in_the_same(&self, other: &Self) -> bool {
        let same_chain =
            self.marks.start == other.marks.start && self.fingerprint == other.fingerprint;
        self.cut == other.cut && (same_chain || self.identity == other.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_megabyte_lies_between_an_earlier_mark_and_the_cut() {
        let mut marks = Marks::new(100);
        let mut cut = 100;
        while cut < 10 * APART {
            cut += 1000;
            marks.pass(cut, cut.unsigned_abs());
            let (before, last) = (marks.before.offset, marks.last.offset);
            assert_eq!((before, last), (cut - 1000, cut));
            let back = cut - marks.earlier.offset;
            let from_the_start = marks.earlier.offset == 100;
            assert!(back <= 2 * APART + 2000, "{back}");
            assert!(back >= APART || from_the_start, "{back}");
        }
        let head = marks.head.unwrap_or_default();
        assert!((100 + HEAD..100 + HEAD + 1000).contains(&head.offset));
        assert_eq!(head.fingerprint, head.offset.unsigned_abs());
    }
}
