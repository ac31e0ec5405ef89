//! Records of a lane that wait until it is known whether they are copies.

use std::sync::Arc;

use super::{LaneEngine, LanePipeline};
use crate::dedup::{Entry, Id, LentWaiting, Verdict, Waiting, held};
use crate::plan::Program;
use crate::spec::Timestamp;
use crate::stats::count;
use crate::window::PaneKey;

impl LaneEngine {
    /// Takes the records whose first window ends at or before `to`: each is to be judged.
    pub(crate) fn take_waiting(&mut self, pipeline: usize, to: Timestamp) -> Vec<LentWaiting> {
        self.pipelines[pipeline].state.waiting.take_through(to)
    }

    /// All that wait, for a reader.
    pub(crate) fn lend_waiting(&mut self, pipeline: usize) -> Vec<LentWaiting> {
        self.pipelines[pipeline].state.waiting.lend()
    }

    /// A record that waited counts, or is a copy.
    pub(crate) fn judged(
        &mut self,
        pipeline: usize,
        pane: PaneKey,
        (waiting, entry): (&Waiting, &Entry),
        verdict: Verdict,
    ) {
        let LanePipeline { program, state, .. } = &mut self.pipelines[pipeline];
        let dictionary = self.shared.dictionary(program.groups);
        match verdict {
            Verdict::Copy => count(&mut state.counters.duplicates, 1),
            Verdict::Counts => {
                count(&mut state.counters.counted, 1);
                let (table, place) =
                    state
                        .panes
                        .table(pane, entry.group, &program.spec, dictionary);
                fold(program, table, place, (waiting, entry));
            }
        }
        dictionary.release(entry.group);
    }

    /// What a pipeline is, for whoever reads a lane's part.
    pub(crate) fn program(&self, pipeline: usize) -> Arc<Program> {
        Arc::clone(&self.pipelines[pipeline].program)
    }

    /// The number of a group, which is held from now on.
    pub(crate) fn hold_group(&mut self, pipeline: usize, key: &[u8]) -> u32 {
        let dictionary = self
            .shared
            .dictionary(self.pipelines[pipeline].program.groups);
        let group = dictionary.number(key);
        dictionary.hold(group);
        group
    }

    /// Ends what [`LaneEngine::hold_group`] began.
    pub(crate) fn release_group(&mut self, pipeline: usize, group: u32) {
        let dictionary = self
            .shared
            .dictionary(self.pipelines[pipeline].program.groups);
        dictionary.release(group);
    }

    /// Puts a record of a checkpoint behind those that wait.
    pub(crate) fn wait(
        &mut self,
        pipeline: usize,
        pane: PaneKey,
        group: u32,
        (id, time, offset): (Id, Timestamp, i64),
        held: &[u8],
    ) {
        let LanePipeline { program, state, .. } = &mut self.pipelines[pipeline];
        self.shared.dictionary(program.groups).hold(group);
        state.panes.add(pane, &program.spec);
        let waiting = state.waiting.pane(pane);
        waiting.push(id, (time, offset), group, |out| out.extend_from_slice(held));
    }
}

/// Takes a record that waited into the values of its group, which are at `place`.
pub(crate) fn fold(
    program: &Program,
    table: &mut crate::pane::table::PaneTable,
    place: usize,
    (waiting, entry): (&Waiting, &Entry),
) {
    let mut rest = waiting.held(entry);
    let mut inputs = Vec::with_capacity(program.held_fields());
    while let Some((input, after)) = held::split(rest) {
        inputs.push(input);
        rest = after;
    }
    let time = Timestamp(entry.time);
    table.add(place, time, |value| program.input_of_held(value, &inputs));
}
