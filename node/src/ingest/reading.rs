//! The loop of a reading thread. It waits for its signal alone, never for a network: what has to be asked for is asked
//! elsewhere.
//!
//! A fault of a lane is the lane's alone, and not for ever: it is tried again, less and less often. Lanes that are tried
//! again get a reader of their own, so that those that can be read go on undisturbed.

mod lane;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_replication::rt;

use super::{Change, ReadAhead, Shared, lock};
use crate::config::SourceConfig;
use crate::source::{self, Block, KnownLane, SourceError, SourceReader};
use lane::ReadLane;
use turns::Turns;

/// How often it tells who surveys the source how its lanes stand.
const TELL: Duration = Duration::from_millis(500);
/// How often memory that nobody needs is given back.
const TRIM: Duration = Duration::from_secs(2);
/// How long a lane rests after a fault, and at most after many.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(10);

pub(super) struct Reading {
    source: SourceConfig,
    read_ahead: Arc<ReadAhead>,
    shared: Arc<Shared>,
    lanes: Vec<ReadLane>,
    readers: BTreeMap<u64, Box<dyn SourceReader>>,
    next_reader: u64,
    /// The share that the readers were opened with.
    share: usize,
    turns: Turns,
    /// The block that is filled next.
    block: Option<Block>,
    told: Option<Instant>,
    trimmed: Instant,
}

/// Why a lane could not be read at its last turn.
struct Fault {
    reason: String,
    /// Somebody was woken for it.
    is_told: bool,
    /// When it is tried again, and how long it rests if that is in vain.
    again: Instant,
    rest: Duration,
}

/// What came of one lane's turn.
enum Turn {
    Read,
    /// Records were compared.
    Checked,
    /// There is nothing, on good evidence.
    AtEnd,
    Nothing,
    NoRoom,
}

impl Reading {
    pub(super) fn new(
        source: SourceConfig,
        read_ahead: Arc<ReadAhead>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            source,
            read_ahead,
            shared,
            lanes: Vec::new(),
            readers: BTreeMap::new(),
            next_reader: 0,
            share: 0,
            turns: Turns::default(),
            block: None,
            told: None,
            trimmed: rt::now(),
        }
    }

    pub(super) fn run(mut self) {
        while !self.shared.stopping() {
            self.take_changes();
            self.fit_share();
            self.open_lanes();
            let wait = self.take_turns();
            self.tell();
            if rt::since(self.trimmed) >= TRIM {
                self.read_ahead.trim();
                self.trimmed = rt::now();
            }
            if let Some(wait) = wait {
                self.wait(wait);
            }
        }
    }

    fn take_changes(&mut self) {
        let changes = std::mem::take(&mut *lock(&self.shared.changes));
        for change in changes {
            // Who surveys is to know all lanes at once.
            self.told = None;
            match change {
                Change::Add(trail, buffer) => {
                    self.turns.add(self.lanes.len());
                    self.lanes.push(ReadLane::new(trail, buffer));
                }
                Change::Retire(name) => self.retire(&name),
            }
        }
    }

    fn retire(&mut self, name: &str) {
        let is_it = |lane: &ReadLane| !lane.retired && lane.trail.name == name;
        let Some(index) = self.lanes.iter().position(is_it) else {
            return;
        };
        self.close(index);
        self.turns.remove(index);
        let lane = &mut self.lanes[index];
        lane.retired = true;
        lane.fault = None;
    }

    fn close(&mut self, index: usize) {
        let Some((id, handle)) = self.lanes[index].reader.take() else {
            return;
        };
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.close(handle);
        }
        let in_use = |lane: &ReadLane| lane.reader.is_some_and(|(used, _)| used == id);
        if !self.lanes.iter().any(in_use) {
            self.discard(id);
        }
    }

    /// A client takes its time to close, which other lanes should not wait for.
    fn discard(&mut self, id: u64) {
        if let Some(reader) = self.readers.remove(&id) {
            lock(&self.shared.discarded).push(reader);
        }
    }

    /// Opens all anew if the lanes' share of the budget has shrunk by half: a client's queues are as large as that.
    fn fit_share(&mut self) {
        let share = self.read_ahead.client_share();
        if self.readers.is_empty() {
            self.share = share;
        } else if share <= self.share / 2 {
            let readers: Vec<u64> = self.readers.keys().copied().collect();
            readers.into_iter().for_each(|id| self.discard(id));
            self.lanes.iter_mut().for_each(|lane| lane.reader = None);
            self.share = share;
        }
    }

    /// Opens the lanes that are to be read and are not. All of them before the first is read: a client that is given its
    /// partitions one by one starts over each time.
    fn open_lanes(&mut self) {
        let (mut new, mut again) = (Vec::new(), Vec::new());
        for (index, lane) in self.lanes.iter().enumerate() {
            match &lane.fault {
                _ if lane.retired || lane.reader.is_some() => {}
                // A client that has just given up a partition is not given it back in haste.
                None if lane.begins_elsewhere() => again.push(index),
                None => new.push(index),
                Some(fault) if fault.again <= rt::now() => again.push(index),
                Some(_) => {}
            }
        }
        let any = self.readers.last_key_value().map(|(&id, _)| id);
        self.open_with(any, &new);
        self.open_with(None, &again);
    }

    /// Opens these lanes with that reader, or with a new one.
    fn open_with(&mut self, reader: Option<u64>, lanes: &[usize]) {
        if lanes.is_empty() {
            return;
        }
        self.turns.look_at_all();
        let id = reader.map_or_else(|| self.open_reader(), Ok);
        *lock(&self.shared.unopened) = id.as_ref().err().map(ToString::to_string);
        for &index in lanes {
            let opened = match &id {
                Err(error) => Err(error.clone()),
                Ok(id) => self.open(*id, index),
            };
            if let Err(error) = opened {
                self.fail(index, &error);
            }
        }
        if let Ok(id) = id
            && !self
                .lanes
                .iter()
                .any(|lane| lane.reader.is_some_and(|(used, _)| used == id))
        {
            self.discard(id);
        }
    }

    fn open_reader(&mut self) -> Result<u64, SourceError> {
        let reader = source::open(&self.source, self.share, &self.shared.signal)?;
        let id = self.next_reader;
        self.next_reader += 1;
        self.readers.insert(id, reader);
        Ok(id)
    }

    fn open(&mut self, id: u64, index: usize) -> Result<(), SourceError> {
        let Some(reader) = self.readers.get_mut(&id) else {
            return Ok(());
        };
        let live = self.lanes.iter().filter(|lane| !lane.retired);
        let names: Vec<&str> = live.map(|lane| lane.trail.name.as_str()).collect();
        let start = self.lanes[index].start(reader.is_to_be_checked());
        let handle = reader.open(&start.0, &names)?;
        self.lanes[index].begin((id, handle), start);
        Ok(())
    }

    /// Fills a block of each lane that is to be looked at and has room, the lanes that hold least first. Gives how long to
    /// wait, if there was nothing.
    fn take_turns(&mut self) -> Option<Duration> {
        let came = self.came();
        let lanes = &self.lanes;
        let came = came
            .map(|came| move |lane: usize| lanes[lane].reader.is_some_and(|it| came.contains(&it)));
        let mut order = self.turns.next(came);
        order.sort_by_cached_key(|&index| lanes[index].buffer.held());
        for index in order {
            self.begin_again(index);
            match self.fill(index) {
                Ok(turn) => self.turns.note(index, &turn),
                Err(error) => self.fail(index, &error),
            }
            if self.block.as_ref().is_none_or(|block| block.memory() == 0) {
                self.block = Some(self.read_ahead.block());
            }
        }
        self.turns.wait()
    }

    /// Readers and their lanes of which something came, if all can tell.
    fn came(&mut self) -> Option<BTreeSet<(u64, usize)>> {
        let mut all = BTreeSet::new();
        for (&id, reader) in &mut self.readers {
            all.extend(reader.came()?.into_iter().map(|lane| (id, lane)));
        }
        Some(all)
    }

    /// If the others hold other records of the lane: what was read beyond the agreed cut is read again, after a rest.
    fn begin_again(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let Some((next, fingerprint, marks, message)) = lane.buffer.take_again() else {
            return;
        };
        (lane.trail.next, lane.trail.fingerprint, lane.trail.marks) = (next, fingerprint, marks);
        let lane = lane.trail.name.clone();
        self.fail(index, &SourceError::Lane { lane, message });
    }

    fn fill(&mut self, index: usize) -> Result<Turn, SourceError> {
        let lane = &mut self.lanes[index];
        let Some((id, handle)) = lane.reader else {
            return Ok(Turn::Nothing);
        };
        let Some(reader) = self.readers.get_mut(&id) else {
            return Ok(Turn::Nothing);
        };
        let turn = match lane.check.take() {
            Some(check) => lane.check(reader.as_mut(), handle, &mut self.block, check)?,
            None => lane.fill(reader.as_mut(), handle, &mut self.block)?,
        };
        // Not before what was agreed is read: else it would fail and recover again and again.
        let recovers = lane.fault.is_some() && !lane.buffer.disputes();
        if recovers && matches!(turn, Turn::Read | Turn::AtEnd) {
            lane.fault = None;
            lane.buffer.recover();
            let (source, lane) = (&self.source.name, &lane.trail.name);
            tracing::info!(source, lane, "lane can be read again");
        }
        Ok(turn)
    }

    /// Notes why a lane cannot be read, says so once for each new reason, and lets it rest.
    fn fail(&mut self, index: usize, error: &SourceError) {
        self.close(index);
        let lane = &mut self.lanes[index];
        if lane.can_begin_elsewhere(error) {
            // Opened again at once.
            return;
        }
        let (reason, wakes) = match error {
            SourceError::Unavailable(reason) => (reason, false),
            SourceError::Lane { message, .. } | SourceError::Gone { message, .. } => {
                (message, true)
            }
        };
        let (source, name) = (&self.source.name, &lane.trail.name);
        let before = lane.fault.take();
        let was_told = before.as_ref().is_some_and(|fault| fault.is_told);
        if before.as_ref().is_none_or(|fault| fault.reason != *reason) {
            if wakes && !was_told {
                tracing::error!(source, lane = name, reason, "lane cannot be read on");
            } else {
                tracing::warn!(
                    source,
                    lane = name,
                    reason,
                    "lane cannot be read; trying again"
                );
            }
        }
        lane.buffer
            .fail(format!("source {source}, lane {name}: {reason}"));
        let rest = before.map_or(REST, |fault| (fault.rest * 2).min(LONGEST_REST));
        lane.fault = Some(Fault {
            reason: reason.clone(),
            is_told: was_told || wakes,
            again: rt::now() + rest,
            rest,
        });
    }

    /// Tells who surveys the source how its lanes stand, and where they end as far as is known.
    fn tell(&mut self) {
        if self.told.is_some_and(|at| rt::since(at) < TELL) {
            return;
        }
        self.told = Some(rt::now());
        let readers = &self.readers;
        let known = self.lanes.iter().map(|lane| {
            let reader = lane
                .reader
                .and_then(|(id, handle)| Some((readers.get(&id)?, handle)));
            let end = reader.and_then(|(reader, handle)| reader.log_end(handle));
            lane.buffer
                .set_log_end(end.filter(|_| lane.fault.is_none()));
            KnownLane {
                trail: lane.trail.clone(),
                retired: lane.retired,
                file: reader.and_then(|(reader, handle)| reader.file(handle)),
            }
        });
        let known: Vec<_> = known.collect();
        let count = known.len();
        // Also where there is none: those that come later would never be found.
        let before = lock(&self.shared.known).replace(known);
        if before.is_none_or(|before| before.len() != count) {
            self.shared.look.raise();
        }
    }

    /// Waits until some lane may have something, or there is something else to do; at most `timeout`.
    fn wait(&mut self, timeout: Duration) {
        let end = rt::now() + timeout;
        loop {
            let left = end.saturating_duration_since(rt::now());
            let pauses = self.readers.values_mut().map(|reader| reader.pause());
            let pause = pauses.min().unwrap_or(left).min(left);
            if pause.is_zero() || self.shared.signal.wait(pause) {
                return;
            }
        }
    }
}
