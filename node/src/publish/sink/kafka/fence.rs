//! Takes the sink away from every older publisher, fast.
//!
//! Why it is safe: `init_transactions` makes the broker raise the epoch of the transactional id, abort the transaction
//! that may be open, and refuse everything that carries an older epoch. It returns only when that is done. So once it
//! has returned for a handle, nothing of an older publisher can become readable any more, and what is read of the
//! frontier from then on is the last word.
//!
//! Why with two handles: if a transaction is open, as after the death of a publisher, the broker first aborts it and
//! answers "concurrent transactions", upon which librdkafka waits 500 ms before it asks again. A first handle therefore
//! asks with a short limit, which is enough to set the abort going, and is given up; the next one asks when the abort
//! is done. A handle that was given up may still raise the epoch once more, after us, before it is gone: then we are
//! fenced like by any other, which costs time, but no row.

use std::time::{Duration, Instant};

use rdkafka::producer::Producer;

use super::error::{is_fenced, is_refused};
use super::handle::{Handle, Pool};
use crate::publish::sink::PublishError;

/// How long the first, second, ... handle may ask; the last limit is repeated, and is long enough for a broker under
/// load, and for librdkafka's own pause.
#[derive(Clone, Copy)]
pub(super) enum Pace {
    /// Small limits while a quick answer is likely.
    Quick,
    /// After having been fenced: perhaps by a handle of our own that was given up too early.
    Calm,
}

impl Pace {
    fn limit(self, attempt: usize) -> Duration {
        let limits_ms: &[u64] = match self {
            Self::Quick => &[20, 40, 80, 250],
            Self::Calm => &[100, 300],
        };
        Duration::from_millis(limits_ms.get(attempt).copied().unwrap_or(2000))
    }
}

/// A handle that owns the sink.
///
/// # Errors
/// [`PublishError::Unavailable`] if it is not done by the deadline; [`PublishError::Fatal`] if the broker refuses.
pub(super) fn fence(
    pool: &Pool,
    transactional_id: &str,
    pace: Pace,
    deadline: Instant,
) -> Result<Handle, PublishError> {
    let unavailable = |reason: String| PublishError::Unavailable {
        sink: transactional_id.to_owned(),
        reason,
    };
    let mut last = String::from("no time to ask");
    for attempt in 0.. {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let handle = pool
            .take()
            .map_err(|error| unavailable(format!("no broker: {error}")))?;
        let asked_at = Instant::now();
        match handle
            .producer
            .init_transactions(pace.limit(attempt).min(left))
        {
            Ok(()) => return Ok(handle),
            Err(error) => {
                handle.retire();
                if is_refused(&error) {
                    let reason = format!("the broker refuses to fence: {error}");
                    let sink = transactional_id.to_owned();
                    return Err(PublishError::Fatal { sink, reason });
                }
                last = error.to_string();
                if is_fenced(&error) || asked_at.elapsed() < Duration::from_millis(5) {
                    // Another one acquires at this moment, or the broker is not ready: do not spin.
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }
    Err(unavailable(format!("could not fence in time: {last}")))
}
