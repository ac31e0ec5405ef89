//! How long each step of a takeover took, for each sink: from the evidence against the leader before, or from the election
//! where a leader gave the lead away, to the first row.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::threads::lock;

/// When this node came to lead, and when it first had evidence against the leader before.
#[derive(Clone, Copy, Debug)]
pub struct Election {
    /// The term.
    pub term: u64,
    /// When this node learned that it leads.
    pub at: Instant,
    /// `None`: the lead was given to it.
    pub suspected: Option<Instant>,
}

/// The steps of this node's last takeover of each sink.
#[derive(Debug, Default)]
pub struct Successions {
    election: Mutex<Option<Election>>,
    last: Mutex<BTreeMap<String, Steps>>,
}

/// When a publisher came to each step in a term.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ascent {
    term: u64,
    /// It knows all that was agreed before, and may publish.
    caught_up: Option<Instant>,
    /// Nobody else can publish any more, if the sink tells.
    fenced: Option<Instant>,
    /// It knows how far the sink is.
    acquired: Option<Instant>,
    told: bool,
}

impl Ascent {
    /// The sink is about to be acquired.
    pub fn begin(&mut self, term: u64, now: Instant) {
        if self.term != term {
            *self = Self {
                term,
                caught_up: Some(now),
                ..Self::default()
            };
        }
    }

    /// It is.
    pub fn acquired(&mut self, fenced: Option<Instant>, now: Instant) {
        (self.fenced, self.acquired) = (fenced, Some(now));
    }

    /// Rows have gone: tells the steps to the first ones of a term.
    pub fn published(&mut self, successions: &Successions, sink: &str, now: Instant) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        if let Some(steps) = successions.published(sink, self, now) {
            let term = self.term;
            tracing::info!(
                sink,
                term,
                ?steps,
                "the first rows of this leader are published"
            );
        }
    }
}

/// What was reached when, from the beginning; in order.
pub type Steps = Vec<(&'static str, Duration)>;

impl Successions {
    /// This node leads from now on.
    pub fn elected(&self, election: Election) {
        *lock(&self.election) = Some(election);
    }

    /// The first row of a sink was published. Tells the steps, if they are known.
    fn published(&self, sink: &str, ascent: &Ascent, now: Instant) -> Option<Steps> {
        let election = (*lock(&self.election)).filter(|it| it.term == ascent.term)?;
        let from = election.suspected.unwrap_or(election.at);
        let reached = [
            ("elected", Some(election.at)),
            ("caught_up", ascent.caught_up),
            ("fenced", ascent.fenced),
            ("acquired", ascent.acquired),
            ("published", Some(now)),
        ];
        let since = |at: Instant| at.saturating_duration_since(from);
        let reached = reached.into_iter();
        let steps: Steps = reached
            .filter_map(|(step, at)| Some((step, since(at?))))
            .collect();
        lock(&self.last).insert(sink.to_owned(), steps.clone());
        Some(steps)
    }

    /// The last takeover of each sink.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, Steps> {
        lock(&self.last).clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_from_the_evidence_or_from_the_election_and_only_of_its_term() {
        let successions = Successions::default();
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let ascent = Ascent {
            term: 4,
            caught_up: Some(at(20)),
            fenced: None,
            acquired: Some(at(30)),
            told: false,
        };
        assert_eq!(successions.published("s", &ascent, at(40)), None);
        let elected = |term, suspected| Election {
            term,
            at: at(10),
            suspected,
        };
        successions.elected(elected(3, None));
        assert_eq!(successions.published("s", &ascent, at(40)), None);
        successions.elected(elected(4, Some(start)));
        let steps = successions.published("s", &ascent, at(40)).unwrap();
        let of = |ms: u64| Duration::from_millis(ms);
        let first = [
            ("elected", of(10)),
            ("caught_up", of(20)),
            ("acquired", of(30)),
        ];
        assert_eq!(steps[..3], first);
        assert_eq!(steps[3], ("published", of(40)));
        successions.elected(elected(4, None));
        let steps = successions.published("s", &ascent, at(40)).unwrap();
        assert_eq!(steps[..2], [("elected", of(0)), ("caught_up", of(10))]);
        assert_eq!(successions.all()["s"], steps);
    }
}
