//! A partition of which nothing comes: since when, and whether an open transaction is why. Both readers judge by this; the
//! caller brings the clock.

use std::time::{Duration, Instant};

/// What a broker said of an end longer ago than this, from when it was asked, is no evidence.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// What was looked at so lately has been silent since then, not only since it is known.
const LOOKED_AT: Duration = Duration::from_millis(150);
/// Records that were appended and cannot be read for so long are those of an open transaction; before, they are on their way.
const HELD: Duration = Duration::from_secs(2);
/// It is said in the log when that has lasted so long: many transactions take some seconds.
const HELD_LONG: Duration = Duration::from_secs(10);

/// Whether something came at the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiet {
    is_quiet: bool,
    since: Instant,
    looked: Instant,
}

impl Quiet {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            is_quiet: false,
            since: now,
            looked: now,
        }
    }

    /// It was looked at, and gave something or nothing. Whether it has just fallen silent.
    pub(super) fn look(&mut self, is_quiet: bool, now: Instant) -> bool {
        let falls_silent = is_quiet && !self.is_quiet;
        if falls_silent {
            let is_recent = now.saturating_duration_since(self.looked) < LOOKED_AT;
            self.since = if is_recent { self.looked } else { now };
        }
        self.looked = now;
        self.is_quiet = is_quiet;
        falls_silent
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Since when, if it is.
    pub(super) fn since(&self) -> Option<Instant> {
        self.is_quiet.then_some(self.since)
    }
}

/// Whether more was appended than can be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hold(Option<Held>);

#[derive(Clone, Copy, Debug)]
struct Held {
    /// Where reading ends.
    position: i64,
    since: Instant,
    told: bool,
}

impl Hold {
    /// By an answer to what was asked at `asked`, more was appended than can be read at this position, or not at any. Whether
    /// it is to be said now that it is so for long.
    pub(super) fn see(&mut self, position: Option<i64>, asked: Instant) -> bool {
        let known = self.0.filter(|held| Some(held.position) == position);
        self.0 = position.map(|position| {
            known.unwrap_or(Held {
                position,
                since: asked,
                told: false,
            })
        });
        let Some(held) = &mut self.0 else {
            return false;
        };
        let is_long = asked.saturating_duration_since(held.since) >= HELD_LONG;
        let tell = is_long && !held.told;
        held.told |= tell;
        tell
    }

    /// Since when that is so at this position, if for longer than records are on their way.
    pub(super) fn since(&self, position: i64, now: Instant) -> Option<Instant> {
        let held = self.0.filter(|held| held.position == position)?;
        (now.saturating_duration_since(held.since) >= HELD).then_some(held.since)
    }

    /// Since when that is so, however short that is.
    #[cfg(test)]
    pub(super) fn began(&self) -> Option<Instant> {
        self.0.map(|held| held.since)
    }
}
