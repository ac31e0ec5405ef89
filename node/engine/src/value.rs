//! What is computed of a group's records. All state is exact, and merging is associative and
//! commutative.

use crate::checkpoint::codec::{Fault, Reader, Writer};
use crate::decimal::Decimal;
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

/// The state of one value of one group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Accumulator {
    Count(count::Count),
    Sum(sum::Sum),
    Avg(avg::Avg),
    Min(extreme::Extreme),
    Max(extreme::Extreme),
}

impl Accumulator {
    pub(crate) fn new(function: Function) -> Self {
        match function {
            Function::CountAll | Function::Count(_) => Self::Count(count::Count::default()),
            Function::Sum(_) => Self::Sum(sum::Sum::default()),
            Function::Avg(_) => Self::Avg(avg::Avg::default()),
            Function::Min(_) => Self::Min(extreme::Extreme::default()),
            Function::Max(_) => Self::Max(extreme::Extreme::default()),
        }
    }

    /// Takes in one record.
    #[inline]
    pub(crate) fn add(&mut self, input: Input) {
        match (self, input) {
            (_, Input::Null) => {}
            (Self::Count(count), _) => count.add(),
            (Self::Sum(sum), Input::Number(number)) => sum.add(number),
            (Self::Avg(avg), Input::Number(number)) => avg.add(number),
            (Self::Min(least), Input::Number(number)) => least.keep_least(number),
            (Self::Max(largest), Input::Number(number)) => largest.keep_largest(number),
            (_, Input::Other) => {}
        }
    }

    /// Takes in all records of another state of the same function.
    pub(crate) fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Count(count), Self::Count(other)) => count.merge(other),
            (Self::Sum(sum), Self::Sum(other)) => sum.merge(other),
            (Self::Avg(avg), Self::Avg(other)) => avg.merge(other),
            (Self::Min(least), Self::Min(other)) => least.merge_least(other),
            (Self::Max(largest), Self::Max(other)) => largest.merge_largest(other),
            // Tables that are merged belong to one pipeline.
            _ => debug_assert!(false, "states of two functions"),
        }
    }

    /// Appends the result in JSON: a number with all its digits, or null where nothing was counted.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Count(count) => count.write_to(out),
            Self::Sum(sum) => sum.write_to(out),
            Self::Avg(avg) => avg.write_to(out),
            Self::Min(extreme) | Self::Max(extreme) => extreme.write_to(out),
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        match self {
            Self::Count(count) => count.encode(out),
            Self::Sum(sum) => sum.encode(out),
            Self::Avg(avg) => avg.encode(out),
            Self::Min(extreme) | Self::Max(extreme) => extreme.encode(out),
        }
    }

    pub(crate) fn decode(function: Function, input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match function {
            Function::CountAll | Function::Count(_) => Self::Count(count::Count::decode(input)?),
            Function::Sum(_) => Self::Sum(sum::Sum::decode(input)?),
            Function::Avg(_) => Self::Avg(avg::Avg::decode(input)?),
            Function::Min(_) => Self::Min(extreme::Extreme::decode(input)?),
            Function::Max(_) => Self::Max(extreme::Extreme::decode(input)?),
        })
    }
}

pub(crate) const NULL: &[u8] = b"null";
