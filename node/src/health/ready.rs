//! Whether this node serves, as `/readyz` says: one function of what is claimed and how old the claims are.

use std::time::Duration;

use super::{HUNG, LAG};

/// Rows that wait to be published for so long, and none is, are stuck.
pub const STUCK: Duration = Duration::from_secs(10);

/// The part that the node plays, and how fresh that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// It leads; the age of what a quorum acknowledged last.
    Leads(Option<Duration>),
    /// It votes, and this one leads; the age of its last word.
    Follows(u16, Option<Duration>),
    /// It knows no leader.
    Leaderless,
    /// It does not vote yet.
    Learns,
}

/// How a feed does on the other nodes that were heard of lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// On one of them at least it runs.
    Runs,
    /// It stands still on all of them.
    Stands,
    /// None of them told.
    Unknown,
}

/// A feed that stands still here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Why.
    pub reason: String,
    /// How it does on others.
    pub elsewhere: Elsewhere,
}

/// Rows that are published and not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Whose.
    pub pipeline: String,
    /// The first row that is missing, and the one after the last.
    pub rows: (u64, u64),
}

/// All that the answer depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Its part in the consensus.
    pub seat: Seat,
    /// How old word of a leader or a quorum may be.
    pub contact: Duration,
    /// Entries of the agreed log that others have read and this node has not.
    pub lag: u64,
    /// For how long the present write to the disk has taken.
    pub writing: Option<Duration>,
    /// Feeds that stand still here.
    pub standing: Vec<Standing>,
    /// Why sinks cannot be published to from here.
    pub sinks: Vec<String>,
    /// Pipelines whose rows wait to be published from here, and for how long none was.
    pub unpublished: Vec<(String, Duration)>,
    /// Rows that are published and not here.
    pub holes: Vec<Hole>,
    /// Pipelines that are to be and are not.
    pub missing: Vec<String>,
    /// One pipeline was asked for: what stands still everywhere alike counts too.
    pub strict: bool,
}

impl Claims {
    /// Why the node does not serve; empty if it does.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        reasons.extend(self.seat.trouble(self.contact));
        if self.lag > LAG {
            let lag = self.lag;
            reasons.push(format!("this node lacks {lag} entries of the agreed log"));
        }
        if let Some(age) = self.writing.filter(|&age| age >= HUNG) {
            let age = age.as_secs();
            reasons.push(format!("a write to this node's disk hangs for {age} s"));
        }
        let holes = self.holes.iter();
        reasons.extend(holes.map(|Hole { pipeline, rows }| {
            let (first, last) = (rows.0, rows.1.saturating_sub(1));
            format!("rows {first} to {last} of pipeline {pipeline} are published and not here yet")
        }));
        let counts = |standing: &&Standing| self.strict || standing.elsewhere != Elsewhere::Stands;
        let standing = self.standing.iter().filter(counts);
        reasons.extend(standing.map(|standing| standing.reason.clone()));
        reasons.extend(self.sinks.iter().cloned());
        let stuck = self.unpublished.iter().filter(|(_, age)| *age >= STUCK);
        reasons.extend(stuck.map(|(pipeline, age)| {
            let age = age.as_secs();
            format!("rows of pipeline {pipeline} wait to be published, and none was for {age} s")
        }));
        reasons.extend(self.missing.iter().cloned());
        reasons
    }
}

impl Seat {
    fn trouble(self, contact: Duration) -> Option<String> {
        let old = |age: &Duration| *age >= contact;
        let ms = |age: Duration| age.as_millis();
        match self {
            Self::Leads(None) => {
                Some("this node leads, but no quorum has acknowledged it yet".into())
            }
            Self::Leads(Some(age)) if old(&age) => Some(format!(
                "no quorum has acknowledged this node, which led, for {} ms",
                ms(age)
            )),
            Self::Follows(leader, None) => {
                Some(format!("node {leader}, which leads, was not heard yet"))
            }
            Self::Follows(leader, Some(age)) if old(&age) => Some(format!(
                "node {leader}, which led, was not heard for {} ms",
                ms(age)
            )),
            Self::Leads(_) | Self::Follows(..) => None,
            Self::Leaderless => Some("no leader is known".into()),
            Self::Learns => Some("this node has no vote yet: it catches up".into()),
        }
    }

    /// Whether this node leads as far as anybody can know.
    #[must_use]
    pub fn leads(self, contact: Duration) -> bool {
        matches!(self, Self::Leads(_)) && self.is_in_touch(contact)
    }

    /// Whether there is a leader, who has been heard lately, or a quorum that has acknowledged this one.
    #[must_use]
    pub fn is_in_touch(self, contact: Duration) -> bool {
        self.trouble(contact).is_none()
    }
}

#[cfg(test)]
#[path = "ready/tests.rs"]
mod tests;
