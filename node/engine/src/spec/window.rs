//! Into which windows time is divided.

use std::sync::Arc;

use super::{CalendarWindows, Timestamp};

/// The longest window, and the longest gap of sessions.
const MOST_MS: i64 = 366 * 86_400_000;

/// Which windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowSpec {
    /// All of one length, in milliseconds.
    Fixed(FixedWindows),
    /// Days, weeks, months, quarters or years of a time zone.
    Calendar(Arc<CalendarWindows>),
    /// One for each time that a group's records come without a pause.
    Sessions(SessionWindows),
}

/// Windows that begin with a record and end when no further one came for long enough.
///
/// Invariant: the gap is greater than 0 and at most 366 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionWindows {
    gap_ms: i64,
}

/// Windows of one length: side by side, or overlapping.
///
/// Invariant: `0 < slide <= size` and `slide` divides `size`, so a pane belongs to `size / slide`
/// windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindows {
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
    #[error("offset of a calendar window must be less than a day")]
    CalendarOffset,
    #[error("session must be greater than 0 and at most 366 days")]
    Gap,
}

impl WindowSpec {
    /// Windows of one length. Takes all three in milliseconds; the offset is reduced to less than one
    /// slide.
    ///
    /// # Errors
    /// The rule that the numbers break.
    pub fn new(size_ms: i64, slide_ms: i64, offset_ms: i64) -> Result<Self, WindowError> {
        match () {
            () if size_ms <= 0 => Err(WindowError::Size),
            () if slide_ms <= 0 => Err(WindowError::Slide),
            () if slide_ms > size_ms => Err(WindowError::SlideAboveSize),
            () if size_ms.checked_rem(slide_ms) != Some(0) => Err(WindowError::SlideDoesNotDivide),
            () if size_ms > MOST_MS || size_ms.div_euclid(slide_ms) > 10_000 => {
                Err(WindowError::TooLarge)
            }
            () => Ok(Self::Fixed(FixedWindows {
                size_ms,
                slide_ms,
                offset_ms: offset_ms.rem_euclid(slide_ms),
            })),
        }
    }

    /// Sessions that end when a group had no record for so many milliseconds: a record that comes later
    /// than `gap_ms` after the one before it, or just then, begins the next session.
    ///
    /// # Errors
    /// The rule that the number breaks.
    pub fn sessions(gap_ms: i64) -> Result<Self, WindowError> {
        match gap_ms {
            1..=MOST_MS => Ok(Self::Sessions(SessionWindows { gap_ms })),
            _ => Err(WindowError::Gap),
        }
    }

    /// The gap in milliseconds, if these are sessions.
    #[must_use]
    #[inline]
    pub fn gap_ms(&self) -> Option<i64> {
        match self {
            Self::Sessions(sessions) => Some(sessions.gap_ms),
            Self::Fixed(_) | Self::Calendar(_) => None,
        }
    }

    /// The windows, if all have one length.
    #[must_use]
    pub fn fixed(&self) -> Option<FixedWindows> {
        match self {
            Self::Fixed(fixed) => Some(*fixed),
            Self::Calendar(_) | Self::Sessions(_) => None,
        }
    }

    /// Start and end of the window that holds a time; of overlapping windows, the step between two of them.
    #[must_use]
    pub fn step_of(&self, time: Timestamp) -> (i64, i64) {
        self.pane_of(time.0)
    }
    // Of sessions, all that follows says what holds of a session of one record.

    /// The start of the pane that holds a time, and the end of the first window that holds it.
    pub(crate) fn pane_of(&self, time: i64) -> (i64, i64) {
        match self {
            Self::Fixed(fixed) => {
                let into = time
                    .saturating_sub(fixed.offset_ms)
                    .rem_euclid(fixed.slide_ms);
                let start = time.saturating_sub(into);
                (start, start.saturating_add(fixed.slide_ms))
            }
            Self::Calendar(calendar) => calendar.bounds(time),
            Self::Sessions(sessions) => (time, time.saturating_add(sessions.gap_ms)),
        }
    }

    /// The end of the first window that holds the pane with this start.
    pub(crate) fn first_end(&self, start: i64) -> i64 {
        match self {
            Self::Fixed(fixed) => start.saturating_add(fixed.slide_ms),
            Self::Calendar(calendar) => calendar.bounds(start).1,
            Self::Sessions(sessions) => start.saturating_add(sessions.gap_ms),
        }
    }

    /// The end of the last window that holds the pane with this start.
    pub(crate) fn last_end(&self, start: i64) -> i64 {
        match self {
            Self::Fixed(fixed) => start.saturating_add(fixed.size_ms),
            Self::Calendar(calendar) => calendar.bounds(start).1,
            Self::Sessions(sessions) => start.saturating_add(sessions.gap_ms),
        }
    }

    /// Where the window with this end starts.
    #[must_use]
    pub fn start_of(&self, end: i64) -> i64 {
        match self {
            Self::Fixed(fixed) => end.saturating_sub(fixed.size_ms),
            Self::Calendar(calendar) => calendar.bounds(end.saturating_sub(1)).0,
            Self::Sessions(sessions) => end.saturating_sub(sessions.gap_ms),
        }
    }

    /// Panes that start before this lie in no window that ends after `time`.
    pub(crate) fn first_start_after(&self, time: i64) -> i64 {
        match self {
            Self::Fixed(fixed) => time.saturating_sub(fixed.size_ms).saturating_add(1),
            Self::Calendar(calendar) => calendar.bounds(time).0,
            Self::Sessions(_) => time,
        }
    }

    /// The end of the window after the one with this end.
    pub(crate) fn next_end(&self, end: i64) -> Option<i64> {
        match self {
            Self::Fixed(fixed) => end.checked_add(fixed.slide_ms),
            Self::Calendar(calendar) => Some(calendar.bounds(end).1).filter(|&next| next > end),
            Self::Sessions(sessions) => end.checked_add(sessions.gap_ms),
        }
    }

    /// The end of the window so many after the one with this end.
    pub(crate) fn end_after(&self, end: i64, windows: i64) -> i64 {
        match self {
            Self::Fixed(fixed) => end.saturating_add(fixed.slide_ms.saturating_mul(windows)),
            Self::Calendar(calendar) => calendar.end_after(end, windows),
            Self::Sessions(sessions) => end.saturating_add(sessions.gap_ms.saturating_mul(windows)),
        }
    }

    /// Most panes of a window.
    pub(crate) fn panes(&self) -> i64 {
        match self {
            Self::Fixed(fixed) => fixed.size_ms.div_euclid(fixed.slide_ms),
            Self::Calendar(_) | Self::Sessions(_) => 1,
        }
    }
}

impl SessionWindows {
    /// How long a pause ends a session, in milliseconds.
    #[must_use]
    pub fn gap_ms(self) -> i64 {
        self.gap_ms
    }
}

impl FixedWindows {
    /// The length of a window in milliseconds.
    #[must_use]
    pub fn size_ms(self) -> i64 {
        self.size_ms
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
