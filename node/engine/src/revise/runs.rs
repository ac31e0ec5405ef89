//! What of revised windows is on disk.

use std::io;

use super::plan::Group;
use crate::pane::table::PaneTable;
use crate::part::codec::Reader;
use crate::spec::PipelineSpec;
use crate::spill::Run;
use crate::window::PaneKey;

/// The revised groups of some runs, each with the pane that it is of; a group's number there is its
/// place among the revised ones.
pub(super) type OnDisk = Vec<(PaneKey, PaneTable)>;

/// Reads the states of these groups, which are in the order of their keys. Runs are in that order too, so each is
/// read once, and nothing else of it is kept.
///
/// # Errors
/// They cannot be read.
pub(super) fn read(
    spec: &PipelineSpec,
    runs: &[(PaneKey, Run)],
    groups: &[Group],
) -> io::Result<OnDisk> {
    runs.iter()
        .map(|(pane, run)| Ok((*pane, read_run(spec, run, groups)?)))
        .collect()
}

fn read_run(spec: &PipelineSpec, run: &Run, groups: &[Group]) -> io::Result<PaneTable> {
    let mut table = PaneTable::new(&spec.values);
    let mut one = PaneTable::new(&spec.values);
    one.place_or_add(0, 1);
    let mut bytes = run.input();
    let mut input = Reader::new(&mut bytes);
    let mut wanted = (0_u32..).zip(groups).peekable();
    for _ in 0..run.groups {
        let key = input.slice()?;
        while wanted.next_if(|(_, group)| &group.key[..] < key).is_some() {}
        let found = wanted.next_if(|(_, group)| &group.key[..] == key);
        for column in one.columns_mut() {
            column.decode(0, &mut input)?;
        }
        if let Some((number, _)) = found {
            let (place, _) = table.place_or_add(number, number.saturating_add(1));
            for (into, from) in table.columns_mut().iter_mut().zip(one.columns()) {
                into.merge_at(place, from, 0);
            }
        }
    }
    input.finish()?;
    Ok(table)
}
