//! Groups that are partly on disk, in the order of their keys: runs are merged a group at a time, so
//! that no more than a group of each is in memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use crate::part::codec::Reader;
use crate::spill::{Run, RunInput};
use crate::value::Column;

/// What all runs of a merge may read ahead together, but for [`LEAST_AHEAD`] each.
const AHEAD: usize = 4 << 20;
const LEAST_AHEAD: usize = 4 << 10;
const MOST_AHEAD: usize = 64 << 10;

/// Takes a group's key, the columns and the place in them; tells whether more are wanted.
pub(crate) type Found<'a> = dyn FnMut(&[u8], &[Column], usize) -> bool + 'a;

/// Calls `found` for each group of runs and of what `in_memory` calls with its groups, which come in
/// the order of their keys. `like` are columns of the same kinds.
///
/// # Errors
/// A run cannot be read.
pub(crate) fn each_with_runs(
    runs: &[&Run],
    like: &[Column],
    in_memory: impl FnOnce(&mut Found<'_>),
    found: &mut Found<'_>,
) -> io::Result<()> {
    let ahead = AHEAD.checked_div(runs.len()).unwrap_or(AHEAD);
    let ahead = ahead.clamp(LEAST_AHEAD, MOST_AHEAD);
    let mut inputs: Vec<RunInput<'_>> = runs.iter().map(|run| run.input()).collect();
    let readers = inputs.iter_mut().zip(runs).map(|(input, run)| RunReader {
        input: Reader::reading_ahead(input, ahead),
        left: run.groups,
    });
    let mut merge = Merge::new(readers.collect(), like)?;
    let mut stands = Ok(true);
    in_memory(&mut |key, columns, place| {
        stands = merge.come_to(key, columns, place, found);
        matches!(stands, Ok(true))
    });
    if stands? {
        merge.go_through(found)?;
    }
    Ok(())
}

struct RunReader<'a> {
    input: Reader<'a>,
    /// Groups that were not read.
    left: u64,
}

/// The runs of a merge, each at a group.
struct Merge<'a> {
    runs: Vec<RunReader<'a>>,
    /// The key that each run is at, with the run's place.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// The states that each run is at, at the run's place.
    states: Vec<Column>,
    /// Those of one group, merged.
    merged: Vec<Column>,
    key: Vec<u8>,
}

impl<'a> Merge<'a> {
    fn new(runs: Vec<RunReader<'a>>, like: &[Column]) -> io::Result<Self> {
        let columns = |len| {
            let columns = like.iter();
            let columns = columns.map(|column| column.rearranged(len, std::iter::empty()));
            columns.collect()
        };
        let mut merge = Self {
            heads: BinaryHeap::with_capacity(runs.len()),
            states: columns(runs.len()),
            merged: columns(1),
            key: Vec::new(),
            runs,
        };
        for run in 0..merge.runs.len() {
            merge.read_on(run, Vec::new())?;
        }
        Ok(merge)
    }

    /// Reads the run's next group; `key` is memory for its key.
    fn read_on(&mut self, at: usize, mut key: Vec<u8>) -> io::Result<()> {
        let run = &mut self.runs[at];
        if run.left == 0 {
            return Ok(run.input.finish()?);
        }
        run.left = run.left.saturating_sub(1);
        key.clear();
        key.extend_from_slice(run.input.slice()?);
        for column in &mut self.states {
            column.decode(at, &mut run.input)?;
        }
        self.heads.push(Reverse((key, at)));
        Ok(())
    }

    /// Gives the groups that come before `key`, then that of `key` itself, of which there are states in
    /// memory. Tells whether more are wanted.
    fn come_to(
        &mut self,
        key: &[u8],
        columns: &[Column],
        place: usize,
        found: &mut Found<'_>,
    ) -> io::Result<bool> {
        while let Some(Reverse((next, _))) = self.heads.peek() {
            if &next[..] > key {
                break;
            }
            let is_it = next == key;
            self.begin();
            if is_it {
                for (into, from) in self.merged.iter_mut().zip(columns) {
                    into.merge_at(0, from, place);
                }
            }
            self.take()?;
            if is_it || !found(&self.key, &self.merged, 0) {
                return Ok(is_it && found(&self.key, &self.merged, 0));
            }
        }
        Ok(found(key, columns, place))
    }

    /// Gives all groups that are left.
    fn go_through(&mut self, found: &mut Found<'_>) -> io::Result<()> {
        while !self.heads.is_empty() {
            self.begin();
            self.take()?;
            if !found(&self.key, &self.merged, 0) {
                break;
            }
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.merged.iter_mut().for_each(|column| column.reset(0));
    }

    /// Merges the least key's states of all runs, which read on.
    fn take(&mut self) -> io::Result<()> {
        let mut is_first = true;
        while let Some(Reverse((key, _))) = self.heads.peek()
            && (is_first || *key == self.key)
        {
            let Some(Reverse((key, at))) = self.heads.pop() else {
                break;
            };
            if is_first {
                self.key.clone_from(&key);
            }
            is_first = false;
            for (into, from) in self.merged.iter_mut().zip(&self.states) {
                into.merge_at(0, from, at);
            }
            self.read_on(at, key)?;
        }
        Ok(())
    }
}
