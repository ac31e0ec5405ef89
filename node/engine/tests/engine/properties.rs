//! What must hold for any input: how records are split into ticks, how lanes interleave and when a
//! replica restarts decide nothing.

use std::collections::BTreeMap;

use unisono_engine::decimal::Decimal;
use unisono_engine::record::RecordState;
use unisono_engine::row::{Row, StreamKind};
use unisono_engine::spec::{CalendarUnit, CloseSpec, LaneId, PipelineSpec, Timestamp, WindowSpec};

use crate::calendars::{berlin, calendar};
use crate::harness::{Batch, Engine, Parts, StreamOutput};
use crate::timeline::{
    GROUP, PIPELINE, TIME, VALUE, grouped, only_values_above_zero, plain, window,
};

/// A small generator; its seed names the case.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

#[derive(Clone, Copy)]
pub struct Event {
    pub second: i64,
    pub group: u64,
    pub value: i64,
}

pub struct Case {
    pub spec: PipelineSpec,
    pub lanes: Vec<Vec<Event>>,
}

pub fn case(seed: u64) -> Case {
    let mut random = Random(seed * 2 + 1);
    let mut spec = if random.below(3) == 0 {
        plain()
    } else {
        grouped()
    };
    // How long a second of the case is.
    let mut scale = 1;
    match [(10, 10), (30, 10), (60, 5), (200, 1), (0, 0)][random.below(5) as usize] {
        (0, _) => {
            scale = 9001;
            spec = calendar(spec, CalendarUnit::Day, berlin());
        }
        (size, slide) => spec.window = window(size, slide),
    }
    spec.close = CloseSpec {
        lag_ms: random.below(20) as i64 * 1000 * scale,
        records: 1 + random.below(4) as usize,
        idle_ms: Some(3000),
        at_most_ms: (random.below(2) == 0).then_some(5000),
        ..CloseSpec::default()
    };
    if random.below(2) == 0 {
        spec.filter = only_values_above_zero();
    }
    let lanes = (0..1 + random.below(3))
        .map(|_| events(&mut random, scale))
        .collect();
    Case { spec, lanes }
}

fn events(random: &mut Random, scale: i64) -> Vec<Event> {
    let mut now = -200;
    let mut event = |_| {
        now += random.below(6) as i64;
        if random.below(60) == 0 {
            now += 20_000;
        }
        let second = now - random.below(50) as i64;
        Event {
            second: second * scale,
            group: random.below(4),
            value: random.below(10) as i64 - 3,
        }
    };
    (0..120).map(&mut event).collect()
}

pub fn batch(events: &[Event]) -> Batch {
    let mut batch = Batch::default();
    for (offset, event) in events.iter().enumerate() {
        batch.push(offset as i64, RecordState::Decoded, b"{}");
        batch.set_number(TIME, Decimal::from_i64(event.second));
        batch.set_text(GROUP, &format!("g{}", event.group));
        batch.set_number(VALUE, Decimal::from_i64(event.value));
    }
    batch
}

pub fn engine(case: &Case) -> Engine {
    let mut engine = Engine::default();
    engine.add_pipeline(PIPELINE, case.spec.clone());
    for lane in 0..case.lanes.len() {
        engine.add_lane(format!("l/{lane}"));
    }
    engine
}

pub fn take(outputs: Vec<StreamOutput>, kind: StreamKind, rows: &mut Vec<Row>) {
    let wanted = outputs
        .into_iter()
        .filter(|output| output.stream.kind == kind);
    rows.extend(wanted.flat_map(|output| output.rows));
}

/// All rows, with the records in ticks of at most `most` records of each lane, drawn anew for each.
pub fn rows_split(case: &Case, random: &mut Random, most: u64) -> Vec<Row> {
    let mut engine = engine(case);
    let batches: Vec<Batch> = case.lanes.iter().map(|lane| batch(lane)).collect();
    let mut taken = vec![0; batches.len()];
    let mut rows = Vec::new();
    while taken
        .iter()
        .zip(&batches)
        .any(|(&taken, batch)| taken < batch.len())
    {
        engine.begin(None);
        let first = random.below(batches.len() as u64) as usize;
        for at in 0..batches.len() {
            let lane = (first + at) % batches.len();
            let to = (taken[lane] + random.below(most + 1) as usize).min(batches[lane].len());
            let middle = taken[lane] + random.below((to - taken[lane]) as u64 + 1) as usize;
            let id = LaneId(lane as u32);
            engine.absorb(id, &batches[lane], taken[lane]..middle);
            engine.absorb(id, &batches[lane], middle..to);
            taken[lane] = to;
        }
        take(engine.close(&[]), StreamKind::Rows, &mut rows);
        if random.below(10) == 0 {
            let specs = vec![(PIPELINE, case.spec.clone())];
            engine = Engine::restore(&engine.checkpoint(), specs).unwrap();
        }
    }
    take(engine.finish(), StreamKind::Rows, &mut rows);
    rows
}

#[test]
fn ticks_interleaving_and_restarts_decide_no_row() {
    for seed in 0..150 {
        let case = case(seed);
        let mut random = Random(seed + 1000);
        let whole = rows_split(&case, &mut random, 1_000_000);
        for most in [1, 3, 20, 60] {
            let split = rows_split(&case, &mut random, most);
            assert_eq!(split, whole, "seed {seed}, most {most}");
        }
        let numbers: Vec<u64> = whole.iter().map(|row| row.seq.0).collect();
        assert_eq!(numbers, (0..whole.len() as u64).collect::<Vec<_>>());
    }
}

/// Per window end and group: the events that count, worked out record by record.
pub fn counted(case: &Case) -> BTreeMap<(i64, u64), Vec<Event>> {
    // The ends of the windows that hold a time, ascending.
    let ends = |time: i64| match &case.spec.window {
        WindowSpec::Calendar(calendar) => vec![calendar.bounds(time).1],
        WindowSpec::Sessions(_) => Vec::new(),
        WindowSpec::Fixed(fixed) => {
            let (size, slide) = (fixed.size_ms(), fixed.slide_ms());
            let first = (time.div_euclid(slide) + 1) * slide;
            (0..size / slide).map(|at| first + at * slide).collect()
        }
    };
    let mut windows = BTreeMap::new();
    for lane in &case.lanes {
        let mut seen: Vec<i64> = Vec::new();
        for event in lane {
            let time = event.second * 1000;
            seen.sort_unstable_by(|left, right| right.cmp(left));
            let nth = seen.get(case.spec.close.records - 1);
            let keep_ms = case.spec.late.keep_ms().unwrap_or(0);
            let watermark = nth.map_or(i64::MIN, |nth| nth - case.spec.close.lag_ms - keep_ms);
            seen.push(time);
            if case.spec.filter.is_some() && event.value <= 0 {
                continue;
            }
            for end in ends(time).into_iter().filter(|&end| end > watermark) {
                let group = if case.spec.group_by.is_empty() {
                    0
                } else {
                    event.group
                };
                let events: &mut Vec<Event> = windows.entry((end, group)).or_default();
                events.push(*event);
            }
        }
    }
    windows
}

#[test]
fn rows_are_those_of_a_plain_count() {
    for seed in 0..150 {
        let case = case(seed);
        let rows = rows_split(&case, &mut Random(seed + 1), 7);
        let shown: Vec<String> = rows
            .iter()
            .map(|row| {
                let json = std::str::from_utf8(&row.json).unwrap();
                let group = &json[row.group.clone()];
                format!(
                    "{} {group} {}",
                    row.end.0,
                    json.split_once("\"values\":").unwrap().1
                )
            })
            // Rows of empty windows.
            .filter(|row| !row.contains("\"n\":0,"))
            .collect();
        let expected: Vec<String> = counted(&case)
            .iter()
            .map(|((end, group), events)| {
                let n = events.len();
                let sum: i64 = events.iter().map(|event| event.value).sum();
                let is_grouped = !case.spec.group_by.is_empty();
                let group = if is_grouped {
                    format!("{{\"g\":\"g{group}\"}}")
                } else {
                    "{}".into()
                };
                format!("{end} {group} {{\"n\":{n},\"sum\":{sum}}}}}")
            })
            .collect();
        assert_eq!(shown, expected, "seed {seed}");
    }
}

/// Everything that comes out of ticks with agreed time, idle lanes and late records, restored after
/// each tick or never.
pub fn timed(case: &Case, restores: bool) -> (Vec<Row>, Vec<Row>, Parts) {
    let mut random = Random(77);
    let mut engine = engine(case);
    let batches: Vec<Batch> = case.lanes.iter().map(|lane| batch(lane)).collect();
    let mut taken = vec![0; batches.len()];
    let (mut rows, mut letters) = (Vec::new(), Vec::new());
    for step in 0..200_i64 {
        engine.begin(Some(Timestamp(-200_000 + step * 700)));
        let mut at_end = Vec::new();
        for (lane, batch) in batches.iter().enumerate() {
            let id = LaneId(lane as u32);
            if random.below(4) == 0 {
                at_end.push(id);
                continue;
            }
            let to = (taken[lane] + random.below(3) as usize).min(batch.len());
            engine.absorb(id, batch, taken[lane]..to);
            taken[lane] = to;
        }
        let outputs = engine.close(&at_end);
        take(outputs.clone(), StreamKind::Rows, &mut rows);
        take(outputs, StreamKind::DeadLetters, &mut letters);
        if restores {
            let specs = vec![(PIPELINE, case.spec.clone())];
            engine = Engine::restore(&engine.checkpoint(), specs).unwrap();
        }
    }
    (rows, letters, engine.checkpoint())
}

#[test]
fn a_restart_after_any_tick_changes_nothing() {
    for seed in 0..40 {
        let mut case = case(seed);
        case.spec.max_future_ms = Some(300_000);
        assert_eq!(timed(&case, true), timed(&case, false), "seed {seed}");
    }
}

/// Keys come and go in floods, so that their numbers are freed and given to others; those that come
/// again must be whole.
#[test]
fn groups_that_come_again_after_a_flood_of_others_are_not_lost() {
    let mut random = Random(4711);
    let mut engine = Engine::default();
    engine.add_pipeline(PIPELINE, grouped());
    let lane = engine.add_lane("l/0".into());
    let mut expected: BTreeMap<(i64, String), u64> = BTreeMap::new();
    let mut rows = Vec::new();
    for minute in 0..60_i64 {
        let mut batch = Batch::default();
        // Some windows see many keys, others few: what is unused is swept now and then.
        let count = [3000, 40, 40, 1500][minute as usize % 4];
        for offset in 0..count {
            let group = format!("g{}", random.below(6000));
            batch.push(offset, RecordState::Decoded, b"{}");
            batch.set_number(TIME, Decimal::from_i64(minute * 10 + 5));
            batch.set_text(GROUP, &group);
            batch.set_number(VALUE, Decimal::from_i64(1));
            *expected.entry(((minute + 1) * 10_000, group)).or_default() += 1;
        }
        engine.begin(None);
        engine.absorb(lane, &batch, 0..batch.len());
        take(engine.close(&[]), StreamKind::Rows, &mut rows);
    }
    take(engine.finish(), StreamKind::Rows, &mut rows);
    let shown: Vec<String> = rows
        .iter()
        .map(|row| {
            let json = std::str::from_utf8(&row.json).unwrap();
            let group = &json[row.group.clone()];
            let values = json.split_once("\"values\":").unwrap().1;
            format!("{} {group} {values}", row.end.0)
        })
        .collect();
    let expected: Vec<String> = expected
        .iter()
        .map(|((end, group), n)| format!("{end} {{\"g\":\"{group}\"}} {{\"n\":{n},\"sum\":{n}}}}}"))
        .collect();
    assert!(shown == expected, "rows differ");
}
