//! librdkafka's batch call on one partition's queue: the only place that handles its pointers.
//!
//! What rdkafka offers makes an event of each message and reads the clock three times for it, which costs more than all
//! that is done with the message after it. Here many are taken by one call, looked at where they lie, and destroyed.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use rdkafka::bindings as native;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode as Code;
use unisono_engine::record::Stamp;

use super::context::ClientEvents;

/// Messages of one call at most.
pub(super) const MOST: usize = 4096;

/// The queue of one assigned partition, apart from the client's common one.
pub(super) struct PartitionQueue {
    queue: NonNull<native::rd_kafka_queue_t>,
    /// Room for the pointers of a batch; empty between calls.
    messages: Vec<*mut native::rd_kafka_message_t>,
    /// What the queue calls. It stays where it is until the queue was told to call nothing.
    _on_nonempty: Box<Callback>,
    /// The queue belongs to this client, which must outlive it: fields are dropped after [`Drop::drop`] has run.
    _consumer: Arc<BaseConsumer<ClientEvents>>,
}

type Callback = Box<dyn Fn() + Send + Sync>;

// SAFETY: librdkafka's queues may be used from any thread; the callback is `Send` and `Sync`, the client too. The array
// of pointers is empty whenever no `Batch` borrows this.
unsafe impl Send for PartitionQueue {}

/// What a partition gives.
pub(super) enum Item<'a> {
    Record {
        offset: i64,
        stamp: Stamp,
        /// `None`: a tombstone.
        payload: Option<&'a [u8]>,
    },
    /// Nothing more can be read for now from this offset on.
    End(i64),
    Error(Code),
}

impl PartitionQueue {
    /// The queue of a partition that was just assigned; `on_nonempty` is called by the client's threads when something
    /// comes into it while it is empty. `None` if there is no such partition.
    pub(super) fn split(
        consumer: &Arc<BaseConsumer<ClientEvents>>,
        topic: &str,
        partition: i32,
        on_nonempty: impl Fn() + Send + Sync + 'static,
    ) -> Option<Self> {
        let topic = CString::new(topic).ok()?;
        let client = consumer.client().native_ptr();
        // SAFETY: the client lives, the name ends with a zero byte.
        let queue =
            unsafe { native::rd_kafka_queue_get_partition(client, topic.as_ptr(), partition) };
        let queue = NonNull::new(queue)?;
        let callback: Box<Callback> = Box::new(Box::new(on_nonempty));
        let opaque = ptr::from_ref::<Callback>(&callback).cast_mut().cast();
        // SAFETY: the queue is ours until `drop`; without a destination it keeps what comes into it. What `opaque` points
        // to is on the heap and lives until `drop` has told the queue to call nothing.
        unsafe {
            native::rd_kafka_queue_forward(queue.as_ptr(), ptr::null_mut());
            native::rd_kafka_queue_cb_event_enable(queue.as_ptr(), Some(call), opaque);
        }
        Some(Self {
            queue,
            messages: Vec::new(),
            _on_nonempty: callback,
            _consumer: Arc::clone(consumer),
        })
    }

    /// How many things the queue holds.
    pub(super) fn len(&self) -> usize {
        // SAFETY: the queue lives.
        unsafe { native::rd_kafka_queue_length(self.queue.as_ptr()) }
    }

    /// Takes what the queue holds, at most `most` items; does not wait.
    pub(super) fn take(&mut self, most: usize) -> Batch<'_> {
        let most = most.clamp(1, MOST);
        self.messages.clear();
        self.messages.reserve(most);
        let room = self.messages.as_mut_ptr();
        let now: c_int = 0;
        // SAFETY: the queue lives, and there is room for `most` pointers.
        let taken =
            unsafe { native::rd_kafka_consume_batch_queue(self.queue.as_ptr(), now, room, most) };
        // An error, told by -1, gives no messages.
        let taken = usize::try_from(taken).unwrap_or(0).min(most);
        // SAFETY: so many pointers were written.
        unsafe { self.messages.set_len(taken) };
        Batch {
            messages: &mut self.messages,
            next: 0,
        }
    }
}

impl Drop for PartitionQueue {
    fn drop(&mut self) {
        // SAFETY: the queue is given up once, here. Events are called under its lock: after the first call no callback
        // runs and none will, so what it uses may be dropped.
        unsafe {
            native::rd_kafka_queue_cb_event_enable(self.queue.as_ptr(), None, ptr::null_mut());
            native::rd_kafka_queue_destroy(self.queue.as_ptr());
        }
    }
}

/// Called by a thread of the client.
unsafe extern "C" fn call(_client: *mut native::rd_kafka_t, opaque: *mut c_void) {
    // SAFETY: `split` gave this pointer to a callback, and `drop` takes it back before the callback goes. An unwinding
    // panic would end the process here, as it should.
    let callback = unsafe { &*opaque.cast::<Callback>() };
    callback();
}

/// Messages that were taken out of a queue. They are destroyed with it, or as they are looked at.
pub(super) struct Batch<'a> {
    messages: &'a mut Vec<*mut native::rd_kafka_message_t>,
    /// Those before are destroyed.
    next: usize,
}

impl Batch<'_> {
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Shows each item in order, and destroys it.
    pub(super) fn each(mut self, mut look: impl FnMut(Item<'_>)) {
        while let Some(&message) = self.messages.get(self.next) {
            // SAFETY: it was not destroyed: those that were are before `next`, which moves after this and before it is
            // destroyed. Nobody else has a pointer to it.
            look(unsafe { item(&*message) });
            self.next += 1;
            // SAFETY: as before; what the item borrowed ended with the call of `look`.
            unsafe { native::rd_kafka_message_destroy(message) };
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for &message in &self.messages[self.next..] {
            // SAFETY: those from `next` on are not destroyed, and after this nobody sees them: the array is emptied.
            unsafe { native::rd_kafka_message_destroy(message) };
        }
        self.messages.clear();
    }
}

/// What a message is.
///
/// # Safety
/// The message comes from librdkafka and is whole.
unsafe fn item(message: &native::rd_kafka_message_t) -> Item<'_> {
    use native::rd_kafka_resp_err_t as Error;
    match message.err {
        Error::RD_KAFKA_RESP_ERR_NO_ERROR => {}
        Error::RD_KAFKA_RESP_ERR__PARTITION_EOF => return Item::End(message.offset),
        error => return Item::Error(error.into()),
    }
    let mut kind = native::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    // SAFETY: the message is whole, and the kind of time is written to a place that is there.
    let time = unsafe { native::rd_kafka_message_timestamp(message, &raw mut kind) };
    let payload = (!message.payload.is_null()).then(|| {
        // SAFETY: a payload that is not null has `len` bytes, which live and stay as they are as long as the message.
        unsafe { slice::from_raw_parts(message.payload.cast::<u8>().cast_const(), message.len) }
    });
    Item::Record {
        offset: message.offset,
        stamp: match kind {
            native::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => {
                Stamp::Log(time)
            }
            _ if time == -1 => Stamp::None,
            _ => Stamp::Producer(time),
        },
        payload,
    }
}
