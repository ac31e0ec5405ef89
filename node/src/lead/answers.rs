//! Answers the leader: a thread of its own, since Raft's runtime must not wait for the agreed state's lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_engine::row::Seq;
use unisono_replication::Reply;
use unisono_replication::command::FeedId;
use unisono_replication::rt;
use unisono_replication::rt::mpsc::{Receiver, RecvTimeoutError};

use crate::alike;
use crate::confirm::{
    Answer, FeedAnswer, FeedQuestion, FeedState, LaneAnswer, LaneQuestion, Question, RowsAnswer,
    RowsQuestion, decode, encode,
};
use crate::core::{Agreed, Core};
use crate::feed::Feed;
use crate::ids::stream_of;
use crate::ingest::LaneBuffer;
use crate::threads::{Role, test_panic};

/// So long is waited for rows that are not computed here yet, and so often is looked for them.
const EARLY: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(1);
/// A feed whose oldest tick waits longer is behind.
const BEHIND: Duration = Duration::from_secs(1);

/// A question and whom to answer.
pub struct Asked {
    /// Its bytes.
    pub question: Vec<u8>,
    /// Takes those of the answer.
    pub reply: Reply,
}

/// Answers all questions, until nobody can ask any more.
pub fn answer_all(core: &Core, asked: &Receiver<Asked>) {
    let mut early: Vec<Early> = Vec::new();
    loop {
        let next = if early.is_empty() {
            asked.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            asked.recv_timeout(LOOK)
        };
        match next {
            Ok(Asked { question, reply }) => {
                test_panic(Role::Confirm);
                // Another version's: whoever asked goes without.
                if let Some(question) = decode(&question) {
                    let since = rt::now();
                    early.push(Early {
                        question,
                        reply,
                        since,
                    });
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        for waiting in early.extract_if(.., |waiting| !waiting.is_early(core)) {
            (waiting.reply)(encode(&answer(core, &waiting.question)));
        }
    }
}

/// A question for rows that are about to be computed here too is not answered before they are.
struct Early {
    question: Question,
    reply: Reply,
    since: Instant,
}

impl Early {
    fn is_early(&self, core: &Core) -> bool {
        let lacks = |of: &RowsQuestion| {
            let stream = stream_of(of.stream);
            Seq(of.next) > core.results.next_seq(stream) && alike::limit(core, stream).is_none()
        };
        rt::since(self.since) < EARLY && self.question.rows.iter().any(lacks)
    }
}

fn answer(core: &Core, question: &Question) -> Answer {
    let agreed = core.agreed();
    let feeds = question.feeds.iter().map(|of| of_feed(&agreed, of));
    let (applied, feeds) = (agreed.index, feeds.collect());
    let pipelines = agreed.machine.pipelines();
    let feed_of = |of: &RowsQuestion| Some(pipelines.get(&of.stream.incarnation)?.feed);
    let feeds_of_rows: Vec<_> = question.rows.iter().map(feed_of).collect();
    drop(agreed);
    let rows = feeds_of_rows.into_iter().zip(&question.rows);
    let rows = rows.map(|(feed, of)| of_rows(core, feed, of));
    Answer {
        applied,
        feeds,
        rows: rows.collect(),
    }
}

fn of_feed(agreed: &Agreed, question: &FeedQuestion) -> FeedAnswer {
    let feed = question.feed;
    let Some(running) = agreed.feeds.get(&feed) else {
        return FeedAnswer {
            feed,
            state: FeedState::Stopped,
            lanes: Vec::new(),
            unheard_ms: u32::MAX,
        };
    };
    let buffers = running.lanes();
    let lane = |of: &LaneQuestion| {
        let buffer = buffers.get(of.lane as usize)?;
        Some(of_lane(buffer, of))
    };
    FeedAnswer {
        feed,
        state: state_of(running, &buffers),
        lanes: question.lanes.iter().filter_map(lane).collect(),
        unheard_ms: u32::try_from(unheard(&buffers).as_millis()).unwrap_or(u32::MAX),
    }
}

/// For how long some lane's source was not heard of; of a retired one nobody hears any more.
fn unheard(buffers: &[Arc<LaneBuffer>]) -> Duration {
    let lanes = buffers.iter().map(|buffer| buffer.unheard().0);
    lanes.max().unwrap_or(Duration::ZERO)
}

fn state_of(feed: &Feed, buffers: &[Arc<LaneBuffer>]) -> FeedState {
    match () {
        () if buffers.iter().any(|buffer| buffer.disputes()) => FeedState::Disputes,
        () if feed.has_stopped() => FeedState::Stopped,
        () if feed
            .waits_since()
            .is_some_and(|since| rt::since(since) >= BEHIND) =>
        {
            FeedState::Behind
        }
        () => FeedState::Runs,
    }
}

fn of_lane(buffer: &LaneBuffer, question: &LaneQuestion) -> LaneAnswer {
    let held = buffer.cut_up_to(question.cut);
    let held = held.filter(|held| held.cut > question.known);
    LaneAnswer {
        lane: question.lane,
        held: held.map(|held| (held.cut, held.fingerprint)),
        end: buffer.end_beyond(question.cut),
    }
}

fn of_rows(core: &Core, feed: Option<FeedId>, question: &RowsQuestion) -> RowsAnswer {
    let stream = stream_of(question.stream);
    let next = Seq(question.next);
    let Some(feed) = feed.filter(|&feed| core.doubts.out(feed).is_none()) else {
        return RowsAnswer::Unknown;
    };
    if next > core.results.next_seq(stream) {
        // Digests are of all rows: those that differ before there differ there too.
        return match alike::limit(core, stream) {
            Some(_) => RowsAnswer::Other,
            None => RowsAnswer::Unknown,
        };
    }
    match core.results.digest_before(stream, next) {
        Ok(Some(digest)) if digest.0 == question.digest => {
            core.doubts.alike(stream, question.next);
            RowsAnswer::Same
        }
        Ok(Some(_)) => {
            core.doubts.raise(feed, stream, question.next);
            RowsAnswer::Other
        }
        // No more here, or not readable: somebody else may know.
        Ok(None) | Err(_) => RowsAnswer::Unknown,
    }
}
