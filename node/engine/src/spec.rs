//! What a pipeline means, checked. Built by the program's config from a definition in TOML; the
//! engine trusts it.

mod expr;

pub use expr::{Call, CompareOp, Expr, Gives, Kind, Signature};

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
        Some(())
    }
}

impl Function {
    /// Puts other columns in the place of its own; `None` if `moved` has none for some.
    pub fn move_columns(&mut self, moved: &mut dyn FnMut(Column) -> Option<Column>) -> Option<()> {
        match self {
            Self::CountAll => {}
            Self::Count(column)
            | Self::Sum(column)
            | Self::Avg(column)
            | Self::Min(column)
            | Self::Max(column) => *column = moved(*column)?,
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

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Records of the group: `count()`.
    CountAll,
    /// Records in which the field is neither absent nor null nor unusable.
    Count(Column),
    /// The exact sum of the field's numbers; null without any.
    Sum(Column),
    /// Their average, to [`crate::AVERAGE_DIGITS`] digits; null without any.
    Avg(Column),
    /// The least of them; null without any.
    Min(Column),
    /// The largest of them; null without any.
    Max(Column),
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
