//! What is known of the end of a lane of which nothing more has come.

use std::time::{Duration, Instant};

use unisono_replication::rt;

use crate::source::Unanswered;

/// A source is asked ten times a second why nothing comes; one that has not answered for so long is silent.
pub(super) const SILENT: Duration = Duration::from_millis(300);
/// Where its answers take their time, so many times as long as the slowest of late.
const PATIENCE: u32 = 3;

/// As a reader knows it at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Where it is, if all below was handed over.
    pub at: Option<i64>,
    /// Since when a transaction that is open has kept more from being read.
    pub held_since: Option<Instant>,
    /// Nothing has come, and nobody has said that there is nothing.
    pub unanswered: Option<Unanswered>,
}

impl End {
    /// For how long nothing has come and the source has not answered, where that is longer than it ever takes.
    pub(super) fn silence(self) -> Option<Duration> {
        let Unanswered { slowest, .. } = self.unanswered?;
        let most = SILENT.max(slowest * PATIENCE);
        Some(self.unheard()).filter(|age| *age >= most)
    }

    /// For how long the source was not heard of, however short that is.
    pub(super) fn unheard(self) -> Duration {
        let unanswered = self.unanswered;
        unanswered.map_or(Duration::ZERO, |unanswered| rt::since(unanswered.since))
    }

    /// How long its slowest answer of late took.
    pub(super) fn slowest(self) -> Duration {
        let unanswered = self.unanswered;
        unanswered.map_or(Duration::ZERO, |unanswered| unanswered.slowest)
    }
}

#[cfg(test)]
impl End {
    pub(crate) fn at(at: Option<i64>) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }
}
