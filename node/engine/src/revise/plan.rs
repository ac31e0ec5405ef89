//! Which rows a tick revises, and what they show.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::empty::{Filled, fill};
use super::runs::{self, OnDisk};
use super::{Ledger, Touched};
use crate::close::{Closed, EmptyWindows};
use crate::lane::{LaneEngine, LaneTables};
use crate::merge::{LaneHops, Merged, Part};
use crate::pane::LentPane;
use crate::spec::{PipelineSpec, WindowSpec};
use crate::value::Column;
use crate::window::PaneKey;

/// The rows that late records correct, taken from the lanes: still to be written.
#[derive(Debug)]
pub(crate) struct Revisions {
    /// By window end: places in `groups`, ascending.
    windows: BTreeMap<i64, Vec<u32>>,
    /// By key.
    groups: Vec<Group>,
    lanes: Vec<RevisedLane>,
    /// Windows that had rows, though they were empty.
    were_empty: BTreeSet<i64>,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) key: Vec<u8>,
    /// Its number on each lane.
    numbers: Vec<Option<u32>>,
}

#[derive(Debug)]
struct RevisedLane {
    tables: LaneTables,
    touched: Touched,
}

/// A row that is to be written again, or for the first time.
pub(crate) struct Revised<'a> {
    pub(crate) end: i64,
    pub(crate) key: &'a [u8],
    /// The window had a row of the group before, `having` apart.
    pub(crate) had_row: bool,
    pub(crate) columns: &'a [Column],
    pub(crate) place: usize,
}

impl Revisions {
    /// What the tick's records changed of the windows that were closed when it began; `None`: nothing.
    /// Notes in `closed` which of them hold data now.
    pub(crate) fn collect(
        (at, spec): (usize, &PipelineSpec),
        empty: EmptyWindows,
        (closed, ledger): (&mut Closed, &Ledger),
        lanes: &mut [&mut LaneEngine],
    ) -> Option<Self> {
        let touched = lanes.iter_mut().map(|lane| lane.take_touched(at));
        let touched: Vec<Touched> = touched.collect();
        let through = closed
            .through
            .filter(|_| !touched.iter().all(Touched::is_empty))?
            .0;
        let window = &spec.window;
        let panes = touched.iter().flat_map(Touched::keys);
        let ends = panes.flat_map(|(pane, _)| ends_of(window, *pane, through));
        let ends: BTreeSet<i64> = ends.collect();
        let starts = window.start_of(*ends.first()?)..*ends.last()?;
        let is_revised = |pane: PaneKey| {
            let its = pane.first_end..=pane.last_end(window);
            ends.range(its).next().is_some()
        };
        let filled = match empty {
            EmptyWindows::Skipped => Filled::default(),
            EmptyWindows::Shown => fill(window, closed, ledger, &ends, |found| {
                for (lane, touched) in lanes.iter().zip(&touched) {
                    let store = &lane.pipelines[at].state.panes;
                    let groups = |key: PaneKey| touched.range((key, 0)..=(key, u32::MAX));
                    let is_new = |key: PaneKey| groups(key).any(|(_, is_new)| *is_new);
                    let held = store.keys();
                    found.extend(held.filter(|&key| store.has_runs(key) || !is_new(key)));
                }
            }),
        };
        let tables = lanes
            .iter_mut()
            .map(|lane| lane.lend_in(at, starts.clone(), is_revised));
        let revised = tables.zip(touched);
        let revised = revised.map(|(tables, touched)| RevisedLane { tables, touched });
        let mut revisions = Self {
            windows: BTreeMap::new(),
            groups: Vec::new(),
            lanes: revised.collect(),
            were_empty: filled.were_empty,
        };
        revisions.find_groups(at, lanes);
        revisions.find_rows(window, through);
        for end in filled.first_rows {
            revisions.windows.entry(end).or_insert_with(|| vec![0]);
        }
        Some(revisions)
    }

    /// The groups that were touched, on all lanes.
    fn find_groups(&mut self, at: usize, lanes: &mut [&mut LaneEngine]) {
        let mut keys: BTreeSet<&[u8]> = BTreeSet::new();
        for lane in &self.lanes {
            let numbers: BTreeSet<u32> = lane.touched.keys().map(|(_, group)| *group).collect();
            keys.extend(numbers.into_iter().map(|group| lane.tables.keys.key(group)));
        }
        let group = |key: &[u8]| Group {
            key: key.to_vec(),
            numbers: lanes
                .iter_mut()
                .map(|lane| lane.group_of(at, key))
                .collect(),
        };
        self.groups = keys.into_iter().map(group).collect();
    }

    /// The windows of each.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "four billion groups do not fit"
    )]
    fn find_rows(&mut self, window: &WindowSpec, through: i64) {
        for lane in &self.lanes {
            for &(pane, group) in lane.touched.keys() {
                let key = lane.tables.keys.key(group);
                let place = self
                    .groups
                    .partition_point(|group| group.key.as_slice() < key);
                for end in ends_of(window, pane, through) {
                    self.windows.entry(end).or_default().push(place as u32);
                }
            }
        }
        for groups in self.windows.values_mut() {
            groups.sort_unstable();
            groups.dedup();
        }
    }

    /// What is kept of lanes from window to window does not hold what came late.
    pub(crate) fn forget_hops(&self, hops: &mut [LaneHops]) {
        for (lane, hops) in self.lanes.iter().zip(hops) {
            if !lane.touched.is_empty() {
                *hops = LaneHops::default();
            }
        }
    }

    /// Calls `row` for each, by window end and group.
    ///
    /// # Errors
    /// Groups on disk cannot be read.
    pub(crate) fn each(
        &self,
        spec: &PipelineSpec,
        mut row: impl FnMut(&Revised<'_>),
    ) -> io::Result<()> {
        let on_disk = self.lanes.iter();
        let on_disk = on_disk.map(|lane| runs::read(spec, &lane.tables.runs, &self.groups));
        let on_disk = on_disk.collect::<io::Result<Vec<OnDisk>>>()?;
        let mut merged = Merged::new(spec);
        let mut parts: Vec<Part<'_>> = Vec::new();
        for (&end, groups) in &self.windows {
            let panes: Vec<&[LentPane]> = self
                .lanes
                .iter()
                .map(|lane| panes_of(&spec.window, end, &lane.tables.panes))
                .collect();
            for &number in groups {
                let Some(group) = self.groups.get(number as usize) else {
                    continue;
                };
                parts.clear();
                for (_, table) in on_disk
                    .iter()
                    .flatten()
                    .filter(|(key, _)| key.counts_in(&spec.window, end))
                {
                    let place = table.place(number);
                    parts.extend(place.map(|place| (table.columns(), place)));
                }
                // What is on disk was there before the tick.
                let mut had_row = !parts.is_empty() || self.were_empty.contains(&end);
                for ((lane, panes), number) in self.lanes.iter().zip(&panes).zip(&group.numbers) {
                    let Some(number) = *number else { continue };
                    for (key, table) in *panes {
                        let place = table.place(number);
                        let place = place.filter(|_| key.counts_in(&spec.window, end));
                        let Some(place) = place else { continue };
                        parts.push((table.columns(), place));
                        had_row |= lane.touched.get(&(*key, number)) != Some(&true);
                    }
                }
                let (columns, place) = merged.of(&parts);
                row(&Revised {
                    end,
                    key: &group.key,
                    had_row,
                    columns,
                    place,
                });
            }
        }
        Ok(())
    }
}

/// The ends of the closed windows in which the pane counts.
fn ends_of(window: &WindowSpec, pane: PaneKey, through: i64) -> impl Iterator<Item = i64> + '_ {
    let last = pane.last_end(window).min(through);
    let ends = std::iter::successors(Some(pane.first_end), |&end| window.next_end(end));
    ends.take_while(move |&end| end <= last)
}

/// Those of the panes that start within the window; they are ascending.
fn panes_of<'a>(window: &WindowSpec, end: i64, panes: &'a [LentPane]) -> &'a [LentPane] {
    let start = window.start_of(end);
    let from = panes.partition_point(|(key, _)| key.start < start);
    let to = panes.partition_point(|(key, _)| key.start < end);
    panes.get(from..to).unwrap_or_default()
}
