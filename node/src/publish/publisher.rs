//! The publisher's loop: one thread for each sink, whatever the sink is. What comes next says [`Course`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use unisono_engine::row::{Row, Seq, StreamId};
use unisono_replication::View;
use unisono_replication::command::{Command, FrontierMoves};
use unisono_replication::rt::{self, Handle};

use super::ahead::{Ahead, Judgement};
use super::confirm::{RowsConfirm, Unconfirmed, moved};
use super::course::{Course, Step};
use super::key;
use super::narrow::Narrow;
use super::sink::{Bounds, Fate, Frontier, PublishError, PublishRow, RefusedRow, Sink};
use super::streams_of;
use crate::alike;
use crate::core::Core;
use crate::handover::hand_over;
use crate::health::succession::Ascent;
use crate::ids::key_of;

/// Without news, the thread looks again after so long.
const LOOK: Duration = Duration::from_millis(500);
/// How long the end of the process may go unnoticed while a fault is waited out.
const STEP: Duration = Duration::from_millis(100);
/// How often connections are looked after.
const WARM: Duration = Duration::from_secs(2);
/// After a sink was out of reach, and after a fault that an operator must mend.
const RETRY: Duration = Duration::from_millis(200);
/// How long is waited for the proposer to begin a term.
const EARLY: Duration = Duration::from_millis(5);
const RETRY_FAULT: Duration = Duration::from_secs(5);

/// Publishes to the sink called `name` for as long as `is_current`, and the node runs; `connect` is tried until it succeeds.
pub fn run<S: Sink>(
    core: &Arc<Core>,
    name: &str,
    runtime: &Handle,
    connect: impl Fn() -> Result<S, String>,
    is_current: impl Fn() -> bool,
) {
    let mut publisher = Publisher {
        core,
        name,
        runtime,
        news: core.news(),
        view: core.replica.view(),
        warmed: rt::now(),
        frontier: Frontier::default(),
        confirm: RowsConfirm::open(core, runtime),
        refused: BTreeMap::new(),
        narrow: Narrow::default(),
        ahead: None,
        ascent: Ascent::default(),
        not_ours: None,
    };
    let goes_on = || !core.is_stopping() && is_current();
    while goes_on() {
        if let Some(trouble) = publisher.not_ours.clone() {
            publisher.set_trouble(Some(trouble));
            publisher.rest(RETRY_FAULT, &goes_on);
            continue;
        }
        match connect() {
            Ok(mut sink) => {
                publisher.set_trouble(None);
                publisher.serve(&mut sink, &goes_on);
            }
            Err(trouble) => {
                publisher.set_trouble(Some(trouble));
                publisher.rest(RETRY_FAULT, &goes_on);
            }
        }
    }
}

struct Publisher<'a> {
    core: &'a Arc<Core>,
    name: &'a str,
    runtime: &'a Handle,
    news: watch::Receiver<u64>,
    view: watch::Receiver<View>,
    warmed: Instant,
    /// Of the acquired sink.
    frontier: Frontier,
    confirm: RowsConfirm,
    /// Rows that the sink refused from this publisher, and that nobody has passed yet.
    refused: BTreeMap<(StreamId, u64), Fate>,
    narrow: Narrow,
    /// Streams of which the acquired sink has rows that are not computed here yet, if ever.
    ahead: Option<Ahead>,
    ascent: Ascent,
    /// The sink has rows that this cluster never computed. That it computes as many later makes them no better.
    not_ours: Option<String>,
}

impl Publisher<'_> {
    /// Until it no longer goes on, or the sink is to be connected to anew.
    fn serve(&mut self, sink: &mut impl Sink, goes_on: &impl Fn() -> bool) {
        let mut course = Course::default();
        while goes_on() {
            self.keep_warm(sink);
            let term = self.core.authority().map(|authority| authority.term);
            let (term, outcome) = match course.next(term) {
                Step::Acquire(term) => {
                    let acquired = self.acquire(sink, term);
                    (term, acquired.map(|()| course.acquired(term)))
                }
                Step::Publish(term) => (term, self.publish(sink, term)),
                step => {
                    self.step_aside(sink, step, goes_on);
                    course.done();
                    continue;
                }
            };
            self.set_notice(sink.notice());
            if let Err(error) = outcome {
                sink.release();
                self.tell(&error);
                if let PublishError::Foreign { .. } = error {
                    // Connecting looks whose it is without taking it from anybody.
                    return self.rest(RETRY_FAULT, goes_on);
                }
                course.failed(term, &error);
            }
        }
        sink.release();
    }

    fn keep_warm(&mut self, sink: &mut impl Sink) {
        if rt::since(self.warmed) >= WARM {
            sink.keep_warm();
            self.warmed = rt::now();
        }
    }

    /// The steps that neither acquire nor publish.
    fn step_aside(&mut self, sink: &mut impl Sink, step: Step, goes_on: &impl Fn() -> bool) {
        match step {
            Step::Release => sink.release(),
            Step::AskQuorum(term) => self.ask_quorum(term, goes_on),
            Step::Rest => self.rest(RETRY, goes_on),
            Step::RestLong => self.rest(RETRY_FAULT, goes_on),
            Step::Wait | Step::Acquire(_) | Step::Publish(_) => {
                // Whoever leads now says how the sink is.
                self.set_trouble(None);
                self.wait(LOOK);
            }
        }
    }

    fn acquire(&mut self, sink: &mut impl Sink, term: u64) -> Result<(), PublishError> {
        self.ascent.begin(term, rt::now());
        let mut frontier = sink.acquire()?;
        self.ascent.acquired(sink.fenced_at(), rt::now());
        // Those that were passed meanwhile are settled, by whomever.
        self.refused
            .retain(|&(stream, seq), _| seq >= frontier.next(stream));
        self.core.counters.takeovers.fetch_add(1, Ordering::Relaxed);
        let agreed = self.core.agreed();
        for stream in streams_of(&agreed, self.name) {
            let key = key_of(stream);
            let (floor, begin) = (agreed.machine.frontier(key), agreed.machine.begin(key));
            // What went another way before is not the sink's.
            if frontier.next(stream) < begin {
                frontier.streams.insert(stream, begin);
            }
            if frontier.next(stream) < floor {
                let incarnation = stream.incarnation.0;
                let reason = format!(
                    "its frontier says that pipeline {incarnation} was published up to {}, but the cluster knows of {floor}: \
                     the frontier topic has lost data or is another one; nothing is published until it is restored",
                    frontier.next(stream)
                );
                let sink = self.name.to_owned();
                return Err(PublishError::Fatal { sink, reason });
            }
        }
        drop(agreed);
        if sink.bounds().is_some() {
            self.ahead = Ahead::of(self.core, self.name, &frontier);
            self.report(&frontier);
            self.show_refused(&frontier);
        }
        self.set_trouble(None);
        self.frontier = frontier;
        Ok(())
    }

    /// Publishes what there is; waits if there is nothing.
    fn publish(&mut self, sink: &mut impl Sink, term: u64) -> Result<(), PublishError> {
        let index = self.core.agreed().index;
        self.core.reported.look(self.name, term, index);
        let Some(bounds) = sink.bounds() else {
            return self.publish_frontier(sink, term);
        };
        self.judge_ahead()?;
        let batch = self.batch(bounds)?;
        if batch.is_empty() {
            self.wait(LOOK);
            return Ok(());
        }
        let names = self.names();
        let mut after = self.known_frontier();
        let mut rows = Vec::new();
        let unknown = (String::new(), false);
        let named = |stream: &StreamId| names.get(stream).unwrap_or(&unknown);
        let keys = batch.iter();
        let keys: Vec<_> = keys
            .map(|(stream, row)| key::of_row(row, named(stream).1))
            .collect();
        for ((stream, row), key) in batch.iter().zip(&keys) {
            let fate = self.refused.get(&(*stream, row.seq.0));
            let fate = fate.copied().unwrap_or_default();
            after.streams.insert(*stream, row.seq.0 + 1);
            if fate != Fate::Goes {
                after.refused.entry(*stream).or_default().add(RefusedRow {
                    seq: row.seq.0,
                    bytes: (key.len() + row.json.len()) as u64,
                });
            }
            rows.push(PublishRow {
                pipeline: &named(stream).0,
                incarnation: stream.incarnation.0,
                seq: row.seq.0,
                digest: row.digest.to_string(),
                kind: stream.kind,
                key: key.as_ref(),
                value: &row.json,
                fate,
            });
        }
        if !self.confirm(&after, term) {
            return Ok(());
        }
        let Some(publishing) = self.core.transit.enter() else {
            rt::thread::sleep(EARLY);
            return Ok(());
        };
        let published = sink.publish(&rows, &after);
        drop(publishing);
        published.inspect_err(|error| self.note_refusal(error, rows.len()))?;
        self.ascent
            .published(&self.core.successions, self.name, rt::now());
        let goes = rows.iter().filter(|row| row.fate == Fate::Goes).count();
        self.narrow.published(rt::now());
        self.refused
            .retain(|&(stream, seq), _| seq >= after.next(stream));
        let published = &self.core.counters.published_rows;
        published.fetch_add(goes as u64, Ordering::Relaxed);
        self.report(&after);
        if goes < rows.len() {
            self.show_refused(&after);
        }
        self.frontier = after;
        Ok(())
    }

    /// What the sink refused for its size is looked for, and then left out.
    fn note_refusal(&mut self, error: &PublishError, rows: usize) {
        let PublishError::TooLarge {
            stream, seq, alone, ..
        } = error
        else {
            return;
        };
        if !alone {
            return self.narrow.refused(rows, rt::now());
        }
        let fate = self.refused.entry((*stream, *seq)).or_default();
        *fate = fate.refused();
        if *fate == Fate::Refused {
            tracing::error!(%error, "the row is left out; every replica serves it");
        }
    }

    /// What the sink lacks is shown as long as its pipeline is there.
    fn show_refused(&self, frontier: &Frontier) {
        let refused = frontier.refused.clone();
        self.core
            .sinks
            .set(self.name, |view| view.refused = refused);
    }

    fn judge_ahead(&mut self) -> Result<(), PublishError> {
        let Some(ahead) = &mut self.ahead else {
            return Ok(());
        };
        match ahead.judge(self.core, self.name) {
            Ok(Judgement::Open) => {}
            Ok(Judgement::Settled) => self.ahead = None,
            Err(error) => {
                self.not_ours = Some(error.to_string());
                return Err(error);
            }
        }
        Ok(())
    }

    /// The frontier without the streams of pipelines that are no more: the record must not grow for ever.
    fn known_frontier(&self) -> Frontier {
        let agreed = self.core.agreed();
        let mut known = self.frontier.clone();
        let pipelines = agreed.machine.pipelines();
        let is_known = |stream: &StreamId| pipelines.contains_key(&stream.incarnation.0);
        known.streams.retain(|stream, _| is_known(stream));
        known.refused.retain(|stream, _| is_known(stream));
        known
    }

    /// To a sink that takes no rows: they are where they are served already.
    fn publish_frontier(&mut self, sink: &mut impl Sink, term: u64) -> Result<(), PublishError> {
        let streams = streams_of(&self.core.agreed(), self.name);
        let mut after = self.frontier.clone();
        for stream in streams {
            let next = self.core.results.next_seq(stream).0;
            // What is in dispute stays here.
            let next = next.min(alike::limit(self.core, stream).unwrap_or(next));
            if next > after.next(stream) {
                after.streams.insert(stream, next);
            }
        }
        if after == self.frontier {
            self.wait(LOOK);
            return Ok(());
        }
        if !self.confirm(&after, term) {
            return Ok(());
        }
        let Some(_publishing) = self.core.transit.enter() else {
            rt::thread::sleep(EARLY);
            return Ok(());
        };
        sink.publish(&[], &after)?;
        self.ascent
            .published(&self.core.successions, self.name, rt::now());
        self.frontier = after;
        Ok(())
    }

    /// Whether what is about to be published was computed by another replica too; `false`: look again.
    fn confirm(&mut self, after: &Frontier, term: u64) -> bool {
        let moved = moved(&self.frontier.streams, &after.streams);
        let outvoted = match self.confirm.confirm(self.core, term, &moved) {
            Ok(()) => return true,
            Err(Unconfirmed::Early) => {
                rt::thread::sleep(EARLY);
                return false;
            }
            Err(Unconfirmed::Differs { outvoted }) => outvoted,
        };
        if outvoted && let Err(error) = self.runtime.block_on(hand_over(self.core, &[])) {
            tracing::warn!(%error, "no hand-over");
        }
        // Rows in dispute are left out from now on; all others go.
        false
    }

    /// On its way to the agreed log, as a floor.
    fn report(&self, frontier: &Frontier) {
        for (&stream, &next) in &frontier.streams {
            self.core.reported.note(self.name, stream, next);
        }
        self.core.notify();
    }

    /// The next rows of all streams of the sink, within its bounds.
    fn batch(&self, bounds: Bounds) -> Result<Vec<(StreamId, Row)>, PublishError> {
        let streams = streams_of(&self.core.agreed(), self.name);
        let mut batch: Vec<(StreamId, Row)> = Vec::new();
        let mut bytes = 0;
        for stream in streams {
            let most = bounds.rows.min(self.narrow.most());
            let rows_left = most.saturating_sub(batch.len());
            let bytes_left = bounds.bytes.saturating_sub(bytes);
            if rows_left == 0 || bytes_left == 0 {
                break;
            }
            let from = Seq(self.frontier.next(stream));
            let next = self.core.results.next_seq(stream).0;
            // What is in dispute stays here.
            let next = next.min(alike::limit(self.core, stream).unwrap_or(next));
            let undisputed = usize::try_from(next.saturating_sub(from.0)).unwrap_or(usize::MAX);
            if undisputed == 0 {
                continue;
            }
            let most = rows_left.min(undisputed);
            let rows = self.core.results.read(stream, from, most, bytes_left);
            let rows = rows.map_err(|error| PublishError::Fatal {
                sink: self.name.to_owned(),
                reason: error.to_string(),
            })?;
            bytes += rows.iter().map(|row| row.json.len()).sum::<usize>();
            batch.extend(rows.into_iter().map(|row| (stream, row)));
        }
        Ok(batch)
    }

    /// The names of the pipelines, and whether their rows may be corrected later.
    fn names(&self) -> BTreeMap<StreamId, (String, bool)> {
        let agreed = self.core.agreed();
        let streams = streams_of(&agreed, self.name);
        let name = |stream: &StreamId| {
            let pipeline = agreed.machine.pipelines().get(&stream.incarnation.0);
            pipeline.map(|of| (*stream, (of.name.clone(), key::is_revised(&of.definition))))
        };
        streams.iter().filter_map(name).collect()
    }

    fn tell(&mut self, error: &PublishError) {
        let counters = &self.core.counters;
        counters.publish_retries.fetch_add(1, Ordering::Relaxed);
        match error {
            PublishError::Fenced { .. } => {
                counters.fenced.fetch_add(1, Ordering::Relaxed);
                tracing::info!(%error, "asking the quorum whether this node still leads");
            }
            PublishError::Unknown { .. } => {
                tracing::info!(%error, "asking the quorum whether this node still leads");
            }
            PublishError::Unavailable { .. }
            | PublishError::Fatal { .. }
            | PublishError::Foreign { .. } => self.set_trouble(Some(error.to_string())),
            PublishError::TooLarge { .. } => {
                tracing::debug!(%error, "publishing less at once, or without it");
            }
        }
    }

    /// An entry that the quorum takes proves the lead better than this node's own view of it, which may be as old as its
    /// last sleep. If it is not taken, the view has changed when this returns.
    fn ask_quorum(&mut self, term: u64, goes_on: &impl Fn() -> bool) {
        let command = FrontierMoves {
            term,
            next: Vec::new(),
            sink: self.name.to_owned(),
        };
        let command = Command::Frontier(command).encode();
        let proposal = self.core.replica.propose(command);
        let asked = self
            .runtime
            .block_on(async { rt::timeout(RETRY_FAULT, proposal).await });
        if !matches!(asked, Ok(Ok(_))) {
            self.rest(RETRY, goes_on);
        }
    }

    /// Trouble is told once in the log, and shown as long as it lasts.
    fn set_trouble(&self, trouble: Option<String>) {
        let sink = self.name;
        let told = trouble.clone();
        if self.core.sinks.set(sink, |view| view.trouble = trouble)
            && let Some(trouble) = told
        {
            tracing::error!(sink, trouble, "nothing is published; trying again");
        }
    }

    fn set_notice(&self, notice: Option<String>) {
        let sink = self.name;
        let told = notice.clone();
        if self.core.sinks.set(sink, |view| view.notice = notice)
            && let Some(notice) = told
        {
            tracing::warn!(sink, notice, "publishing goes on");
        }
    }

    /// Waits for rows, for another leader, or for `time`.
    fn wait(&mut self, time: Duration) {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = self.news.changed() => {}
                _ = self.view.changed() => {}
                () = rt::sleep(time) => {}
            }
        });
    }

    /// Waits for `time`, or until it no longer goes on.
    fn rest(&self, time: Duration, goes_on: &impl Fn() -> bool) {
        let end = rt::now() + time;
        loop {
            let left = end.saturating_duration_since(rt::now());
            if left.is_zero() || !goes_on() {
                return;
            }
            rt::thread::sleep(left.min(STEP));
        }
    }
}
