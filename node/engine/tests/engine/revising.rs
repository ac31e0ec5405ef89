//! Late records that correct rows: `late = revise`.

use std::collections::BTreeMap;

use unisono_engine::decimal::Decimal;
use unisono_engine::row::{Row, StreamKind};
use unisono_engine::spec::{Column, CompareOp, Expr, LaneId, LateSpec, PipelineSpec, WindowSpec};

use crate::harness::{Batch, Engine};
use crate::properties::{Case, Random, batch, case, counted, engine, take, timed};
use crate::timeline::{PIPELINE, Player, check, grouped, idle, plain, revise, window};

/// `having`: the second value, the sum, is more than this.
pub fn more_than(sum: i64) -> Expr {
    Expr::Compare {
        left: Box::new(Expr::Column(Column(1))),
        op: CompareOp::Gt,
        right: Box::new(Expr::Number(Decimal::from_i64(sum))),
    }
}

#[test]
fn a_late_record_gives_the_whole_row_again() {
    check(
        revise(plain(), 20),
        "p0@3=1 p0@12=1 tick p0@4=5 p0@5=2 tick p0@6=1 tick",
        "[0,10) n=1 sum=1; [0,10) n=3 sum=8 r1; [0,10) n=4 sum=9 r2",
    );
}

#[test]
fn what_comes_before_the_window_closes_is_in_its_first_row() {
    check(
        revise(plain(), 20),
        "p0@3=1 p0@12=1 p0@4=5 tick",
        "[0,10) n=2 sum=6",
    );
    // Its own lane is past the end, the window is open: it is no dead letter, and no revision.
    check(
        revise(plain(), 20),
        "p0@3=1 p0@12=1 p1@1=1 tick p0@4=5 tick p1@12=1 tick",
        "[0,10) n=3 sum=7",
    );
}

#[test]
fn beyond_keep_of_its_own_lane_a_record_is_a_dead_letter() {
    check(
        revise(plain(), 20),
        "p0@3=1 p0@29=1 tick p0@4=5 tick p0@30=1 tick p0@5=7 p0@19=1 tick",
        "[0,10) n=1 sum=1; [10,20) n=0 sum=null; [0,10) n=2 sum=6 r1; [20,30) n=1 sum=1; \
         [10,20) n=1 sum=1 r1; !late p0#4",
    );
}

#[test]
fn revisions_and_first_rows_go_by_window_end_and_group() {
    check(
        revise(grouped(), 60),
        "p0@3:b=1 p0@13:a=1 p0@21:a=1 tick p0@14:b=1 p0@4:c=1 p0@5:a=1 p0@15:a=1 p0@31:a=1 tick",
        "[0,10) b n=1 sum=1; [10,20) a n=1 sum=1; [0,10) a n=1 sum=1; [0,10) c n=1 sum=1; \
         [10,20) a n=2 sum=2 r1; [10,20) b n=1 sum=1; [20,30) a n=1 sum=1",
    );
}

#[test]
fn lanes_are_merged_in_a_revision_too() {
    check(
        revise(grouped(), 60),
        "p0@3:a=1 p1@4:a=2 p0@11:z=1 p1@11:z=1 tick p1@5:a=4 tick p0@6:a=8 p1@7:b=16 tick",
        "[0,10) a n=2 sum=3; [0,10) a n=3 sum=7 r1; [0,10) a n=4 sum=15 r2; [0,10) b n=1 sum=16",
    );
}

#[test]
fn a_record_is_late_for_some_hopping_windows_and_in_time_for_others() {
    let spec = PipelineSpec {
        window: window(60, 10),
        ..revise(plain(), 30)
    };
    // [-50,10) to [0,60) hold second 5; [-50,10) and [-40,20) are closed when it comes.
    check(
        spec,
        "p0@1=1 p0@25=1 tick p0@5=2 tick p0@65=4 tick",
        "[-50,10) n=1 sum=1; [-40,20) n=1 sum=1; [-50,10) n=2 sum=3 r1; [-40,20) n=2 sum=3 r1; \
         [-30,30) n=3 sum=4; [-20,40) n=3 sum=4; [-10,50) n=3 sum=4; [0,60) n=3 sum=4",
    );
}

#[test]
fn a_window_closed_by_a_timer_is_revised() {
    let spec = idle(revise(plain(), 60), 1);
    let timeline = "p0@1=1 tick@2 tick@3:p0 tick@12:p0 p0@5=1 p0@15=1 tick@13";
    check(spec, timeline, "[0,10) n=1 sum=1; [0,10) n=2 sum=2 r1");
}

#[test]
fn an_empty_window_is_revised_and_followed_by_others() {
    check(
        revise(plain(), 100),
        "p0@3=1 p0@31=1 tick p0@14=7 tick p0@-15=9 tick",
        "[0,10) n=1 sum=1; [10,20) n=0 sum=null; [20,30) n=0 sum=null; [10,20) n=1 sum=7 r1; \
         [-20,-10) n=1 sum=9; [-10,0) n=0 sum=null",
    );
}

#[test]
fn a_row_for_which_having_no_longer_holds_is_withdrawn_once() {
    let spec = || PipelineSpec {
        having: Some(more_than(4)),
        ..revise(grouped(), 60)
    };
    check(
        spec(),
        "p0@3:a=5 p0@3:b=1 p0@11:z=0 tick p0@4:a=-2 p0@4:b=1 tick p0@5:a=1 tick p0@6:a=2 tick \
         p0@7:b=9 tick",
        "[0,10) a n=1 sum=5; [0,10) a n=2 sum=3 r1 withdrawn; [0,10) a n=4 sum=6 r2; \
         [0,10) b n=3 sum=11",
    );
    let mut player = Player::new(spec(), &["p0"]);
    player.play("p0@3:a=5 p0@3:b=1 p0@11:z=0 tick p0@4:a=-2 p0@4:b=1 tick p0@5:a=1 tick");
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!((stats.revising, stats.revisions, stats.withheld), (3, 1, 3));
}

#[test]
fn kept_windows_are_not_open() {
    let mut player = Player::new(revise(grouped(), 60), &["p0"]);
    player.play("p0@3:a=5 p0@13:a=5 p0@21:z=0 tick");
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!((stats.open_windows, stats.open_groups), (1, 3));
    assert_eq!(player.engine.open_windows(PIPELINE).len(), 1);
    player.play("p0@90:z=0 tick");
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!((stats.open_windows, stats.open_groups), (1, 1));
}

#[test]
fn a_lane_that_joins_late_corrects_what_was_closed() {
    check(
        revise(plain(), 60),
        "p0@3=1 p0@12=1 tick +p1 p1@4=2 p1@14=1 tick",
        "[0,10) n=1 sum=1; [0,10) n=2 sum=3 r1",
    );
}

fn revised(seed: u64) -> Case {
    let mut random = Random(seed * 2 + 77);
    let mut case = case(seed);
    if case.spec.window.gap_ms().is_some() {
        // Sessions are not revised.
        case.spec.window = window(30, 10);
    }
    let scale = match case.spec.window {
        WindowSpec::Calendar(_) => 9001,
        WindowSpec::Fixed(_) | WindowSpec::Sessions(_) => 1,
    };
    case.spec.late = LateSpec::Revise {
        keep_ms: random.below(60) as i64 * 1000 * scale,
    };
    case.spec.having = (random.below(2) == 0).then(|| more_than(3));
    case
}

/// Window end and group, and what the row shows.
fn shown(row: &Row) -> ((i64, String), String) {
    let json = std::str::from_utf8(&row.json).unwrap();
    let group = json[row.group.clone()].to_owned();
    let values = json.split_once("\"values\":").unwrap().1;
    ((row.end.0, group), values.to_owned())
}

fn revision(row: &Row) -> (u64, bool) {
    let json = std::str::from_utf8(&row.json).unwrap();
    let rest = json.split_once("\"revision\":").unwrap().1;
    let number = rest.split(',').next().unwrap().parse().unwrap();
    (number, rest.contains("\"withdrawn\":true"))
}

/// The rows by tick, with the records in ticks of at most `most` of each lane.
fn ticks(case: &Case, random: &mut Random, most: u64) -> Vec<Vec<Row>> {
    let mut engine = engine(case);
    let batches: Vec<Batch> = case.lanes.iter().map(|lane| batch(lane)).collect();
    let mut taken = vec![0; batches.len()];
    let mut ticks = Vec::new();
    while taken
        .iter()
        .zip(&batches)
        .any(|(&at, lane)| at < lane.len())
    {
        engine.begin(None);
        for (lane, batch) in batches.iter().enumerate() {
            let to = (taken[lane] + random.below(most + 1) as usize).min(batch.len());
            engine.absorb(LaneId(lane as u32), batch, taken[lane]..to);
            taken[lane] = to;
        }
        let mut rows = Vec::new();
        take(engine.close(&[]), StreamKind::Rows, &mut rows);
        ticks.push(rows);
        if random.below(10) == 0 {
            let specs = vec![(PIPELINE, case.spec.clone())];
            engine = Engine::restore(&engine.checkpoint(), specs).unwrap();
        }
    }
    let mut rows = Vec::new();
    take(engine.finish(), StreamKind::Rows, &mut rows);
    ticks.push(rows);
    ticks
}

/// The last revision of each row, but for those that were withdrawn. Checks how they follow each other.
fn last_revisions(ticks: &[Vec<Row>], seed: u64) -> BTreeMap<(i64, String), String> {
    let mut last: BTreeMap<(i64, String), (u64, bool, String)> = BTreeMap::new();
    for rows in ticks {
        let keys: Vec<_> = rows.iter().map(|row| shown(row).0).collect();
        assert!(keys.is_sorted_by(|left, right| left < right), "seed {seed}");
        for row in rows {
            let (key, values) = shown(row);
            let (number, withdrawn) = revision(row);
            match last.get(&key) {
                None => assert_eq!((number, withdrawn), (0, false), "seed {seed}"),
                Some(&(before, was_withdrawn, _)) => {
                    assert_eq!(number, before + 1, "seed {seed}");
                    assert!(!(withdrawn && was_withdrawn), "seed {seed}");
                }
            }
            last.insert(key, (number, withdrawn, values));
        }
    }
    let last = last.into_iter().filter(|(_, (_, withdrawn, _))| !withdrawn);
    last.map(|(key, (.., values))| (key, values)).collect()
}

#[test]
fn last_revisions_are_the_same_however_ticks_split_the_records() {
    let mut corrected = 0;
    for seed in 0..50 {
        let case = revised(seed);
        let mut random = Random(seed + 1000);
        // In one tick nothing is closed before all is there.
        let whole = ticks(&case, &mut random, 1_000_000);
        assert!(whole.iter().flatten().all(|row| revision(row).0 == 0));
        let whole = last_revisions(&whole, seed);
        for most in [1, 3, 20, 60] {
            let split = ticks(&case, &mut random, most);
            assert_eq!(
                last_revisions(&split, seed),
                whole,
                "seed {seed}, most {most}"
            );
            corrected += split
                .iter()
                .flatten()
                .filter(|row| revision(row).0 > 0)
                .count();
        }
    }
    assert!(corrected > 3000, "{corrected}");
}

#[test]
fn last_revisions_are_those_of_a_plain_count_of_all_that_is_not_beyond_keep() {
    for seed in 0..50 {
        let case = revised(seed);
        let mut rows = last_revisions(&ticks(&case, &mut Random(seed + 1), 7), seed);
        // Rows of empty windows.
        rows.retain(|_, values| !values.contains("\"n\":0,"));
        let mut expected = BTreeMap::new();
        for ((end, group), events) in counted(&case) {
            let sum: i64 = events.iter().map(|event| event.value).sum();
            if case.spec.having.is_some() && sum <= 3 {
                continue;
            }
            let group = match case.spec.group_by.is_empty() {
                true => "{}".to_owned(),
                false => format!("{{\"g\":\"g{group}\"}}"),
            };
            let values = format!("{{\"n\":{},\"sum\":{sum}}}}}", events.len());
            expected.insert((end, group), values);
        }
        assert_eq!(rows, expected, "seed {seed}");
    }
}

#[test]
fn a_restart_after_any_tick_changes_no_revision() {
    for seed in 0..25 {
        let mut case = revised(seed);
        case.spec.max_future_ms = Some(300_000);
        assert_eq!(timed(&case, true), timed(&case, false), "seed {seed}");
    }
}
