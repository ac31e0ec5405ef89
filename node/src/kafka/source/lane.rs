//! One assigned partition: its queue and how far it was read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::consumer::BaseConsumer;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Timestamp};
use unisono_engine::record::Stamp;

use super::RawRecord;
use super::error::KafkaSourceError;
use crate::kafka::batch::PartitionQueue;
use crate::kafka::context::ClientEvents;
use crate::signal::Signal;

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
        on_record: &mut impl FnMut(RawRecord<'_>),
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
    pub(super) fn finish(&mut self, end: i64) {
        if end >= self.position {
            self.position = end;
            self.end = Some(end);
        }
    }
}

pub(super) struct Lane {
    pub(super) queue: PartitionQueue,
    /// Something may have come into the queue since it was last emptied.
    pending: Arc<AtomicBool>,
    pub(super) progress: Progress,
    pub(super) failed: Option<KafkaSourceError>,
}

impl Lane {
    /// A lane that was just assigned; `None` if there is no such partition.
    pub(super) fn new(
        consumer: &Arc<BaseConsumer<ClientEvents>>,
        topic: &str,
        (partition, offset): (i32, i64),
        signal: &Arc<Signal>,
    ) -> Option<Self> {
        // Set, since what came before the callback was there is not told.
        let pending = Arc::new(AtomicBool::new(true));
        let (raised, signal) = (Arc::clone(&pending), Arc::clone(signal));
        let on_nonempty = move || {
            raised.store(true, Ordering::SeqCst);
            signal.raise();
        };
        Some(Self {
            queue: PartitionQueue::split(consumer, topic, partition, on_nonempty)?,
            pending,
            progress: Progress {
                position: offset,
                end: None,
            },
            failed: None,
        })
    }

    /// Whether the queue may hold something. Asked before it is emptied, never after: what comes meanwhile sets the flag
    /// again.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.swap(false, Ordering::SeqCst)
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
}

/// A record that came by the common queue, in the moment before its lane had a queue of its own.
pub(super) struct Stray {
    pub(super) partition: i32,
    offset: i64,
    stamp: Stamp,
    payload: Option<Vec<u8>>,
}

impl Stray {
    pub(super) fn new(message: &BorrowedMessage<'_>) -> Self {
        Self {
            partition: message.partition(),
            offset: message.offset(),
            stamp: stamp_of(message.timestamp()),
            payload: message.payload().map(<[u8]>::to_vec),
        }
    }

    pub(super) fn record(&self) -> RawRecord<'_> {
        RawRecord {
            offset: self.offset,
            stamp: self.stamp,
            payload: self.payload.as_deref(),
        }
    }
}

fn stamp_of(time: Timestamp) -> Stamp {
    match time {
        Timestamp::NotAvailable => Stamp::None,
        Timestamp::CreateTime(millis) => Stamp::Producer(millis),
        Timestamp::LogAppendTime(millis) => Stamp::Log(millis),
    }
}
