//! What was agreed of a lane and is read here otherwise.

use unisono_replication::machine::Marks;

use super::{CutChoice, LaneBuffer, State};

/// A stretch of a lane that was agreed, and read here otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disputed {
    /// The first offset.
    pub from: i64,
    /// One past the last.
    pub to: i64,
    /// The fingerprint that was agreed.
    pub agreed: u64,
    /// What is read here, as far as it goes up to `to`; `None`: nothing that ends there.
    pub read: Option<CutChoice>,
    /// How often it was read, with the same outcome each time.
    pub times: u32,
}

/// What is said where this replica read other records than were agreed.
pub(super) fn other_records(from: i64, to: i64) -> String {
    format!(
        "offsets {from} to {to} hold other records here than were agreed: the lane was truncated, recreated or rewritten, or \
         read wrongly; it is read again and again, and goes on when it is restored"
    )
}

impl LaneBuffer {
    /// The lane goes on from here, whatever was read or agreed beyond. Between two ticks.
    pub fn go_on_at(&self, offset: i64, fingerprint: u64, marks: Marks) {
        let mut state = self.lock();
        state.dispute = None;
        if (state.taken_to, state.fingerprint) == (offset, fingerprint) {
            return;
        }
        (state.taken_to, state.fingerprint, state.marks) = (offset, fingerprint, marks);
        state.wanted = offset;
        state.drop_read(format!(
            "it goes on at offset {offset}, by an operator's command"
        ));
        drop(state);
        self.room.feed();
    }

    /// Whether other records were agreed than those in hand.
    #[must_use]
    pub fn disputes(&self) -> bool {
        self.dispute().is_some()
    }

    /// What is agreed that is read otherwise here.
    #[must_use]
    pub fn dispute(&self) -> Option<Disputed> {
        self.lock().dispute
    }
}

impl State {
    pub(super) fn disputed(&self, from: i64, to: i64, agreed: u64) -> Disputed {
        let read = self.cut_up_to(to);
        let same = |known: &Disputed| (known.from, known.to, known.read) == (from, to, read);
        let before = self.dispute.filter(same).map_or(0, |known| known.times);
        Disputed {
            from,
            to,
            agreed,
            read,
            times: before.saturating_add(1),
        }
    }
}
