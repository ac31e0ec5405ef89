//! Which pane and windows an event time belongs to.
//!
//! A pane is the slice `[start, start + slide)` that overlapping windows share. It lies in the
//! windows that end at `start + slide`, `start + 2 · slide`, ..., `start + size`; of a calendar each
//! window is a pane. Event times lie within the years 0001 to 9999 and sizes are at most 366 days,
//! so none of the sums here can overflow; watermarks, which may lie anywhere, are only compared.

use std::ops::Range;

use crate::spec::{Timestamp, WindowSpec};

/// A pane, and from which window on its records count: a record may be late for the first windows
/// and in time for the next.
///
/// Invariant: `first_end` is the end of a window that holds the pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PaneKey {
    pub(crate) start: i64,
    /// The end of the first window in which the records count.
    pub(crate) first_end: i64,
}

impl PaneKey {
    /// The end of the last window that the pane lies in.
    pub(crate) fn last_end(self, window: &WindowSpec) -> i64 {
        window.last_end(self.start)
    }

    /// Whether the pane's records count in the window with this end.
    pub(crate) fn counts_in(self, window: &WindowSpec, end: i64) -> bool {
        self.first_end <= end && panes_of(window, end).contains(&self.start)
    }

    /// Whether there can be such a pane.
    pub(crate) fn is_sound(self, window: &WindowSpec) -> bool {
        let (start, first) = window.pane_of(self.start);
        start == self.start && first <= self.first_end && self.first_end <= self.last_end(window)
    }
}

/// Where a record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In all windows that hold its time.
    All(PaneKey),
    /// The first windows were complete without it.
    Some(PaneKey),
    /// All its windows were complete without it.
    Late,
}

/// Places a record whose windows ending at or before `complete_to` are complete.
pub(crate) fn place(
    window: &WindowSpec,
    time: Timestamp,
    complete_to: Option<Timestamp>,
) -> Placement {
    let (start, first_possible) = window.pane_of(time.0);
    let last_end = match window.panes() {
        1 => first_possible,
        _ => window.last_end(start),
    };
    let limit = match complete_to {
        Some(limit) if limit.0 >= first_possible => limit.0,
        _ => {
            return Placement::All(PaneKey {
                start,
                first_end: first_possible,
            });
        }
    };
    if limit >= last_end {
        return Placement::Late;
    }
    // start < limit < last_end: nothing saturates.
    let slide = first_possible.saturating_sub(start);
    let into = limit.saturating_sub(start).rem_euclid(slide);
    let first_end = limit.saturating_sub(into).saturating_add(slide);
    Placement::Some(PaneKey { start, first_end })
}

/// The panes' starts that lie in the window with this end.
fn panes_of(window: &WindowSpec, end: i64) -> Range<i64> {
    window.start_of(end)..end
}

/// The ends of windows, as inclusive ranges stepped by the slide, merged so that no end is in two
/// of them.
///
/// Takes the panes in any order. The ranges come out ascending.
pub(crate) fn window_ends(
    window: &WindowSpec,
    panes: impl Iterator<Item = PaneKey>,
) -> Vec<(i64, i64)> {
    let mut ranges: Vec<(i64, i64)> = panes
        .map(|pane| (pane.first_end, pane.last_end(window)))
        .collect();
    ranges.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(previous) if first <= previous.1 => previous.1 = previous.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tumbling(size: i64, offset: i64) -> WindowSpec {
        WindowSpec::new(size, size, offset).unwrap()
    }

    fn start(window: &WindowSpec, time: Timestamp) -> i64 {
        window.pane_of(time.0).0
    }

    #[test]
    fn panes_before_1970_and_with_an_offset_have_the_right_bounds() {
        // 1969-12-31T00:00:02Z -> [1969-12-30T23:59:55, 1969-12-31T00:00:05)
        let time = Timestamp(-86_400_000 + 2000);
        assert_eq!(start(&tumbling(10_000, 5000), time), -86_400_000 - 5000);
        assert_eq!(start(&tumbling(1000, 0), Timestamp(-1)), -1000);
        assert_eq!(start(&tumbling(1000, 0), Timestamp(0)), 0);
        assert_eq!(start(&tumbling(1000, -300), Timestamp(0)), -300);
    }

    #[test]
    fn a_record_is_late_only_for_windows_that_were_complete() {
        let window = WindowSpec::new(30, 10, 0).unwrap();
        let time = Timestamp(5);
        let key = |first_end| PaneKey {
            start: 0,
            first_end,
        };
        let at = |limit: i64| place(&window, time, Some(Timestamp(limit)));
        assert_eq!(place(&window, time, None), Placement::All(key(10)));
        assert_eq!(at(i64::MIN), Placement::All(key(10)));
        assert_eq!(at(9), Placement::All(key(10)));
        assert_eq!(at(10), Placement::Some(key(20)));
        assert_eq!(at(19), Placement::Some(key(20)));
        assert_eq!(at(20), Placement::Some(key(30)));
        assert_eq!(at(29), Placement::Some(key(30)));
        assert_eq!(at(30), Placement::Late);
        assert_eq!(at(i64::MAX), Placement::Late);
    }

    #[test]
    fn the_ends_of_overlapping_panes_are_counted_once() {
        let window = WindowSpec::new(30, 10, 0).unwrap();
        let pane = |start, first_end| PaneKey { start, first_end };
        let panes = [pane(100, 110), pane(0, 20), pane(10, 20)];
        assert_eq!(
            window_ends(&window, panes.into_iter()),
            [(20, 40), (110, 130)]
        );
    }

    #[test]
    fn the_far_ends_of_the_calendar_do_not_overflow() {
        let window = WindowSpec::new(366 * 86_400_000, 86_400_000, 1).unwrap();
        for time in [crate::timestamp::FIRST, crate::timestamp::LAST] {
            for limit in [i64::MIN, i64::MAX, 0] {
                let _ = place(&window, time, Some(Timestamp(limit)));
            }
        }
    }
}
