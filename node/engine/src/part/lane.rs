//! One pipeline's state in a lane's part.

use super::codec::{Fault, Reader, Writer};
use super::{RestoreError, other_spec};
use crate::dead_letter::Allowance;
use crate::group::dictionary::Keys;
use crate::group::is_sound;
use crate::lane::LaneEngine;
use crate::pane::table::PaneTable;
use crate::pipeline::Pipeline;
use crate::snapshot::PipelineSnapshot;
use crate::spec::PipelineSpec;
use crate::stats::Counters;
use crate::value::Column;
use crate::watermark::EventTimes;
use crate::window::PaneKey;

pub(super) fn write(of: &PipelineSnapshot, lane: usize, out: &mut Writer<'_>) {
    let (state, tables) = (&of.lanes[lane], &of.tables[lane]);
    out.unsigned(of.pipeline.incarnation.0);
    write_shape(of.pipeline.spec(), out);
    state.times.encode(out);
    state.counters.encode(out);
    state.allowance.encode(out);
    out.length(tables.panes.len());
    for (pane, table) in &tables.panes {
        out.signed(pane.start);
        out.signed(pane.first_end);
        write_table(table, &tables.keys, out);
    }
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

fn write_table(table: &PaneTable, keys: &Keys, out: &mut Writer<'_>) {
    let mut groups: Vec<(u32, usize)> = table.groups().collect();
    groups.sort_unstable_by(|left, right| keys.key(left.0).cmp(keys.key(right.0)));
    out.length(groups.len());
    for (group, place) in groups {
        out.slice(keys.key(group));
        for column in table.columns() {
            column.encode(place, out);
        }
    }
}

pub(super) fn read(
    pipeline: &Pipeline,
    at: usize,
    engine: &mut LaneEngine,
    input: &mut Reader<'_>,
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
    state.closed_through = pipeline.closed.through;
    state.times = EventTimes::decode(input, &spec.close)?;
    state.counters = Counters::decode(input)?;
    state.allowance = Allowance::decode(input)?;
    let mut key = Vec::new();
    for _ in 0..input.length()? {
        let pane = PaneKey {
            start: input.signed()?,
            first_end: input.signed()?,
        };
        if !pane.is_sound(&spec.window) {
            return Err(Fault::Damaged("a pane lies outside of its windows").into());
        }
        for _ in 0..input.length()? {
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
    Ok(())
}
