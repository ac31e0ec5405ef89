//! What the leader knows of the others: whose word counts, and what they confirm. Pure; the caller brings the clock.
//!
//! A replica is *eligible* for a feed until it has confirmed nothing there for [`PATIENCE`] (or four round trips, if that is
//! more) though there was something to confirm. It is again when it has kept up for [`PROBATION`]. While one is eligible,
//! nothing goes on without one; so the wait is paid once, at the loss, and not for each tick.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono_replication::command::FeedId;

use super::question::{Answer, FeedAnswer, FeedQuestion, FeedState, LaneAnswer};

/// How long one that confirms nothing is waited for.
const PATIENCE: Duration = Duration::from_millis(100);
/// The same, in round trips.
const TRIPS: u32 = 4;
/// How long one that was lost must keep up before its word counts again.
const PROBATION: Duration = Duration::from_secs(1);
/// Entries of the log that one may lack and still keeps up: about a second's.
const LAG: u64 = 100;
/// What one saw of a lane's end counts so long.
const END_FRESH: Duration = Duration::from_secs(1);

/// What a leader may do with a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// Another one holds the same records up to this cut.
    UpTo(i64),
    /// Nobody has said so yet: wait.
    Nothing,
    /// Nobody else's word counts: the leader goes on alone, and says so.
    Alone,
    /// Another one holds other records, and none the same.
    Differs {
        /// Two others hold the same ones: it is the leader that read something else.
        outvoted: bool,
    },
}

/// The other replicas, as the leader of one term sees them.
#[derive(Debug, Default)]
pub struct Seconds {
    /// And when it began.
    term: Option<(u64, Instant)>,
    peers: BTreeMap<u16, Peer>,
}

#[derive(Debug, Default)]
struct Peer {
    feeds: BTreeMap<FeedId, Standing>,
    round_trip: Duration,
}

/// How a replica stands to one feed.
#[derive(Debug)]
struct Standing {
    eligible: bool,
    /// Since when it has kept up.
    good: Option<Instant>,
    /// Since when it owes a confirmation, by lane.
    owes: BTreeMap<u32, Instant>,
    marks: BTreeMap<u32, Mark>,
    /// Where lanes ended, and when that was asked.
    ends: BTreeMap<u32, SeenEnd>,
    disputes: bool,
}

/// That a lane which was taken in up to `cut` ended at `end`.
#[derive(Clone, Copy, Debug)]
struct SeenEnd {
    cut: i64,
    end: i64,
    asked: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    cut: i64,
    fingerprint: u64,
}

impl Default for Standing {
    /// Whoever is new is taken to be well, until it fails to confirm.
    fn default() -> Self {
        Self {
            eligible: true,
            good: None,
            owes: BTreeMap::new(),
            marks: BTreeMap::new(),
            ends: BTreeMap::new(),
            disputes: false,
        }
    }
}

impl Seconds {
    /// These replicas are asked, in a term that this node leads. A new term begins anew; in the same one nothing is
    /// forgotten of those who stay.
    pub fn begin(&mut self, term: u64, others: &[u16], now: Instant) {
        if self.term() != Some(term) {
            self.term = Some((term, now));
            self.peers.clear();
        }
        self.peers.retain(|number, _| others.contains(number));
        for &number in others {
            self.peers.entry(number).or_default();
        }
    }

    /// The term that all of this is about.
    pub fn term(&self) -> Option<u64> {
        self.term.map(|(term, _)| term)
    }

    /// How long a replica that does not confirm rows is waited for.
    pub fn patience(&self, number: u16) -> Duration {
        self.peers.get(&number).map_or(PATIENCE, Peer::patience)
    }

    /// The leader asks this of one replica, or of everybody.
    pub fn asked(&mut self, only: Option<u16>, question: &[FeedQuestion], now: Instant) {
        let is_asked = |number: &u16| only.is_none_or(|only| only == *number);
        let peers = self.peers.iter_mut();
        for (_, peer) in peers.filter(|(number, _)| is_asked(number)) {
            for of in question {
                let standing = peer.feeds.entry(of.feed).or_default();
                for lane in of.lanes.iter().filter(|lane| lane.cut > lane.known) {
                    let mark = standing.marks.get(&lane.lane);
                    if mark.is_none_or(|mark| mark.cut <= lane.known) {
                        standing.owes.entry(lane.lane).or_insert(now);
                    }
                }
            }
        }
    }

    /// A replica has answered a question that was asked at `asked`, when the leader had read the log up to `index`. What was
    /// asked before the term began says nothing: it may have lain there since this node led before.
    pub fn answered(
        &mut self,
        number: u16,
        question: &[FeedQuestion],
        answer: &Answer,
        index: u64,
        asked: Instant,
        now: Instant,
    ) {
        if self.term.is_none_or(|(_, began)| asked < began) {
            return;
        }
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let trip = now.saturating_duration_since(asked);
        peer.round_trip = match peer.round_trip {
            Duration::ZERO => trip,
            known => (known * 7 + trip) / 8,
        };
        let keeps_up = answer.applied.saturating_add(LAG) >= index;
        for of in question {
            let found = answer.feeds.iter().find(|found| found.feed == of.feed);
            let standing = peer.feeds.entry(of.feed).or_default();
            standing.take(of, found, keeps_up, asked, now);
        }
    }

    /// Ends the eligibility of those who owe a confirmation for too long; says whose, and for which feed.
    pub fn lapse(&mut self, now: Instant) -> Vec<(u16, FeedId)> {
        let mut lost = Vec::new();
        for (&number, peer) in &mut self.peers {
            let patience = peer.patience();
            for (&feed, standing) in &mut peer.feeds {
                let late = |since: &Instant| now.saturating_duration_since(*since) >= patience;
                if standing.eligible && standing.owes.values().any(late) {
                    standing.lose();
                    lost.push((number, feed));
                }
            }
        }
        lost
    }

    /// A replica did not confirm a feed's rows in time.
    pub fn lost(&mut self, number: u16, feed: FeedId) {
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.feeds.entry(feed).or_default().lose();
        }
    }

    /// Whose word counts for a feed.
    pub fn eligible(&self, feed: FeedId) -> Vec<u16> {
        let counts = |peer: &Peer| {
            peer.feeds
                .get(&feed)
                .is_none_or(|standing| standing.eligible)
        };
        let of = self.peers.iter().filter(|(_, peer)| counts(peer));
        of.map(|(&number, _)| number).collect()
    }

    /// How many say that what was agreed of the feed is not what they read.
    pub fn disputing(&self, feed: FeedId) -> usize {
        let standings = self.peers.values().filter_map(|peer| peer.feeds.get(&feed));
        standings.filter(|standing| standing.disputes).count()
    }

    /// How far a lane may go beyond the agreed cut `known`; `fingerprint_at` tells the leader's own at a cut that it holds.
    pub fn confirmed(
        &self,
        feed: FeedId,
        lane: u32,
        known: i64,
        fingerprint_at: impl Fn(i64) -> Option<u64>,
    ) -> Confirmed {
        let mut best = None;
        let mut others: Vec<Mark> = Vec::new();
        let mut anybody = false;
        for peer in self.peers.values() {
            let Some(standing) = peer.feeds.get(&feed) else {
                anybody = true;
                continue;
            };
            anybody |= standing.eligible;
            let mark = standing.marks.get(&lane).filter(|mark| mark.cut > known);
            let Some((&mark, own)) = mark.and_then(|mark| Some((mark, fingerprint_at(mark.cut)?)))
            else {
                continue;
            };
            if own != mark.fingerprint {
                others.push(mark);
            } else if standing.eligible {
                best = best.max(Some(mark.cut));
            }
        }
        if let Some(cut) = best {
            return Confirmed::UpTo(cut);
        }
        match others.first() {
            Some(first) => {
                let same =
                    |mark: &&Mark| (mark.cut, mark.fingerprint) == (first.cut, first.fingerprint);
                let outvoted = others.iter().filter(same).count() > 1;
                Confirmed::Differs { outvoted }
            }
            None if anybody => Confirmed::Nothing,
            None => Confirmed::Alone,
        }
    }

    /// Where a lane may be said to end that is taken in up to `cut`, and of which nobody saw more than it ends at `end`: as
    /// far as another one saw it too, unless nobody else's word counts. `None`: nobody else saw it at its end.
    pub fn confirmed_end(
        &self,
        feed: FeedId,
        lane: u32,
        (cut, end): (i64, i64),
        now: Instant,
    ) -> Option<i64> {
        let eligible = self.eligible(feed);
        if eligible.is_empty() {
            return Some(end);
        }
        let saw = |number: &u16| {
            let seen = self.peers[number].feeds.get(&feed)?.ends.get(&lane)?;
            let counts = seen.cut == cut && now.saturating_duration_since(seen.asked) < END_FRESH;
            counts.then_some(seen.end.min(end))
        };
        eligible.iter().filter_map(saw).max()
    }
}

impl Peer {
    fn patience(&self) -> Duration {
        PATIENCE.max(self.round_trip * TRIPS)
    }
}

impl Standing {
    fn lose(&mut self) {
        self.eligible = false;
        self.good = None;
        self.owes.clear();
    }

    fn take(
        &mut self,
        question: &FeedQuestion,
        answer: Option<&FeedAnswer>,
        keeps_up: bool,
        asked: Instant,
        now: Instant,
    ) {
        self.disputes = answer.is_some_and(|answer| answer.state == FeedState::Disputes);
        let runs = answer.is_some_and(|answer| answer.state == FeedState::Runs) && keeps_up;
        let mut confirms = true;
        for of in &question.lanes {
            let lanes = answer.map_or(&[][..], |answer| &answer.lanes);
            let found = lanes.iter().find(|found| found.lane == of.lane);
            match found.and_then(|found| found.held) {
                Some((cut, fingerprint)) if cut > of.known => {
                    self.marks.insert(of.lane, Mark { cut, fingerprint });
                    self.owes.remove(&of.lane);
                }
                _ => confirms &= of.cut <= of.known,
            }
            match found {
                Some(LaneAnswer { end: Some(end), .. }) => {
                    let (cut, end) = (of.cut, *end);
                    self.ends.insert(of.lane, SeenEnd { cut, end, asked });
                }
                _ => {
                    self.ends.remove(&of.lane);
                }
            }
        }
        if !runs || !confirms {
            // Who only lacks a record has some time to get it: see `lapse`.
            self.good = None;
            if !runs {
                self.lose();
            }
            return;
        }
        let since = *self.good.get_or_insert(now);
        self.eligible |= now.saturating_duration_since(since) >= PROBATION;
    }
}

#[cfg(test)]
#[path = "seconds/tests.rs"]
mod tests;
