//! What is computed of a group's records. All state is exact, and merging is associative and
//! commutative: merging a state that took in nothing changes nothing.
//!
//! A kind of value is one file: how it adds, merges, is written, its bytes and its memory. A pane
//! keeps a column of states for each value.

use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};
use crate::spec::{Function, Timestamp};

pub(crate) mod avg;
pub(crate) mod count;
pub(crate) mod counter;
pub(crate) mod distinct;
pub(crate) mod ends;
pub(crate) mod exact;
pub(crate) mod extreme;
pub(crate) mod histogram;
mod kept;
pub(crate) mod quantile;
mod ratio;
pub(crate) mod spread;
mod states;
pub(crate) mod sum;
#[cfg(test)]
mod testing;
pub(crate) mod top;

use counter::Growth;
use quantile::Quantiles;
use states::States;

/// What one record holds for a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Input<'a> {
    /// Absent, null or unusable.
    Null,
    /// There, but nothing that the value looks at.
    Other,
    Bool(bool),
    Number(Decimal),
    Text(&'a [u8]),
}

/// Texts of more bytes are unusable for values that show texts: a row must stay small.
pub const TEXT_BYTES: usize = 1024;

/// The state of one value of one group; the default has taken in nothing.
pub(crate) trait State: Clone + Default {
    /// What the definition says beyond the kind.
    type How: Clone + std::fmt::Debug;

    /// Whether it never holds anything beside itself: no need to ask each for its memory.
    const FLAT: bool = false;

    /// Takes in all records of another state.
    fn merge(&mut self, other: &Self);

    /// Appends the result in JSON: a number with all its digits, or null where nothing was counted.
    fn write_to(&self, how: &Self::How, window: WindowLength, out: &mut Vec<u8>);

    fn encode(&self, out: &mut Writer<'_>);

    /// # Errors
    /// The bytes are damaged.
    fn decode(how: &Self::How, input: &mut Reader<'_>) -> Result<Self, Fault>;

    /// Bytes that it holds beside itself.
    fn heap(&self) -> usize {
        0
    }
}

/// The length of a row's window in milliseconds: rates are shown by second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowLength(pub(crate) i64);

/// The states of one value, one for each group of a table.
#[derive(Clone, Debug)]
pub(crate) enum Column {
    Count(States<count::Count>),
    Sum(States<sum::Sum>),
    Avg(States<avg::Avg>),
    Min(States<extreme::Min>),
    Max(States<extreme::Max>),
    Spread(States<spread::Spread>),
    Quantile(States<quantile::Sketch>),
    Distinct(States<distinct::Distinct>),
    Top(States<top::Top>),
    Histogram(States<histogram::Histogram>),
    First(States<ends::First>),
    Last(States<ends::Last>),
    Counter(States<counter::Counter>),
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
            Column::Spread($states) => $body,
            Column::Quantile($states) => $body,
            Column::Distinct($states) => $body,
            Column::Top($states) => $body,
            Column::Histogram($states) => $body,
            Column::First($states) => $body,
            Column::Last($states) => $body,
            Column::Counter($states) => $body,
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
            (Column::Spread($left), Column::Spread($right)) => $body,
            (Column::Quantile($left), Column::Quantile($right)) => $body,
            (Column::Distinct($left), Column::Distinct($right)) => $body,
            (Column::Top($left), Column::Top($right)) => $body,
            (Column::Histogram($left), Column::Histogram($right)) => $body,
            (Column::First($left), Column::First($right)) => $body,
            (Column::Last($left), Column::Last($right)) => $body,
            (Column::Counter($left), Column::Counter($right)) => $body,
            // Tables that are merged belong to one pipeline.
            _ => debug_assert!(false, "columns of two kinds"),
        }
    };
}

/// A column of the same kind, made of the states of one.
macro_rules! same_kind {
    ($column:expr, $states:ident => $body:expr) => {
        match $column {
            Column::Count($states) => Column::Count($body),
            Column::Sum($states) => Column::Sum($body),
            Column::Avg($states) => Column::Avg($body),
            Column::Min($states) => Column::Min($body),
            Column::Max($states) => Column::Max($body),
            Column::Spread($states) => Column::Spread($body),
            Column::Quantile($states) => Column::Quantile($body),
            Column::Distinct($states) => Column::Distinct($body),
            Column::Top($states) => Column::Top($body),
            Column::Histogram($states) => Column::Histogram($body),
            Column::First($states) => Column::First($body),
            Column::Last($states) => Column::Last($body),
            Column::Counter($states) => Column::Counter($body),
        }
    };
}

impl Column {
    pub(crate) fn new(function: &Function) -> Self {
        match function {
            Function::CountAll | Function::Count(_) => Self::Count(States::new(())),
            Function::Sum(_) => Self::Sum(States::new(())),
            Function::Avg(_) => Self::Avg(States::new(())),
            Function::Min(_) => Self::Min(States::new(())),
            Function::Max(_) => Self::Max(States::new(())),
            Function::Spread(_, spread) => Self::Spread(States::new(*spread)),
            Function::Quantile(_, q) => Self::Quantile(States::new(Quantiles::One(*q))),
            Function::Quantiles(_, list) => {
                Self::Quantile(States::new(Quantiles::List(list.as_slice().into())))
            }
            Function::Distinct(_) => Self::Distinct(States::new(())),
            Function::Top(_, most) => Self::Top(States::new(*most)),
            Function::Histogram(_, bounds) => {
                Self::Histogram(States::new(bounds.as_slice().into()))
            }
            Function::First(_) => Self::First(States::new(())),
            Function::Last(_) => Self::Last(States::new(())),
            Function::Increase(_) => Self::Counter(States::new(Growth::Whole)),
            Function::Rate(_) => Self::Counter(States::new(Growth::PerSecond)),
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
            Self::Spread(_) => 6,
            Self::Quantile(_) => 7,
            Self::Distinct(_) => 8,
            Self::Top(_) => 9,
            Self::Histogram(_) => 10,
            Self::First(_) => 11,
            Self::Last(_) => 12,
            Self::Counter(_) => 13,
        }
    }

    /// Takes one record with this event time into the state at `at`.
    #[inline]
    pub(crate) fn add(&mut self, at: usize, time: Timestamp, input: Input<'_>) {
        match (self, input) {
            (_, Input::Null) => {}
            (Self::Count(of), _) => of.at(at).add(),
            (Self::Sum(of), Input::Number(number)) => of.at(at).add(number),
            (Self::Avg(of), Input::Number(number)) => of.at(at).add(number),
            (Self::Min(of), Input::Number(number)) => of.at(at).add(number),
            (Self::Max(of), Input::Number(number)) => of.at(at).add(number),
            (Self::Min(of), Input::Text(text)) => of.at(at).add_text(text),
            (Self::Max(of), Input::Text(text)) => of.at(at).add_text(text),
            (Self::Spread(of), Input::Number(number)) => of.at(at).add(number),
            (Self::Quantile(of), Input::Number(number)) => of.at(at).add(number),
            (Self::Distinct(of), input) => of.at(at).add(input),
            (Self::Top(of), input) => of.at(at).add(input),
            (Self::Histogram(of), Input::Number(number)) => {
                let (state, bounds) = of.at_with_how(at);
                state.add(bounds, number);
            }
            (Self::First(of), input) => of.at(at).add(time, input),
            (Self::Last(of), input) => of.at(at).add(time, input),
            (Self::Counter(of), Input::Number(number)) => of.at(at).add(time, number),
            // Nothing that the value can use.
            (_, Input::Other | Input::Bool(_) | Input::Text(_)) => {}
        }
    }

    /// Makes `len` states; new ones have taken in nothing. Memory grows by doubling, but not beyond
    /// `expected` states, as long as those suffice.
    pub(crate) fn resize(&mut self, len: usize, expected: usize) {
        each_kind!(self, of => of.resize(len, expected));
    }

    pub(crate) fn len(&self) -> usize {
        each_kind!(self, of => of.len())
    }

    /// Forgets what the state at `at` took in.
    pub(crate) fn reset(&mut self, at: usize) {
        each_kind!(self, of => *of.at(at) = Default::default());
    }

    /// Merges the state at `from` of another column into the one at `at`.
    #[inline]
    pub(crate) fn merge_at(&mut self, at: usize, other: &Self, from: usize) {
        both_of_a_kind!(self, other, (into, other) => into.merge_at(at, other, from));
    }

    /// Merges each state of another column, which is not longer, into the one at the same place.
    pub(crate) fn merge_all(&mut self, other: &Self) {
        both_of_a_kind!(self, other, (into, other) => into.merge_all(other));
    }

    /// The same states at other places: that at `from` moves to `to`, for each pair.
    pub(crate) fn rearranged(
        &self,
        len: usize,
        moves: impl Iterator<Item = (usize, usize)>,
    ) -> Self {
        same_kind!(self, of => of.rearranged(len, moves))
    }

    /// Appends the result at `at` in JSON.
    pub(crate) fn write_to(&self, at: usize, window: WindowLength, out: &mut Vec<u8>) {
        each_kind!(self, of => of.write_to(at, window, out));
    }

    pub(crate) fn encode(&self, at: usize, out: &mut Writer<'_>) {
        each_kind!(self, of => of.encode(at, out));
    }

    /// Reads the state at `at`.
    pub(crate) fn decode(&mut self, at: usize, input: &mut Reader<'_>) -> Result<(), Fault> {
        each_kind!(self, of => of.decode(at, input))
    }

    /// Bytes that all states take, with what they hold beside themselves.
    pub(crate) fn memory(&self) -> usize {
        each_kind!(self, of => of.memory())
    }
}

pub(crate) const NULL: &[u8] = b"null";

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of docs/configuration.md.
    #[test]
    fn states_are_small() {
        let sizes = [
            size_of::<count::Count>(),
            size_of::<sum::Sum>(),
            size_of::<avg::Avg>(),
            size_of::<extreme::Min>(),
            size_of::<spread::Spread>(),
            size_of::<quantile::Sketch>(),
            size_of::<distinct::Distinct>(),
            size_of::<top::Top>(),
            size_of::<histogram::Histogram>(),
            size_of::<ends::Last>(),
            size_of::<counter::Counter>(),
        ];
        assert_eq!(sizes, [8, 24, 32, 24, 56, 8, 32, 72, 16, 32, 32]);
    }
}
