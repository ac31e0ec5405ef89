//! One partition: what was fetched of it and not read yet, and what its leader said of its end. Pure; the caller brings the
//! clock.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use super::batch::{Aborted, Batch, BatchError, extent};
use super::compression::Decompressor;
use super::fetch::{Answered, Wanted};
use crate::kafka::quiet::{FRESH, Hold, Quiet};
use crate::kafka::source::KafkaSourceError;

/// Where records are put.
pub trait Target {
    /// What limits of size are measured by.
    fn weight(&self) -> usize;

    /// Adds a batch's records from the offset `from` on ([`Batch::read`]); gives how many. After an error none is added.
    ///
    /// # Errors
    /// The batch cannot be read.
    fn add(
        &mut self,
        batch: &Batch<'_>,
        from: i64,
        decompressor: &mut Decompressor,
    ) -> Result<usize, BatchError>;
}

/// Batches of one answer.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Bytes,
    /// Where the batch begins that comes next.
    at: usize,
    aborted: Aborted,
    /// One past the last record, those included that do not count.
    next: i64,
}

impl Chunk {
    /// Puts records from the offset `from` on there, until that weighs `most`. Gives how many; what came before an error is
    /// good.
    pub(super) fn read(
        &mut self,
        from: i64,
        most: usize,
        decompressor: &mut Decompressor,
        to: &mut impl Target,
    ) -> (usize, Result<(), BatchError>) {
        let mut given = 0;
        while self.at < self.bytes.len() && to.weight() < most {
            match self.read_batch(from, decompressor, to) {
                Ok(count) => given += count,
                Err(error) => return (given, Err(error)),
            }
        }
        (given, Ok(()))
    }

    fn read_batch(
        &mut self,
        from: i64,
        decompressor: &mut Decompressor,
        to: &mut impl Target,
    ) -> Result<usize, BatchError> {
        let Some((batch, length)) = Batch::first(&self.bytes[self.at..])? else {
            self.at = self.bytes.len();
            return Ok(0);
        };
        batch.verify()?;
        let mut given = 0;
        if self.aborted.admits(&batch) && batch.next_offset() > from {
            given = to.add(&batch, from, decompressor)?;
        }
        self.at += length;
        Ok(given)
    }

    fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }
}

/// What the leader said of the end of its log.
#[derive(Clone, Copy, Debug)]
struct Seen {
    high_watermark: i64,
    last_stable: i64,
    asked: Instant,
    /// The leader's.
    epoch: i32,
}

/// What came of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// There is something to read.
    Records,
    /// There is nothing new.
    Nothing,
    /// A transaction is open for long, which is to be said now.
    Held,
}

#[derive(Debug)]
pub(super) struct Lane {
    /// What is fetched next.
    fetch: i64,
    /// Of the record before it.
    last_epoch: i32,
    queue: VecDeque<Chunk>,
    queued: usize,
    /// The reader has what was the first of the queue.
    lent: bool,
    /// Fetching was left out for want of room.
    pub(super) starved: bool,
    /// All below was given out.
    position: i64,
    seen: Option<Seen>,
    /// A replica that is not the leader had the record before this offset too, in this epoch. `None`: the leader itself was
    /// asked.
    checked: Option<(i64, i32)>,
    failed: Option<KafkaSourceError>,
    /// As agreed; empty: it is not compared.
    pub(super) identity: String,
    /// It was, and is right.
    pub(super) identified: bool,
    quiet: Quiet,
    held: Hold,
}

impl Lane {
    pub(super) fn new(start: i64, identity: &str, now: Instant) -> Self {
        Self {
            fetch: start,
            last_epoch: -1,
            queue: VecDeque::new(),
            queued: 0,
            lent: false,
            starved: false,
            position: start,
            seen: None,
            checked: None,
            failed: None,
            identity: identity.to_owned(),
            identified: false,
            quiet: Quiet::new(now),
            held: Hold::default(),
        }
    }

    pub(super) fn fail(&mut self, error: KafkaSourceError) {
        self.failed.get_or_insert(error);
    }

    /// The lane gives nothing more, whatever was fetched.
    pub(super) fn fail_now(&mut self, error: KafkaSourceError) {
        self.queue.clear();
        self.fail(error);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether its leader ever said anything of it.
    pub(super) fn was_answered(&self) -> bool {
        self.seen.is_some()
    }

    /// What is fetched next.
    pub(super) fn next(&self) -> i64 {
        self.fetch
    }

    /// What is to be asked, of its leader or another replica, if there is room: less than `share` bytes wait to be read.
    pub(super) fn wanted(&mut self, share: usize, leader_epoch: i32, led: bool) -> Option<Wanted> {
        if self.failed.is_some() || !self.identified {
            return None;
        }
        self.starved = self.queued >= share;
        // What is fetched at once comes on top of what waits.
        let max_bytes = (share / 4).clamp(64 << 10, 1 << 20);
        (!self.starved).then_some(Wanted {
            offset: self.fetch,
            leader_epoch,
            last_epoch: self.last_epoch,
            max_bytes: max_bytes as i32,
            led,
        })
    }

    /// Takes in what was answered to `wanted`, asked at `asked`. What was asked before the lane was opened anew says nothing.
    pub(super) fn take(
        &mut self,
        wanted: &Wanted,
        answered: &Answered,
        records: Bytes,
        asked: Instant,
    ) -> Result<Taken, BatchError> {
        if wanted.offset != self.fetch {
            return Ok(Taken::Nothing);
        }
        let mut taken = Taken::Nothing;
        if let Some(extent) = extent(&records)?.filter(|extent| extent.next > self.fetch) {
            self.queued += extent.length;
            self.queue.push_back(Chunk {
                bytes: records.slice(..extent.length),
                at: 0,
                aborted: Aborted::new(answered.aborted.iter().copied()),
                next: extent.next,
            });
            (self.fetch, self.last_epoch) = (extent.next, extent.epoch);
            taken = Taken::Records;
        }
        if !wanted.led {
            self.checked = Some((self.fetch, wanted.leader_epoch));
            return Ok(taken);
        }
        match answered.preferred {
            None => self.checked = None,
            // A leader that names another did not compare its log with what was read: somebody must have.
            Some(_) => {
                let is_checked = self.checked == Some((self.fetch, wanted.leader_epoch));
                if answered.high_watermark <= self.fetch && !is_checked {
                    return Ok(taken);
                }
            }
        }
        self.seen = Some(Seen {
            high_watermark: answered.high_watermark,
            last_stable: answered.last_stable,
            asked,
            epoch: wanted.leader_epoch,
        });
        Ok(match self.hold(asked) {
            true => Taken::Held,
            false => taken,
        })
    }

    /// A question about the lane was answered, and there was nothing to tell: all is as it was.
    pub(super) fn unchanged(&mut self, wanted: &Wanted, asked: Instant) -> Taken {
        if wanted.offset != self.fetch {
            return Taken::Nothing;
        }
        self.checked = (!wanted.led).then_some((self.fetch, wanted.leader_epoch));
        if let Some(seen) = self.seen.as_mut().filter(|_| wanted.led) {
            (seen.asked, seen.epoch) = (asked, wanted.leader_epoch);
            if self.hold(asked) {
                return Taken::Held;
            }
        }
        Taken::Nothing
    }

    /// Takes in whether more was appended than can be read. Whether it is to be said that a transaction is open.
    fn hold(&mut self, asked: Instant) -> bool {
        let Some(seen) = self.seen else { return false };
        let is_held =
            self.is_read() && self.fetch >= seen.last_stable && seen.high_watermark > self.fetch;
        self.held.see(is_held.then_some(self.fetch), asked)
    }

    /// Whether all that was fetched was given out.
    pub(super) fn is_read(&self) -> bool {
        self.queue.is_empty() && !self.lent
    }

    /// The next batches to read, and from which offset on; to be given back by [`Self::give_back`].
    pub(super) fn lend(&mut self) -> Result<Option<(Chunk, i64)>, KafkaSourceError> {
        let Some(chunk) = self.queue.pop_front() else {
            return match &self.failed {
                Some(error) => Err(error.clone()),
                None => Ok(None),
            };
        };
        self.lent = true;
        Ok(Some((chunk, self.position)))
    }

    /// True: there is room again, which fetching waits for.
    pub(super) fn give_back(&mut self, chunk: Chunk, share: usize) -> bool {
        self.lent = false;
        if !chunk.is_done() {
            self.queue.push_front(chunk);
            return false;
        }
        self.position = self.position.max(chunk.next);
        self.queued -= chunk.bytes.len();
        let has_room = self.starved && self.queued < share / 2;
        self.starved &= !has_room;
        has_room
    }

    /// The lane was looked at, and gave something or nothing.
    pub(super) fn looked(&mut self, quiet: bool, now: Instant) {
        self.quiet.look(quiet, now);
    }

    pub(super) fn at_end(&self, now: Instant) -> Option<i64> {
        let seen = self.fresh(now)?;
        let at_end =
            self.failed.is_none() && self.is_read() && self.position >= seen.high_watermark;
        // What is read from a replica is the leader's log only in the same epoch.
        let is_its = self.checked.is_none_or(|(_, epoch)| epoch == seen.epoch);
        (at_end && is_its).then_some(self.position)
    }

    pub(super) fn log_end(&self, now: Instant) -> Option<i64> {
        Some(self.fresh(now)?.high_watermark)
    }

    /// Since when nothing has come, and nobody has said that there is nothing.
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        Some(self.seen?.asked.max(self.quiet.since()?))
    }

    pub(super) fn held_since(&self, now: Instant) -> Option<Instant> {
        self.fresh(now)?;
        self.held.since(self.position, now)
    }

    fn fresh(&self, now: Instant) -> Option<Seen> {
        let is_fresh = |seen: &Seen| now.saturating_duration_since(seen.asked) < FRESH;
        self.seen.filter(is_fresh)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "lane/tests.rs"]
mod tests;
