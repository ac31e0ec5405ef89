//! What is known of the end of a lane of which nothing more has come.

use std::time::{Duration, Instant};

use unisono_replication::rt;
/// A source is asked ten times a second why nothing comes; one that has not answered for so long is silent.
pub(super) const SILENT: Duration = Duration::from_millis(300);

/// As a reader knows it at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Where it is, if all below was handed over.
    pub at: Option<i64>,
    /// Since when a transaction that is open has kept more from being read.
    pub held_since: Option<Instant>,
    /// Since when nothing has come, and nobody has said that there is nothing.
    pub unanswered_since: Option<Instant>,
}

impl End {
    /// For how long nothing has come and the source has not answered, where that is longer than it ever takes.
    pub(super) fn silence(self) -> Option<Duration> {
        let since = self.unanswered_since?;
        Some(rt::since(since)).filter(|age| *age >= SILENT)
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
