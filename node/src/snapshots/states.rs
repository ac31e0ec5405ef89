//! A checkpoint is kept, and the log below it purged, once another replica had the same state at the same index of the agreed
//! log. So whoever makes one names an index that is about to come, one peer is asked for the hash of its states there, and
//! both take theirs when they have read that far. All are asked where the two differ.
//!
//! A state's hash is that of its parts' bytes, which are in the order of their keys: neither hash maps nor the numbers that a
//! lane gave to its groups show.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use unisono_engine::FeedSnapshot;
use unisono_replication::command::FeedId;
use unisono_replication::rt;
use unisono_replication::rt::mpsc::{RecvTimeoutError, Sender, sync_channel};
use xxhash_rust::xxh3::Xxh3;

use super::NodeSnapshots;
use super::gather::{Gathered, collect};
use crate::checkpoint::UnfinishedCheckpoint;
use crate::core::Core;
use crate::doubt::{Own, Verdict, judge};
use crate::driver::{PendingCheckpoint, Request};
use crate::threads::lock;
use crate::versioned;

/// The first byte of a question, which tells it from others.
pub(super) const TAG: u8 = b'H';
/// The version of both, the byte behind it, and the first of an answer.
const VERSION: u8 = 1;
/// So many entries of the log ahead is an index that peers have not read yet; more if they have.
const AHEAD: u64 = 3;
const LOOK: Duration = Duration::from_millis(50);
/// Indices whose hashes are remembered.
const MOST: usize = 8;

/// How long what is waited for.
#[derive(Clone, Copy)]
struct Patience {
    /// Indices that are tried.
    tries: u32,
    /// Where the log stands still for so long, the present index is taken.
    still: Duration,
    /// A peer's answer.
    answer: Duration,
    /// Its hash after that.
    hashed: Duration,
}

impl Patience {
    fn of(core: &Core) -> Self {
        match core.is_stopping() {
            false => Self {
                tries: 4,
                still: Duration::from_secs(2),
                answer: Duration::from_secs(1),
                hashed: Duration::from_secs(10),
            },
            // The end of a process waits for it, and others may end too.
            true => Self {
                tries: 2,
                still: Duration::from_millis(300),
                answer: Duration::from_millis(200),
                hashed: Duration::from_millis(500),
            },
        }
    }
}

/// States of feeds at one index.
pub(super) type Hashes = BTreeMap<FeedId, u128>;
/// What peers asked for; `None` while it is on its way.
pub(super) type Asked = Arc<Mutex<BTreeMap<u64, Option<Hashes>>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Question {
    /// Hash all states there.
    Begin(u64),
    /// What came of it?
    Tell(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    /// It will.
    Begun,
    /// The log was read further already, or it was never asked for.
    Passed,
    /// It is on its way.
    Soon,
    /// These are the hashes; feeds that do not run there, or are behind, are not among them.
    Hashes(Hashes),
}

/// What peers make of the states.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    /// Each is another one's too.
    Same,
    /// Nobody could tell of these.
    Alone(Vec<FeedId>),
    /// Most have others of these.
    Odd(BTreeMap<FeedId, BTreeSet<u16>>),
    /// Another one has another state of these, and there is no majority.
    Open(Vec<FeedId>),
}

/// Passes on what is written, and hashes it.
pub(super) struct Hashing<'a, 'b> {
    pub(super) out: &'a mut dyn Write,
    pub(super) hasher: &'b mut Xxh3,
}

impl Write for Hashing<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.out.write(bytes)?;
        self.hasher.update(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn hash(snapshot: &FeedSnapshot) -> io::Result<u128> {
    let mut hasher = Xxh3::new();
    let out: &mut dyn Write = &mut io::sink();
    let mut out = Hashing {
        out,
        hasher: &mut hasher,
    };
    snapshot.write_feed(&mut out)?;
    for lane in 0..snapshot.lanes() {
        snapshot.write_lane(lane, &mut out)?;
    }
    Ok(hasher.digest128())
}

impl NodeSnapshots {
    /// Answers a peer that is about to make a checkpoint.
    pub(super) fn answer_states(&self, question: &[u8]) -> io::Result<Vec<u8>> {
        let answer = match versioned::decode(&[TAG, VERSION], question)? {
            Question::Begin(index) => match self.read_beyond(index) {
                true => Answer::Passed,
                false => {
                    self.begin_hashing(index);
                    Answer::Begun
                }
            },
            Question::Tell(index) => match lock(&self.hashes).get(&index) {
                None => Answer::Passed,
                Some(None) => Answer::Soon,
                Some(Some(hashes)) => Answer::Hashes(hashes.clone()),
            },
        };
        Ok(versioned::encode(&[VERSION], &answer))
    }

    fn read_beyond(&self, index: u64) -> bool {
        self.core().is_none_or(|core| core.agreed().index > index)
    }

    /// In the background: the log has yet to be read that far.
    fn begin_hashing(&self, index: u64) {
        {
            let mut hashes = lock(&self.hashes);
            if hashes.contains_key(&index) {
                return;
            }
            hashes.insert(index, None);
            while hashes.len() > MOST {
                hashes.pop_first();
            }
        }
        let (driver, hashes) = (lock(&self.driver).clone(), Arc::clone(&self.hashes));
        drop(rt::spawn_blocking(move || {
            let hashed = states_at(&driver, index).map(|pending| hash_all(pending, index));
            let mut known = lock(&hashes);
            match hashed {
                // Only if nobody has forgotten it meanwhile.
                Some(hashed) => drop(known.get_mut(&index).map(|at| *at = Some(hashed))),
                None => drop(known.remove(&index)),
            }
        }));
    }

    /// A checkpoint whose states another replica has too, or nobody can tell; its states stand at one index.
    pub(super) fn compared(&self, core: &Core) -> io::Result<Option<UnfinishedCheckpoint>> {
        let (others, voters) = crate::alike::others(core);
        let preferred = *lock(&self.preferred);
        let first = others.iter().copied().find(|&it| Some(it) == preferred);
        let first = first.or(others.first().copied());
        let rounds = [first.into_iter().collect(), others.clone()];
        for (round, asked) in rounds.into_iter().enumerate() {
            let (pending, begun) = self.meet(core, &asked)?;
            let index = pending.position.index;
            let Some(Gathered { checkpoint, hashes }) = self.gather(pending)? else {
                return Ok(None);
            };
            let told = self.hear(core, index, &begun);
            let judged = judge_all(&hashes, &told, voters);
            if judged == Judged::Same {
                lock(&self.disputed).clear();
                *lock(&self.preferred) = begun.first().copied();
                return Ok(Some(checkpoint));
            }
            if round == 0 && others.len() > 1 && !core.is_stopping() {
                continue;
            }
            return self.settle(core, checkpoint, judged).map(Some);
        }
        Ok(None)
    }

    fn settle(
        &self,
        core: &Core,
        checkpoint: UnfinishedCheckpoint,
        judged: Judged,
    ) -> io::Result<UnfinishedCheckpoint> {
        let list = |feeds: &mut dyn Iterator<Item = FeedId>| {
            let numbers: Vec<_> = feeds.map(|feed| feed.0.to_string()).collect();
            numbers.join(", ")
        };
        match judged {
            Judged::Same => Ok(checkpoint),
            // One whose word was against this one's may be computing again now: being alone proves nothing then.
            Judged::Alone(feeds) if feeds.iter().any(|&feed| self.is_disputed(core, feed)) => {
                self.settle(core, checkpoint, Judged::Open(feeds))
            }
            Judged::Alone(feeds) => {
                let feeds = list(&mut feeds.into_iter());
                core.counters
                    .checkpoints_alone
                    .fetch_add(1, Ordering::Relaxed);
                tracing::info!(
                    feeds,
                    "no other replica could compare these feeds' states: the checkpoint counts by this one's word alone"
                );
                Ok(checkpoint)
            }
            Judged::Odd(feeds) => {
                let named = list(&mut feeds.keys().copied());
                let kept = checkpoint.set_aside(&core.config.data_dir.join("evidence"))?;
                let kept = kept.display();
                for (feed, right) in feeds {
                    core.doubts.state_is_odd(feed, right);
                }
                Err(io::Error::other(format!(
                    "most replicas have other states of feeds {named}; this one's is kept as evidence in {kept}"
                )))
            }
            Judged::Open(feeds) => {
                lock(&self.disputed).extend(&feeds);
                let named = list(&mut feeds.into_iter());
                core.counters
                    .states_disputed
                    .fetch_add(1, Ordering::Relaxed);
                Err(io::Error::other(format!(
                    "another replica has other states of feeds {named}, and there is no majority: the agreed log is kept \
                     until there is"
                )))
            }
        }
    }

    fn is_disputed(&self, core: &Core, feed: FeedId) -> bool {
        core.doubts.is_open(feed) || lock(&self.disputed).contains(&feed)
    }

    /// The states here at an index at which these peers hash theirs too, and who of them does.
    fn meet(&self, core: &Core, asked: &[u16]) -> io::Result<(PendingCheckpoint, Vec<u16>)> {
        let patience = Patience::of(core);
        let mut ahead = AHEAD;
        let mut tries = 0;
        loop {
            tries += 1;
            let index = core.agreed().index + ahead;
            let (sender, own) = sync_channel(1);
            let sent = lock(&self.driver).send(Request::StatesAt(index, sender));
            sent.map_err(|_| io::Error::other("the node is stopping"))?;
            let question = versioned::encode(&[TAG, VERSION], &Question::Begin(index));
            let begins =
                |number: &u16| matches!(self.ask(core, *number, &question), Ok(Answer::Begun));
            let begun: Vec<u16> = asked.iter().copied().filter(begins).collect();
            let last = tries >= patience.tries;
            match own.recv_timeout(patience.still) {
                Ok(Some(pending)) if last || !begun.is_empty() || asked.is_empty() => {
                    return Ok((pending, begun));
                }
                Ok(_) => ahead = ahead.max(1) * 4,
                Err(RecvTimeoutError::Timeout) => ahead = 0,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the node is stopping"));
                }
            }
            if last {
                let pending = self.request(Request::Checkpoint)?;
                return Ok((pending, Vec::new()));
            }
        }
    }

    /// What they have there, as far as they tell in time.
    fn hear(&self, core: &Core, index: u64, begun: &[u16]) -> BTreeMap<u16, Hashes> {
        let mut told = BTreeMap::new();
        let question = versioned::encode(&[TAG, VERSION], &Question::Tell(index));
        let mut open: BTreeSet<u16> = begun.iter().copied().collect();
        let end = rt::now() + Patience::of(core).hashed;
        while !open.is_empty() && rt::now() < end {
            open.retain(|&number| match self.ask(core, number, &question) {
                Ok(Answer::Soon) => true,
                Ok(Answer::Hashes(hashes)) => {
                    told.insert(number, hashes);
                    false
                }
                Ok(Answer::Begun | Answer::Passed) | Err(_) => false,
            });
            if !open.is_empty() {
                rt::thread::sleep(LOOK);
            }
        }
        told
    }

    fn ask(&self, core: &Core, number: u16, question: &[u8]) -> io::Result<Answer> {
        let Some((_, runtime)) = self.known.get() else {
            return Err(io::Error::other("the node is starting"));
        };
        let asked = core.replica.ask(number, question.to_vec());
        let answer =
            runtime.block_on(async { rt::timeout(Patience::of(core).answer, asked).await });
        let answer = answer.map_err(|_| io::Error::other("no answer"))??;
        Ok(versioned::decode(&[VERSION], &answer)?)
    }
}

fn states_at(driver: &Sender<Request>, index: u64) -> Option<PendingCheckpoint> {
    let (sender, receiver) = sync_channel(1);
    driver.send(Request::StatesAt(index, sender)).ok()?;
    receiver.recv().ok()?
}

fn hash_all(pending: PendingCheckpoint, index: u64) -> Hashes {
    let states = collect(pending.feeds).into_iter();
    let there = states.filter(|(_, state)| state.index == index);
    there
        .filter_map(|(id, state)| Some((id, hash(&state.snapshot).ok()?)))
        .collect()
}

fn judge_all(own: &Hashes, told: &BTreeMap<u16, Hashes>, voters: usize) -> Judged {
    let (mut alone, mut open, mut odd) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (&feed, &hash) in own {
        let theirs: BTreeMap<u16, u128> = told
            .iter()
            .filter_map(|(&number, hashes)| Some((number, *hashes.get(&feed)?)))
            .collect();
        let has_same = theirs.values().any(|&it| it == hash);
        match judge(Own::Digest(hash), &theirs, voters) {
            Verdict::Odd(right) => drop(odd.insert(feed, right)),
            Verdict::Right | Verdict::Open if has_same => {}
            Verdict::Right | Verdict::Open if theirs.is_empty() => alone.push(feed),
            Verdict::Right | Verdict::Open => open.push(feed),
        }
    }
    match () {
        () if !odd.is_empty() => Judged::Odd(odd),
        () if !open.is_empty() => Judged::Open(open),
        () if !alone.is_empty() => Judged::Alone(alone),
        () => Judged::Same,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::golden;

    const A: FeedId = FeedId(3);
    const B: FeedId = FeedId(7);

    #[test]
    fn a_state_counts_when_another_one_has_it_and_not_against_most() {
        let own = Hashes::from([(A, 1), (B, 2)]);
        let same = |number: u16| (number, own.clone());
        let other = |number: u16| (number, Hashes::from([(A, 1), (B, 9)]));
        let judged = |told: &[(u16, Hashes)], voters| {
            judge_all(&own, &told.iter().cloned().collect(), voters)
        };
        assert_eq!(judged(&[same(2)], 3), Judged::Same);
        assert_eq!(judged(&[same(2), other(3)], 3), Judged::Same);
        assert_eq!(judged(&[other(2)], 3), Judged::Open(vec![B]));
        let right = BTreeSet::from([2, 3]);
        assert_eq!(
            judged(&[other(2), other(3)], 3),
            Judged::Odd([(B, right)].into())
        );
        assert_eq!(judged(&[], 3), Judged::Alone(vec![A, B]));
        let half = (2, Hashes::from([(A, 1)]));
        assert_eq!(judged(&[half], 3), Judged::Alone(vec![B]));
        assert_eq!(judged(&[same(2), other(3), other(4)], 5), Judged::Same);
    }

    #[test]
    fn questions_and_answers_are_read_from_and_written_to_the_golden_bytes() {
        let questions = [Question::Begin(300), Question::Tell(70_000)];
        let encoded = postcard::to_stdvec(&questions).unwrap();
        let bytes = golden::bytes("states-question", &encoded);
        let read: [Question; 2] = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, questions);
        let hashes = Answer::Hashes([(A, 1 << 100), (B, 2)].into());
        let answers = vec![Answer::Begun, Answer::Passed, Answer::Soon, hashes];
        let bytes = golden::bytes("states-answer", &postcard::to_stdvec(&answers).unwrap());
        let read: Vec<Answer> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, answers);
    }
}
