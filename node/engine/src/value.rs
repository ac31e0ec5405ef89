//! What is computed of a group's records. All state is exact, and merging is associative and
//! commutative: merging a state that took in nothing changes nothing.
//!
//! A kind of value is one file: how it adds, merges, is written, its bytes and its memory. A pane
//! keeps a column of states for each value.

use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};
use crate::spec::Function;

pub(crate) mod avg;
pub(crate) mod count;
pub(crate) mod exact;
pub(crate) mod extreme;
pub(crate) mod sum;

/// What one record holds in a value's field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Input {
    /// Absent, null or unusable.
    Null,
    /// A text or a boolean: there, but no number.
    Other,
    Number(Decimal),
}

/// The state of one value of one group; the default has taken in nothing.
pub(crate) trait State: Clone + Default {
    /// Takes in all records of another state.
    fn merge(&mut self, other: &Self);

    /// Appends the result in JSON: a number with all its digits, or null where nothing was counted.
    fn write_to(&self, out: &mut Vec<u8>);

    fn encode(&self, out: &mut Writer<'_>);

    /// # Errors
    /// The bytes are damaged.
    fn decode(input: &mut Reader<'_>) -> Result<Self, Fault>;

    /// Bytes that it holds beside itself.
    fn heap(&self) -> usize {
        0
    }
}

/// The states of one value, one for each group of a table.
#[derive(Clone, Debug)]
pub(crate) enum Column {
    Count(Vec<count::Count>),
    Sum(Vec<sum::Sum>),
    Avg(Vec<avg::Avg>),
    Min(Vec<extreme::Min>),
    Max(Vec<extreme::Max>),
}

/// Does the same with the states of whatever kind.
macro_rules! each_kind {
    ($column:expr, $states:ident => $body:expr) => {
        match $column {
            Column::Count($states) => $body,
            Column::Sum($states) => $body,
            Column::Avg($states) => $body,
            Column::Min($states) => $body,
            Column::Max($states) => $body,
        }
    };
}

/// The same with two columns of one kind.
macro_rules! both_of_a_kind {
    ($one:expr, $other:expr, ($left:ident, $right:ident) => $body:expr) => {
        match ($one, $other) {
            (Column::Count($left), Column::Count($right)) => $body,
            (Column::Sum($left), Column::Sum($right)) => $body,
            (Column::Avg($left), Column::Avg($right)) => $body,
            (Column::Min($left), Column::Min($right)) => $body,
            (Column::Max($left), Column::Max($right)) => $body,
            // Tables that are merged belong to one pipeline.
            _ => debug_assert!(false, "columns of two kinds"),
        }
    };
}

impl Column {
    pub(crate) fn new(function: Function) -> Self {
        match function {
            Function::CountAll | Function::Count(_) => Self::Count(Vec::new()),
            Function::Sum(_) => Self::Sum(Vec::new()),
            Function::Avg(_) => Self::Avg(Vec::new()),
            Function::Min(_) => Self::Min(Vec::new()),
            Function::Max(_) => Self::Max(Vec::new()),
        }
    }

    /// The kind's mark in checkpoints.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Count(_) => 1,
            Self::Sum(_) => 2,
            Self::Avg(_) => 3,
            Self::Min(_) => 4,
            Self::Max(_) => 5,
        }
    }

    /// Takes one record into the state at `at`.
    #[inline]
    pub(crate) fn add(&mut self, at: usize, input: Input) {
        match (self, input) {
            (_, Input::Null) => {}
            (Self::Count(states), _) => states[at].add(),
            (Self::Sum(states), Input::Number(number)) => states[at].add(number),
            (Self::Avg(states), Input::Number(number)) => states[at].add(number),
            (Self::Min(states), Input::Number(number)) => states[at].add(number),
            (Self::Max(states), Input::Number(number)) => states[at].add(number),
            (_, Input::Other) => {}
        }
    }

    /// Makes `len` states; new ones have taken in nothing. Memory grows by doubling, but not beyond
    /// `expected` states, as long as those suffice.
    pub(crate) fn resize(&mut self, len: usize, expected: usize) {
        let room = len.saturating_mul(2).min(expected).max(len);
        each_kind!(self, states => {
            if states.capacity() < len {
                states.reserve_exact(room.saturating_sub(states.len()));
            }
            states.resize(len, Default::default());
        });
    }

    pub(crate) fn len(&self) -> usize {
        each_kind!(self, states => states.len())
    }

    /// Forgets what the state at `at` took in.
    pub(crate) fn reset(&mut self, at: usize) {
        each_kind!(self, states => states[at] = Default::default());
    }

    /// Merges the state at `from` of another column into the one at `at`.
    #[inline]
    pub(crate) fn merge_at(&mut self, at: usize, other: &Self, from: usize) {
        both_of_a_kind!(self, other, (into, other) => into[at].merge(&other[from]));
    }

    /// Merges each state of another column, which is not longer, into the one at the same place.
    pub(crate) fn merge_all(&mut self, other: &Self) {
        both_of_a_kind!(self, other, (into, other) => {
            for (into, from) in into.iter_mut().zip(other) {
                into.merge(from);
            }
        });
    }

    /// The same states at other places: that at `from` moves to `to`, for each pair.
    pub(crate) fn rearranged(
        &self,
        len: usize,
        moves: impl Iterator<Item = (usize, usize)>,
    ) -> Self {
        fn place<S: State>(
            states: &[S],
            len: usize,
            moves: impl Iterator<Item = (usize, usize)>,
        ) -> Vec<S> {
            let mut placed = vec![S::default(); len];
            for (from, to) in moves {
                placed[to] = states[from].clone();
            }
            placed
        }
        match self {
            Self::Count(states) => Self::Count(place(states, len, moves)),
            Self::Sum(states) => Self::Sum(place(states, len, moves)),
            Self::Avg(states) => Self::Avg(place(states, len, moves)),
            Self::Min(states) => Self::Min(place(states, len, moves)),
            Self::Max(states) => Self::Max(place(states, len, moves)),
        }
    }

    /// Appends the result at `at` in JSON.
    pub(crate) fn write_to(&self, at: usize, out: &mut Vec<u8>) {
        each_kind!(self, states => states[at].write_to(out));
    }

    pub(crate) fn encode(&self, at: usize, out: &mut Writer<'_>) {
        each_kind!(self, states => states[at].encode(out));
    }

    /// Reads the state at `at`.
    pub(crate) fn decode(&mut self, at: usize, input: &mut Reader<'_>) -> Result<(), Fault> {
        each_kind!(self, states => states[at] = State::decode(input)?);
        Ok(())
    }

    /// Bytes that all states take, with what they hold beside themselves.
    pub(crate) fn memory(&self) -> usize {
        fn of<S: State>(states: &Vec<S>) -> usize {
            let own = states.capacity().saturating_mul(size_of::<S>());
            states
                .iter()
                .map(State::heap)
                .fold(own, usize::saturating_add)
        }
        match self {
            // Counts hold nothing beside themselves; no need to look at each.
            Self::Count(states) => states.capacity().saturating_mul(size_of::<count::Count>()),
            Self::Sum(states) => of(states),
            Self::Avg(states) => of(states),
            Self::Min(states) => states.capacity().saturating_mul(size_of::<extreme::Min>()),
            Self::Max(states) => states.capacity().saturating_mul(size_of::<extreme::Max>()),
        }
    }
}

pub(crate) const NULL: &[u8] = b"null";
