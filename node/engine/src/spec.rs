//! What a pipeline means, checked. Built by the program's config from a definition in TOML; the
//! engine trusts it.

use crate::decimal::Decimal;

mod function;

pub(crate) use function::Takes;
pub use function::{Function, Spread};

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

/// Invariant: `0 < slide <= size` and `slide` divides `size`, so a pane belongs to `size / slide`
/// windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSpec {
    size_ms: i64,
    slide_ms: i64,
    offset_ms: i64,
}

/// Which rule a window's definition breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the rules")]
pub enum WindowError {
    #[error("size must be greater than 0")]
    Size,
    #[error("slide must be greater than 0")]
    Slide,
    #[error("slide must not be greater than size")]
    SlideAboveSize,
    #[error("slide must divide size")]
    SlideDoesNotDivide,
    #[error("size may be at most 366 days, and size / slide at most 10000")]
    TooLarge,
}

impl WindowSpec {
    /// Takes all three in milliseconds; the offset is reduced to less than one slide.
    ///
    /// # Errors
    /// The rule that the numbers break.
    pub fn new(size_ms: i64, slide_ms: i64, offset_ms: i64) -> Result<Self, WindowError> {
        match () {
            () if size_ms <= 0 => Err(WindowError::Size),
            () if slide_ms <= 0 => Err(WindowError::Slide),
            () if slide_ms > size_ms => Err(WindowError::SlideAboveSize),
            () if size_ms.checked_rem(slide_ms) != Some(0) => Err(WindowError::SlideDoesNotDivide),
            () if size_ms > 366 * 86_400_000 || size_ms.div_euclid(slide_ms) > 10_000 => {
                Err(WindowError::TooLarge)
            }
            () => Ok(Self {
                size_ms,
                slide_ms,
                offset_ms: offset_ms.rem_euclid(slide_ms),
            }),
        }
    }

    /// The length of a window in milliseconds.
    #[must_use]
    pub fn size_ms(self) -> i64 {
        self.size_ms
    }

    /// Where the window with this end starts.
    #[must_use]
    pub fn start_of(self, end: i64) -> i64 {
        end.saturating_sub(self.size_ms)
    }

    /// The distance between two windows' starts in milliseconds: also the length of a pane.
    #[must_use]
    pub fn slide_ms(self) -> i64 {
        self.slide_ms
    }

    /// Where windows start, relative to multiples of the slide since 1970, in milliseconds.
    #[must_use]
    pub fn offset_ms(self) -> i64 {
        self.offset_ms
    }
}
