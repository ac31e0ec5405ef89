//! What an operator decided of a held feed. One that has not taken in ticks that were ended goes on without them: its lanes from
//! where they stand, or further on, and its streams behind what was published of those ticks. One whose ticks were accepted goes on
//! where it is, with fingerprints that begin anew.

use unisono_engine::row::{Digest, Seq};
use unisono_replication::command::{LaneStand, StreamEnd};

use super::runner::{Halt, Runner};
use super::{Feed, Message};
use crate::ids::stream_of;

/// Where a feed goes on.
pub(super) struct GoOn {
    lanes: Vec<LaneStand>,
    streams: Vec<StreamEnd>,
}

impl Feed {
    /// After all that was handed over so far, the feed goes on here.
    pub fn go_on(&self, index: u64, lanes: Vec<LaneStand>, streams: Vec<StreamEnd>) {
        let go_on = GoOn { lanes, streams };
        self.send(index, Message::GoOn(Box::new(go_on)));
    }
}

impl Runner {
    pub(super) fn go_on(&mut self, go_on: &GoOn) -> Result<(), Halt> {
        self.write_rows()?;
        for (lane, stand) in self.lanes.iter().zip(&go_on.lanes) {
            lane.go_on_at(stand);
        }
        for end in &go_on.streams {
            let stream = stream_of(end.stream);
            let goes_on = self
                .engine
                .go_on_behind(stream, Seq(end.next), Digest(end.digest));
            // Of a pipeline that is no more nothing is published any more.
            let Some((next, digest)) = goes_on else {
                continue;
            };
            // What this replica computed of the ended ticks goes, but for what was published.
            let reset = self.results.reset(stream, next, digest);
            reset.map_err(|error| self.classify(&error))?;
        }
        self.update_status();
        Ok(())
    }
}
