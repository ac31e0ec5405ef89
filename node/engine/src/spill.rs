//! State on disk: what a budget of memory has no room for.
//!
//! The engine does no I/O of its own. Whoever holds it gives a file to write to, and the engine reads
//! back what it wrote. The coldest panes go first: those that begin earliest. A pane that goes leaves
//! its groups as a *run*: in the order of their keys, each with its states as a checkpoint has them.
//! The pane begins anew with an empty table, and a window that closes merges its runs and tables by
//! key, a group at a time. Merging is exact in any order, so no row and no byte of a checkpoint
//! depends on what was on disk.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "lengths and places of what is in memory"
)]

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::lane::LaneEngine;
use crate::merge::each_group_of_pane;
use crate::part::codec::Writer;
use crate::window::PaneKey;

/// A pane with so many runs gets one of them all when it goes to disk again.
const MOST_RUNS: usize = 32;

/// A file that is written once.
pub trait SpillFile: Write {
    /// What was written, for as long as somebody holds it.
    ///
    /// # Errors
    /// Not all of it could be written.
    fn finish(self: Box<Self>) -> io::Result<Arc<dyn SpilledBytes>>;
}

/// Bytes that were written, and do not change.
pub trait SpilledBytes: fmt::Debug + Send + Sync {
    /// Reads some of the bytes from `at` on; gives how many, 0 at the end.
    ///
    /// # Errors
    /// They cannot be read.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// How many bytes of state may stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Nothing goes to disk while there are no more than these.
    pub limit: usize,
    /// Else panes go until about so many are left.
    pub keep: usize,
    /// Nothing goes where less than this would be gained.
    pub least: usize,
}

/// What went to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spilled {
    /// Bytes on disk.
    pub bytes: u64,
    /// Groups of panes, each counted once for each run that it is in.
    pub groups: u64,
}

/// Groups of one pane on disk.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    file: Arc<dyn SpilledBytes>,
    from: u64,
    bytes: u64,
    pub(crate) groups: u64,
}

impl Run {
    pub(crate) fn input(&self) -> RunInput<'_> {
        RunInput { run: self, at: 0 }
    }
}

/// Reads a run from its begin.
pub(crate) struct RunInput<'a> {
    run: &'a Run,
    at: u64,
}

impl Read for RunInput<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.run.bytes - self.at).unwrap_or(usize::MAX);
        let most = left.min(into.len());
        let place = self.run.from + self.at;
        let read = self.run.file.read_at(place, &mut into[..most])?;
        self.at += read as u64;
        Ok(read)
    }
}

/// A pane that is to go.
struct Leaving {
    lane: usize,
    pipeline: usize,
    pane: PaneKey,
    /// What is gained by it, about.
    bytes: usize,
}

/// Its run, where it lies in the file.
struct Written {
    from: u64,
    bytes: u64,
    groups: u64,
    /// It has the pane's older runs too.
    is_whole: bool,
}

/// Puts the coldest panes of a feed's lanes on disk, if all of the feed's state, of which `beside`
/// bytes belong to no lane, takes more memory than there is room. To be called between two ticks.
/// Gives `None` if nothing went.
///
/// # Errors
/// The file could not be made, or an older run not be read. Then all is in memory as before.
pub fn spill(
    lanes: &mut [&mut LaneEngine],
    beside: usize,
    room: Room,
    create: &mut dyn FnMut() -> io::Result<Box<dyn SpillFile>>,
) -> io::Result<Option<Spilled>> {
    let bytes = lanes.iter_mut().map(|lane| lane.measure()).sum::<usize>() + beside;
    if bytes <= room.limit {
        return Ok(None);
    }
    let leaving = coldest(lanes, bytes.saturating_sub(room.keep));
    let gained: usize = leaving.iter().map(|pane| pane.bytes).sum();
    if leaving.is_empty() || gained < room.least {
        return Ok(None);
    }
    let mut file = Counted {
        file: create()?,
        written: 0,
    };
    let mut runs = Vec::with_capacity(leaving.len());
    for pane in &leaving {
        runs.push(write_run(lanes[pane.lane], pane, &mut file)?);
    }
    let file = file.file.finish()?;
    let mut spilled = Spilled {
        bytes: 0,
        groups: 0,
    };
    for (pane, written) in leaving.iter().zip(runs) {
        spilled.bytes += written.bytes;
        spilled.groups += written.groups;
        let run = Run {
            file: Arc::clone(&file),
            from: written.from,
            bytes: written.bytes,
            groups: written.groups,
        };
        lanes[pane.lane].leave_to(pane.pipeline, pane.pane, run, written.is_whole);
    }
    for lane in lanes.iter_mut() {
        lane.sweep();
        lane.measure();
    }
    Ok(Some(spilled))
}

/// Panes of which about so many bytes can be had, the coldest first; then by lane and pipeline.
fn coldest(lanes: &[&mut LaneEngine], wanted: usize) -> Vec<Leaving> {
    let mut panes: Vec<Leaving> = Vec::new();
    for (lane, engine) in lanes.iter().enumerate() {
        engine.each_table(&mut |pipeline, pane, bytes| {
            panes.push(Leaving {
                lane,
                pipeline,
                pane,
                bytes,
            });
        });
    }
    panes.sort_by_key(|of| of.pane);
    let mut gained = 0;
    let enough = panes.iter().position(|pane| {
        gained += pane.bytes;
        gained >= wanted
    });
    panes.truncate(enough.map_or(panes.len(), |last| last + 1));
    panes.sort_by_key(|of| (of.lane, of.pipeline, of.pane));
    panes
}

fn write_run(lane: &mut LaneEngine, of: &Leaving, file: &mut Counted) -> io::Result<Written> {
    let from = file.written;
    let tables = lane.lend_pane(of.pipeline, of.pane);
    let is_whole = tables.runs.len() >= MOST_RUNS;
    let older = tables.runs.iter().filter(|_| is_whole);
    let older: Vec<&Run> = older.map(|(_, run)| run).collect();
    let mut groups = 0;
    let mut out = Writer::new(file);
    for (_, table) in &tables.panes {
        each_group_of_pane(table, &tables.keys, &older, &mut |key, columns, place| {
            out.slice(key);
            columns
                .iter()
                .for_each(|column| column.encode(place, &mut out));
            groups += 1;
            true
        })?;
    }
    out.finish()?;
    Ok(Written {
        from,
        bytes: file.written - from,
        groups,
        is_whole,
    })
}

/// Knows how far a file is written.
struct Counted {
    file: Box<dyn SpillFile>,
    written: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
