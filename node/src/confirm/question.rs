//! The question that a leader asks the other replicas, and its answer. Small, and asked for each tick.

use serde::{Deserialize, Serialize};

use crate::versioned;
use unisono_replication::command::{FeedId, StreamKey};

/// The version of the format of both.
const VERSION: u8 = 3;

/// What a leader asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// What the other one holds of the lanes.
    pub feeds: Vec<FeedQuestion>,
    /// What it computed.
    pub rows: Vec<RowsQuestion>,
}

/// Of one feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedQuestion {
    /// Its name in the log.
    pub feed: FeedId,
    /// Lanes of which the leader holds something, or which it saw at their end.
    pub lanes: Vec<LaneQuestion>,
}

/// Of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneQuestion {
    /// Its place in the feed.
    pub lane: u32,
    /// The agreed cut, as the leader knows it.
    pub known: i64,
    /// How far the leader would go.
    pub cut: i64,
}

/// Whether a stream has the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowsQuestion {
    /// The stream.
    pub stream: StreamKey,
    /// One past the number of the last of them.
    pub next: u64,
    /// The leader's digest up to there.
    pub digest: u128,
}

/// What the other one says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The index up to which it has read the agreed log.
    pub applied: u64,
    /// One for each feed asked for.
    pub feeds: Vec<FeedAnswer>,
    /// One for each stream asked for.
    pub rows: Vec<RowsAnswer>,
}

/// Of one feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedAnswer {
    /// Its name in the log.
    pub feed: FeedId,
    /// How it stands there.
    pub state: FeedState,
    /// One for each lane asked for.
    pub lanes: Vec<LaneAnswer>,
    /// For how long some lane's source was not heard of: zero where records come.
    pub unheard_ms: u32,
}

/// How a feed stands on a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeedState {
    /// It runs, and is behind the log by less than a second.
    Runs,
    /// It runs, and is further behind.
    Behind,
    /// It does not run there.
    Stopped,
    /// Of some lane it read other records than those that were agreed.
    Disputes,
}

/// Of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneAnswer {
    /// Its place in the feed.
    pub lane: u32,
    /// The furthest cut beyond the agreed one, and not beyond the leader's, of records in hand, and the fingerprint there.
    pub held: Option<(i64, u64)>,
    /// There is nothing to be read beyond the leader's cut, on fresh evidence: where the lane ends.
    pub end: Option<i64>,
}

/// Whether a stream has the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowsAnswer {
    /// It has, up to there.
    Same,
    /// It has other rows.
    Other,
    /// It has not come so far, or holds them no more.
    Unknown,
}

/// The bytes of a question or an answer.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    versioned::encode(&[VERSION], message)
}

/// Reads what [`encode`] wrote; `None`: damaged, or another version's.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    versioned::decode(&[VERSION], bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use unisono_replication::command::Stream;

    use super::*;
    use crate::golden;

    #[test]
    fn questions_and_answers_are_read_from_and_written_to_the_golden_bytes() {
        let stream = StreamKey {
            incarnation: 300,
            stream: Stream::DeadLetters,
        };
        let question = Question {
            feeds: vec![FeedQuestion {
                feed: FeedId(7),
                lanes: vec![LaneQuestion {
                    lane: 2,
                    known: 1000,
                    cut: 1234,
                }],
            }],
            rows: vec![RowsQuestion {
                stream,
                next: 77,
                digest: 1 << 100,
            }],
        };
        let answer = Answer {
            applied: 400,
            feeds: vec![FeedAnswer {
                feed: FeedId(7),
                state: FeedState::Disputes,
                lanes: vec![LaneAnswer {
                    lane: 2,
                    held: Some((1200, 99)),
                    end: Some(1236),
                }],
                unheard_ms: 130,
            }],
            rows: vec![RowsAnswer::Same, RowsAnswer::Other, RowsAnswer::Unknown],
        };
        let bytes = golden::bytes("confirm-question-3", &encode(&question));
        assert_eq!(decode(&bytes), Some(question));
        let bytes = golden::bytes("confirm-answer-3", &encode(&answer));
        assert_eq!(decode(&bytes), Some(answer));
        assert_eq!(decode::<Answer>(&[9, 0]), None);
    }
}
