//! The states of one kind of value, side by side.

use super::{State, WindowLength};
use crate::part::codec::{Fault, Reader, Writer};

/// A state for each group, and what they have in common.
#[derive(Clone, Debug)]
pub(crate) struct States<S: State> {
    states: Vec<S>,
    how: S::How,
}

impl<S: State> States<S> {
    pub(super) fn new(how: S::How) -> Self {
        Self {
            states: Vec::new(),
            how,
        }
    }

    #[inline]
    pub(super) fn at(&mut self, at: usize) -> &mut S {
        &mut self.states[at]
    }

    #[inline]
    pub(super) fn at_with_how(&mut self, at: usize) -> (&mut S, &S::How) {
        (&mut self.states[at], &self.how)
    }

    pub(super) fn resize(&mut self, len: usize, expected: usize) {
        let states = &mut self.states;
        if states.capacity() < len {
            let room = len.saturating_mul(2).min(expected).max(len);
            states.reserve_exact(room.saturating_sub(states.len()));
        }
        states.resize(len, S::default());
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    #[inline]
    pub(super) fn merge_at(&mut self, at: usize, other: &Self, from: usize) {
        self.states[at].merge(&other.states[from]);
    }

    pub(super) fn merge_all(&mut self, other: &Self) {
        for (into, from) in self.states.iter_mut().zip(&other.states) {
            into.merge(from);
        }
    }

    pub(super) fn rearranged(
        &self,
        len: usize,
        moves: impl Iterator<Item = (usize, usize)>,
    ) -> Self {
        let mut states = vec![S::default(); len];
        for (from, to) in moves {
            states[to] = self.states[from].clone();
        }
        Self {
            states,
            how: self.how.clone(),
        }
    }

    pub(super) fn write_to(&self, at: usize, window: WindowLength, out: &mut Vec<u8>) {
        self.states[at].write_to(&self.how, window, out);
    }

    pub(super) fn encode(&self, at: usize, out: &mut Writer<'_>) {
        self.states[at].encode(out);
    }

    pub(super) fn decode(&mut self, at: usize, input: &mut Reader<'_>) -> Result<(), Fault> {
        self.states[at] = S::decode(&self.how, input)?;
        Ok(())
    }

    pub(super) fn memory(&self) -> usize {
        let own = self.states.capacity().saturating_mul(size_of::<S>());
        if S::FLAT {
            return own;
        }
        let beside = self.states.iter().map(State::heap);
        beside.fold(own, usize::saturating_add)
    }
}
