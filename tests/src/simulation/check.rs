//! What must hold.

use std::collections::BTreeMap;

use unisono::simulation::{Outside, Seen};
use unisono_engine::row::{StreamId, StreamKind};

/// What is published, as it was seen first, and by whom it has been compared.
#[derive(Default)]
pub struct Check {
    rows: BTreeMap<StreamId, Vec<Vec<u8>>>,
    /// How far each node's rows of this process were compared.
    compared: BTreeMap<(usize, StreamId), u64>,
    counted: BTreeMap<StreamId, u64>,
}

impl Check {
    /// Compares what every running node has published with what was seen before.
    pub fn look(&mut self, seen: &[Seen], outside: &Outside) {
        for (node, seen) in seen.iter().enumerate().skip(1) {
            let Some(look) = seen.look() else {
                self.compared.retain(|(of, _), _| *of != node);
                continue;
            };
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
        *self.counted.entry(stream).or_default() += count(stream, &row);
        known.push(row);
    }

    /// How many rows and dead letters were published.
    pub fn rows(&self) -> usize {
        self.rows.values().map(Vec::len).sum()
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
        let computed = |(stream, rows): (&StreamId, &Vec<Vec<u8>>)| {
            look.computed(*stream) >= rows.len() as u64
        };
        self.rows.iter().all(computed)
    }
}

/// How many records a row counts.
fn count(stream: StreamId, row: &[u8]) -> u64 {
    if stream.kind == StreamKind::DeadLetters {
        return 1;
    }
    let row: serde_json::Value = serde_json::from_slice(row).expect("rows are JSON");
    row["values"]["n"]
        .as_u64()
        .or(row["n"].as_u64())
        .expect("each row has a count")
}
