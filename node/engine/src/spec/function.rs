//! What is computed of a group's records.

use super::Column;
use crate::decimal::Decimal;

/// What is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Function {
    /// Records of the group: `count()`.
    CountAll,
    /// Records in which the field is neither absent nor null nor unusable.
    Count(Column),
    /// The exact sum of the field's numbers; null without any.
    Sum(Column),
    /// Their average, to [`crate::AVERAGE_DIGITS`] digits; null without any.
    Avg(Column),
    /// The least of them, or, where there is none, of the field's texts; null without any.
    Min(Column),
    /// The largest of them, or, where there is none, of the field's texts; null without any.
    Max(Column),
    /// How far the field's numbers are spread, to [`crate::AVERAGE_DIGITS`] digits; null without
    /// enough of them.
    Spread(Column, Spread),
    /// The least number with at least this part (0 to 1) of all numbers at or below it, to
    /// one percent; null without any.
    Quantile(Column, Decimal),
    /// Several such, as an array.
    Quantiles(Column, Vec<Decimal>),
    /// How many different values the field has: exact for few, else an estimate.
    Distinct(Column),
    /// The most frequent values with their counts; so many at most.
    Top(Column, usize),
    /// Counts of numbers by these upper bounds, ascending, each of which belongs to its bucket, and
    /// of those above all.
    Histogram(Column, Vec<Decimal>),
    /// The value with the least event time.
    First(Column),
    /// The value with the largest event time.
    Last(Column),
    /// By how much a counter grew, through its resets; null without two samples.
    Increase(Column),
    /// That, by second of the window; to [`crate::AVERAGE_DIGITS`] digits.
    Rate(Column),
}

/// Which measure of spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Of a sample: by one less than the count.
    Variance,
    /// Of all: by the count.
    PopulationVariance,
    /// The square root of [`Spread::Variance`].
    Deviation,
    /// The square root of [`Spread::PopulationVariance`].
    PopulationDeviation,
}

/// Which cells a function can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Whatever is there, and does not look at it.
    Presence,
    /// Whatever is there.
    Anything,
    /// Whatever is there; but texts up to [`crate::TEXT_BYTES`] alone.
    Shown,
    /// Numbers, and texts up to [`crate::TEXT_BYTES`].
    Ordered,
    Numbers,
}

impl Function {
    /// The field that it is computed from; `None`: of the records themselves.
    #[must_use]
    pub fn column(&self) -> Option<Column> {
        // The one list of which function has which field is below.
        self.clone().column_mut().copied()
    }

    /// The same, to be changed.
    pub fn column_mut(&mut self) -> Option<&mut Column> {
        match self {
            Self::CountAll => None,
            Self::Count(column)
            | Self::Sum(column)
            | Self::Avg(column)
            | Self::Min(column)
            | Self::Max(column)
            | Self::Spread(column, _)
            | Self::Quantile(column, _)
            | Self::Quantiles(column, _)
            | Self::Distinct(column)
            | Self::Top(column, _)
            | Self::Histogram(column, _)
            | Self::First(column)
            | Self::Last(column)
            | Self::Increase(column)
            | Self::Rate(column) => Some(column),
        }
    }

    pub(crate) fn takes(&self) -> Takes {
        match self {
            Self::CountAll | Self::Count(_) => Takes::Presence,
            Self::Distinct(_) => Takes::Anything,
            Self::Top(..) | Self::First(_) | Self::Last(_) => Takes::Shown,
            Self::Min(_) | Self::Max(_) => Takes::Ordered,
            Self::Sum(_)
            | Self::Avg(_)
            | Self::Spread(..)
            | Self::Quantile(..)
            | Self::Quantiles(..)
            | Self::Histogram(..)
            | Self::Increase(_)
            | Self::Rate(_) => Takes::Numbers,
        }
    }
}
