//! What a pipeline means, checked. Built by the program's config from a definition in TOML; the
//! engine trusts it.

use std::sync::Arc;

use crate::timestamp::TimePattern;

mod expr;

pub use expr::{Call, CompareOp, Expr, Gives, Kind, Signature};

mod calendar;
mod function;
mod window;
mod zone;

pub use calendar::{CalendarUnit, CalendarWindows};
pub(crate) use function::Takes;
pub use function::{Function, Spread};
pub use window::{FixedWindows, SessionWindows, WindowError, WindowSpec};
pub use zone::{RuleDay, YearRule, Zone, ZoneError};

/// Index of a lane within its feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// Index of a decoded field within [`crate::record::Cells`], or of a derived one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column(pub usize);

/// Columns from here on are derived.
const FIRST_DERIVED: usize = 1 << 24;

impl Column {
    /// The column of [`PipelineSpec::derived`] at `at`.
    #[must_use]
    pub fn of_derived(at: usize) -> Self {
        Self(FIRST_DERIVED.saturating_add(at))
    }

    /// The place in [`PipelineSpec::derived`]; `None` for a decoded field.
    #[must_use]
    #[inline]
    pub fn derived(self) -> Option<usize> {
        self.0.checked_sub(FIRST_DERIVED)
    }
}

/// A point in event time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// One pipeline: which records count, into which windows and groups, and what is computed.
#[derive(Clone, Debug)]
pub struct PipelineSpec {
    /// Its name, as rows carry it.
    pub name: String,
    /// Where the event time of a record stands.
    pub time: TimeSource,
    /// Which records count; `None`: all.
    pub filter: Option<Expr>,
    /// Expressions over decoded fields, computed once for each record that counts: groups and
    /// values name them by [`Column::of_derived`].
    pub derived: Vec<Expr>,
    /// The fields whose values make the groups; none: one group.
    pub group_by: Vec<GroupColumn>,
    /// Into which windows time is divided.
    pub window: WindowSpec,
    /// When a window is complete.
    pub close: CloseSpec,
    /// What becomes of records that come too late.
    pub late: LateSpec,
    /// What is computed of each window and group, in the order of the row.
    pub values: Vec<ValueSpec>,
    /// A record further ahead of agreed time than this is a dead letter; `None` where agreed time
    /// follows the data.
    pub max_future_ms: Option<i64>,
    /// A record whose group's key takes more bytes than this (a text: its own and three) is a
    /// dead letter: a row must fit wherever it is published.
    pub group_bytes: usize,
    /// Which rows are published; `None`: all. Its columns are those of [`PipelineSpec::values`],
    /// then those of [`PipelineSpec::group_by`].
    pub having: Option<Expr>,
    /// Which records are copies of others; `None`: none.
    pub dedup: Option<DedupSpec>,
}

impl PipelineSpec {
    /// Puts other columns in the place of those of records, which are in `time`, `filter`,
    /// `derived`, `group_by` and `values`; `None` if `moved` has none for some.
    pub fn move_columns(&mut self, moved: &mut dyn FnMut(Column) -> Option<Column>) -> Option<()> {
        if let TimeSource::Field { column, .. } = &mut self.time {
            *column = moved(*column)?;
        }
        for expr in self.filter.iter_mut().chain(&mut self.derived) {
            expr.move_columns(moved)?;
        }
        for group in &mut self.group_by {
            group.column = moved(group.column)?;
        }
        for value in &mut self.values {
            value.function.move_columns(moved)?;
        }
        for column in self.dedup.iter_mut().flat_map(|dedup| &mut dedup.key) {
            *column = moved(*column)?;
        }
        Some(())
    }
}

impl Function {
    /// Puts other columns in the place of its own; `None` if `moved` has none for some.
    pub fn move_columns(&mut self, moved: &mut dyn FnMut(Column) -> Option<Column>) -> Option<()> {
        if let Some(column) = self.column_mut() {
            *column = moved(*column)?;
        }
        Some(())
    }
}

/// Where a record's event time comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum TimeSource {
    /// The time that the broker or the producer stamped on the record.
    AppendTime,
    /// A field of the record.
    Field {
        /// The field.
        column: Column,
        /// How it is written there.
        format: TimeFormat,
        /// Whose clocks a text without a zone means; `None`: those of UTC.
        zone: Option<Arc<Zone>>,
    },
}

/// How a time field is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// RFC 3339 text, or a number whose size tells seconds, milliseconds, microseconds or
    /// nanoseconds, or RFC 2822 text.
    Auto,
    /// RFC 3339 text, or one of its common variations.
    Rfc3339,
    /// RFC 2822 text, as in mails.
    Rfc2822,
    /// Text of that pattern.
    Pattern(TimePattern),
    /// A number of seconds since 1970.
    Seconds,
    /// A number of milliseconds since 1970.
    Millis,
    /// A number of microseconds since 1970.
    Micros,
    /// A number of nanoseconds since 1970.
    Nanos,
}

/// One field of the group, in the order of the definition.
#[derive(Clone, Debug)]
pub struct GroupColumn {
    /// The name in the row's `group` object.
    pub name: String,
    /// The field.
    pub column: Column,
}

/// When a window is complete.
#[derive(Clone, Copy, Debug)]
pub struct CloseSpec {
    /// How far out of order a lane may be.
    pub lag_ms: i64,
    /// The watermark follows the `records`-th largest event time of a lane; at least 1.
    pub records: usize,
    /// A lane with nothing new for that long no longer holds windows open; `None`: never idle.
    pub idle_ms: Option<i64>,
    /// No window closes before the feed has had so many lanes.
    pub lanes: usize,
    /// A lane that is seen at its end holds a window open no longer than this after the window's end;
    /// `None`: as long as it takes.
    pub at_most_ms: Option<i64>,
}

impl Default for CloseSpec {
    /// The first record beyond a window's end closes it.
    fn default() -> Self {
        Self {
            lag_ms: 0,
            records: 1,
            idle_ms: None,
            lanes: 0,
            at_most_ms: None,
        }
    }
}

/// What becomes of a record that comes when a window of its time is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateSpec {
    /// It does not count there; a record that is late for all its windows is a dead letter.
    #[default]
    Drop,
    /// It counts until its own lane's watermark is `keep_ms` past the window's end (or windows are
    /// closed so far beyond it), and the corrected row is published again.
    Revise {
        /// In milliseconds of event time.
        keep_ms: i64,
    },
}

impl LateSpec {
    /// How long complete windows are kept; `None`: not at all.
    #[must_use]
    #[inline]
    pub fn keep_ms(self) -> Option<i64> {
        match self {
            Self::Drop => None,
            Self::Revise { keep_ms } => Some(keep_ms),
        }
    }

    /// Windows that end here or before take nothing in any more, if those up to `complete_to` are
    /// complete.
    #[inline]
    pub(crate) fn gone(self, complete_to: Option<Timestamp>) -> Option<Timestamp> {
        match self {
            Self::Drop => complete_to,
            Self::Revise { keep_ms } => {
                complete_to.map(|to| Timestamp(to.0.saturating_sub(keep_ms)))
            }
        }
    }
}

/// Which records are copies: of those with the same key, over all lanes, in the order of event time,
/// lane and offset, one counts unless another was counted less than `within_ms` away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupSpec {
    /// The fields that make the id, at least one. A record of which one is null, or no plain value,
    /// is nobody's copy.
    pub key: Vec<Column>,
    /// In milliseconds, at least 1.
    pub within_ms: i64,
}

/// One computed value of a row.
#[derive(Clone, Debug)]
pub struct ValueSpec {
    /// The name in the row's `values` object.
    pub name: String,
    /// What it is.
    pub function: Function,
}
