//! One place where the engine's names of streams and those of the agreed log meet: the two crates do not know each other.

use unisono_engine::row::{Incarnation, StreamId, StreamKind};
use unisono_replication::command::{Stream, StreamKey};

/// A stream's name in the agreed log.
#[must_use]
pub fn key_of(stream: StreamId) -> StreamKey {
    let kind = match stream.kind {
        StreamKind::Rows => Stream::Rows,
        StreamKind::DeadLetters => Stream::DeadLetters,
    };
    StreamKey {
        incarnation: stream.incarnation.0,
        stream: kind,
    }
}

/// A stream's name in the engine and the results log.
#[must_use]
pub fn stream_of(key: StreamKey) -> StreamId {
    let kind = match key.stream {
        Stream::Rows => StreamKind::Rows,
        Stream::DeadLetters => StreamKind::DeadLetters,
    };
    StreamId {
        incarnation: Incarnation(key.incarnation),
        kind,
    }
}

/// The streams of a pipeline.
#[must_use]
pub fn streams_of(incarnation: u64) -> [StreamId; 2] {
    [StreamKind::Rows, StreamKind::DeadLetters].map(|kind| StreamId {
        incarnation: Incarnation(incarnation),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_mean_the_same_stream() {
        for kind in [StreamKind::Rows, StreamKind::DeadLetters] {
            let incarnation = Incarnation(7);
            let stream = StreamId { incarnation, kind };
            assert_eq!(stream_of(key_of(stream)), stream);
        }
    }
}
