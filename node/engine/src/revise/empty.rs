//! Empty windows among those that are kept: without `group_by` they have rows too, and a late record
//! may make one of them a window with data, which empty ones follow.
//!
//! What holds after each tick: a closed window has a row if it holds data, or follows a window with
//! data by at most [`MOST_EMPTY`]. So in the end the rows are those that there would be if nothing had
//! been late.

use std::collections::BTreeSet;

use super::Ledger;
use crate::close::{Closed, MOST_EMPTY};
use crate::spec::{Timestamp, WindowSpec};
use crate::window::PaneKey;

/// What becomes of empty windows.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// They had rows, and hold data now.
    pub(super) were_empty: BTreeSet<i64>,
    /// They get their first rows, empty ones.
    pub(super) first_rows: BTreeSet<i64>,
}

/// Finds the empty windows that late records in the windows that end at `touched` change. `panes_before`
/// gives the panes that held data before the tick.
pub(super) fn fill(
    window: &WindowSpec,
    closed: &mut Closed,
    ledger: &Ledger,
    touched: &BTreeSet<i64>,
    panes_before: impl FnOnce(&mut Vec<PaneKey>),
) -> Filled {
    let mut panes = Vec::new();
    panes_before(&mut panes);
    let through = closed.through.unwrap_or(Timestamp(i64::MIN));
    let all = Closed::default();
    let before: BTreeSet<i64> = all.open_ends(window, panes.into_iter(), through).collect();
    let had_row = |end: i64| {
        let last = before.range(..end).next_back().copied();
        let last = last.max(ledger.gone_with_data.filter(|&gone| gone < end));
        last.is_some_and(|last| end <= window.end_after(last, MOST_EMPTY))
    };
    let mut filled = Filled::default();
    for &end in touched.difference(&before) {
        if had_row(end) {
            filled.were_empty.insert(end);
        }
        closed.last_with_data = closed.last_with_data.max(Some(end));
        let last = window.end_after(end, MOST_EMPTY).min(through.0);
        let mut next = window.next_end(end);
        while let Some(empty) = next.filter(|&empty| empty <= last) {
            if before.contains(&empty) || touched.contains(&empty) {
                break;
            }
            if !had_row(empty) {
                filled.first_rows.insert(empty);
            }
            next = window.next_end(empty);
        }
    }
    filled
}

/// The end of the last window with data that goes when windows are closed through `after` instead of
/// `before`, being kept for `keep_ms`.
pub(crate) fn last_with_data(
    window: &WindowSpec,
    keep_ms: i64,
    (before, after): (Option<Timestamp>, Timestamp),
    panes: impl Iterator<Item = PaneKey>,
) -> Option<i64> {
    let gone = |time: Timestamp| Timestamp(time.0.saturating_sub(keep_ms));
    let closed = Closed {
        through: before.map(gone),
        last_with_data: None,
    };
    closed.open_ends(window, panes, gone(after)).last()
}
