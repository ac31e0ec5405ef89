//! The groups of one window, over its panes and lanes, in the order of their keys.
//!
//! Panes of a lane share a dictionary, so they are merged by number. Lanes are merged by key: which
//! numbers of which lanes are one group, and in which order groups go, is worked out once and used
//! for all windows until a lane gets a new key.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "lengths and places of what is in memory"
)]

mod hops;
mod runs;

use std::io;

use crate::group::dictionary::Keys;
use crate::lane::LaneTables;
use crate::pane::table::PaneTable;
use crate::spec::PipelineSpec;
use crate::spill::Run;
use crate::value::Column;

pub(crate) use hops::{LaneHops, MERGED_DIRECTLY};
use runs::{Found, each_with_runs};

/// No such group on that lane.
const NONE: u32 = u32::MAX;

/// The groups of some lanes in the order of their keys: for each, its number on each lane.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Of each lane's dictionary.
    generations: Vec<u64>,
    /// As many for each group as there are lanes.
    numbers: Vec<u32>,
}

impl Order {
    /// Works the order out, unless it is that of these keys already.
    pub(crate) fn follow(&mut self, lanes: &[&Keys]) {
        let generations = lanes.iter().map(|keys| keys.generation);
        if self.generations.len() == lanes.len()
            && self.generations.iter().copied().eq(generations.clone())
        {
            return;
        }
        self.generations = generations.collect();
        self.numbers.clear();
        let sorted = sorted(lanes);
        if lanes.len() == 1 {
            // Each key has one number there: no need to look at the keys again.
            self.numbers
                .extend(sorted.into_iter().map(|(.., group)| group));
            return;
        }
        let mut previous: Option<&[u8]> = None;
        for (_, lane, group) in sorted {
            let key = lanes[lane as usize].key(group);
            if previous != Some(key) {
                self.numbers.extend(std::iter::repeat_n(NONE, lanes.len()));
                previous = Some(key);
            }
            let first = self.numbers.len() - lanes.len();
            self.numbers[first + lane as usize] = group;
        }
    }

    /// Bytes that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.numbers.capacity() * size_of::<u32>()
    }
}

/// All groups of all lanes, by key; with each the bytes of its key that follow what all begin
/// with: they settle most comparisons.
#[allow(
    clippy::cast_possible_truncation,
    reason = "a feed of four billion lanes does not fit"
)]
fn sorted(lanes: &[&Keys]) -> Vec<(u64, u32, u32)> {
    let mut groups = Vec::with_capacity(lanes.iter().map(|keys| keys.bound as usize).sum());
    let shared = shared_prefix(lanes);
    for (lane, keys) in lanes.iter().enumerate() {
        let head = |group: u32| head(&keys.key(group)[shared..]);
        groups.extend(
            keys.numbers()
                .map(|group| (head(group), lane as u32, group)),
        );
    }
    groups.sort_unstable_by(|left: &(u64, u32, u32), right| {
        let key = |&(_, lane, group): &(u64, u32, u32)| lanes[lane as usize].key(group);
        left.0.cmp(&right.0).then_with(|| key(left).cmp(key(right)))
    });
    groups
}

/// How many bytes all keys begin with alike: users have names like `user-0001234`.
fn shared_prefix(lanes: &[&Keys]) -> usize {
    let mut keys = lanes
        .iter()
        .flat_map(|keys| keys.numbers().map(|group| keys.key(group)));
    let Some(first) = keys.next() else { return 0 };
    let mut shared = first.len();
    for key in keys {
        let same = first
            .iter()
            .zip(key)
            .take_while(|(one, other)| one == other);
        shared = shared.min(same.take(shared).count());
        if shared == 0 {
            break;
        }
    }
    shared
}

/// The first eight bytes, in an order that is that of the keys where they differ.
fn head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = key.len().min(8);
    head[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(head)
}

/// A part of a group's state: the columns, and the place in them.
pub(crate) type Part<'a> = (&'a [Column], usize);

/// One group's state, of all its parts.
pub(crate) struct Merged(PaneTable);

impl Merged {
    pub(crate) fn new(spec: &PipelineSpec) -> Self {
        let mut table = PaneTable::new(&spec.values);
        table.place_or_add(0, 1);
        Self(table)
    }

    /// The parts in one: of none, what has taken in nothing. A single one is given as it is.
    pub(crate) fn of<'a>(&'a mut self, parts: &[Part<'a>]) -> Part<'a> {
        if let [part] = parts {
            return *part;
        }
        let columns = self.0.columns_mut();
        columns.iter_mut().for_each(|column| column.reset(0));
        for &(from_columns, place) in parts {
            for (column, from) in columns.iter_mut().zip(from_columns) {
                column.merge_at(0, from, place);
            }
        }
        (columns, 0)
    }
}

/// One lane's groups in a window.
enum LaneWindow<'a> {
    Nothing,
    /// The common case, one pane, copies nothing.
    Pane(&'a PaneTable),
    Panes(Box<PaneTable>),
    Kept(&'a LaneHops),
}

impl<'a> LaneWindow<'a> {
    fn new(
        spec: &PipelineSpec,
        end: i64,
        lane: &'a LaneTables,
        hops: Option<&'a mut LaneHops>,
    ) -> Self {
        if let Some(hops) = hops {
            hops.advance(spec, end, &lane.panes);
            return Self::Kept(hops);
        }
        let mut panes = lane
            .panes
            .iter()
            .filter(|(key, _)| key.counts_in(&spec.window, end))
            .map(|(_, table)| &**table);
        let Some(first) = panes.next() else {
            return Self::Nothing;
        };
        let Some(second) = panes.next() else {
            return Self::Pane(first);
        };
        let mut merged = first.clone();
        merged.merge(second);
        panes.for_each(|table| merged.merge(table));
        Self::Panes(Box::new(merged))
    }

    /// Calls `found` with the columns and the place of each part of the group's state.
    #[inline]
    fn each_part<'b>(&'b self, group: u32, mut found: impl FnMut(&'b [Column], usize)) {
        let table = match self {
            Self::Nothing => return,
            Self::Pane(table) => table,
            Self::Panes(table) => &**table,
            Self::Kept(hops) => return hops.each_part(group, found),
        };
        if let Some(place) = table.place(group) {
            found(table.columns(), place);
        }
    }
}

/// Calls `row` for each group of the window that ends at `end`, in the order of their keys, with the
/// key, the columns and the place in them, until it says that it has enough.
///
/// `hops` is empty, or has what is kept of each lane; windows come in the order of their ends then.
///
/// # Errors
/// Groups on disk cannot be read.
pub(crate) fn each_group(
    spec: &PipelineSpec,
    end: i64,
    lanes: &[LaneTables],
    order: &Order,
    hops: &mut [LaneHops],
    mut row: impl FnMut(&[u8], &[Column], usize) -> bool,
) -> io::Result<()> {
    let runs = lanes.iter().flat_map(|lane| &lane.runs);
    let runs = runs.filter(|(pane, _)| pane.counts_in(&spec.window, end));
    let runs: Vec<&Run> = runs.map(|(_, run)| run).collect();
    if runs.is_empty() {
        each_in_memory(spec, end, lanes, order, hops, row);
        return Ok(());
    }
    // What is kept of panes would take the memory that they left.
    hops.iter_mut().for_each(|hops| *hops = LaneHops::default());
    let like = PaneTable::new(&spec.values);
    let in_memory = |found: &mut Found<'_>| {
        each_in_memory(spec, end, lanes, order, &mut [], found);
    };
    each_with_runs(&runs, like.columns(), in_memory, &mut row)
}

/// Calls `found` for each group of a pane, in the order of their keys.
///
/// # Errors
/// Groups on disk cannot be read.
pub(crate) fn each_group_of_pane(
    table: &PaneTable,
    keys: &Keys,
    runs: &[&Run],
    found: &mut Found<'_>,
) -> io::Result<()> {
    let in_memory = |found: &mut Found<'_>| {
        let mut groups: Vec<(u64, u32, usize)> = table
            .groups()
            .map(|(group, place)| (head(keys.key(group)), group, place))
            .collect();
        groups.sort_unstable_by(|left, right| {
            let key = |&(_, group, _): &(u64, u32, usize)| keys.key(group);
            left.0.cmp(&right.0).then_with(|| key(left).cmp(key(right)))
        });
        for (_, group, place) in groups {
            if !found(keys.key(group), table.columns(), place) {
                return;
            }
        }
    };
    if runs.is_empty() {
        in_memory(found);
        return Ok(());
    }
    each_with_runs(runs, table.columns(), in_memory, found)
}

fn each_in_memory(
    spec: &PipelineSpec,
    end: i64,
    lanes: &[LaneTables],
    order: &Order,
    hops: &mut [LaneHops],
    mut row: impl FnMut(&[u8], &[Column], usize) -> bool,
) {
    let mut hops = hops.iter_mut();
    let windows: Vec<LaneWindow<'_>> = lanes
        .iter()
        .map(|lane| LaneWindow::new(spec, end, lane, hops.next()))
        .collect();
    let mut merged = Merged::new(spec);
    let mut parts: Vec<Part<'_>> = Vec::new();
    for numbers in order.numbers.chunks_exact(lanes.len().max(1)) {
        parts.clear();
        let mut key: &[u8] = &[];
        for ((&group, window), lane) in numbers.iter().zip(&windows).zip(lanes) {
            if group == NONE {
                continue;
            }
            let before = parts.len();
            window.each_part(group, |columns, place| parts.push((columns, place)));
            if before == 0 && !parts.is_empty() {
                key = lane.keys.key(group);
            }
        }
        if parts.is_empty() {
            continue;
        }
        let (columns, place) = merged.of(&parts);
        if !row(key, columns, place) {
            return;
        }
    }
}

/// What is kept of lanes from window to window, if windows of this kind gain by it: else empty.
pub(crate) fn kept_hops(spec: &PipelineSpec, lanes: usize) -> Vec<LaneHops> {
    let lanes = if spec.window.panes() > MERGED_DIRECTLY {
        lanes
    } else {
        0
    };
    std::iter::repeat_with(LaneHops::default)
        .take(lanes)
        .collect()
}
