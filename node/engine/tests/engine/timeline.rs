//! A small language for timelines.
//!
//! `p0@3=1` is a record of lane `p0` at second 3 with value 1; `p0@3:a=1` one of group `a`; `p0@3`
//! has no value; `p0@-=1` has no time, `p0@x=1` one that is no time. Values: a number, `null`,
//! `bad`, `true`, `false`, or else a text. `p0!not_json` could not be decoded. `tick` ends a tick
//! without agreed time, `tick@25` one at second 25, `tick@25:p0,p1` with lanes that are at their
//! end; `+p1` adds a lane; `finish` closes everything.
//!
//! Results: `[0,10) a n=2 sum=3` is a row, with ` r1` its first revision (` withdrawn`, where it takes the row back), `!late p0#4` a dead letter of the record at offset 4 of
//! `p0`.

use unisono_engine::decimal::Decimal;
use unisono_engine::record::RecordState;
use unisono_engine::row::{Incarnation, Row, StreamKind};
use unisono_engine::spec::{
    CloseSpec, Column, CompareOp, Expr, Function, GroupColumn, LaneId, LateSpec, PipelineSpec,
    TimeFormat, TimeSource, Timestamp, ValueSpec, WindowSpec,
};

use crate::harness::{Batch, Engine, StreamOutput};

pub const TIME: Column = Column(0);
pub const GROUP: Column = Column(1);
pub const VALUE: Column = Column(2);
pub const COLUMNS: usize = 3;
pub const PIPELINE: Incarnation = Incarnation(7);

/// A pipeline of `n = count(), sum = sum(value)` in tumbling windows of 10 s without lag.
pub fn plain() -> PipelineSpec {
    PipelineSpec {
        name: "p".into(),
        time: TimeSource::Field {
            column: TIME,
            format: TimeFormat::Seconds,
            zone: None,
        },
        filter: None,
        group_by: Vec::new(),
        window: window(10, 10),
        close: CloseSpec::default(),
        values: vec![
            value("n", Function::CountAll),
            value("sum", Function::Sum(VALUE)),
        ],
        max_future_ms: None,
        derived: Vec::new(),
        having: None,
        late: LateSpec::Drop,
        dedup: None,
        group_bytes: 1024,
    }
}

/// Size and slide in seconds.
pub fn window(size: i64, slide: i64) -> WindowSpec {
    WindowSpec::new(size * 1000, slide * 1000, 0).unwrap()
}

pub fn value(name: &str, function: Function) -> ValueSpec {
    ValueSpec {
        name: name.into(),
        function,
    }
}

pub fn grouped() -> PipelineSpec {
    let group = GroupColumn {
        name: "g".into(),
        column: GROUP,
    };
    PipelineSpec {
        group_by: vec![group],
        ..plain()
    }
}

pub fn only_values_above_zero() -> Option<Expr> {
    Some(Expr::Compare {
        left: Box::new(Expr::Column(VALUE)),
        op: CompareOp::Gt,
        right: Box::new(Expr::Number(Decimal::ZERO)),
    })
}

pub fn lag(spec: PipelineSpec, seconds: i64) -> PipelineSpec {
    PipelineSpec {
        close: CloseSpec {
            lag_ms: seconds * 1000,
            ..spec.close
        },
        ..spec
    }
}

/// Late records correct rows for so many seconds.
pub fn revise(spec: PipelineSpec, seconds: i64) -> PipelineSpec {
    PipelineSpec {
        late: LateSpec::Revise {
            keep_ms: seconds * 1000,
        },
        ..spec
    }
}

pub fn idle(spec: PipelineSpec, seconds: i64) -> PipelineSpec {
    PipelineSpec {
        close: CloseSpec {
            idle_ms: Some(seconds * 1000),
            ..spec.close
        },
        ..spec
    }
}

/// The records of a lane that wait for the next tick.
struct LaneInput {
    name: String,
    id: LaneId,
    batch: Batch,
    next_offset: i64,
    taken: usize,
}

/// An engine that plays a timeline.
pub struct Player {
    pub engine: Engine,
    lanes: Vec<LaneInput>,
    results: Vec<String>,
}

impl Player {
    pub fn new(spec: PipelineSpec, lanes: &[&str]) -> Self {
        let mut engine = Engine::default();
        engine.add_pipeline(PIPELINE, spec);
        let mut player = Self {
            engine,
            lanes: Vec::new(),
            results: Vec::new(),
        };
        lanes.iter().for_each(|lane| player.add_lane(lane));
        player
    }

    fn add_lane(&mut self, name: &str) {
        let id = self.engine.add_lane(name.into());
        let batch = Batch::default();
        self.lanes.push(LaneInput {
            name: name.into(),
            id,
            batch,
            next_offset: 0,
            taken: 0,
        });
    }

    fn lane(&mut self, name: &str) -> &mut LaneInput {
        self.lanes
            .iter_mut()
            .find(|lane| lane.name == name)
            .unwrap()
    }

    pub fn play(&mut self, timeline: &str) {
        for token in timeline.split_whitespace() {
            match token.split_once('@') {
                _ if token == "finish" => {
                    let outputs = self.engine.finish();
                    self.note(&outputs);
                }
                _ if token == "|" => {}
                _ if token.starts_with('+') => self.add_lane(&token[1..]),
                _ if token.starts_with('-') => {
                    let lane = self.lane(&token[1..]).id;
                    self.engine.retire_lane(lane);
                }
                _ if token == "tick" => self.tick(None, ""),
                Some(("tick", rest)) => {
                    let (time, at_end) = rest.split_once(':').unwrap_or((rest, ""));
                    self.tick(Some(seconds(time)), at_end);
                }
                Some((lane, rest)) => self.lane(lane).push(rest),
                None => {
                    let (lane, state) = token.split_once('!').unwrap();
                    self.lane(lane).push_undecoded(state);
                }
            }
        }
    }

    fn tick(&mut self, agreed: Option<Timestamp>, at_end: &str) {
        let names: Vec<&str> = at_end.split(',').collect();
        let ends = self
            .lanes
            .iter()
            .filter(|lane| names.contains(&lane.name.as_str()));
        let ends: Vec<LaneId> = ends.map(|lane| lane.id).collect();
        self.engine.begin(agreed);
        for lane in &mut self.lanes {
            self.engine
                .absorb(lane.id, &lane.batch, lane.taken..lane.batch.len());
            lane.taken = lane.batch.len();
        }
        let outputs = self.engine.close(&ends);
        self.note(&outputs);
    }

    fn note(&mut self, outputs: &[StreamOutput]) {
        for output in outputs {
            let rows = output.rows.iter().map(|row| match output.stream.kind {
                StreamKind::Rows => shown(row),
                StreamKind::DeadLetters => shown_letter(row),
            });
            self.results.extend(rows);
        }
    }

    /// What came out since the last call.
    pub fn results(&mut self) -> String {
        std::mem::take(&mut self.results).join("; ")
    }
}

impl LaneInput {
    /// `3:a=1`
    fn push(&mut self, text: &str) {
        let (head, value) = text
            .split_once('=')
            .map_or((text, None), |(a, b)| (a, Some(b)));
        let (time, group) = head
            .split_once(':')
            .map_or((head, None), |(a, b)| (a, Some(b)));
        self.batch
            .push(self.next_offset, RecordState::Decoded, text.as_bytes());
        self.next_offset += 1;
        if time != "-" {
            self.set(TIME, time);
        }
        if let Some(group) = group {
            self.set(GROUP, group);
        }
        if let Some(value) = value {
            self.set(VALUE, value);
        }
    }

    fn set(&mut self, column: Column, text: &str) {
        match (text, Decimal::parse(text.as_bytes())) {
            (_, Ok(number)) => self.batch.set_number(column, number),
            ("null", _) => self.batch.last().set_null(column),
            ("bad", _) => self.batch.last().set_bad(column),
            ("true", _) => self.batch.last().set_bool(column, true),
            ("false", _) => self.batch.last().set_bool(column, false),
            _ => self.batch.set_text(column, text),
        }
    }

    fn push_undecoded(&mut self, state: &str) {
        let state = match state {
            "null_payload" => RecordState::NullPayload,
            "empty_payload" => RecordState::EmptyPayload,
            "byte_order_mark" => RecordState::ByteOrderMark,
            "not_utf8" => RecordState::NotUtf8,
            "not_json" => RecordState::NotJson,
            _ => RecordState::NotAnObject,
        };
        self.batch.push(self.next_offset, state, b"?");
        self.next_offset += 1;
    }
}

fn seconds(text: &str) -> Timestamp {
    Timestamp(text.parse::<i64>().unwrap() * 1000)
}

/// `[0,10) a n=2 sum=3`
fn shown(row: &Row) -> String {
    let json = std::str::from_utf8(&row.json).unwrap();
    let group = &json[row.group.clone()];
    let group = group
        .trim_matches(['{', '}'])
        .split_once(':')
        .map_or("", |(_, value)| value);
    let (_, values) = json.split_once("\"values\":").unwrap();
    let plain = |text: &str| {
        text.replace(['"', '{', '}'], "")
            .replace(':', "=")
            .replace(',', " ")
    };
    let space = if group.is_empty() { "" } else { " " };
    let second = |time: Timestamp| Decimal::from_parts(i128::from(time.0), 3).unwrap();
    let bounds = format!("[{},{})", second(row.start), second(row.end));
    let revision = json.split_once("\"revision\":").unwrap().1;
    let revision = match revision.split([',', '}']).next().unwrap() {
        "0" => String::new(),
        revision => format!(" r{revision}"),
    };
    let withdrawn = match json.contains("\"withdrawn\":true,\"start\"") {
        true => " withdrawn",
        false => "",
    };
    let (group, values) = (plain(group), plain(values));
    format!("{bounds}{space}{group} {values}{revision}{withdrawn}")
}

/// `!late p0#4`
fn shown_letter(row: &Row) -> String {
    let json = std::str::from_utf8(&row.json).unwrap();
    let field = |name: &str| {
        let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap();
        rest.split(',').next().unwrap().trim_matches('"').to_owned()
    };
    format!("!{} {}#{}", field("reason"), field("lane"), field("offset"))
}

/// Plays the timeline over the lanes `p0` and, if it is named, `p1`, and compares all that comes
/// out.
#[track_caller]
pub fn check(spec: PipelineSpec, timeline: &str, expected: &str) {
    let lanes: &[&str] = match timeline {
        _ if timeline.contains("+p0") => &[],
        _ if timeline.contains("+p1") || !timeline.contains("p1") => &["p0"],
        _ => &["p0", "p1"],
    };
    let mut player = Player::new(spec, lanes);
    player.play(timeline);
    assert_eq!(player.results(), expected, "timeline: {timeline}");
}
