//! One assigned partition: its queue and how far it was read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::Message;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;

use super::RawRecord;
use super::context::ClientEvents;
use super::error::KafkaSourceError;
use super::signal::Signal;

/// How much one poll may still give.
pub(super) struct Limits {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// How far a lane was read.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    /// One past the last record given, or where reading starts.
    pub(super) position: i64,
    /// The end that librdkafka reached, if no record was given since.
    pub(super) end: Option<i64>,
}

impl Progress {
    /// Gives a record, unless it was given already.
    pub(super) fn give(
        &mut self,
        record: RawRecord<'_>,
        on_record: &mut dyn FnMut(RawRecord<'_>),
    ) -> bool {
        if record.offset < self.position {
            return false;
        }
        self.position = record.offset + 1;
        self.end = None;
        on_record(record);
        true
    }

    /// Notes an end that came after the records. It also moves the position: markers, aborted and compacted records
    /// lie before it, and nothing else.
    pub(super) fn finish(&mut self, end: Option<i64>) {
        if let Some(end) = end.filter(|end| *end >= self.position) {
            self.position = end;
            self.end = Some(end);
        }
    }
}

/// What was taken out of a lane's queue.
pub(super) struct Polled<'a> {
    pub(super) messages: Vec<BorrowedMessage<'a>>,
    /// An end of the partition that came after the last of the messages.
    pub(super) end: Option<i64>,
    pub(super) error: Option<KafkaError>,
    /// A limit was reached: the queue may hold more.
    pub(super) more: bool,
    pub(super) progress: Progress,
}

pub(super) struct Lane {
    queue: PartitionQueue<ClientEvents>,
    /// Something came into the queue since it was last emptied.
    pending: Arc<AtomicBool>,
    pub(super) progress: Progress,
    pub(super) failed: Option<KafkaSourceError>,
}

impl Lane {
    pub(super) fn new(
        mut queue: PartitionQueue<ClientEvents>,
        offset: i64,
        signal: &Arc<Signal>,
    ) -> Self {
        // Set, since what came before the callback was there is not told.
        let pending = Arc::new(AtomicBool::new(true));
        let (raised, signal) = (Arc::clone(&pending), Arc::clone(signal));
        queue.set_nonempty_callback(move || {
            raised.store(true, Ordering::SeqCst);
            signal.raise();
        });
        let progress = Progress {
            position: offset,
            end: None,
        };
        Self {
            queue,
            pending,
            progress,
            failed: None,
        }
    }

    /// Before the queue is emptied, never after: what comes meanwhile must set the flag again.
    pub(super) fn quiet_until_told(&self) {
        self.pending.store(false, Ordering::SeqCst);
    }

    /// The callback tells only of a queue that was empty.
    pub(super) fn has_more(&self) {
        self.pending.store(true, Ordering::SeqCst);
    }

    /// The end that was reached, if nothing has come since.
    pub(super) fn reached_end(&self) -> Option<i64> {
        let pending = self.failed.is_some() || self.pending.load(Ordering::SeqCst);
        self.progress.end.filter(|_| !pending)
    }

    /// Takes what the queue holds, without waiting. An error ends it: what came before it is still good.
    pub(super) fn take(&self, limits: &mut Limits, events: &ClientEvents) -> Polled<'_> {
        let mut polled = Polled {
            messages: Vec::new(),
            end: None,
            error: None,
            more: false,
            progress: self.progress,
        };
        loop {
            if limits.records == 0 || limits.bytes == 0 {
                polled.more = true;
                return polled;
            }
            match self.queue.poll(Duration::ZERO) {
                None => return polled,
                Some(Ok(message)) => {
                    limits.records -= 1;
                    limits.bytes = limits.bytes.saturating_sub(message.payload_len());
                    polled.end = None;
                    polled.messages.push(message);
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    polled.end = events.take_end().map(|end| end.offset);
                }
                Some(Err(error)) => {
                    polled.error = Some(error);
                    // Transient errors are passed over by the next poll.
                    polled.more = true;
                    return polled;
                }
            }
        }
    }
}

/// A record that came by the common queue, in the moment before its lane had a queue of its own.
pub(super) struct Stray {
    pub(super) partition: i32,
    offset: i64,
    append_time: Option<i64>,
    payload: Option<Vec<u8>>,
}

impl Stray {
    pub(super) fn new(message: &BorrowedMessage<'_>) -> Self {
        Self {
            partition: message.partition(),
            offset: message.offset(),
            append_time: message.timestamp().to_millis(),
            payload: message.payload().map(<[u8]>::to_vec),
        }
    }

    pub(super) fn record(&self) -> RawRecord<'_> {
        RawRecord {
            offset: self.offset,
            append_time: self.append_time,
            payload: self.payload.as_deref(),
        }
    }
}
