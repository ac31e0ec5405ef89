//! Where each entry lies in the log's files.

use std::collections::VecDeque;
use std::ops::Range;

use super::record::{Change, next_index};

/// A record in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The file's own place in the log, which is its name.
    pub chunk: u64,
    /// Where the record begins in the log: the files lie one after the other.
    pub start: u64,
    pub length: u32,
}

impl Place {
    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }
}

/// The places of all entries from `first` on, without a hole.
#[derive(Default)]
pub(super) struct Index {
    first: u64,
    places: VecDeque<Place>,
}

impl Index {
    pub(super) fn starting_at(first: u64) -> Self {
        Self {
            first,
            places: VecDeque::new(),
        }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.first..self.first + self.places.len() as u64
    }

    pub(super) fn pass(&mut self, change: &Change, place: Place) {
        match *change {
            Change::Entry(_) => self.places.push_back(place),
            Change::Truncated(last) => {
                let end = next_index(last);
                self.first = self.first.min(end);
                self.places.truncate((end - self.first) as usize);
            }
            Change::Purged(upto) => {
                let first = next_index(Some(upto)).max(self.first);
                let gone = (first - self.first).min(self.places.len() as u64);
                self.places.drain(..gone as usize);
                self.first = first;
            }
            Change::Vote(_) | Change::Committed(_) => {}
        }
    }

    /// Where entries of `wanted` lie, in order, until one more would pass `max_bytes` (at least one if there is one).
    pub(super) fn places(&self, wanted: Range<u64>, max_bytes: usize) -> Vec<Place> {
        let known = self.range();
        let range = wanted.start.max(known.start)..wanted.end.min(known.end);
        let mut places = Vec::new();
        let mut size = 0_usize;
        for index in range {
            let place = self.places[(index - self.first) as usize];
            size = size.saturating_add(place.length as usize);
            if !places.is_empty() && size > max_bytes {
                break;
            }
            places.push(place);
        }
        places
    }
}
