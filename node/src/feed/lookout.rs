//! A tick as soon as a window can close: what the lanes are looked at for, and whether it has come.

use std::sync::Arc;

use unisono_engine::NextClosing;

use super::Feed;
use super::runner::Runner;
use crate::threads::lock;

impl Runner {
    /// After a tick: has the lanes looked at for what would close the next window, if anybody makes a tick of it here.
    pub(super) fn look_out(&self) {
        let next = match (self.hooks.leads)() {
            true => self.engine.next_closings(),
            false => Vec::new(),
        };
        let mut known = lock(&self.shared.closings);
        if known.iter().map(Arc::as_ref).eq(&next) {
            return;
        }
        let next: Vec<Arc<NextClosing>> = next.into_iter().map(Arc::new).collect();
        known.clone_from(&next);
        // Whoever is told looks at what is known.
        drop(known);
        for (number, lane) in (0..).zip(&self.lanes) {
            let waits = |closing: &&Arc<NextClosing>| closing.lanes.iter().any(|it| it.0 == number);
            let closings = next.iter().filter(waits).cloned().collect();
            lane.look_out(closings, &self.hooks.closing);
        }
    }
}

impl Feed {
    /// Whether a window closes, as far as one can see, with what is in hand, and some of that lies beyond these cuts, one for
    /// each lane.
    #[must_use]
    pub fn closes_beyond(&self, cuts: impl Fn(usize) -> i64) -> bool {
        let closings = lock(&self.shared.closings).clone();
        if closings.is_empty() {
            return false;
        }
        let lanes = self.lanes();
        closings.iter().any(|closing| {
            let mut beyond = false;
            let mut each = closing.lanes.iter().map(|lane| lane.0 as usize);
            let all = each.all(|lane| {
                let seen = lanes.get(lane).and_then(|lane| lane.sighted(closing));
                beyond |= seen.is_some_and(|next| next > cuts(lane));
                seen.is_some()
            });
            all && beyond
        })
    }
}
