//! Waiting records in a lane's part: after each pane its groups in the order of their keys, then its
//! records in the order of the lane.

use super::{Id, LentWaiting, held};
use crate::group::dictionary::Keys;
use crate::group::is_sound;
use crate::lane::LaneEngine;
use crate::part::codec::{Fault, Reader, Writer};
use crate::plan::Program;
use crate::spec::Timestamp;
use crate::window::PaneKey;

pub(crate) fn write_waiting(panes: &[LentWaiting], keys: &Keys, out: &mut Writer<'_>) {
    out.length(panes.len());
    for (pane, waiting) in panes {
        out.signed(pane.start);
        out.signed(pane.first_end);
        let mut groups: Vec<u32> = waiting.entries().iter().map(|entry| entry.group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.sort_unstable_by(|left, right| keys.key(*left).cmp(keys.key(*right)));
        out.length(groups.len());
        for &group in &groups {
            out.slice(keys.key(group));
        }
        out.length(waiting.entries().len());
        for entry in waiting.entries() {
            out.fixed(&entry.id.bits().to_be_bytes());
            out.signed(entry.time.saturating_sub(pane.start));
            out.signed(entry.offset);
            let key = keys.key(entry.group);
            let place = groups.binary_search_by(|group| keys.key(*group).cmp(key));
            out.length(place.unwrap_or_default());
            out.slice(waiting.held(entry));
        }
    }
}

pub(crate) fn read_waiting(
    pipeline: usize,
    engine: &mut LaneEngine,
    input: &mut Reader<'_>,
) -> Result<(), Fault> {
    for _ in 0..input.length()? {
        let pane = PaneKey {
            start: input.signed()?,
            first_end: input.signed()?,
        };
        let program = engine.program(pipeline);
        if !pane.is_sound(&program.spec.window) {
            return Err(Fault::Damaged("a waiting pane lies outside of its windows"));
        }
        let mut groups = Vec::new();
        for _ in 0..input.length()? {
            let key = input.slice()?;
            if !is_sound(key, program.spec.group_by.len()) {
                return Err(Fault::Damaged("a waiting group's key is damaged"));
            }
            // What nobody holds might be swept before its records come.
            groups.push(engine.hold_group(pipeline, key));
        }
        for _ in 0..input.length()? {
            read_entry(pipeline, &program, (engine, pane, &groups), input)?;
        }
        for group in groups {
            engine.release_group(pipeline, group);
        }
    }
    Ok(())
}

fn read_entry(
    pipeline: usize,
    program: &Program,
    (engine, pane, groups): (&mut LaneEngine, PaneKey, &[u32]),
    input: &mut Reader<'_>,
) -> Result<(), Fault> {
    let id = Id::of_bits(u128::from_be_bytes(input.fixed()?));
    let time = pane.start.saturating_add(input.signed()?);
    let offset = input.signed()?;
    let group = usize::try_from(input.length()?).ok();
    let group = group.and_then(|at| groups.get(at));
    let Some(&group) = group else {
        return Err(Fault::Damaged("a waiting record is of no group"));
    };
    let bytes = input.slice()?;
    if program.spec.window.pane_of(time).0 != pane.start {
        return Err(Fault::Damaged("a waiting record is not of its pane's time"));
    }
    if !held::is_sound(bytes, program.held_fields()) {
        return Err(Fault::Damaged("what a waiting record holds is damaged"));
    }
    let time = Timestamp(time);
    engine.wait(pipeline, pane, group, (id, time, offset), bytes);
    Ok(())
}
