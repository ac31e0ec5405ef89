//! What a replica asks another one about its rows. Rare: only where some differ, or after a start.

use std::io;

use serde::{Deserialize, Serialize};
use unisono_replication::command::StreamKey;

use super::ask::look;
use crate::core::Core;
use crate::ids::stream_of;
use crate::versioned;

/// The first byte of a question, which tells it from others.
pub const TAG: u8 = b'D';
/// The version of both, the byte behind it, and the first of an answer.
const VERSION: u8 = 1;
/// Rows that an answer carries of each stream at most, and their bytes.
pub(crate) const MOST_ROWS: u32 = 100;
pub(crate) const MOST_BYTES: usize = 64 << 10;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    /// Streams, and of each up to which row.
    pub(crate) of: Vec<(StreamKey, u64)>,
    /// So many rows from there on are wanted too.
    pub(crate) rows: u32,
}

/// What is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// One for each stream asked for.
    pub(crate) of: Vec<Told>,
}

/// Of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// The digest of the rows below; `None`: they are not here, or this replica's word counts for nothing.
    pub(crate) digest: Option<u128>,
    /// Rows from there on.
    pub(crate) rows: Vec<Vec<u8>>,
}

pub(crate) fn encode(question: &Question) -> Vec<u8> {
    versioned::encode(&[TAG, VERSION], question)
}

pub(crate) fn decode(answer: &[u8]) -> io::Result<Answer> {
    Ok(versioned::decode(&[VERSION], answer)?)
}

/// Answers another replica.
///
/// # Errors
/// The question cannot be read.
pub fn answer(core: &Core, question: &[u8]) -> io::Result<Vec<u8>> {
    let question: Question = versioned::decode(&[TAG, VERSION], question)?;
    let of = question.of.iter();
    let of = of.map(|&(stream, next)| tell(core, stream, next, question.rows));
    let answer = Answer { of: of.collect() };
    Ok(versioned::encode(&[VERSION], &answer))
}

fn tell(core: &Core, stream: StreamKey, next: u64, rows: u32) -> Told {
    let feed = {
        let agreed = core.agreed();
        let pipeline = agreed.machine.pipelines().get(&stream.incarnation);
        pipeline.map(|pipeline| pipeline.feed)
    };
    if feed.is_none_or(|feed| core.doubts.out(feed).is_some()) {
        return Told::default();
    }
    look(core, stream_of(stream), next, rows.min(MOST_ROWS))
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
            of: vec![(stream, 128)],
            rows: 7,
        };
        let bytes = golden::bytes("doubt-question", &encode(&question));
        assert_eq!(bytes[..2], [TAG, VERSION]);
        assert_eq!(
            postcard::from_bytes::<Question>(&bytes[2..]).unwrap(),
            question
        );
        let told = Told {
            digest: Some(1 << 100),
            rows: vec![b"{}".to_vec()],
        };
        let answer = Answer {
            of: vec![told, Told::default()],
        };
        let encoded = postcard::to_extend(&answer, vec![VERSION]).unwrap();
        let bytes = golden::bytes("doubt-answer", &encoded);
        assert_eq!(decode(&bytes).unwrap(), answer);
        assert!(decode(&[2, 0]).is_err());
    }
}
