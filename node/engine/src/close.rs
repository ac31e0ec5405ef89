//! Which windows close when the watermark moves, in the order of their ends.
//!
//! Without `group_by` an empty window gives a row too, from the first window with data on, but at
//! most [`MOST_EMPTY`] after each window with data; then there is silence until data comes again.
//! That depends on which windows hold data, and on nothing else: not on how the watermark moved
//! there. ("Data" are records that `where` selected and that were counted.)

use crate::spec::{Timestamp, WindowSpec};
use crate::window::{PaneKey, window_ends};

/// Most empty windows that follow a window with data.
pub const MOST_EMPTY: i64 = 1000;

/// How far windows are closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Windows that end here or before are closed.
    pub(crate) through: Option<Timestamp>,
    /// The end of the last closed window that held data.
    pub(crate) last_with_data: Option<i64>,
}

/// One window that closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    WithData { end: i64 },
    Empty { end: i64 },
}

impl Closing {
    pub(crate) fn end(self) -> i64 {
        match self {
            Self::WithData { end } | Self::Empty { end } => end,
        }
    }
}

/// What becomes of windows without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmptyWindows {
    /// They give rows: there is no `group_by`.
    Shown,
    Skipped,
}

impl Closed {
    /// The windows with data among these panes that are not closed and end at or before `to`,
    /// ascending.
    pub(crate) fn open_ends(
        self,
        window: &WindowSpec,
        panes: impl Iterator<Item = PaneKey>,
        to: Timestamp,
    ) -> impl Iterator<Item = i64> {
        // A closed range may begin in the past by more than a pane: then its open rest is what
        // counts.
        window_ends(window, panes)
            .into_iter()
            .flat_map(move |(first, last)| {
                let first = self.first_open(window, first);
                let ends = std::iter::successors(first, |&end| window.next_end(end));
                ends.take_while(move |&end| end <= last.min(to.0))
            })
    }

    /// The first end from `first` on that is not closed.
    fn first_open(self, window: &WindowSpec, first: i64) -> Option<i64> {
        let through = match self.through {
            Some(through) if through.0 >= first => through.0,
            _ => return Some(first),
        };
        match window.fixed() {
            Some(fixed) => {
                // Both may lie anywhere, and more than 64 bits apart: only their rests are
                // subtracted.
                let slide = fixed.slide_ms();
                let rest = |time: i64| time.rem_euclid(slide);
                let into = rest(rest(through).saturating_sub(rest(first)));
                through.checked_add(slide.saturating_sub(into))
            }
            None => window.next_end(through),
        }
    }

    /// Moves to the watermark, and gives the windows that close by that, ascending. Does nothing if
    /// the watermark is not beyond.
    pub(crate) fn advance(
        &mut self,
        window: &WindowSpec,
        empty: EmptyWindows,
        panes: impl Iterator<Item = PaneKey>,
        watermark: Timestamp,
    ) -> Vec<Closing> {
        let mut closing = Vec::new();
        if self.through.is_some_and(|through| through >= watermark) {
            return closing;
        }
        // Most ticks reach no window's end: then panes, of which there may be thousands, are not
        // looked at.
        if self
            .through
            .is_some_and(|through| window.pane_of(through.0).1 > watermark.0)
        {
            self.through = Some(watermark);
            return closing;
        }
        let ends: Vec<i64> = self.open_ends(window, panes, watermark).collect();
        for end in ends {
            self.push_empty(empty, window, end.saturating_sub(1), &mut closing);
            closing.push(Closing::WithData { end });
            self.last_with_data = Some(end);
        }
        self.push_empty(empty, window, watermark.0, &mut closing);
        self.through = Some(watermark);
        closing
    }

    /// The empty windows after the last one with data, up to `to`, that are not closed.
    fn push_empty(
        self,
        empty: EmptyWindows,
        window: &WindowSpec,
        to: i64,
        closing: &mut Vec<Closing>,
    ) {
        let (EmptyWindows::Shown, Some(last)) = (empty, self.last_with_data) else {
            return;
        };
        let bound = to.min(window.end_after(last, MOST_EMPTY));
        let Some(first) = window.next_end(last) else {
            return;
        };
        let mut next = self.first_open(window, first);
        while let Some(end) = next.filter(|&end| end <= bound) {
            closing.push(Closing::Empty { end });
            next = window.next_end(end);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn window() -> WindowSpec {
        WindowSpec::new(10, 10, 0).unwrap()
    }

    fn advance(closed: &mut Closed, panes: &[i64], to: i64) -> String {
        let panes = panes.iter().map(|&start| PaneKey {
            start,
            first_end: start + 10,
        });
        let show = |closing: &Closing| match closing {
            Closing::WithData { end } => format!("{end}"),
            Closing::Empty { end } => format!("({end})"),
        };
        let closing = closed.advance(&window(), EmptyWindows::Shown, panes, Timestamp(to));
        closing.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn empty_windows_follow_data_however_the_watermark_gets_there() {
        let mut closed = Closed::default();
        assert_eq!(advance(&mut closed, &[20, 50], 75), "30 (40) (50) 60 (70)");
        let mut stepwise = Closed::default();
        let steps: Vec<String> = [5, 29, 30, 44, 44, 12, 60, 75]
            .iter()
            .map(|&to| advance(&mut stepwise, &[20, 50], to))
            .filter(|closing| !closing.is_empty())
            .collect();
        assert_eq!(steps.join(" "), "30 (40) (50) 60 (70)");
        assert_eq!(stepwise, closed);
    }

    #[test]
    fn at_most_a_thousand_empty_windows_follow_data() {
        let far = 1_000_000_000_000;
        let mut closed = Closed::default();
        let all = advance(&mut closed, &[0, far], far + 10);
        assert_eq!(all.split(' ').count(), 1002);
        assert!(all.starts_with("10 (20) ") && all.ends_with(&format!("(10010) {}", far + 10)));
        let mut stepwise = Closed::default();
        let mut number = 0;
        for to in [5000, 5005, 10_009, 20_000, far, far + 10] {
            number += advance(&mut stepwise, &[0, far], to)
                .split_whitespace()
                .count();
        }
        assert_eq!(number, 1002);
    }

    #[test]
    fn a_watermark_at_the_end_of_all_time_closes_all_and_no_more() {
        let mut closed = Closed::default();
        let ends = advance(&mut closed, &[-20, 30], i64::MAX);
        assert!(ends.starts_with("-10 (0) (10) (20) (30) 40 (50) "));
        assert_eq!(ends.split(' ').count(), 6 + 1000);
        assert_eq!(advance(&mut closed, &[-20, 30, 50], i64::MAX), "");
        assert_eq!(closed.first_open(&window(), -20), None);
    }

    #[test]
    fn nothing_closes_before_there_was_data() {
        assert_eq!(advance(&mut Closed::default(), &[], 1_000_000), "");
        assert_eq!(advance(&mut Closed::default(), &[], i64::MIN), "");
    }
}
