//! What a lane's state takes in memory, and how some of it leaves.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "lengths and places of what is in memory"
)]

use super::{LaneEngine, LanePipeline, LaneTables};
use crate::spill::Run;
use crate::window::PaneKey;

/// A lane is measured again after so many records at the earliest.
const FEWEST_RECORDS: u64 = 4096;

/// What a lane took when it was last measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    bytes: usize,
    /// Records that were counted, or may be.
    counted: u64,
    groups: u64,
}

impl LaneEngine {
    /// Bytes that panes, sessions and the groups' keys take on this lane. Looks at every pane: not for each
    /// tick.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        let panes = self.pipelines.iter().map(|of| of.state.memory());
        let groups = self.shared.groups.iter();
        let groups = groups.map(|groups| groups.of.dictionary.memory());
        panes.chain(groups).sum()
    }

    /// About the same, for each tick: measured again only after the lane took in as many records as an
    /// eighth of its groups, or lost half of those.
    pub fn about_bytes(&mut self) -> usize {
        let (counted, groups) = (self.counted(), self.groups());
        let panes: usize = self.pipelines.iter().map(|of| of.state.panes.len()).sum();
        let enough = (groups / 8).max(panes as u64 * 4).max(FEWEST_RECORDS);
        let came = counted.saturating_sub(self.measured.counted);
        let grown = groups.saturating_sub(self.measured.groups);
        if came.max(grown) >= enough || groups < self.measured.groups / 2 {
            self.measure();
        }
        self.measured.bytes
    }

    /// Exactly.
    pub(crate) fn measure(&mut self) -> usize {
        self.measured = Measured {
            bytes: self.state_bytes(),
            counted: self.counted(),
            groups: self.groups(),
        };
        self.measured.bytes
    }

    fn counted(&self) -> u64 {
        let states = self.pipelines.iter().map(|of| &of.state);
        let counted = states.map(|of| {
            let judged = of.counters.counted.saturating_add(of.counters.duplicates);
            judged.saturating_add(of.waiting.records())
        });
        counted.fold(0, u64::saturating_add)
    }

    fn groups(&self) -> u64 {
        let panes = self.pipelines.iter();
        panes.map(|of| of.state.groups()).sum()
    }

    /// Calls `found` with each pipeline's panes that have groups in memory, and about what leaves with
    /// them: their states, and their part of the keys.
    pub(crate) fn each_table(&self, found: &mut dyn FnMut(usize, PaneKey, usize)) {
        for (at, of) in self.pipelines.iter().enumerate() {
            let dictionary = &self.shared.groups[of.program.groups].of.dictionary;
            let key_bytes = dictionary.memory() / dictionary.used().max(1);
            for (pane, groups, bytes) in of.state.panes.tables() {
                found(at, pane, bytes + groups * key_bytes);
            }
        }
    }

    /// One pane, with its runs, for whoever writes it.
    pub(crate) fn lend_pane(&mut self, pipeline: usize, pane: PaneKey) -> LaneTables {
        let LanePipeline { program, state, .. } = &mut self.pipelines[pipeline];
        let (panes, runs) = state.panes.lend_pane(pane);
        LaneTables {
            keys: self.shared.dictionary(program.groups).keys(),
            panes,
            runs,
            sessions: None,
        }
    }

    /// The pane's groups are in the run, and go from memory; `is_whole`: so are all its older runs.
    pub(crate) fn leave_to(&mut self, pipeline: usize, pane: PaneKey, run: Run, is_whole: bool) {
        let LanePipeline { program, state, .. } = &mut self.pipelines[pipeline];
        let dictionary = self.shared.dictionary(program.groups);
        let values = &program.spec.values;
        state
            .panes
            .leave_to(pane, run, is_whole, values, dictionary);
    }

    /// Gives the memory of groups back that no pane holds.
    pub(crate) fn sweep(&mut self) {
        for groups in &mut self.shared.groups {
            groups.of.dictionary.give_back();
        }
    }
}
