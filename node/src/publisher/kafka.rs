//! Publishing to Kafka: one thread for each sink.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use unisono_engine::row::{Row, Seq, StreamId};
use unisono_replication::View;
use unisono_replication::command::{Command, FrontierMoves};

use super::streams_of;
use crate::checkpoint::key_of;
use crate::config::{self, SinkConfig, SinkKind};
use crate::core::{Authority, Core};
use crate::sink::kafka::{Frontier, KafkaSink, KafkaSinkConfig, PublishError, PublishRow};

/// Bounds of one transaction.
const BATCH_ROWS: usize = 10_000;
const BATCH_BYTES: usize = 4 << 20;
/// Without news, the thread looks again after so long.
const LOOK: Duration = Duration::from_millis(500);
/// How long the end of the process may go unnoticed while a fault is waited out.
const STEP: Duration = Duration::from_millis(100);
/// How often spare handles are looked after.
const WARM: Duration = Duration::from_secs(2);
/// After a sink was out of reach, and after a fault that an operator must mend.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_FAULT: Duration = Duration::from_secs(5);

/// Publishes to `sink` for as long as the node runs.
pub fn run(core: &Arc<Core>, sink: &SinkConfig, runtime: &Handle) {
    let (news, view) = (core.news(), core.replica.view());
    let warmed = Instant::now();
    let mut publisher = Publisher {
        core,
        sink,
        runtime,
        news,
        view,
        warmed,
        said: None,
    };
    while !core.is_stopping() {
        match KafkaSink::connect(&settings(sink)) {
            Ok(mut connected) => {
                publisher.said = None;
                publisher.serve(&mut connected);
            }
            Err(error) => {
                publisher.say(error.to_string());
                publisher.wait_for(RETRY_FAULT);
            }
        }
    }
}

struct Publisher<'a> {
    core: &'a Arc<Core>,
    sink: &'a SinkConfig,
    runtime: &'a Handle,
    news: watch::Receiver<u64>,
    view: watch::Receiver<View>,
    warmed: Instant,
    /// The trouble that was told last, so that it is told once.
    said: Option<String>,
}

impl Publisher<'_> {
    fn serve(&mut self, sink: &mut KafkaSink) {
        while !self.core.is_stopping() {
            if self.warmed.elapsed() >= WARM {
                sink.keep_warm();
                self.warmed = Instant::now();
            }
            match self.core.authority() {
                Some(authority) => self.lead(sink, &authority),
                None => self.wait(LOOK),
            }
        }
    }

    /// Publishes until the term ends: fence first, then read the frontier back, then go on from there.
    fn lead(&mut self, sink: &mut KafkaSink, authority: &Authority) {
        let taken = self.take_over(sink);
        let ended = match taken {
            Ok(mut frontier) => {
                self.said = None;
                self.publish(sink, authority, &mut frontier)
            }
            Err(error) => Err(error),
        };
        sink.release();
        if let Err(error) = ended {
            self.after(&error, authority);
        }
    }

    fn take_over(&self, sink: &mut KafkaSink) -> Result<Frontier, PublishError> {
        let frontier = sink.acquire()?;
        self.core.counters.takeovers.fetch_add(1, Ordering::Relaxed);
        let agreed = self.core.agreed();
        for stream in streams_of(&agreed, &self.core.config, &self.sink.name) {
            let floor = agreed.machine.frontier(key_of(stream));
            if frontier.next(stream) < floor {
                let incarnation = stream.incarnation.0;
                let reason = format!(
                    "its frontier says that pipeline {incarnation} was published up to {}, but the cluster knows of {floor}: \
                     the frontier topic has lost data or is another one; nothing is published until it is restored",
                    frontier.next(stream)
                );
                let transactional_id = self.sink.name.clone();
                return Err(PublishError::Fatal {
                    transactional_id,
                    reason,
                });
            }
            self.core.reported.note(stream, frontier.next(stream));
        }
        drop(agreed);
        self.core.tell_news();
        Ok(frontier)
    }

    fn publish(
        &mut self,
        sink: &mut KafkaSink,
        authority: &Authority,
        frontier: &mut Frontier,
    ) -> Result<(), PublishError> {
        while !self.core.is_stopping() && self.core.holds(authority) {
            let batch = self.batch(frontier)?;
            if batch.is_empty() {
                if self.warmed.elapsed() >= WARM {
                    sink.keep_warm();
                    self.warmed = Instant::now();
                }
                self.wait(LOOK);
                continue;
            }
            let names = self.names();
            let mut after = frontier.clone();
            let mut rows = Vec::new();
            for (stream, row) in &batch {
                after.0.insert(*stream, row.seq.0 + 1);
                rows.push(PublishRow {
                    pipeline: names.get(stream).map_or("", String::as_str),
                    incarnation: stream.incarnation.0,
                    seq: row.seq.0,
                    digest: row.digest.to_string(),
                    kind: stream.kind,
                    key: &row.json[row.group.clone()],
                    value: &row.json,
                });
            }
            sink.publish(&rows, &after)?;
            *frontier = after;
            let count = batch.len() as u64;
            self.core
                .counters
                .published_rows
                .fetch_add(count, Ordering::Relaxed);
            for (&stream, &next) in &frontier.0 {
                self.core.reported.note(stream, next);
            }
            self.core.tell_news();
        }
        Ok(())
    }

    /// The next rows of all streams of the sink, within the bounds of a transaction.
    fn batch(&self, frontier: &Frontier) -> Result<Vec<(StreamId, Row)>, PublishError> {
        let streams = streams_of(&self.core.agreed(), &self.core.config, &self.sink.name);
        let mut batch: Vec<(StreamId, Row)> = Vec::new();
        let mut bytes = 0;
        for stream in streams {
            let (rows_left, bytes_left) = (
                BATCH_ROWS.saturating_sub(batch.len()),
                BATCH_BYTES.saturating_sub(bytes),
            );
            if rows_left == 0 || bytes_left == 0 {
                break;
            }
            let from = Seq(frontier.next(stream));
            if from >= self.core.results.next_seq(stream) {
                continue;
            }
            let rows = self.core.results.read(stream, from, rows_left, bytes_left);
            let rows = rows.map_err(|error| PublishError::Fatal {
                transactional_id: self.sink.name.clone(),
                reason: error.to_string(),
            })?;
            bytes += rows.iter().map(|row| row.json.len()).sum::<usize>();
            batch.extend(rows.into_iter().map(|row| (stream, row)));
        }
        Ok(batch)
    }

    fn names(&self) -> BTreeMap<StreamId, String> {
        let agreed = self.core.agreed();
        let streams = streams_of(&agreed, &self.core.config, &self.sink.name);
        let name = |stream: &StreamId| {
            let pipeline = agreed.machine.pipelines().get(&stream.incarnation.0);
            pipeline.map(|pipeline| (*stream, pipeline.name.clone()))
        };
        streams.iter().filter_map(name).collect()
    }

    /// What an error asks for, before the sink is acquired again.
    fn after(&mut self, error: &PublishError, authority: &Authority) {
        self.core
            .counters
            .publish_retries
            .fetch_add(1, Ordering::Relaxed);
        match error {
            PublishError::Fenced { .. } => {
                self.core.counters.fenced.fetch_add(1, Ordering::Relaxed);
                tracing::info!(%error, "asking the quorum whether this node still leads");
                self.ask_quorum(authority);
            }
            PublishError::Unknown { .. } => {
                tracing::warn!(%error, "asking the quorum whether this node still leads");
                self.ask_quorum(authority);
            }
            PublishError::Unavailable { .. } => {
                self.say(error.to_string());
                std::thread::sleep(RETRY);
            }
            PublishError::Fatal { .. } | PublishError::TooLarge { .. } => {
                self.say(error.to_string());
                self.wait_for(RETRY_FAULT);
            }
        }
    }

    /// An entry that the quorum takes proves the lead better than this node's own view of it, which may be as old as its
    /// last sleep. If it is not taken, the view has changed when this returns.
    fn ask_quorum(&self, authority: &Authority) {
        let command = FrontierMoves {
            term: authority.term,
            next: Vec::new(),
        };
        let proposal = self
            .core
            .replica
            .propose(Command::Frontier(command).encode());
        let asked = self
            .runtime
            .block_on(async { tokio::time::timeout(RETRY_FAULT, proposal).await });
        if !matches!(asked, Ok(Ok(_))) {
            std::thread::sleep(RETRY);
        }
    }

    fn say(&mut self, trouble: String) {
        if self.said.as_ref() != Some(&trouble) {
            let sink = &self.sink.name;
            tracing::error!(sink, trouble, "nothing is published; trying again");
            self.said = Some(trouble);
        }
    }

    /// Waits for rows, for another leader, or for `time`.
    fn wait(&mut self, time: Duration) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.news.changed() => {}
                _ = self.view.changed() => {}
                () = tokio::time::sleep(time) => {}
            }
        });
    }

    /// Waits for `time`, or until the node stops.
    fn wait_for(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.core.is_stopping() {
            std::thread::sleep(STEP);
        }
    }
}

fn settings(sink: &SinkConfig) -> KafkaSinkConfig {
    let SinkKind::Kafka(config::KafkaSink {
        brokers,
        topic,
        frontier_topic,
        transactional_id,
        dead_letters,
        properties,
    }) = &sink.kind;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    KafkaSinkConfig {
        brokers: brokers.clone(),
        topic: topic.clone(),
        dead_letter_topic: dead_letters.clone(),
        frontier_topic: frontier_topic.clone(),
        transactional_id: transactional_id.clone(),
        properties: properties.iter().map(owned).collect(),
    }
}
