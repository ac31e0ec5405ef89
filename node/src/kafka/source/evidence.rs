//! Asks the broker where lanes end, on a thread and a connection of its own: quiet ones often, for what follows from
//! their end, and all now and then, to tell how much there is to read.
//!
//! librdkafka says once that a lane is at its end and then nothing, as long as nothing comes: silence after it looks the
//! same whether there is nothing or the broker is gone. Only an answer that is fresh tells the two apart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use unisono_replication::rt::Condvar;

use crate::kafka::answers::Answers;
use crate::kafka::context::ClientEvents;
use crate::kafka::quiet::{FRESH, Hold, Quiet};
use crate::signal::Signal;
use crate::threads::{lock, wait_timeout_while, wait_while};

/// How often all lanes are asked for.
const ALL: Duration = Duration::from_secs(1);
/// Between two questions.
const INTERVAL: Duration = Duration::from_millis(100);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Nothing comes of a lane, and its source has not said why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Since when.
    pub since: Instant,
    /// How long its slowest answers of late took.
    pub slowest: Duration,
}

/// The ends of quiet lanes, as the broker said them.
pub(super) struct Evidence {
    shared: Arc<Shared>,
}

struct Shared {
    topic: String,
    /// Raised when there are answers.
    signal: Arc<Signal>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<i32, Watched>,
    /// Counts assignments: an answer to a question from before the last one is not used.
    assignment: u64,
    /// When all lanes were asked for.
    asked_all: Option<Instant>,
    answers: Answers,
    stopped: bool,
}

#[derive(Clone, Copy)]
struct Watched {
    position: i64,
    quiet: Quiet,
    answer: Option<(i64, Instant)>,
    /// The last answer of all, whether the lane was quiet or not.
    log_end: Option<(i64, Instant)>,
    cut_at: Option<i64>,
    held: Hold,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Watched {
    /// Takes in that the log ended there when the lane had been read up to `position`. Whether it is to be said that the
    /// lane is held.
    fn hold(&mut self, position: i64, end: i64, asked_at: Instant) -> bool {
        let is_held = self.quiet.is_quiet() && self.position == position && end > position;
        self.held.see(is_held.then_some(position), asked_at)
    }
}

impl Evidence {
    /// Starts the thread; it ends soon after the value is dropped.
    pub(super) fn start(
        consumer: Arc<BaseConsumer<ClientEvents>>,
        topic: &str,
        signal: Arc<Signal>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            topic: topic.to_owned(),
            signal,
            state: Mutex::default(),
            changed: Condvar::default(),
        });
        let of_thread = Arc::clone(&shared);
        crate::threads::spawn(crate::threads::Role::KafkaEnds, None, move || {
            of_thread.ask_for_ever(&consumer)
        })?;
        Ok(Self { shared })
    }

    /// Watches these lanes, at these offsets, and no others; what was answered before is forgotten.
    pub(super) fn assign(&self, lanes: &[(i32, i64)]) {
        let mut state = self.shared.lock();
        state.assignment += 1;
        state.asked_all = None;
        let watched = |position: i64| Watched {
            position,
            quiet: Quiet::new(Instant::now()),
            answer: None,
            log_end: None,
            cut_at: None,
            held: Hold::default(),
        };
        state.lanes = lanes
            .iter()
            .map(|&(lane, position)| (lane, watched(position)))
            .collect();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Says how far a lane was read, and whether it looks as if it were at its end: only then the broker is asked.
    /// Gives the end of a log that turned out to be shorter than what had been read of it.
    pub(super) fn tell(&self, partition: i32, position: i64, quiet: bool) -> Option<i64> {
        let mut state = self.shared.lock();
        let lane = state.lanes.get_mut(&partition)?;
        let woken = lane.quiet.look(quiet, Instant::now());
        lane.position = position;
        let cut_at = lane.cut_at;
        drop(state);
        if woken {
            self.shared.changed.notify_all();
        }
        cut_at
    }

    /// The end of the lane's log, everything appended included, if the broker said so within the last two seconds.
    pub(super) fn end(&self, partition: i32) -> Option<i64> {
        let state = self.shared.lock();
        let (end, asked_at) = state.lanes.get(&partition)?.answer?;
        (asked_at.elapsed() < FRESH).then_some(end)
    }

    /// The same of a lane that need not be quiet.
    pub(super) fn log_end(&self, partition: i32) -> Option<i64> {
        let state = self.shared.lock();
        let (end, asked_at) = state.lanes.get(&partition)?.log_end?;
        (asked_at.elapsed() < FRESH).then_some(end)
    }

    /// Since when a lane is quiet and the broker, which has answered before, has not said why.
    pub(super) fn unanswered(&self, partition: i32) -> Option<Unanswered> {
        let state = self.shared.lock();
        let lane = state.lanes.get(&partition)?;
        let quiet_since = lane.quiet.since()?;
        let (_, asked_at) = lane.answer?;
        Some(Unanswered {
            since: asked_at.max(quiet_since),
            slowest: state.answers.slowest(),
        })
    }

    /// Since when more was appended than can be read beyond `position`, by the broker's word of the last two seconds.
    pub(super) fn held(&self, partition: i32, position: i64) -> Option<Instant> {
        let state = self.shared.lock();
        let lane = state.lanes.get(&partition)?;
        let (_, asked_at) = lane.answer?;
        let held = lane.held.since(position, Instant::now());
        held.filter(|_| asked_at.elapsed() < FRESH)
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn ask_for_ever(&self, consumer: &BaseConsumer<ClientEvents>) {
        while let Some((assignment, questions)) = self.next_questions() {
            let asked_at = Instant::now();
            let answers = self.ask(consumer, &questions).unwrap_or_default();
            self.note(assignment, asked_at, &questions, &answers);
            if answers.len() < questions.len() {
                // The partition may be newer than what this client knows of the topic.
                let _ = consumer.fetch_metadata(Some(&self.topic), ANSWER_WITHIN);
            }
            // Serves log lines and errors, which would otherwise pile up; a queue that is empty makes it wait.
            let _ = consumer.poll(INTERVAL);
        }
    }

    fn next_questions(&self) -> Option<(u64, Vec<(i32, i64)>)> {
        let state = self.lock();
        let empty = |state: &mut State| !state.stopped && state.lanes.is_empty();
        let state = wait_while((&self.changed, &self.state), state, empty);
        let left = state
            .asked_all
            .map_or(Duration::ZERO, |at| ALL.saturating_sub(at.elapsed()));
        let idle = |state: &mut State| {
            !state.stopped && !state.lanes.values().any(|lane| lane.quiet.is_quiet())
        };
        let mut state = wait_timeout_while((&self.changed, &self.state), state, left, idle);
        if state.stopped {
            return None;
        }
        let all = state.asked_all.is_none_or(|at| at.elapsed() >= ALL);
        if all {
            state.asked_all = Some(Instant::now());
        }
        let asked = state
            .lanes
            .iter()
            .filter(|(_, lane)| all || lane.quiet.is_quiet());
        Some((
            state.assignment,
            asked.map(|(id, lane)| (*id, lane.position)).collect(),
        ))
    }

    fn ask(
        &self,
        consumer: &BaseConsumer<ClientEvents>,
        questions: &[(i32, i64)],
    ) -> Option<BTreeMap<i32, i64>> {
        let mut list = TopicPartitionList::with_capacity(questions.len());
        for (partition, _) in questions {
            // As a time to look up, this offset means "after everything".
            list.add_partition_offset(&self.topic, *partition, Offset::End)
                .ok()?;
        }
        let answers = consumer.offsets_for_times(list, ANSWER_WITHIN).ok()?;
        let end = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| match (
            element.error(),
            element.offset(),
        ) {
            (Ok(()), Offset::Offset(end)) => Some((element.partition(), end)),
            _ => None,
        };
        Some(answers.elements().iter().filter_map(end).collect())
    }

    fn note(
        &self,
        assignment: u64,
        asked_at: Instant,
        questions: &[(i32, i64)],
        answers: &BTreeMap<i32, i64>,
    ) {
        let mut state = self.lock();
        if state.assignment != assignment {
            return;
        }
        if !answers.is_empty() {
            state.answers.note(asked_at.elapsed());
        }
        for (partition, position_when_asked) in questions {
            let (Some(lane), Some(&end)) = (state.lanes.get_mut(partition), answers.get(partition))
            else {
                continue;
            };
            lane.log_end = Some((end, asked_at));
            // Of one that is being read, its end says no more.
            if !lane.quiet.is_quiet() {
                continue;
            }
            lane.answer = Some((end, asked_at));
            if lane.hold(*position_when_asked, end, asked_at) {
                tracing::warn!(
                    topic = self.topic,
                    partition,
                    offset = lane.position,
                    end,
                    "a transaction is open there: what was appended since cannot be read, and windows wait for it"
                );
            }
            if end < *position_when_asked {
                lane.cut_at = Some(end);
            }
        }
        drop(state);
        if !answers.is_empty() {
            self.signal.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_held_since_the_first_answer_beyond_where_its_reading_ends_and_that_is_said_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lane = Watched {
            position: 5,
            quiet: Quiet::new(start),
            answer: None,
            cut_at: None,
            held: Hold::default(),
            log_end: None,
        };
        lane.quiet.look(true, start);
        let since = |lane: &Watched| lane.held.began();
        assert!(!lane.hold(5, 5, at(0)));
        assert_eq!(since(&lane), None, "at its end");
        assert!(!lane.hold(5, 7, at(1)));
        assert!(!lane.hold(5, 9, at(10)));
        assert!(lane.hold(5, 9, at(11)));
        assert!(!lane.hold(5, 9, at(30)));
        assert_eq!(since(&lane), Some(at(1)));
        // What was asked before it was read further says nothing.
        lane.position = 9;
        assert!(!lane.hold(5, 10, at(31)));
        assert_eq!(since(&lane), None);
        lane.quiet.look(false, at(32));
        assert!(!lane.hold(9, 10, at(32)));
        assert_eq!(since(&lane), None, "it is being read");
    }
}
