//! Older rows from peers: a node that took a peer's checkpoint has the rows from there on. Those before it are copied
//! in the background, from the newest to the oldest, and each must lead up to the digest of those that are here.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use unisono_engine::row::{Digest, Row, RowRef, Seq, StreamId};
use unisono_replication::command::StreamKey;
use unisono_replication::rt;

use crate::checkpoint::{SentRow, StreamRows};
use crate::core::Core;
use crate::ids::{key_of, stream_of, streams_of};
use crate::results::{OlderRows, ResultsError, ResultsLog};
use crate::versioned::{self, Unreadable};

/// How often a node looks whether rows are missing, and how long a round that brought nothing is followed by none.
const EVERY: Duration = Duration::from_millis(500);

/// The version of questions and answers; the first byte of each.
const VERSION: u8 = 2;

/// What a node asks of a peer: the rows just before one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Question {
    stream: StreamKey,
    below: u64,
}

/// What the peer has.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Answer {
    rows: Option<StreamRows>,
    /// It lacks older rows itself: that it has none says nothing about others.
    lacks_older: bool,
}

/// Why a peer's question is not answered.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The peer runs another version of the program, or the message is damaged.
    #[error("a peer's question cannot be read: {0}")]
    Unreadable(#[from] Unreadable),
    /// They are about to be computed here: that there are none says nothing.
    #[error("rows before {below} are asked for, and {next} are computed here yet")]
    Behind {
        /// Rows before this one are wanted.
        below: u64,
        /// The row that comes next here.
        next: u64,
    },
    /// The rows cannot be read here: the peer may ask another node.
    #[error(transparent)]
    Results(#[from] ResultsError),
}

/// Answers a peer's question from the rows that are here.
///
/// # Errors
/// It cannot be read, or the rows cannot.
pub fn answer(results: &ResultsLog, question: &[u8]) -> Result<Vec<u8>, AnswerError> {
    let question: Question = versioned::decode(&[VERSION], question)?;
    let stream = stream_of(question.stream);
    let (below, next) = (question.below, results.next_seq(stream).0);
    if next < below {
        return Err(AnswerError::Behind { below, next });
    }
    let older = results.before(stream, Seq(below))?;
    let rows = older.map(|older| StreamRows {
        stream: question.stream,
        from: older.rows.first().map_or(0, |row| row.seq.0),
        digest_before: older.base.0,
        rows: older.rows.into_iter().map(SentRow::new).collect(),
    });
    let lacks_older = results.lacks_older(stream);
    Ok(versioned::encode(&[VERSION], &Answer { rows, lacks_older }))
}

/// Copies missing rows for as long as the node runs.
pub async fn run(core: Arc<Core>) {
    loop {
        for (stream, below) in lacking(&core) {
            fill(&core, stream, below).await;
        }
        for stream in core.results.streams() {
            while core.results.lacks_older(stream) && step(&core, stream).await {}
        }
        rt::sleep(EVERY).await;
    }
}

/// Streams of held feeds of which rows are published that this node has not computed, since it has not taken in the tick in
/// dispute, and the number after the last of them. They stay published, whatever is decided.
fn lacking(core: &Core) -> Vec<(StreamId, Seq)> {
    let agreed = core.agreed();
    let pipelines = agreed.machine.pipelines().iter();
    let held = pipelines.filter(|(_, pipeline)| agreed.machine.is_held(pipeline.feed));
    let streams = held.flat_map(|(&incarnation, _)| streams_of(incarnation));
    let lacks = |stream: StreamId| {
        let below = Seq(agreed.machine.frontier(key_of(stream)));
        (core.results.next_seq(stream) < below).then_some((stream, below))
    };
    streams.filter_map(lacks).collect()
}

/// Takes the rows that follow on those that are here from a peer that has them.
async fn fill(core: &Arc<Core>, stream: StreamId, below: Seq) {
    let next = core.results.next_seq(stream);
    for number in peers(core) {
        let mut end = below;
        // A peer gives the rows of one file: the last ones first, until those that follow are among them.
        while let Ok(Answer {
            rows: Some(sent), ..
        }) = ask(core, number, stream, end).await
        {
            if Seq(sent.from) > next {
                end = Seq(sent.from);
                continue;
            }
            match append(core, stream, sent).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(number, %error, "a peer's published rows are not taken");
                    break;
                }
            }
        }
    }
}

async fn append(core: &Arc<Core>, stream: StreamId, sent: StreamRows) -> Result<(), String> {
    let core = Arc::clone(core);
    let taken = rt::blocking(move || {
        let rows = (sent.from..).zip(sent.rows);
        let rows: Vec<Row> = rows.map(|(seq, row)| row.into_row(seq)).collect();
        core.results
            .append_rows(stream, rows.iter().map(RowRef::from))
    });
    let taken = taken.await.map_err(|error| error.to_string())?;
    taken.map(drop).map_err(|error| error.to_string())
}

/// Takes the rows before the first one from any peer; whether that succeeded.
async fn step(core: &Arc<Core>, stream: StreamId) -> bool {
    let first = core.results.first_seq(stream);
    let mut silent = 0;
    let mut none_has_more = first == Seq(0);
    for number in peers(core) {
        if none_has_more {
            break;
        }
        match ask(core, number, stream, first).await {
            Ok(Answer {
                rows: Some(sent), ..
            }) => match take(core, stream, sent).await {
                Ok(true) => return true,
                Ok(false) => none_has_more = true,
                Err(error) => tracing::warn!(number, %error, "a peer's older rows are not taken"),
            },
            Ok(answer) => none_has_more = !answer.lacks_older,
            Err(error) => {
                silent += 1;
                tracing::debug!(number, error, "a peer does not tell its older rows");
            }
        }
    }
    // Where every peer answered and none has more, those rows are gone for good.
    if none_has_more || silent == 0 {
        let (held_from, incarnation) = (first.0, stream.incarnation.0);
        match core.results.settle_older(stream, first) {
            Ok(()) => tracing::info!(incarnation, held_from, "older rows are copied"),
            Err(error) => tracing::warn!(%error, "older rows are looked for again"),
        }
    }
    false
}

/// The peers, the leader last: it has most to do.
pub(crate) fn peers(core: &Core) -> Vec<u16> {
    let leader = core.replica.view().borrow().leader;
    let own = core.config.node.id;
    let numbers = core.config.cluster.peers.keys().copied();
    let mut numbers: Vec<u16> = numbers.filter(|&number| number != own).collect();
    numbers.sort_by_key(|&number| leader == Some(number));
    numbers
}

async fn ask(core: &Core, peer: u16, stream: StreamId, below: Seq) -> Result<Answer, String> {
    let question = Question {
        stream: key_of(stream),
        below: below.0,
    };
    let question = versioned::encode(&[VERSION], &question);
    let answer = core.replica.ask(peer, question).await;
    let answer = answer.map_err(|error| error.to_string())?;
    versioned::decode(&[VERSION], &answer).map_err(|error| error.to_string())
}

async fn take(core: &Arc<Core>, stream: StreamId, sent: StreamRows) -> Result<bool, String> {
    let core = Arc::clone(core);
    let taken = rt::blocking(move || {
        let rows = (sent.from..).zip(sent.rows);
        let older = OlderRows {
            base: Digest(sent.digest_before),
            rows: rows.map(|(seq, row)| row.into_row(seq)).collect(),
        };
        core.results.prepend(stream, &older)
    });
    let taken = taken.await.map_err(|error| error.to_string())?;
    taken.map_err(|error| error.to_string())
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
        let question = Question { stream, below: 128 };
        let bytes = golden::bytes(
            "backfill-question",
            &versioned::encode(&[VERSION], &question),
        );
        let read: Question = versioned::decode(&[VERSION], &bytes).unwrap();
        assert_eq!((read.stream, read.below), (stream, 128));
        let json = br#"{"city":"Oslo","n":2}"#;
        let row = unisono_engine::row::Row {
            seq: Seq(127),
            start: unisono_engine::spec::Timestamp(60_000),
            end: unisono_engine::spec::Timestamp(120_000),
            digest: Digest(u128::MAX / 3),
            json: json.to_vec(),
            group: 8..14,
        };
        let rows = StreamRows {
            stream,
            from: 127,
            digest_before: 77,
            rows: vec![SentRow::new(row)],
        };
        let answer = Answer {
            rows: Some(rows),
            lacks_older: true,
        };
        let bytes = golden::bytes("backfill-answer", &versioned::encode(&[VERSION], &answer));
        let read: Answer = versioned::decode(&[VERSION], &bytes).unwrap();
        assert_eq!(versioned::encode(&[VERSION], &read), bytes);
        assert!(read.lacks_older);
        let row = read.rows.unwrap().rows.remove(0).into_row(127);
        assert_eq!(&row.json[..], json);
    }

    #[test]
    fn who_has_yet_to_compute_rows_does_not_say_that_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let results = ResultsLog::open(dir.path(), crate::results::Limits::default()).unwrap();
        let stream = StreamKey {
            incarnation: 300,
            stream: Stream::Rows,
        };
        let question = versioned::encode(&[VERSION], &Question { stream, below: 1 });
        let refused = answer(&results, &question).unwrap_err();
        assert!(matches!(refused, AnswerError::Behind { below: 1, next: 0 }));
    }
}
