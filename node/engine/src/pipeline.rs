//! One pipeline over all lanes of its feed: closing windows, numbering rows and dead letters.

use std::borrow::Cow;

use crate::checkpoint::codec::{Fault, Reader, Writer};
use crate::close::{Closed, Closing, EmptyWindows};
use crate::dead_letter::{DeadLetter, MOST_PER_TICK};
use crate::group::table::GroupTable;
use crate::lane::{Context, LaneState};
use crate::plan::Plan;
use crate::render::{self, RowContent};
use crate::row::{Digest, Incarnation, Row, Seq, StreamId, StreamKind, StreamOutput};
use crate::spec::{PipelineSpec, Timestamp};
use crate::stats::{Counters, PipelineStats};
use crate::value::Accumulator;

/// The end of a numbered stream.
#[derive(Clone, Copy, Debug, Default)]
struct StreamEnd {
    next: Seq,
    digest: Digest,
}

/// A pipeline's definition and state.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) incarnation: Incarnation,
    spec: PipelineSpec,
    plan: Plan,
    pub(crate) lanes: Vec<LaneState>,
    watermark: Option<Timestamp>,
    closed: Closed,
    rows: StreamEnd,
    letters: StreamEnd,
    letters_suppressed: u64,
}

impl Pipeline {
    pub(crate) fn new(incarnation: Incarnation, spec: PipelineSpec, lanes: usize) -> Self {
        let plan = Plan::new(&spec);
        Self {
            incarnation,
            spec,
            plan,
            lanes: std::iter::repeat_with(LaneState::default)
                .take(lanes)
                .collect(),
            watermark: None,
            closed: Closed::default(),
            rows: StreamEnd::default(),
            letters: StreamEnd::default(),
            letters_suppressed: 0,
        }
    }

    pub(crate) fn spec(&self) -> &PipelineSpec {
        &self.spec
    }

    /// What a lane's records are taken in with in this tick, and that lane's state.
    pub(crate) fn lane(
        &mut self,
        lane: usize,
        agreed: Option<Timestamp>,
    ) -> (Context<'_>, &mut LaneState) {
        let ahead = agreed.zip(self.spec.max_future_ms);
        let context = Context {
            spec: &self.spec,
            plan: &self.plan,
            closed_through: self.closed.through,
            latest_time: ahead.map(|(agreed, most)| Timestamp(agreed.0.saturating_add(most))),
        };
        (context, &mut self.lanes[lane])
    }

    /// Ends a tick: notes the watermark and closes the windows that it has reached.
    pub(crate) fn close_windows(&mut self, watermark: Option<Timestamp>) -> Option<StreamOutput> {
        self.watermark = watermark;
        let watermark = watermark?;
        let panes = self
            .lanes
            .iter()
            .flat_map(|lane| lane.panes.keys_before(watermark.0));
        let empty = if self.spec.group_by.is_empty() {
            EmptyWindows::Shown
        } else {
            EmptyWindows::Skipped
        };
        let before = self.closed.through;
        let closing = self
            .closed
            .advance(self.spec.window, empty, panes, watermark);
        if self.closed.through == before {
            return None;
        }
        let mut rows = Vec::new();
        for closing in closing {
            match closing {
                Closing::WithData { end } => self.write_window(end, &mut rows),
                Closing::Empty { end } => self.write_empty(end, &mut rows),
            }
        }
        for lane in &mut self.lanes {
            lane.panes
                .drop_closed(self.spec.window.size_ms(), watermark);
        }
        self.output(StreamKind::Rows, rows)
    }

    /// Closes every window, as if the watermark had reached the end of the last one.
    pub(crate) fn close_all(&mut self) -> Option<StreamOutput> {
        let last_start = self
            .lanes
            .iter()
            .flat_map(|lane| lane.panes.keys())
            .map(|pane| pane.start)
            .max()?;
        let end = Timestamp(last_start + self.spec.window.size_ms());
        self.close_windows(self.watermark.max(Some(end)))
    }

    /// Numbers the tick's dead letters, in the order of lanes and offsets; beyond a bound they are
    /// only counted.
    pub(crate) fn close_letters(
        &mut self,
        label: impl Fn(usize) -> String,
    ) -> Option<StreamOutput> {
        let mut rows = Vec::new();
        for lane in 0..self.lanes.len() {
            for letter in self.lanes[lane].take_letters() {
                if rows.len() < MOST_PER_TICK {
                    rows.push(self.letter_row(&label(lane), &letter));
                }
            }
        }
        let total = self.counters().dead_letters.total();
        self.letters_suppressed = total.saturating_sub(self.letters.next.0);
        self.output(StreamKind::DeadLetters, rows)
    }

    fn letter_row(&mut self, label: &str, letter: &DeadLetter) -> Row {
        let seq = self.letters.next;
        let json = render::dead_letter(&self.spec.name, seq, label, letter);
        let digest = self.letters.digest.chain(&json);
        self.letters = StreamEnd {
            next: Seq(seq.0 + 1),
            digest,
        };
        Row {
            seq,
            start: Timestamp(0),
            end: Timestamp(0),
            digest,
            json,
            group: 0..0,
        }
    }

    fn output(&self, kind: StreamKind, rows: Vec<Row>) -> Option<StreamOutput> {
        let stream = StreamId {
            incarnation: self.incarnation,
            kind,
        };
        (!rows.is_empty()).then_some(StreamOutput { stream, rows })
    }

    /// All lanes' groups in the window with this end. The common case, one pane of one lane, copies
    /// nothing.
    fn window_table(&self, end: i64) -> Cow<'_, GroupTable> {
        let tables = self
            .lanes
            .iter()
            .flat_map(|lane| lane.panes.tables_of_window(&self.spec, end));
        let mut merged: Cow<'_, GroupTable> = Cow::Owned(GroupTable::default());
        for table in tables {
            if merged.len() == 0 {
                merged = Cow::Borrowed(table);
            } else {
                merged.to_mut().merge(table, &self.spec.values);
            }
        }
        merged
    }

    fn write_window(&mut self, end: i64, rows: &mut Vec<Row>) {
        let mut stream = self.rows;
        let table = self.window_table(end);
        for group in table.sorted() {
            let values = table.values(group, &self.spec.values);
            rows.push(self.numbered_row(&mut stream, end, table.key(group), values));
        }
        self.rows = stream;
    }

    fn write_empty(&mut self, end: i64, rows: &mut Vec<Row>) {
        let values: Vec<Accumulator> = self
            .spec
            .values
            .iter()
            .map(|value| Accumulator::new(value.function))
            .collect();
        let mut stream = self.rows;
        rows.push(self.numbered_row(&mut stream, end, &[], &values));
        self.rows = stream;
    }

    fn numbered_row(
        &self,
        stream: &mut StreamEnd,
        end: i64,
        key: &[u8],
        values: &[Accumulator],
    ) -> Row {
        let seq = stream.next;
        let mut row = self.row(Some(seq), end, key, values);
        row.digest = stream.digest.chain(&row.json);
        *stream = StreamEnd {
            next: Seq(seq.0 + 1),
            digest: row.digest,
        };
        row
    }

    fn row(&self, seq: Option<Seq>, end: i64, key: &[u8], values: &[Accumulator]) -> Row {
        let (start, end) = (Timestamp(end - self.spec.window.size_ms()), Timestamp(end));
        let (json, group) = render::row(
            &self.spec,
            &RowContent {
                seq,
                start,
                end,
                key,
                values,
            },
        );
        let seq = seq.unwrap_or_default();
        Row {
            seq,
            start,
            end,
            digest: Digest::default(),
            json,
            group,
        }
    }

    fn open_ends(&self) -> impl Iterator<Item = i64> {
        let panes = self.lanes.iter().flat_map(|lane| lane.panes.keys());
        self.closed
            .open_ends(self.spec.window, panes, Timestamp(i64::MAX))
    }

    /// The present values of windows that are not closed, unnumbered, by end and group.
    pub(crate) fn open_rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for end in self.open_ends() {
            let table = self.window_table(end);
            for group in table.sorted() {
                let values = table.values(group, &self.spec.values);
                rows.push(self.row(None, end, table.key(group), values));
            }
        }
        rows
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.lanes.iter().for_each(|lane| sum.add(&lane.counters));
        sum
    }

    pub(crate) fn stats(&self) -> PipelineStats {
        let counters = self.counters();
        PipelineStats {
            records: counters.records,
            counted: counters.counted,
            filtered: counters.filtered,
            late: counters.dead_letters.get(crate::dead_letter::Reason::Late),
            partly_late: counters.partly_late,
            bad_fields: counters.bad_fields,
            dead_letters: counters.dead_letters,
            dead_letters_suppressed: self.letters_suppressed,
            watermark: self.watermark,
            closed_through: self.closed.through,
            open_windows: self.open_ends().count() as u64,
            open_groups: self.lanes.iter().map(|lane| lane.panes.group_count()).sum(),
            next_row_seq: self.rows.next,
            row_digest: self.rows.digest,
            next_dead_letter_seq: self.letters.next,
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.time(self.watermark);
        out.time(self.closed.through);
        out.time(self.closed.last_with_data.map(Timestamp));
        for stream in [self.rows, self.letters] {
            out.unsigned(stream.next.0);
            out.fixed(&stream.digest.0.to_be_bytes());
        }
        out.unsigned(self.letters_suppressed);
        for lane in &self.lanes {
            lane.encode(&self.spec, out);
        }
    }

    pub(crate) fn decode(
        input: &mut Reader<'_>,
        incarnation: Incarnation,
        spec: PipelineSpec,
        lanes: usize,
    ) -> Result<Self, Fault> {
        let mut pipeline = Self::new(incarnation, spec, lanes);
        pipeline.watermark = input.time()?;
        pipeline.closed.through = input.time()?;
        pipeline.closed.last_with_data = input.time()?.map(|time| time.0);
        for stream in [&mut pipeline.rows, &mut pipeline.letters] {
            stream.next = Seq(input.unsigned()?);
            stream.digest = Digest(u128::from_be_bytes(input.fixed::<16>()?));
        }
        pipeline.letters_suppressed = input.unsigned()?;
        for lane in &mut pipeline.lanes {
            *lane = LaneState::decode(input, &pipeline.spec)?;
        }
        Ok(pipeline)
    }
}
