//! The sessions of one pipeline on one lane.
//!
//! A session of a group is the union of the intervals `[time, time + gap)` of its records, as far as they
//! overlap: a record at the very end of a session begins the next one. Each lane keeps the unions of its
//! own records; those of all lanes are joined when a session closes (`close`). So neither the order of
//! records nor how they are spread over lanes and ticks decides what a session is.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "lengths and places of what is in memory"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use crate::group::dictionary::Dictionary;
use crate::share::Shared;
use crate::spec::{Timestamp, ValueSpec};
use crate::value::Column;

pub(crate) mod close;
#[cfg(test)]
mod tests;

/// No such session.
const NONE: u32 = u32::MAX;
/// A session that is not waited for.
const NEVER: i64 = i64::MAX;

/// One session of one group, as far as the lane's records make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The first record's time.
    pub(crate) start: i64,
    /// The last record's time plus the gap: not part of it.
    pub(crate) end: i64,
    /// The group's number in the lane's dictionary; [`NONE`] where the place is free.
    pub(crate) group: u32,
}

const FREE: Session = Session {
    start: 0,
    end: 0,
    group: NONE,
};

/// Sessions, each with the states of its values at the same place of each column.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionTable {
    sessions: Vec<Session>,
    columns: Vec<Column>,
}

/// The open sessions.
///
/// Invariant: those of a group do not overlap; the one that starts last is in `newest`, the others are
/// in `older`.
#[derive(Debug)]
pub(crate) struct SessionStore {
    gap_ms: i64,
    table: Shared<SessionTable>,
    free: Vec<u32>,
    /// By the group's number. Nearly all records belong to their group's newest session.
    newest: Vec<u32>,
    /// By group and start.
    older: BTreeMap<(u32, i64), u32>,
    /// When to look at a session again, soonest first. It may have grown meanwhile: a record costs
    /// nothing here. What does not agree with `waits` is of a session that is no more.
    queue: BinaryHeap<Reverse<(i64, u32)>>,
    /// For each session the time that counts in `queue`: not after its end.
    waits: Vec<i64>,
    /// One state of each value, for moving.
    spare: Vec<Column>,
    open: u64,
}

/// The columns of these values, without any state.
pub(crate) fn columns_of(values: &[ValueSpec], len: usize) -> Vec<Column> {
    let columns = values.iter().map(|value| Column::new(&value.function));
    let mut columns: Vec<Column> = columns.collect();
    for column in &mut columns {
        column.resize(len, len);
    }
    columns
}

impl SessionTable {
    /// Each session and its place.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (Session, u32)> + '_ {
        let all = self.sessions.iter().copied().zip(0..);
        all.filter(|(session, _)| session.group != NONE)
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }
}

impl SessionStore {
    pub(crate) fn new(values: &[ValueSpec], gap_ms: i64) -> Self {
        Self {
            gap_ms,
            table: Shared::Own(SessionTable {
                sessions: Vec::new(),
                columns: columns_of(values, 0),
            }),
            free: Vec::new(),
            newest: Vec::new(),
            older: BTreeMap::new(),
            queue: BinaryHeap::new(),
            waits: Vec::new(),
            spare: columns_of(values, 1),
            open: 0,
        }
    }

    /// The columns, and the place in them of the session that a record of the group at this time
    /// belongs to from now on.
    #[inline]
    pub(crate) fn take_in(
        &mut self,
        group: u32,
        time: Timestamp,
        dictionary: &mut Dictionary,
    ) -> (&mut [Column], usize) {
        let (start, end) = (time.0, time.0.saturating_add(self.gap_ms));
        let newest = self.newest.get(group as usize).copied().unwrap_or(NONE);
        let sessions = &self.table.get().sessions;
        let place = match sessions.get(newest as usize) {
            Some(session) if session.start <= start && start < session.end => {
                if end > session.end {
                    self.table.get_mut().sessions[newest as usize].end = end;
                }
                newest
            }
            _ => self.find_or_add(Session { start, end, group }, newest, dictionary),
        };
        (&mut self.table.get_mut().columns, place as usize)
    }

    /// The record is not within its group's newest session.
    fn find_or_add(&mut self, record: Session, newest: u32, dictionary: &mut Dictionary) -> u32 {
        // An interval is as long as the gap, and no session is shorter: it overlaps two at most.
        let before = self.at_or_before(record.group, record.start, newest);
        let before = before.filter(|&place| self.at(place).end > record.start);
        let after = self.at_or_before(record.group, record.end.saturating_sub(1), newest);
        match (before, after) {
            (None, None) => self.add(record, dictionary),
            (None, Some(place)) if self.at(place).end <= record.start => {
                self.add(record, dictionary)
            }
            (Some(before), Some(after)) if before != after => {
                // It lies between two, and makes them one.
                let start = self.at(before).start;
                self.merge(before, after);
                self.remove(before, dictionary);
                self.stretch(after, Session { start, ..record });
                after
            }
            (Some(place), _) | (None, Some(place)) => {
                self.stretch(place, record);
                place
            }
        }
    }

    fn at(&self, place: u32) -> Session {
        self.table.get().sessions[place as usize]
    }

    /// The group's last session that starts at a time or before.
    fn at_or_before(&self, group: u32, time: i64, newest: u32) -> Option<u32> {
        if newest == NONE {
            return None;
        }
        if self.at(newest).start <= time {
            return Some(newest);
        }
        let mut older = self.older.range((group, i64::MIN)..=(group, time));
        older.next_back().map(|(_, &place)| place)
    }

    /// The group's last session that starts at a time or before.
    pub(crate) fn last_from(&self, group: u32, time: i64) -> Option<Session> {
        let newest = self.newest.get(group as usize).copied().unwrap_or(NONE);
        let place = self.at_or_before(group, time, newest)?;
        Some(self.at(place))
    }

    /// Makes a session larger.
    fn stretch(&mut self, place: u32, by: Session) {
        let session = &mut self.table.get_mut().sessions[place as usize];
        let before = session.start;
        session.start = before.min(by.start);
        session.end = session.end.max(by.end);
        let now = session.start;
        if now < before && self.older.remove(&(by.group, before)).is_some() {
            self.older.insert((by.group, now), place);
        }
    }

    /// Adds a session that overlaps none of its group.
    fn add(&mut self, session: Session, dictionary: &mut Dictionary) -> u32 {
        let table = self.table.get_mut();
        let place = self.free.pop().unwrap_or_else(|| {
            let len = table.sessions.len() + 1;
            table.sessions.push(FREE);
            self.waits.push(NEVER);
            for column in &mut table.columns {
                column.resize(len, usize::MAX);
            }
            place_of(len - 1)
        });
        table.sessions[place as usize] = session;
        let group = session.group as usize;
        if group >= self.newest.len() {
            let bound = (dictionary.bound() as usize).max(group + 1);
            self.newest.resize(bound, NONE);
        }
        match self.newest[group] {
            NONE => self.newest[group] = place,
            newest => {
                let start = table.sessions[newest as usize].start;
                if start < session.start {
                    self.older.insert((session.group, start), newest);
                    self.newest[group] = place;
                } else {
                    self.older.insert((session.group, session.start), place);
                }
            }
        }
        dictionary.hold(session.group);
        self.wait_until(place, session.end);
        self.open += 1;
        place
    }

    /// Takes the states of one session into another.
    fn merge(&mut self, from: u32, into: u32) {
        for (column, spare) in self.table.get_mut().columns.iter_mut().zip(&mut self.spare) {
            spare.reset(0);
            spare.merge_at(0, column, from as usize);
            column.merge_at(into as usize, spare, 0);
            spare.reset(0);
        }
    }

    /// Forgets a session.
    pub(crate) fn remove(&mut self, place: u32, dictionary: &mut Dictionary) {
        let table = self.table.get_mut();
        let Session { start, group, .. } = table.sessions[place as usize];
        table.sessions[place as usize] = FREE;
        for column in &mut table.columns {
            column.reset(place as usize);
        }
        if self.newest[group as usize] == place {
            let mut older = self.older.range((group, i64::MIN)..=(group, i64::MAX));
            let last = older.next_back().map(|(&key, &place)| (key, place));
            self.newest[group as usize] = match last {
                Some((key, place)) => {
                    self.older.remove(&key);
                    place
                }
                None => NONE,
            };
        } else {
            self.older.remove(&(group, start));
        }
        dictionary.release(group);
        self.waits[place as usize] = NEVER;
        self.free.push(place);
        self.open -= 1;
        if self.open == 0 {
            self.forget_room();
        }
    }

    /// With no session left, what the most of them took is given back.
    fn forget_room(&mut self) {
        let table = self.table.get_mut();
        table.sessions = Vec::new();
        for (column, spare) in table.columns.iter_mut().zip(&self.spare) {
            *column = spare.rearranged(0, std::iter::empty());
        }
        self.free = Vec::new();
        self.newest = Vec::new();
        self.queue = BinaryHeap::new();
        self.waits = Vec::new();
    }

    /// Looks at a session again at this time.
    pub(crate) fn wait_until(&mut self, place: u32, time: i64) {
        self.waits[place as usize] = time;
        self.queue.push(Reverse((time, place)));
    }

    /// The sessions that end at or before a time and that were not given yet; of each, either
    /// [`Self::wait_until`] or [`Self::remove`] is to follow.
    pub(crate) fn ended(&mut self, through: i64) -> Vec<(Session, u32)> {
        let mut ended = Vec::new();
        while let Some(&Reverse((time, place))) = self.queue.peek() {
            if time > through {
                break;
            }
            self.queue.pop();
            if self.waits.get(place as usize) != Some(&time) {
                continue;
            }
            let session = self.at(place);
            if session.end > through {
                self.wait_until(place, session.end);
            } else {
                self.waits[place as usize] = NEVER;
                ended.push((session, place));
            }
        }
        ended
    }

    /// The place of a session that comes from a checkpoint; `None` if it cannot be one there.
    pub(crate) fn restore(
        &mut self,
        session: Session,
        dictionary: &mut Dictionary,
    ) -> Option<(&mut [Column], usize)> {
        let Session { start, end, group } = session;
        let is_long_enough = start
            .checked_add(self.gap_ms)
            .is_some_and(|least| least <= end);
        let before = self.last_from(group, end.saturating_sub(1));
        if !is_long_enough || before.is_some_and(|before| before.end > start) {
            return None;
        }
        let place = self.add(session, dictionary) as usize;
        Some((&mut self.table.get_mut().columns, place))
    }

    /// The sessions for a reader.
    pub(crate) fn lend(&mut self) -> Arc<SessionTable> {
        self.table.share()
    }

    /// The columns of the sessions' states.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.table.get().columns
    }

    /// Number of sessions.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// No session ends before.
    pub(crate) fn soonest_end(&self) -> Option<i64> {
        self.queue.peek().map(|Reverse((time, _))| *time)
    }

    /// Where the last one ends.
    pub(crate) fn last_end(&self) -> Option<i64> {
        let sessions = self.table.get().sessions();
        sessions.map(|(session, _)| session.end).max()
    }

    /// Bytes that it takes.
    pub(crate) fn memory(&self) -> usize {
        /// Of an entry of `older`, with its share of the tree.
        const OLDER_BYTES: usize = 40;
        let table = self.table.get();
        table.sessions.capacity() * size_of::<Session>()
            + table.columns.iter().map(Column::memory).sum::<usize>()
            + (self.free.capacity() + self.newest.capacity()) * size_of::<u32>()
            + self.older.len() * OLDER_BYTES
            + self.queue.capacity() * size_of::<Reverse<(i64, u32)>>()
            + self.waits.capacity() * size_of::<i64>()
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "four billion sessions do not fit into memory"
)]
fn place_of(at: usize) -> u32 {
    at as u32
}
