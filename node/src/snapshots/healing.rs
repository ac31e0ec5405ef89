//! A feed that doesn't move on this node, and would keep the agreed log from being purged for ever, takes its state from a
//! peer's checkpoint. A peer cuts the feed's part out of its newest one, with the rows that are not published, and is asked
//! for that piece by piece.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use unisono_replication::command::FeedId;
use unisono_replication::rt;

use super::NodeSnapshots;
use crate::checkpoint::{CheckpointReader, Scratch, send};
use crate::core::Core;
use crate::disputed::{Wanted, find};
use crate::driver::{Request, Why};
use crate::status;
use crate::threads::lock;

/// The first byte of a question for a feed's part.
pub const TAG: u8 = b'P';
/// The version of questions and answers, the byte behind it, and the first of an answer.
const VERSION: u8 = 1;
/// Bytes that an answer carries at most.
const PIECE: usize = 1 << 20;

/// What a node asks of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Question {
    feed: FeedId,
    /// The state must be beyond this index of the agreed log.
    beyond: u64,
    /// From which byte on; at 0 the peer looks for its newest.
    offset: u64,
    /// From another byte on: of which state, as [`Answer::index`] said.
    index: u64,
}

/// A piece of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    /// Where the state stands; 0: there is none beyond.
    index: u64,
    /// All of it.
    bytes: u64,
    piece: Vec<u8>,
}

/// What a peer is copying.
pub(super) struct Cut {
    feed: FeedId,
    index: u64,
    bytes: u64,
    file: File,
}

fn encode_question(question: &Question) -> io::Result<Vec<u8>> {
    postcard::to_extend(question, vec![TAG, VERSION]).map_err(io::Error::other)
}

fn decode_question(bytes: &[u8]) -> io::Result<Question> {
    match bytes {
        [TAG, VERSION, body @ ..] => postcard::from_bytes(body).map_err(io::Error::other),
        _ => Err(other_version()),
    }
}

fn encode_answer(answer: &Answer) -> io::Result<Vec<u8>> {
    postcard::to_extend(answer, vec![VERSION]).map_err(io::Error::other)
}

fn decode_answer(bytes: &[u8]) -> io::Result<Answer> {
    match bytes {
        [VERSION, body @ ..] => postcard::from_bytes(body).map_err(io::Error::other),
        _ => Err(other_version()),
    }
}

fn other_version() -> io::Error {
    io::Error::other(
        "a message about a feed's state is another version's: run the same Unisono on both nodes",
    )
}

impl NodeSnapshots {
    /// Answers a peer that wants a feed's part.
    pub(super) fn answer_part(&self, question: &[u8]) -> io::Result<Vec<u8>> {
        let question = decode_question(question)?;
        let mut cut = lock(&self.cut);
        if question.offset == 0 {
            *cut = self.cut_out(question)?;
        }
        let Some(known) = cut.as_ref().filter(|cut| cut.feed == question.feed) else {
            return encode_answer(&Answer {
                index: 0,
                bytes: 0,
                piece: Vec::new(),
            });
        };
        if question.offset > 0 && known.index != question.index {
            return Err(io::Error::other("another node has asked for another state"));
        }
        let left = known.bytes.saturating_sub(question.offset);
        let mut piece = vec![0; usize::try_from(left).map_or(PIECE, |left| left.min(PIECE))];
        known.file.read_exact_at(&mut piece, question.offset)?;
        let answer = encode_answer(&Answer {
            index: known.index,
            bytes: known.bytes,
            piece,
        });
        if left <= PIECE as u64 {
            *cut = None;
        }
        answer
    }

    fn cut_out(&self, question: Question) -> io::Result<Option<Cut>> {
        let feed = question.feed;
        let Some(checkpoint) = self.store.current() else {
            return Ok(None);
        };
        let index = checkpoint.header().feeds.get(&feed).copied();
        let Some(index) = index.filter(|&index| index > question.beyond) else {
            return Ok(None);
        };
        // Its name is gone when this returns; the file goes with the last handle.
        let (_path, mut file) = self.store.scratch(&format!("cut-{}", feed.0))?;
        let mut out = io::BufWriter::new(&mut file);
        send(&checkpoint, &self.results, Some(feed), &mut out)?;
        out.flush()?;
        drop(out);
        let bytes = file.metadata()?.len();
        Ok(Some(Cut {
            feed,
            index,
            bytes,
            file,
        }))
    }

    /// Ends a feed that must not go on as it is, for this reason.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn end_feed(&self, feed: FeedId, reason: String) -> io::Result<()> {
        self.request(|reply| Request::EndFeed(feed, reason, reply))
    }

    /// Computes a feed again from the last checkpoint here, and gives the index of the log up to which; rows that are here
    /// are compared.
    ///
    /// # Errors
    /// The log or the checkpoint cannot be read, or the node is stopping.
    pub fn replay(&self, feed: FeedId) -> io::Result<u64> {
        let _making = lock(&self.making);
        let rewound = self.request(|reply| Request::TakeBack(feed, reply))??;
        let again = Box::new(rewound.begin_again()?);
        self.request(|reply| Request::PutIn(again, reply))?
    }

    /// Takes a feed's state and rows from a peer whose rows are right, though the feed may run here. `taken`: the state must
    /// be beyond this index. Gives where it stands, if the peer has one to which this node's log reaches back.
    ///
    /// # Errors
    /// The peer does not answer, or what it sends cannot be used.
    pub async fn take_right(
        self: &Arc<Self>,
        core: &Core,
        feed: FeedId,
        taken: u64,
        peer: u16,
    ) -> io::Result<Option<u64>> {
        let Some(own) = self.store.current() else {
            // The log is whole, but there must be something that the state can be a part of.
            core.replica
                .trigger_checkpoint()
                .await
                .map_err(io::Error::other)?;
            return Ok(None);
        };
        let beyond = own.header().index.saturating_sub(1).max(taken);
        take(core, self, feed, beyond, peer, Why::Wrong).await
    }

    /// Puts what a peer sent in the place of the feed's state here.
    fn put(&self, feed: FeedId, path: &Scratch, why: Why) -> io::Result<u64> {
        // All of it is looked at before any of it takes the place of what is here.
        CheckpointReader::open(path.path())?.verify()?;
        let part = CheckpointReader::open(path.path())?;
        let index = part.header().feeds.get(&feed).copied().unwrap_or(0);
        let _making = lock(&self.making);
        let patient = self.request(|reply| Request::TakeOut(feed, index, why, reply))??;
        if patient.is_parked() {
            return patient.keep(part, &self.store);
        }
        let healed = Box::new(patient.treat(part, &self.store, &self.results)?);
        self.request(|reply| Request::PutIn(healed, reply))?
    }
}

/// Feeds whose state has to come from a peer, however much of the log is kept, and beyond which index it has to stand: an
/// operator ended ticks that this node's own state holds, or accepted one that this node cannot read.
pub fn wanted(core: &Core) -> BTreeMap<FeedId, u64> {
    let agreed = core.agreed();
    let mut wanted = lock(&core.health.wants);
    wanted.retain(|feed, beyond| {
        let own = agreed.feeds.get(feed);
        agreed.machine.has_pipelines(*feed) && own.is_none_or(|own| own.index() <= *beyond)
    });
    let mut all = wanted.clone();
    let saved = status::saved(core);
    for (&id, feed) in agreed.machine.feeds() {
        let Some(state) = feed.parked() else { continue };
        // Whoever saved more, or goes on to do so, has what counts if the tick is accepted.
        let goes_on = agreed.feeds.contains_key(&id);
        if !goes_on && saved.get(&id.0).is_none_or(|&saved| saved < state) {
            all.insert(id, state - 1);
        }
    }
    for (&id, feed) in &agreed.feeds {
        let accepted = agreed.machine.feeds().get(&id).and_then(|it| it.accepted);
        let disputes = || feed.lanes().iter().any(|lane| lane.disputes());
        if let Some(tick) = accepted.filter(|&tick| feed.index() < tick && disputes()) {
            all.entry(id).or_insert(tick - 1);
        }
    }
    all
}

/// Whether the feed waits here at a tick that was made alone, that is read otherwise here, and that no majority has taken in: whoever
/// took it in may be wrong, and nobody takes a state from there before that is decided.
fn is_open(core: &Core, feed: FeedId) -> bool {
    let (accepted, disputed) = {
        let agreed = core.agreed();
        let known = agreed.machine.feeds().get(&feed);
        let lanes = agreed.feeds.get(&feed).map(|own| own.lanes());
        let mut lanes = (0_u32..).zip(lanes.unwrap_or_default());
        let disputed = lanes.find_map(|(lane, buffer)| Some((lane, buffer.dispute()?)));
        (known.and_then(|known| known.accepted), disputed)
    };
    let Some((lane, dispute)) = disputed else {
        return false;
    };
    let (from, to) = (dispute.from, dispute.to);
    let wanted = Wanted::Move { lane, from, to };
    // What cannot be told is asked again the next time.
    let Ok(found) = find(core, feed, wanted) else {
        return true;
    };
    let Some(tick) = found.filter(|tick| tick.alone && accepted != Some(tick.index)) else {
        return false;
    };
    let voters = core.replica.view().borrow().voters.clone();
    let peers = status::peers(core, status::FRESH).into_iter();
    let took = peers.filter(|(node, told)| {
        let taken = told.condition.taken.get(&feed.0);
        voters.contains(node) && taken.is_some_and(|&taken| taken >= tick.index)
    });
    took.count() * 2 <= voters.len()
}

/// Takes from peers what holds the agreed log back here.
pub async fn heal(core: &Arc<Core>, snapshots: &Arc<NodeSnapshots>) {
    let mut held = lock(&snapshots.held).clone();
    lock(&core.health.held).clone_from(&held);
    held.extend(wanted(core));
    for (feed, beyond) in held {
        // Whose state is to be had there is seen to elsewhere.
        if core.doubts.trouble(feed).is_some() {
            continue;
        }
        let own = Arc::clone(core);
        let waits = rt::blocking(move || is_open(&own, feed)).await;
        if waits.unwrap_or(true) {
            continue;
        }
        for peer in crate::backfill::peers(core) {
            match take(core, snapshots, feed, beyond, peer, Why::Held).await {
                Ok(None) => continue,
                Ok(Some(index)) => {
                    tracing::warn!(
                        feed = feed.0,
                        peer,
                        index,
                        "the feed's state is taken from a peer's checkpoint"
                    );
                }
                Err(error) => {
                    tracing::warn!(feed = feed.0, peer, %error, "no state of the feed from this peer");
                    continue;
                }
            }
            break;
        }
    }
}

/// Whether the peer had one, and where it stands.
async fn take(
    core: &Core,
    snapshots: &Arc<NodeSnapshots>,
    feed: FeedId,
    beyond: u64,
    peer: u16,
    why: Why,
) -> io::Result<Option<u64>> {
    let mut question = Question {
        feed,
        beyond,
        offset: 0,
        index: 0,
    };
    let mut file = None;
    loop {
        let asked = core.replica.ask(peer, encode_question(&question)?).await?;
        let answer = decode_answer(&asked)?;
        if answer.index == 0 {
            return Ok(None);
        }
        if question.offset > 0 && answer.index != question.index {
            return Err(io::Error::other("the peer sends another state"));
        }
        let (path, out) = match file.take() {
            Some(open) => open,
            None => snapshots.store.scratch(&format!("part-{}", feed.0))?,
        };
        out.write_all_at(&answer.piece, question.offset)?;
        question.index = answer.index;
        question.offset += answer.piece.len() as u64;
        if answer.piece.is_empty() || question.offset >= answer.bytes {
            let own = Arc::clone(snapshots);
            let put = rt::blocking(move || own.put(feed, &path, why));
            return put.await.map_err(io::Error::other)?.map(Some);
        }
        file = Some((path, out));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_are_read_from_and_written_to_the_golden_bytes() {
        let question = Question {
            feed: FeedId(3),
            beyond: 300,
            offset: 1 << 20,
            index: 70_000,
        };
        let bytes = crate::golden::bytes("part-question", &encode_question(&question).unwrap());
        assert_eq!(decode_question(&bytes).unwrap(), question);
        let answer = Answer {
            index: 70_000,
            bytes: 1 << 33,
            piece: vec![1, 2, 3],
        };
        let bytes = crate::golden::bytes("part-answer", &encode_answer(&answer).unwrap());
        assert_eq!(decode_answer(&bytes).unwrap(), answer);
        assert!(decode_answer(&[2, 0]).is_err() && decode_question(&[TAG, 2]).is_err());
    }
}
