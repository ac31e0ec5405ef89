//! What must hold.

use std::collections::BTreeMap;

use serde_json::Value;
use unisono::simulation::{Outside, Seen};
use unisono_engine::row::{StreamId, StreamKind};

/// What is published, as it was seen first, and by whom it has been compared.
#[derive(Default)]
pub struct Check {
    rows: BTreeMap<StreamId, Vec<Vec<u8>>>,
    /// What each window counts; by its last row, where ticks were ended and it was published again.
    windows: BTreeMap<Window, u64>,
    /// How far each node's rows of this process were compared.
    compared: BTreeMap<(usize, StreamId), u64>,
    counted: BTreeMap<StreamId, u64>,
    alone: u64,
    /// Checkpoints that each process took from others.
    taken: BTreeMap<usize, u64>,
    taken_before: u64,
    doubted: Counted,
    checkpoints: Counted,
    /// How often an operator ended ticks.
    ends: usize,
}

/// What the processes of each node have counted.
#[derive(Default)]
struct Counted {
    running: BTreeMap<usize, (u64, u64, u64)>,
    before: (u64, u64, u64),
}

impl Counted {
    fn ended(&mut self, node: usize) {
        let counted = self.running.remove(&node).unwrap_or_default();
        self.before = sum(self.before, counted);
    }

    fn all(&self) -> (u64, u64, u64) {
        self.running.values().copied().fold(self.before, sum)
    }
}

fn sum(one: (u64, u64, u64), other: (u64, u64, u64)) -> (u64, u64, u64) {
    (one.0 + other.0, one.1 + other.1, one.2 + other.2)
}

/// What a window counts: a pipeline, the window's end in milliseconds, and the group.
pub(super) type Window = (String, u64, Option<u64>);

impl Check {
    /// Compares what every running node has published with what was seen before.
    pub fn look(&mut self, seen: &[Seen], outside: &Outside) {
        for (node, seen) in seen.iter().enumerate().skip(1) {
            let Some(look) = seen.look() else {
                self.compared.retain(|(of, _), _| *of != node);
                self.taken_before += self.taken.remove(&node).unwrap_or(0);
                self.doubted.ended(node);
                self.checkpoints.ended(node);
                continue;
            };
            self.taken.insert(node, look.checkpoints_taken());
            self.doubted.running.insert(node, look.doubted());
            self.checkpoints.running.insert(node, look.checkpoints());
            self.ends = self.ends.max(look.ends());
            self.alone = self.alone.max(look.rows_alone());
            for (stream, below) in look.published() {
                let compared = self.compared.get(&(node, stream)).copied();
                for (seq, row) in look.rows(stream, compared.unwrap_or(0), below) {
                    self.compared.insert((node, stream), seq + 1);
                    self.row(&format!("node {node}"), stream, seq, row);
                }
            }
        }
        for (stream, rows) in outside.topic.rows() {
            for (seq, row) in (0..).zip(rows) {
                self.row("the sink", stream, seq, row);
            }
        }
    }

    fn row(&mut self, whose: &str, stream: StreamId, seq: u64, row: Vec<u8>) {
        let known = self.rows.entry(stream).or_default();
        let at = usize::try_from(seq).unwrap_or(usize::MAX);
        if let Some(known) = known.get(at) {
            let text = |row: &[u8]| String::from_utf8_lossy(row).into_owned();
            assert!(
                *known == row,
                "{whose} has another row {seq} of {stream:?}: {} instead of {}",
                text(&row),
                text(known)
            );
            return;
        }
        assert_eq!(known.len(), at, "{whose} has a gap in {stream:?}");
        let mut counted = count(stream, &row);
        if stream.kind == StreamKind::Rows && counted > 0 {
            let before = self.windows.insert(window(&row), counted);
            let text = || String::from_utf8_lossy(&row).into_owned();
            assert!(
                before.is_none() || self.ends > 0,
                "a window comes twice: {}",
                text()
            );
            counted = counted.saturating_sub(before.unwrap_or(0));
        }
        *self.counted.entry(stream).or_default() += counted;
        known.push(row);
    }

    /// How often an operator ended ticks.
    pub fn ends(&self) -> usize {
        self.ends
    }

    /// How many rows and dead letters were published.
    pub fn rows(&self) -> usize {
        self.rows.values().map(Vec::len).sum()
    }

    /// The most rows that one process published by its own word alone.
    pub fn alone(&self) -> u64 {
        self.alone
    }

    /// How many checkpoints were taken from others.
    pub fn taken(&self) -> u64 {
        self.taken_before + self.taken.values().sum::<u64>()
    }

    /// Times a replica was wrong, feeds that were computed again, and feeds that took a peer's state.
    pub fn doubted(&self) -> (u64, u64, u64) {
        self.doubted.all()
    }

    /// Checkpoints that were made, that nobody could compare, and that were not kept.
    pub fn checkpoints(&self) -> (u64, u64, u64) {
        self.checkpoints.all()
    }

    /// Every window must count exactly its records. One clock that is wrong, and whatever else happens, makes no dead letter.
    ///
    /// # Panics
    /// One does not, or there is a dead letter.
    pub fn exact(&self, outside: &Outside) {
        let mut expected: BTreeMap<Window, u64> = BTreeMap::new();
        for payload in outside.log.payloads() {
            let record: Value = serde_json::from_slice(&payload).expect("it is JSON");
            let number = |key: &str| record[key].as_u64().expect("it has all fields");
            let end = |size: u64| (number("t") / size + 1) * size;
            *expected
                .entry(("all".to_owned(), end(1000), None))
                .or_default() += 1;
            let group = Some(number("g"));
            *expected
                .entry(("by_group".to_owned(), end(500), group))
                .or_default() += 1;
        }
        for (stream, rows) in &self.rows {
            for row in rows
                .iter()
                .filter(|_| stream.kind == StreamKind::DeadLetters)
            {
                let text = String::from_utf8_lossy(row);
                let was_ended = self.ends > 0 && is_wrong(row);
                assert!(was_ended, "a dead letter: {text}");
            }
        }
        for (of, &counted) in &self.windows {
            assert_eq!(expected.remove(of), Some(counted), "{of:?}");
        }
        assert!(expected.is_empty(), "never published: {expected:?}");
    }

    /// How many records each pipeline's rows and dead letters count.
    pub fn counted(&self) -> String {
        format!("{:?}", self.counted)
    }

    /// Whether each pipeline has counted so many records, and every node has the same as published.
    pub fn all_counted(&mut self, seen: &[Seen], outside: &Outside, total: usize) -> bool {
        self.look(seen, outside);
        let mut pipelines: BTreeMap<_, u64> = BTreeMap::new();
        for (stream, counted) in &self.counted {
            *pipelines.entry(stream.incarnation).or_default() += counted;
        }
        for (stream, &counted) in &pipelines {
            assert!(
                counted <= total as u64,
                "{stream:?} counts {counted} of {total} records"
            );
        }
        let complete = pipelines.len() == 2 && pipelines.values().all(|&it| it == total as u64);
        complete && seen.iter().skip(1).all(|seen| self.has_all(seen))
    }

    fn has_all(&self, seen: &Seen) -> bool {
        let Some(look) = seen.look() else {
            return false;
        };
        let served: BTreeMap<_, _> = look.published().into_iter().collect();
        let serves = |(stream, rows): (&StreamId, &Vec<Vec<u8>>)| {
            served.get(stream).copied().unwrap_or(0) >= rows.len() as u64
        };
        self.rows.iter().all(serves)
    }

    /// Compares all that every node serves, from the first row on: some of it may have been replaced.
    ///
    /// # Panics
    /// A row is another one, or not there.
    pub fn look_at_all(&mut self, seen: &[Seen]) {
        for (node, seen) in seen.iter().enumerate().skip(1) {
            let look = seen.look().expect("all are there");
            for (stream, rows) in self.rows.clone() {
                let held = look.rows(stream, 0, rows.len() as u64);
                let held: Vec<_> = held.into_iter().map(|(_, row)| row).collect();
                assert!(held == rows, "node {node} has other rows of {stream:?}");
            }
        }
    }
}

/// Which window a row is of.
pub(super) fn window(row: &[u8]) -> Window {
    let row: Value = serde_json::from_slice(row).expect("rows are JSON");
    let end: jiff::Timestamp = row["end"]
        .as_str()
        .and_then(|end| end.parse().ok())
        .expect("an end");
    let pipeline = row["pipeline"].as_str().unwrap_or_default().to_owned();
    let end = u64::try_from(end.as_millisecond()).unwrap_or(0);
    (pipeline, end, row["group"]["g"].as_u64())
}

/// Whether it comes of the wrong record that a leader alone had read: it has a time and a group that no other has.
fn is_wrong(row: &[u8]) -> bool {
    let text = String::from_utf8_lossy(row);
    text.contains(r#"\"g\":9"#) || text.contains("1970-01-01")
}

/// How many records a row counts; the wrong one is none.
fn count(stream: StreamId, row: &[u8]) -> u64 {
    if is_wrong(row) {
        return 0;
    }
    if stream.kind == StreamKind::DeadLetters {
        return 1;
    }
    let row: Value = serde_json::from_slice(row).expect("rows are JSON");
    row["values"]["n"]
        .as_u64()
        .or(row["n"].as_u64())
        .expect("each row has a count")
}
