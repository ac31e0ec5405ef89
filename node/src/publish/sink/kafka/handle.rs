//! Producers: connected ahead of need, since an election must not wait for connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::Message;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer, ProducerContext};

use super::error::{is_fence, is_fenced, is_too_large};
use super::offsets::Offsets;
use crate::kafka::Clients;
use crate::threads::{Role, lock, spawn};

const SPARE: usize = 3;
/// Brokers close connections that were idle for ten minutes.
const YOUNG: Duration = Duration::from_secs(300);
const ABORT_WITHIN: Duration = Duration::from_secs(1);
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// What became of the records sent.
#[derive(Default)]
pub(super) struct Deliveries {
    failed: Mutex<Option<(usize, KafkaError)>>,
    offsets: Arc<Offsets>,
}

impl Deliveries {
    /// The first record that was not taken, by its place in the batch, and why.
    pub(super) fn take_failed(&self) -> Option<(usize, KafkaError)> {
        lock(&self.failed).take()
    }
}

impl ClientContext for Deliveries {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, message, "librdkafka");
    }

    /// What matters comes back from the call that it spoils.
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka producer error");
    }

    fn stats_raw(&self, _statistics: &[u8]) {}
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, index: usize) {
        match result {
            Ok(record) => self
                .offsets
                .note(record.topic(), record.partition(), record.offset()),
            Err((error, _)) => {
                let mut failed = lock(&self.failed);
                let known = failed.get_or_insert_with(|| (index, error.clone()));
                // The others come back because of this one.
                if is_too_large(error) && !is_too_large(&known.1) {
                    *known = (index, error.clone());
                }
            }
        }
    }
}

/// A producer with the sink's transactional id.
pub(super) struct Handle {
    pub(super) producer: Arc<BaseProducer<Deliveries>>,
    born: Instant,
}

impl Handle {
    /// Connects, and learns where the topic's partitions are. Touches no transaction.
    pub(super) fn connect(
        clients: &Clients,
        topic: &str,
        offsets: &Arc<Offsets>,
    ) -> KafkaResult<Self> {
        let deliveries = Deliveries {
            offsets: Arc::clone(offsets),
            ..Deliveries::default()
        };
        let producer: BaseProducer<Deliveries> = clients.create_with_context(deliveries)?;
        let producer = clients.keep(producer);
        producer
            .client()
            .fetch_metadata(Some(topic), CONNECT_WITHIN)?;
        Ok(Self {
            producer,
            born: Instant::now(),
        })
    }

    /// Asks why a transaction failed. Records of a producer that was fenced come back merely as "purged"; that it was
    /// fenced is told when its transaction is to be aborted, if not before.
    pub(super) fn was_fenced(&self) -> bool {
        let told = || {
            self.producer
                .client()
                .fatal_error()
                .is_some_and(|(code, _)| is_fence(code))
        };
        told()
            || matches!(self.producer.abort_transaction(ABORT_WITHIN), Err(error) if is_fenced(&error))
            || told()
    }

    /// Gives the producer up without waiting: librdkafka takes its time to end its threads. A transaction that is
    /// open stays open until the next fence aborts it.
    pub(super) fn retire(self) {
        let started = spawn(Role::KafkaRetire, None, move || drop(self));
        if let Err(error) = started {
            // The closure, and the handle in it, was dropped here, on this thread.
            tracing::debug!(%error, "could not start a thread");
        }
    }
}

/// Spare handles that have connected, but not begun anything: any number of them can wait on any number of replicas
/// without disturbing the one that publishes.
#[derive(Clone)]
pub(super) struct Pool {
    clients: Arc<Clients>,
    topic: Arc<str>,
    spare: Arc<Mutex<Vec<Handle>>>,
    filling: Arc<AtomicBool>,
    offsets: Arc<Offsets>,
}

impl Pool {
    pub(super) fn new(clients: Clients, topic: &str, offsets: &Arc<Offsets>) -> Self {
        Self {
            clients: Arc::new(clients),
            topic: topic.into(),
            spare: Arc::default(),
            filling: Arc::default(),
            offsets: Arc::clone(offsets),
        }
    }

    /// Renews old handles and fills the pool up, in the background.
    pub(super) fn keep_warm(&self) {
        let mut spare = lock(&self.spare);
        let old: Vec<Handle> = spare
            .extract_if(.., |handle| handle.born.elapsed() > YOUNG)
            .collect();
        spare
            .iter()
            .for_each(|handle| handle.producer.poll(Duration::ZERO));
        let full = spare.len() >= SPARE;
        drop(spare);
        old.into_iter().for_each(Handle::retire);
        if full || self.filling.swap(true, Ordering::SeqCst) {
            return;
        }
        let pool = self.clone();
        let fill = move || {
            pool.fill();
            pool.filling.store(false, Ordering::SeqCst);
        };
        if spawn(Role::KafkaWarm, None, fill).is_err() {
            self.filling.store(false, Ordering::SeqCst);
        }
    }

    fn fill(&self) {
        while lock(&self.spare).len() < SPARE {
            match Handle::connect(&self.clients, &self.topic, &self.offsets) {
                Ok(handle) => lock(&self.spare).push(handle),
                Err(error) => {
                    tracing::debug!(%error, "no spare kafka producer for now");
                    return;
                }
            }
        }
    }

    /// The youngest spare handle, or a new one.
    pub(super) fn take(&self) -> KafkaResult<Handle> {
        let young = lock(&self.spare)
            .pop()
            .filter(|handle| handle.born.elapsed() <= YOUNG);
        match young {
            Some(handle) => Ok(handle),
            None => Handle::connect(&self.clients, &self.topic, &self.offsets),
        }
    }
}
