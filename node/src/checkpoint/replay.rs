//! The agreed state as it was: a checkpoint's machine, led on through the log by a cursor of its own. What a checkpoint's
//! index is shows only when its feeds have told how far they are, and the driver is further by then.

use std::io;
use std::time::Duration;

use unisono_replication::command::Command;
use unisono_replication::machine::{Effect, Machine};
use unisono_replication::{CursorEvent, LogCursor, Position, Replica};

use super::Header;

/// How long an entry may take to come that the driver has read.
const PATIENCE: Duration = Duration::from_secs(5);

/// A machine on its way through the log.
pub struct Replay {
    cursor: LogCursor,
    position: Position,
    machine: Machine,
}

impl Replay {
    /// Begins behind a checkpoint, or at the log's beginning.
    ///
    /// # Errors
    /// The checkpoint is another version's.
    pub fn begin(replica: &Replica, checkpoint: Option<&Header>) -> io::Result<Self> {
        let raft = checkpoint.map(|header| header.raft.as_slice());
        Ok(Self {
            cursor: replica.cursor(raft)?,
            position: checkpoint.map(Header::position).unwrap_or_default(),
            machine: checkpoint.map_or_else(Machine::default, |header| header.machine.clone()),
        })
    }

    /// Reads on up to the entry at `index`, which the driver has read; `see` is shown what each entry did, and the state
    /// after it.
    ///
    /// # Errors
    /// The log is not there: a peer's checkpoint took its place, or the node is stopping. Or it cannot be read.
    pub fn read_up_to(
        &mut self,
        index: u64,
        mut see: impl FnMut(u64, Effect, &Machine),
    ) -> io::Result<()> {
        while self.position.index < index {
            let event = self.cursor.next(PATIENCE).map_err(io::Error::other)?;
            let CursorEvent::Entry { position, payload } = event else {
                return Err(io::Error::other("the agreed log is closed"));
            };
            self.position = position;
            if let Some(payload) = payload {
                let command = Command::decode(&payload).map_err(io::Error::other)?;
                let effect = self.machine.apply(position.index, position.term, &command);
                see(position.index, effect, &self.machine);
            }
        }
        Ok(())
    }

    /// The state.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What a checkpoint of this state begins with.
    #[must_use]
    pub fn into_header(self) -> Header {
        Header {
            index: self.position.index,
            term: self.position.term,
            raft: self.cursor.raft_state(),
            machine: self.machine,
            feeds: Default::default(),
            made_at: self.position.index,
        }
    }
}
