//! What is on disk decides nothing: rows, open windows and checkpoints are the same bytes.

use std::collections::BTreeMap;

use unisono_engine::decimal::Decimal;
use unisono_engine::record::RecordState;
use unisono_engine::row::{Row, StreamKind};
use unisono_engine::spec::{
    CloseSpec, Function, LaneId, LateSpec, PipelineSpec, Spread, ValueSpec,
};
use unisono_engine::spill::Room;

use crate::harness::{Batch, Engine, NO_ROOM};
use crate::properties::{Random, take};
use crate::revising::more_than;
use crate::timeline::{GROUP, PIPELINE, TIME, VALUE, grouped, window};

/// When state goes to disk, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pressure {
    Never,
    Always,
    /// After some ticks, down to some bytes.
    Random,
}

fn spec(random: &mut Random) -> PipelineSpec {
    let mut spec = grouped();
    let (size, slide) = [(10, 10), (30, 10), (60, 5)][random.below(3) as usize];
    spec.window = window(size, slide);
    spec.close = CloseSpec {
        lag_ms: random.below(20) as i64 * 1000,
        ..CloseSpec::default()
    };
    if random.below(2) == 0 {
        spec.late = LateSpec::Revise { keep_ms: 20_000 };
        spec.having = (random.below(2) == 0).then(|| more_than(2));
    }
    let more: [(&str, Function); 6] = [
        (
            "p",
            Function::Quantile(VALUE, Decimal::from_parts(5, 1).unwrap()),
        ),
        ("d", Function::Distinct(VALUE)),
        ("t", Function::Top(VALUE, 2)),
        ("v", Function::Spread(VALUE, Spread::PopulationVariance)),
        ("l", Function::Last(VALUE)),
        ("m", Function::Max(GROUP)),
    ];
    spec.values.extend(more.map(|(name, function)| ValueSpec {
        name: name.to_owned(),
        function,
    }));
    spec
}

fn batch(random: &mut Random, groups: u64) -> Batch {
    let mut batch = Batch::default();
    let mut now = 0;
    for offset in 0..600 {
        now += random.below(2) as i64;
        batch.push(offset, RecordState::Decoded, b"{}");
        let second = now - random.below(30) as i64;
        batch.set_number(TIME, Decimal::from_i64(second));
        batch.set_text(GROUP, &format!("g{}", random.below(groups)));
        batch.set_number(VALUE, Decimal::from_i64(random.below(10) as i64));
    }
    batch
}

/// All that comes out, with what a reader and a checkpoint see on the way.
#[derive(Debug, PartialEq)]
struct Seen {
    rows: Vec<Row>,
    open: Vec<Vec<Row>>,
    checkpoints: Vec<Vec<Vec<u8>>>,
}

/// The same records in the same ticks; what differs is where the state is. Gives also how often some
/// of it went to disk.
fn run(seed: u64, pressure: Pressure, restores: bool) -> (Seen, usize) {
    let mut random = Random(seed * 2 + 1);
    let spec = spec(&mut random);
    let groups = 1 + random.below(40);
    let batches: Vec<Batch> = (0..1 + random.below(3))
        .map(|_| batch(&mut random, groups))
        .collect();
    let mut engine = Engine::default();
    engine.add_pipeline(PIPELINE, spec.clone());
    for lane in 0..batches.len() {
        engine.add_lane(format!("l/{lane}"));
    }
    let mut own = Random(seed + 99);
    let mut spills = 0;
    let (mut rows, mut open, mut checkpoints) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..30 {
        engine.begin(None);
        for (lane, batch) in (0..).zip(&batches) {
            engine.absorb(LaneId(lane), batch, step * 20..step * 20 + 20);
        }
        take(engine.close(&[]), StreamKind::Rows, &mut rows);
        let room = match pressure {
            Pressure::Never => None,
            Pressure::Always => Some(NO_ROOM),
            Pressure::Random => (own.below(2) == 0).then(|| Room {
                limit: 0,
                keep: own.below(20_000) as usize,
                least: own.below(2000) as usize,
            }),
        };
        spills += usize::from(room.is_some_and(|room| engine.spill(room).is_some()));
        if step % 7 == 3 {
            open.push(engine.open_windows(PIPELINE));
            checkpoints.push(engine.checkpoint());
            if restores {
                let specs = vec![(PIPELINE, spec.clone())];
                engine = Engine::restore(checkpoints.last().unwrap(), specs).unwrap();
            }
        }
    }
    take(engine.finish(), StreamKind::Rows, &mut rows);
    let seen = Seen {
        rows,
        open,
        checkpoints,
    };
    (seen, spills)
}

#[test]
fn what_is_on_disk_changes_no_row_no_query_and_no_checkpoint() {
    let mut spilled = 0;
    for seed in 0..60 {
        let (expected, _) = run(seed, Pressure::Never, false);
        assert!(!expected.rows.is_empty());
        for (pressure, restores) in [
            (Pressure::Always, false),
            (Pressure::Random, false),
            (Pressure::Random, true),
        ] {
            let (seen, spills) = run(seed, pressure, restores);
            assert!(
                seen == expected,
                "seed {seed}, {pressure:?}, restores {restores}"
            );
            spilled += spills;
        }
    }
    assert!(spilled > 3000, "{spilled}");
}

/// Records of one window, each of another group.
fn flood(from: u64, to: u64) -> Batch {
    let mut batch = Batch::default();
    for (offset, group) in (from..to).enumerate() {
        batch.push(offset as i64, RecordState::Decoded, b"{}");
        batch.set_number(TIME, Decimal::from_i64(5));
        batch.set_text(GROUP, &format!("group-{:06}", group * 7919 % 100_000));
        batch.set_number(VALUE, Decimal::from_i64(1));
    }
    batch
}

/// One window is more than there is room for: it leaves in pieces, with its keys, and comes back whole.
#[test]
fn one_window_of_many_groups_stays_within_its_room() {
    let mut engine = Engine::default();
    engine.add_pipeline(PIPELINE, grouped());
    let lane = engine.add_lane("l/0".into());
    let room = Room {
        limit: 1 << 20,
        keep: 512 << 10,
        least: 64 << 10,
    };
    let (mut most, mut on_disk) = (0, 0);
    for piece in 0..100 {
        // Each group comes twice, far apart.
        let from = piece % 50 * 2000;
        let batch = flood(from, from + 2000);
        engine.begin(None);
        engine.absorb(lane, &batch, 0..batch.len());
        assert!(engine.close(&[]).is_empty());
        most = most.max(engine.state_bytes());
        on_disk += engine.spill(room).map_or(0, |spilled| spilled.groups);
        assert!(engine.state_bytes() <= room.limit);
    }
    assert!(most < 2 << 20, "{most}");
    assert!(on_disk > 150_000, "{on_disk}");
    let bytes = engine.checkpoint()[1].len();
    assert!(bytes > 1_500_000, "{bytes}");
    let mut rows = Vec::new();
    take(engine.finish(), StreamKind::Rows, &mut rows);
    let shown: BTreeMap<String, String> = rows
        .iter()
        .map(|row| {
            let json = std::str::from_utf8(&row.json).unwrap();
            let values = json.split_once("\"values\":").unwrap().1;
            (json[row.group.clone()].to_owned(), values.to_owned())
        })
        .collect();
    assert_eq!((rows.len(), shown.len()), (100_000, 100_000));
    assert!(
        shown
            .values()
            .all(|values| values == "{\"n\":2,\"sum\":2}}")
    );
    assert!(rows.is_sorted_by_key(|row| row.json[row.group.clone()].to_vec()));
}

#[test]
fn nothing_goes_where_there_is_room_or_little_is_gained() {
    let mut engine = Engine::default();
    engine.add_pipeline(PIPELINE, grouped());
    let lane = engine.add_lane("l/0".into());
    let batch = flood(0, 1000);
    engine.begin(None);
    engine.absorb(lane, &batch, 0..1000);
    assert!(engine.close(&[]).is_empty());
    let bytes = engine.state_bytes();
    let enough = Room {
        limit: bytes,
        ..NO_ROOM
    };
    let in_vain = Room {
        least: 10 * bytes,
        ..NO_ROOM
    };
    assert_eq!((engine.spill(enough), engine.spill(in_vain)), (None, None));
    assert_eq!(engine.spill(NO_ROOM).unwrap().groups, 1000);
    // What is on disk is not written again.
    assert_eq!(engine.spill(NO_ROOM), None);
}
