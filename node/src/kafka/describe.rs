//! librdkafka's question for a topic's id: the only place that handles its pointers. What rdkafka offers knows no ids.
//!
//! A topic that is deleted and made again has another id, whatever its name, partitions and offsets are.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::bindings as native;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode as Code;

use super::context::ClientEvents;

/// A question that was asked: its answer says what was so after it was asked.
pub(super) struct Question {
    queue: NonNull<native::rd_kafka_queue_t>,
    asked: Instant,
    /// The queue belongs to this client, which must outlive it: fields are dropped after [`Drop::drop`] has run.
    _client: Arc<BaseConsumer<ClientEvents>>,
}

// SAFETY: librdkafka's queues may be used from any thread; the client is `Send` and `Sync`.
unsafe impl Send for Question {}

impl Question {
    /// Asks for a topic's id; does not wait. `None` for a name that no topic has.
    pub(super) fn ask(client: &Arc<BaseConsumer<ClientEvents>>, topic: &str) -> Option<Self> {
        let topic = CString::new(topic).ok()?;
        let handle = client.client().native_ptr();
        let mut names = [topic.as_ptr()];
        // SAFETY: the client lives; the name ends with a zero byte and is copied by the first call; the collection is
        // destroyed once, after it was used. Without options those of the client count.
        let queue = unsafe {
            let names = native::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), 1);
            let queue = native::rd_kafka_queue_new(handle);
            native::rd_kafka_DescribeTopics(handle, names, ptr::null(), queue);
            native::rd_kafka_TopicCollection_destroy(names);
            queue
        };
        Some(Self {
            queue: NonNull::new(queue)?,
            asked: Instant::now(),
            _client: Arc::clone(client),
        })
    }

    /// How long ago it was asked.
    pub(super) fn age(&self) -> Duration {
        self.asked.elapsed()
    }

    /// The topic's id as text, if the answer comes within `timeout`; it comes once.
    pub(super) fn answer(&mut self, timeout: Duration) -> Option<Result<String, Code>> {
        let timeout = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the queue lives.
        let event = unsafe { native::rd_kafka_queue_poll(self.queue.as_ptr(), timeout) };
        let event = NonNull::new(event)?;
        // SAFETY: the event is ours until it is destroyed, once; what `read` gives owns all that it holds.
        unsafe {
            let read = read(event.as_ptr());
            native::rd_kafka_event_destroy(event.as_ptr());
            Some(read)
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        // SAFETY: the queue is given up once, here; an answer that comes later is dropped by the library.
        unsafe { native::rd_kafka_queue_destroy(self.queue.as_ptr()) };
    }
}

/// What an answer says.
///
/// # Safety
/// The event is whole.
unsafe fn read(event: *mut native::rd_kafka_event_t) -> Result<String, Code> {
    use native::rd_kafka_resp_err_t as Error;
    // SAFETY: the event is whole. What is asked of it belongs to it, and is looked at before this returns; a question for
    // one topic has one description, whose id, error and text may be null only where it is checked.
    unsafe {
        let error = native::rd_kafka_event_error(event);
        if error != Error::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(error.into());
        }
        let answer = native::rd_kafka_event_DescribeTopics_result(event);
        if answer.is_null() {
            return Err(Code::BadMessage);
        }
        let mut count = 0;
        let topics = native::rd_kafka_DescribeTopics_result_topics(answer, &raw mut count);
        if count != 1 || topics.is_null() {
            return Err(Code::BadMessage);
        }
        let error = native::rd_kafka_TopicDescription_error(*topics);
        let error = native::rd_kafka_error_code(error);
        if error != Error::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(error.into());
        }
        let id = native::rd_kafka_TopicDescription_topic_id(*topics);
        if id.is_null() {
            return Err(Code::BadMessage);
        }
        let text = native::rd_kafka_Uuid_base64str(id);
        if text.is_null() {
            return Err(Code::BadMessage);
        }
        // As Kafka's own tools show it.
        let text = CStr::from_ptr(text).to_string_lossy();
        Ok(text.replace('+', "-").replace('/', "_"))
    }
}
