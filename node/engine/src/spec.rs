//! What a pipeline means, checked. Built by the program's config from a definition in TOML; the
//! engine trusts it.

use crate::decimal::Decimal;

mod calendar;
mod function;
mod window;
mod zone;

pub use calendar::{CalendarUnit, CalendarWindows};
pub(crate) use function::Takes;
pub use function::{Function, Spread};
pub use window::{FixedWindows, WindowError, WindowSpec};
pub use zone::{RuleDay, YearRule, Zone, ZoneError};

/// Index of a lane within its feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// Index of a decoded field within [`crate::record::Cells`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column(pub usize);

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
    /// The fields whose values make the groups; none: one group.
    pub group_by: Vec<GroupColumn>,
    /// Into which windows time is divided.
    pub window: WindowSpec,
    /// When a window is complete.
    pub close: CloseSpec,
    /// What is computed of each window and group, in the order of the row.
    pub values: Vec<ValueSpec>,
    /// A record further ahead of agreed time than this is a dead letter; `None` where agreed time
    /// follows the data.
    pub max_future_ms: Option<i64>,
    /// A record whose group's key takes more bytes than this (a text: its own and three) is a
    /// dead letter: a row must fit wherever it is published.
    pub group_bytes: usize,
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
    },
}

/// How a time field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// RFC 3339 text, or a number whose size tells seconds, milliseconds, microseconds or
    /// nanoseconds.
    Auto,
    /// RFC 3339 text.
    Rfc3339,
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

/// One computed value of a row.
#[derive(Clone, Debug)]
pub struct ValueSpec {
    /// The name in the row's `values` object.
    pub name: String,
    /// What it is.
    pub function: Function,
}

/// A condition with SQL's three-valued logic: a comparison with an absent or null field is unknown,
/// and an unknown condition does not select the record.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A comparison.
    Compare {
        /// The left side.
        left: Operand,
        /// What is asked of the two.
        op: CompareOp,
        /// The right side.
        right: Operand,
    },
    /// `IS NULL`: true for an absent or null field, never unknown.
    IsNull(Operand),
    /// A boolean field used as a condition.
    Truth(Operand),
    /// `NOT`; of unknown it is unknown.
    Not(Box<Expr>),
    /// `AND` of all; of none it is true.
    And(Vec<Expr>),
    /// `OR` of all; of none it is false.
    Or(Vec<Expr>),
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A field of the record.
    Column(Column),
    /// A text.
    Text(String),
    /// A number.
    Number(Decimal),
    /// True or false.
    Bool(bool),
    /// Null: compared with anything, unknown.
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// What a comparison asks. Values of different kinds are neither equal nor ordered: unknown.
pub enum CompareOp {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}
