//! One pipeline's state in a lane's part.

use std::io;

use super::codec::{Fault, Reader, Writer};
use super::{Grown, RestoreError, other_spec};
use crate::dead_letter::Allowance;
use crate::dedup::{read_waiting, write_waiting};
use crate::group::dictionary::Keys;
use crate::group::is_sound;
use crate::lane::LaneEngine;
use crate::merge::each_group_of_pane;
use crate::pane::table::PaneTable;
use crate::pipeline::Pipeline;
use crate::snapshot::PipelineSnapshot;
use crate::spec::PipelineSpec;
use crate::spill::Run;
use crate::stats::Counters;
use crate::value::Column;
use crate::watermark::EventTimes;
use crate::window::PaneKey;

mod sessions;

/// After so many groups of a pane the lane is looked at.
const GROUPS_AT_ONCE: u64 = 4096;
/// What stands before each group, and behind the last one.
const GROUP: u8 = 1;
const NO_GROUP: u8 = 0;

pub(super) fn write(of: &PipelineSnapshot, lane: usize, out: &mut Writer<'_>) -> io::Result<()> {
    let (state, tables) = (&of.lanes[lane], &of.tables[lane]);
    out.unsigned(of.pipeline.incarnation.0);
    write_shape(of.pipeline.spec(), out);
    state.times.encode(out);
    state.counters.encode(out);
    if of.pipeline.spec().late.keep_ms().is_some() {
        out.unsigned(state.counters.revising);
    }
    state.allowance.encode(out);
    if let Some(table) = &tables.sessions {
        sessions::write(table, &tables.keys, out);
        return Ok(());
    }
    out.length(tables.panes.len());
    for (pane, table) in &tables.panes {
        out.signed(pane.start);
        out.signed(pane.first_end);
        let runs = tables.runs.iter().filter(|(of, _)| of == pane);
        let runs: Vec<&Run> = runs.map(|(_, run)| run).collect();
        write_table(table, &tables.keys, &runs, out)?;
    }
    if of.pipeline.spec().dedup.is_some() {
        out.unsigned(state.counters.duplicates);
        write_waiting(&state.waiting, &tables.keys, out);
    }
    Ok(())
}

/// What the bytes of a group's states depend on.
fn shape(spec: &PipelineSpec) -> impl Iterator<Item = u8> + '_ {
    let kinds = spec.values.iter();
    kinds.map(|value| Column::new(&value.function).kind())
}

fn write_shape(spec: &PipelineSpec, out: &mut Writer<'_>) {
    out.length(spec.group_by.len());
    out.slice(&shape(spec).collect::<Vec<_>>());
}

/// A group may be in memory and on disk: how many there are is known when all are written.
fn write_table(
    table: &PaneTable,
    keys: &Keys,
    runs: &[&Run],
    out: &mut Writer<'_>,
) -> io::Result<()> {
    each_group_of_pane(table, keys, runs, &mut |key, columns, place| {
        out.byte(GROUP);
        out.slice(key);
        columns.iter().for_each(|column| column.encode(place, out));
        true
    })?;
    out.byte(NO_GROUP);
    Ok(())
}

fn is_group(input: &mut Reader<'_>) -> Result<bool, Fault> {
    match input.byte()? {
        NO_GROUP => Ok(false),
        GROUP => Ok(true),
        _ => Err(Fault::Damaged("a group has an unknown mark")),
    }
}

pub(super) fn read(
    pipeline: &Pipeline,
    at: usize,
    engine: &mut LaneEngine,
    input: &mut Reader<'_>,
    grown: &mut Grown<'_>,
) -> Result<(), RestoreError> {
    let spec = pipeline.spec();
    if input.unsigned()? != pipeline.incarnation.0 {
        return Err(Fault::Damaged("it has other pipelines than its feed").into());
    }
    let fields = input.length()?;
    let is_same = input.slice()?.iter().copied().eq(shape(spec));
    if !is_same || fields != spec.group_by.len() as u64 {
        return Err(other_spec(pipeline.incarnation));
    }
    let state = &mut engine.pipelines[at].state;
    state.times = EventTimes::decode(input, &spec.close)?;
    state.counters = Counters::decode(input)?;
    if spec.late.keep_ms().is_some() {
        state.counters.revising = input.unsigned()?;
    }
    state.allowance = Allowance::decode(input)?;
    if spec.window.gap_ms().is_some() {
        return Ok(sessions::read(spec, at, engine, input)?);
    }
    let mut key = Vec::new();
    let mut groups: u64 = 0;
    for _ in 0..input.length()? {
        let pane = PaneKey {
            start: input.signed()?,
            first_end: input.signed()?,
        };
        if !pane.is_sound(&spec.window) {
            return Err(Fault::Damaged("a pane lies outside of its windows").into());
        }
        // It may hold no group: its records may have been copies, or wait.
        engine.pipelines[at].state.panes.add(pane, spec);
        while is_group(input)? {
            groups = groups.saturating_add(1);
            if groups.is_multiple_of(GROUPS_AT_ONCE) {
                grown(engine)?;
            }
            key.clear();
            key.extend_from_slice(input.slice()?);
            if !is_sound(&key, spec.group_by.len()) {
                return Err(Fault::Damaged("a group's key is damaged").into());
            }
            let (table, place) = engine.restore_group(at, pane, &key);
            for column in table.columns_mut() {
                column.decode(place, input)?;
            }
        }
    }
    if spec.dedup.is_some() {
        engine.pipelines[at].state.counters.duplicates = input.unsigned()?;
        read_waiting(at, engine, input)?;
    }
    Ok(())
}
