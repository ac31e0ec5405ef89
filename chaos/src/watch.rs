//! Watches the published rows while they appear: on every replica over HTTP, or on the output topic.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::checker::Copy;
use crate::http::{self, RowReader};
use crate::kafka::TopicReader;
use crate::row::SeenRow;

const PAGE: usize = 1_000;
/// How often a replica is asked in quiet times, and while a take-over is being timed.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
const TIMING_PERIOD: Duration = Duration::from_millis(3);
/// How long a replica that does not answer is left alone.
const DEAD_PERIOD: Duration = Duration::from_millis(50);
const NEWEST_ROWS: usize = 12;
const CURVE_POINTS: usize = 600;

/// All that was seen until now; watching ends when it is dropped.
pub struct Watch {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
    timing: AtomicBool,
    ended: AtomicBool,
}

#[derive(Default)]
struct State {
    copies: Vec<Copy>,
    published: Vec<u64>,
    next_seq: u64,
    /// Orders by window end, of the last minute.
    curve: BTreeMap<i64, u64>,
    newest: VecDeque<Arc<SeenRow>>,
    goal: Option<i64>,
    reached: Option<Instant>,
    standstill: Option<Standstill>,
    /// Windows' ends and when the first row of each was seen.
    delays: Option<BTreeMap<i64, Instant>>,
    failure: Option<String>,
}

/// The longest time without a row of a new window.
struct Standstill {
    /// The latest window's end, and since when nothing later came.
    end: i64,
    since: Instant,
    longest: Duration,
}

/// What a view shows.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Orders by window end, in milliseconds since 1970.
    pub curve: Vec<(i64, u64)>,
    /// The last rows, the newest last.
    pub newest: Vec<Arc<SeenRow>>,
    /// How many different rows were seen.
    pub rows: u64,
}

impl Watch {
    /// Polls every replica. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The client could not be made.
    pub fn replicas(addresses: &BTreeMap<u16, String>) -> Result<Self> {
        let names = addresses
            .keys()
            .map(|number| format!("replica {number}"))
            .collect();
        let shared = Shared::new(names);
        let client = http::client()?;
        let mut tasks = Vec::new();
        for (index, address) in addresses.values().enumerate() {
            let reader = RowReader::new(client.clone(), address);
            tasks.push(tokio::spawn(poll_replica(
                Arc::clone(&shared),
                index,
                reader,
            )));
        }
        Ok(Self { shared, tasks })
    }

    /// Consumes the output topic, `read_committed`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The broker does not answer, or has no such topic.
    pub fn topic(brokers: &str, topic: &str) -> Result<Self> {
        let shared = Shared::new(vec![format!("topic {topic}")]);
        let mut reader = TopicReader::connect(brokers, topic)?;
        let reading = Arc::clone(&shared);
        let task = tokio::task::spawn_blocking(move || {
            while !reading.ended.load(Ordering::Relaxed) {
                match reader.poll(Duration::from_millis(100)) {
                    Ok(None) => {}
                    Ok(Some((_, text))) => reading.take(0, 0, vec![text], Vec::new()),
                    // The client reconnects by itself; what it cannot mend shows as rows that never come.
                    Err(error) => reading.lock().failure = Some(format!("{error:#}")),
                }
            }
        });
        Ok(Self {
            shared,
            tasks: vec![task],
        })
    }

    /// What each reader has seen, in the order of the replicas.
    #[must_use]
    pub fn copies(&self) -> Vec<Copy> {
        self.shared.lock().copies.clone()
    }

    /// The curve and the newest rows.
    #[must_use]
    pub fn picture(&self) -> Picture {
        let state = self.shared.lock();
        Picture {
            curve: state
                .curve
                .iter()
                .map(|(&end, &orders)| (end, orders))
                .collect(),
            newest: state.newest.iter().cloned().collect(),
            rows: state.next_seq,
        }
    }

    /// The reader's last complaint, for error messages.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.lock().failure.clone()
    }

    /// Asks the replicas every few milliseconds from now on, so that a take-over is timed finely.
    pub fn start_timing(&self) {
        self.shared.timing.store(true, Ordering::Relaxed);
    }

    /// Measures from now on how long no row of a new window comes.
    pub fn start_standstill(&self) {
        self.start_timing();
        let mut state = self.shared.lock();
        let newest = state.curve.last_key_value();
        let end = newest.map_or(i64::MIN, |(&end, _)| end);
        state.standstill = Some(Standstill {
            end,
            since: Instant::now(),
            longest: Duration::ZERO,
        });
    }

    /// The longest time since the start of measuring, which ends.
    pub fn end_standstill(&self) -> Duration {
        self.shared.timing.store(false, Ordering::Relaxed);
        let measured = self.shared.lock().standstill.take();
        measured.map_or(Duration::ZERO, |measured| {
            measured.longest.max(measured.since.elapsed())
        })
    }

    /// Notes from now on when windows are seen.
    pub fn start_delays(&self) {
        self.shared.lock().delays = Some(BTreeMap::new());
    }

    /// The windows that ended since then, but for those that were on their way: when each one's first row was seen.
    pub fn end_delays(&self) -> Vec<(i64, Instant)> {
        self.shared.timing.store(false, Ordering::Relaxed);
        let seen = self.shared.lock().delays.take();
        // A row of the first ones may have been seen before.
        seen.into_iter().flatten().skip(2).collect()
    }

    /// Waits for the first row whose window ends after `end_ms` to be readable anywhere; returns when it was read.
    ///
    /// # Errors
    /// There is none before `deadline`.
    pub async fn first_row_ending_after(&self, end_ms: i64, deadline: Instant) -> Result<Instant> {
        {
            let mut state = self.shared.lock();
            state.goal = Some(end_ms);
            state.reached = None;
        }
        let reached = self.wait(deadline, |state| state.reached).await;
        self.shared.lock().goal = None;
        self.shared.timing.store(false, Ordering::Relaxed);
        reached.context("no row of a later window was published in time")
    }

    /// Waits until every reader has seen at least `rows` rows; `false` if that has not come by `deadline`.
    pub async fn everyone_has(&self, rows: usize, deadline: Instant) -> bool {
        let all = |state: &State| {
            state
                .copies
                .iter()
                .all(|copy| copy.rows.len() >= rows)
                .then_some(())
        };
        self.wait(deadline, all).await.is_some()
    }

    async fn wait<T>(&self, deadline: Instant, found: impl Fn(&State) -> Option<T>) -> Option<T> {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(value) = found(&self.shared.lock()) {
                return Some(value);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            // A change between the look and the wait is caught at the latest by the next look.
            let look_again = left.min(Duration::from_millis(20));
            let _ = tokio::time::timeout(look_again, changed).await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    fn new(names: Vec<String>) -> Arc<Self> {
        let mut state = State {
            published: vec![0; names.len()],
            ..State::default()
        };
        state.copies = names
            .into_iter()
            .map(|name| Copy {
                name,
                ..Copy::default()
            })
            .collect();
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            timing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, reader: usize, published: u64, rows: Vec<String>, broken: Vec<String>) {
        let at = Instant::now();
        let parsed: Vec<_> = rows.iter().map(|text| SeenRow::parse(text)).collect();
        let mut state = self.lock();
        state.published[reader] = published;
        state.copies[reader].broken.extend(broken);
        for row in parsed {
            match row {
                Ok(row) => state.take(reader, Arc::new(row), at),
                Err(problem) => state.copies[reader].broken.push(problem),
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

impl State {
    fn take(&mut self, reader: usize, row: Arc<SeenRow>, at: Instant) {
        let end = row.key.0;
        if self.goal.is_some_and(|goal| end > goal) && self.reached.is_none() {
            self.reached = Some(at);
        }
        if let Some(delays) = &mut self.delays {
            delays.entry(end).or_insert(at);
        }
        if let Some(standstill) = self.standstill.as_mut().filter(|known| end > known.end) {
            let stood = at.saturating_duration_since(standstill.since);
            standstill.longest = standstill.longest.max(stood);
            (standstill.end, standstill.since) = (end, at);
        }
        if row.seq >= self.next_seq {
            self.next_seq = row.seq + 1;
            let orders = row.values.orders.to_string().parse().unwrap_or(0);
            *self.curve.entry(end).or_insert(0) += orders;
            self.newest.push_back(Arc::clone(&row));
        }
        while self.newest.len() > NEWEST_ROWS {
            self.newest.pop_front();
        }
        while self.curve.len() > CURVE_POINTS {
            self.curve.pop_first();
        }
        self.copies[reader].rows.push(row);
    }
}

async fn poll_replica(shared: Arc<Shared>, reader: usize, mut rows: RowReader) {
    loop {
        let period = match rows.advance(PAGE).await {
            Ok(step) => {
                let more = step.rows.len() >= PAGE / 2;
                shared.take(reader, step.published, step.rows, step.broken);
                match (more, shared.timing.load(Ordering::Relaxed)) {
                    (true, _) => Duration::ZERO,
                    (false, true) => TIMING_PERIOD,
                    (false, false) => QUIET_PERIOD,
                }
            }
            Err(error) => {
                shared.lock().failure = Some(format!("{error:#}"));
                DEAD_PERIOD
            }
        };
        tokio::time::sleep(period).await;
    }
}
