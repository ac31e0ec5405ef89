//! Reads partitions of a topic by Kafka's own protocol, without a client library: record batches are read where they lie in
//! the broker's answer, and each answer says where the log ends, what is open in it, and which topic it is of.
//!
//! No group is joined, no offset committed, nothing produced. Nothing is ever skipped: an offset that the broker does not
//! have, a log that was cut, a topic that was made again are errors.

mod batch;
mod client;
mod codec;
mod compression;
mod connection;
mod errors;
mod fetch;
mod lane;
mod leaders;
mod messages;
mod nearby;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::Notify;

use super::answers::Answers;
use super::source::{Difference, KafkaSourceConfig, KafkaSourceError, TopicIdentity, Unanswered};
use crate::signal::Signal;
use crate::threads::{self, lock};
pub use batch::{Batch, BatchError, Located};
use client::Client;
pub use compression::Decompressor;
use lane::Lane;
pub use lane::Target;
use leaders::Finder;
use settings::Settings;
pub use settings::{misfit, refusal};

/// Reads the partitions of one topic. Made for one thread; its calls do not wait for a network.
pub struct DirectSource {
    shared: Arc<Shared>,
    decompressor: Decompressor,
    /// Some lane was left with records at the last read, because a limit was reached.
    unfinished: bool,
}

/// What the reading thread and that of the connections share.
struct Shared {
    config: KafkaSourceConfig,
    /// As [`Settings::share`].
    share: usize,
    /// Raised when a lane has something new.
    signal: Arc<Signal>,
    lanes: Mutex<BTreeMap<i32, Lane>>,
    /// The lanes that have something new.
    came: Mutex<BTreeSet<i32>>,
    answers: Mutex<Answers>,
    /// There are other lanes to fetch, or more room.
    changed: Notify,
    /// A lane was opened.
    opened: Notify,
    stop: Notify,
}

impl Shared {
    fn lanes(&self) -> MutexGuard<'_, BTreeMap<i32, Lane>> {
        lock(&self.lanes)
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        lock(&self.answers)
    }

    /// These lanes cannot be read on, for this reason, unless they have another.
    fn fail(&self, which: impl Fn(i32, &Lane) -> bool, error: &KafkaSourceError) {
        let mut failed = Vec::new();
        for (&partition, lane) in &mut *self.lanes() {
            if !lane.has_failed() && which(partition, lane) {
                lane.fail(error.clone());
                failed.push(partition);
            }
        }
        self.tell(&failed);
    }

    /// These lanes have something new; to be called when the lanes are not locked.
    fn tell(&self, lanes: &[i32]) {
        if !lanes.is_empty() {
            lock(&self.came).extend(lanes);
            self.signal.raise();
        }
    }

    /// A difference between the topic that is read and an agreed one, as an error.
    fn refuse(&self, found: &TopicIdentity, difference: Difference) -> KafkaSourceError {
        found.refused(&self.config, difference)
    }
}

impl DirectSource {
    /// Starts the thread of the connections. No broker is needed yet. The signal is raised when there is something to
    /// read.
    ///
    /// # Errors
    /// [`KafkaSourceError::Property`] if the configuration is wrong, [`KafkaSourceError::Fatal`] if there are no threads
    /// left.
    pub fn connect(
        config: &KafkaSourceConfig,
        signal: &Arc<Signal>,
    ) -> Result<Self, KafkaSourceError> {
        let settings = Settings::read(config)?;
        let shared = Arc::new(Shared {
            config: config.clone(),
            share: settings.share,
            signal: Arc::clone(signal),
            lanes: Mutex::default(),
            came: Mutex::default(),
            answers: Mutex::default(),
            changed: Notify::new(),
            opened: Notify::new(),
            stop: Notify::new(),
        });
        let source = Self {
            shared: Arc::clone(&shared),
            decompressor: Decompressor::default(),
            unfinished: false,
        };
        let failed = |error: std::io::Error| KafkaSourceError::Fatal {
            topic: config.topic.clone(),
            partition: 0,
            offset: 0,
            reason: format!("could not start a thread: {error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            // Its helpers look up names.
            .thread_name(threads::Role::KafkaRead.entry().name)
            .max_blocking_threads(2)
            .enable_io()
            .enable_time()
            .build()
            .map_err(failed)?;
        threads::spawn(threads::Role::KafkaRead, None, move || {
            let local = tokio::task::LocalSet::new();
            let client = Client::new(Arc::clone(&shared), settings);
            runtime.block_on(local.run_until(async {
                tokio::select! {
                    () = Finder::new(client).run() => {}
                    () = shared.stop.notified() => {}
                }
            }));
        })
        .map_err(failed)?;
        Ok(source)
    }

    /// Reads a partition from an offset on. `identity`: as it was agreed; empty: it is not compared. Nothing is handed over
    /// before that is known to be right.
    pub fn open(&mut self, partition: i32, offset: i64, identity: &str) {
        let lane = Lane::new(offset, identity, Instant::now());
        self.shared.lanes().insert(partition, lane);
        self.shared.opened.notify_one();
    }

    /// Reads a partition no more; the others go on as they are.
    pub fn close(&mut self, partition: i32) {
        self.shared.lanes().remove(&partition);
    }

    /// Hands over what was fetched of a partition, until the target weighs `most`; the last batch may exceed that. Does not
    /// wait. Gives the number of records.
    ///
    /// # Errors
    /// Whatever it is, the lane gives nothing more until it is opened anew, and the same error again. What came before is
    /// good. A broker that is down is no error: there is just nothing.
    pub fn read(
        &mut self,
        partition: i32,
        most: usize,
        to: &mut impl Target,
    ) -> Result<usize, KafkaSourceError> {
        let mut given = 0;
        while to.weight() < most {
            let lent = match self.shared.lanes().get_mut(&partition) {
                Some(lane) => lane.lend()?,
                None => None,
            };
            let Some((mut chunk, from)) = lent else {
                break;
            };
            let (count, read) = chunk.read(from, most, &mut self.decompressor, to);
            given += count;
            let mut lanes = self.shared.lanes();
            let Some(lane) = lanes.get_mut(&partition) else {
                break;
            };
            if let Err(error) = read {
                let error = KafkaSourceError::Fatal {
                    topic: self.shared.config.topic.clone(),
                    partition,
                    offset: from,
                    reason: error.to_string(),
                };
                lane.fail_now(error.clone());
                return Err(error);
            }
            if lane.give_back(chunk, self.shared.share) {
                self.shared.changed.notify_waiters();
            }
        }
        let now = Instant::now();
        if let Some(lane) = self.shared.lanes().get_mut(&partition) {
            lane.looked(given == 0, now);
            self.unfinished |= given > 0 && !lane.is_read();
        }
        Ok(given)
    }

    /// Partitions of which something came since the last call, a fault included.
    pub fn came(&mut self) -> BTreeSet<i32> {
        std::mem::take(&mut *lock(&self.shared.came))
    }

    /// Whether some lane may have something to read without a signal: the last one stopped at its limits.
    pub fn may_have_more(&mut self) -> bool {
        std::mem::take(&mut self.unfinished)
    }

    /// The end of the lane's log, if everything up to it was read and nothing more is there: on the word of the
    /// partition's leader, less than two seconds old. `None` whenever that is not certain: records in hand, a backlog, a
    /// broker that does not answer, a transaction that is open.
    #[must_use]
    pub fn at_end(&self, partition: i32) -> Option<i64> {
        self.shared.lanes().get(&partition)?.at_end(Instant::now())
    }

    /// The end of the lane's log as its leader said it less than two seconds ago: what is in open transactions counts too.
    #[must_use]
    pub fn log_end(&self, partition: i32) -> Option<i64> {
        self.shared.lanes().get(&partition)?.log_end(Instant::now())
    }

    /// Since when nothing comes of the partition and the broker has not said that there is nothing: a moment ago, if all is
    /// well. `None`: something comes, or the broker has not been reached yet.
    #[must_use]
    pub fn unanswered(&self, partition: i32) -> Option<Unanswered> {
        let since = self.shared.lanes().get(&partition)?.unanswered_since()?;
        let slowest = self.shared.answers().slowest();
        Some(Unanswered { since, slowest })
    }

    /// Since when a transaction that is open in the partition has kept what was appended from being read, if that is so for
    /// longer than records are on their way.
    #[must_use]
    pub fn held_since(&self, partition: i32) -> Option<Instant> {
        self.shared
            .lanes()
            .get(&partition)?
            .held_since(Instant::now())
    }
}

impl Drop for DirectSource {
    fn drop(&mut self) {
        // It is kept for a thread that has not begun to wait.
        self.shared.stop.notify_one();
    }
}
