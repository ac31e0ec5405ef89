//! What closes sessions looks at and changes on a lane.

use super::{LaneEngine, LanePipeline};
use crate::group::dictionary::Dictionary;
use crate::session::{Session, SessionStore};
use crate::spec::Timestamp;
use crate::value::Column;

impl LaneEngine {
    /// The open sessions of a pipeline; `None` where its windows are others.
    pub(crate) fn sessions(&self, pipeline: usize) -> Option<&SessionStore> {
        self.pipelines[pipeline].state.sessions.as_deref()
    }

    /// The same for changes, and the keys of their groups.
    pub(crate) fn sessions_mut(
        &mut self,
        pipeline: usize,
    ) -> Option<(&mut SessionStore, &mut Dictionary)> {
        let LanePipeline { program, state, .. } = &mut self.pipelines[pipeline];
        let sessions = state.sessions.as_deref_mut()?;
        Some((sessions, self.shared.dictionary(program.groups)))
    }

    /// The key of a group that a pipeline holds here.
    pub(crate) fn group_key(&self, pipeline: usize, group: u32) -> &[u8] {
        self.dictionary_of(pipeline).key(group)
    }

    /// A group's last session that starts at a time or before.
    pub(crate) fn last_session_from(
        &self,
        pipeline: usize,
        key: &[u8],
        time: Timestamp,
    ) -> Option<Session> {
        let group = self.dictionary_of(pipeline).known(key)?;
        self.sessions(pipeline)?.last_from(group, time.0)
    }

    /// The states of a session that comes from a checkpoint; `None` if it cannot be one.
    pub(crate) fn restore_session(
        &mut self,
        pipeline: usize,
        key: &[u8],
        (start, end): (i64, i64),
    ) -> Option<(&mut [Column], usize)> {
        let (sessions, dictionary) = self.sessions_mut(pipeline)?;
        let group = dictionary.number(key);
        sessions.restore(Session { start, end, group }, dictionary)
    }

    fn dictionary_of(&self, pipeline: usize) -> &Dictionary {
        let groups = self.pipelines[pipeline].program.groups;
        &self.shared.groups[groups].of.dictionary
    }
}
