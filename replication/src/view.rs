//! What a replica knows of its cluster at a moment.

use std::time::Duration;

/// The part that a replica plays in the consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Proposes entries.
    Leader,
    /// Votes and follows.
    Follower,
    /// Follows and does not vote: a fresh node, or one that rejoins with a wiped disk.
    Learner,
    /// Stands for election.
    Candidate,
}

/// A replica's view of the cluster. Whoever waits for a change is told of one in the term, the roles or the members, as
/// soon as the replica learns of it; the indexes are those of the last applied entry, and nobody is woken for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// This replica's number.
    pub number: u16,
    /// The term that this replica is in.
    pub term: u64,
    /// The part that it plays.
    pub role: Role,
    /// The number of the leader, where known.
    pub leader: Option<u16>,
    /// This replica leads and has applied an entry of its own term: it knows all that was committed
    /// before it came to lead, and may propose.
    pub blank_applied: bool,
    /// Index of the last entry that cursors may read.
    pub applied: u64,
    /// Index of the last entry in the log.
    pub last_log: u64,
    /// Index of the last entry known here to be committed.
    pub committed: u64,
    /// Numbers of the voters.
    pub voters: Vec<u16>,
    /// Numbers of the learners.
    pub learners: Vec<u16>,
    /// A change of voters is half done: the old ones and the new ones must both agree until it is completed.
    pub joint: bool,
    /// Index of the last checkpoint, 0 without one.
    pub snapshot: u64,
}

impl View {
    /// The view before anything is known.
    pub(crate) fn unknown(number: u16) -> View {
        View {
            number,
            term: 0,
            role: Role::Learner,
            leader: None,
            blank_applied: false,
            applied: 0,
            last_log: 0,
            committed: 0,
            voters: Vec::new(),
            learners: Vec::new(),
            joint: false,
            snapshot: 0,
        }
    }

    /// Whether the roles are the same: all but the indexes, which move with every entry.
    pub(crate) fn plays_as(&self, other: &View) -> bool {
        let roles = |view: &View| (view.term, view.role, view.leader, view.blank_applied);
        roles(self) == roles(other)
            && self.voters == other.voters
            && self.learners == other.learners
            && self.joint == other.joint
    }

    /// Whether this replica leads.
    pub fn is_leader(&self) -> bool {
        self.role == Role::Leader
    }
}

/// How fresh what a replica knows is. Each is an age; what never was has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Of the leader's last message, where this replica follows.
    pub heard: Option<Duration>,
    /// Of the last message that a quorum acknowledged, where this replica leads.
    pub quorum: Option<Duration>,
    /// Of the last entries or vote that are durable on this disk.
    pub written: Option<Duration>,
    /// Of the entries that are being made durable now; they may hang.
    pub writing: Option<Duration>,
}
