//! Copies count once, whichever lanes and ticks they come in.

use std::collections::BTreeMap;

use unisono_engine::spec::{DedupSpec, PipelineSpec, WindowSpec};

use crate::harness::Engine;
use crate::properties::{Case, Event, Random, case, rows_split, timed};
use crate::timeline::{GROUP, PIPELINE, Player, VALUE, check, grouped, lag, plain, window};

/// The value is the id.
fn dedup(spec: PipelineSpec, within_s: i64) -> PipelineSpec {
    PipelineSpec {
        dedup: Some(DedupSpec {
            key: vec![VALUE],
            within_ms: within_s * 1000,
        }),
        ..spec
    }
}

#[test]
fn of_copies_in_any_lane_one_counts() {
    let expected = "[0,10) n=2 sum=12";
    let spec = || dedup(plain(), 60);
    check(
        spec(),
        "p0@1=5 p0@2=5 p1@3=5 p1@4=7 p0@11=1 p1@11=2 tick",
        expected,
    );
    // In whichever order and tick.
    check(
        spec(),
        "p1@3=5 tick p1@4=7 p1@11=2 tick p0@2=5 tick p0@1=5 p0@11=1 tick",
        expected,
    );
}

#[test]
fn the_first_in_event_time_lane_and_offset_counts() {
    // The group tells which one it was.
    let spec = || dedup(grouped(), 60);
    check(
        spec(),
        "p0@5:b=1 p1@4:a=1 p0@11=8 p1@11=9 tick",
        "[0,10) a n=1 sum=1",
    );
    check(
        spec(),
        "p1@4:a=1 p0@4:b=1 p0@11=8 p1@11=9 tick",
        "[0,10) b n=1 sum=1",
    );
    check(
        spec(),
        "p0@4:c=1 p0@4:d=1 p0@11=8 tick",
        "[0,10) c n=1 sum=1",
    );
}

#[test]
fn copies_are_known_over_the_borders_of_windows_for_within() {
    let spec = || dedup(plain(), 8);
    check(
        spec(),
        "p0@9=5 p0@11=5 p0@12=6 p0@21=1 tick",
        "[0,10) n=1 sum=5; [10,20) n=1 sum=6",
    );
    // The copy at 11 does not register: 17 is 8 after 9.
    check(
        spec(),
        "p0@9=5 tick p0@11=5 tick p0@17=5 p0@21=1 tick",
        "[0,10) n=1 sum=5; [10,20) n=1 sum=5",
    );
    check(
        spec(),
        "p0@9=5 p0@16=5 p0@21=1 tick",
        "[0,10) n=1 sum=5; [10,20) n=0 sum=null",
    );
}

#[test]
fn a_record_without_an_id_is_nobodys_copy() {
    check(
        dedup(plain(), 60),
        "p0@1 p0@2 p0@3=null p0@4=bad p0@11=1 tick",
        "[0,10) n=4 sum=null",
    );
    let mut spec = dedup(grouped(), 60);
    spec.dedup = Some(DedupSpec {
        key: vec![GROUP, VALUE],
        within_ms: 60_000,
    });
    let rows = "[0,10) null n=2 sum=2; [0,10) a n=1 sum=1; [0,10) b n=1 sum=1";
    check(
        spec,
        "p0@1:a=1 p0@2:b=1 p0@3:a=1 p0@4=1 p0@5=1 p0@11=1 tick",
        rows,
    );
}

#[test]
fn a_late_copy_does_not_register() {
    // 9 is late in p0, whose watermark is at 12; the one of p1 is in time, though it comes later.
    let timeline = "p0@12=1 tick p0@9=5 tick p1@9=5 p1@12=2 tick";
    check(dedup(plain(), 60), timeline, "!late p0#1; [0,10) n=1 sum=5");
}

#[test]
fn a_group_of_copies_alone_has_no_row() {
    let timeline = "p0@9:a=5 p0@11:b=5 p0@12:c=6 p0@21=1 tick";
    check(
        dedup(grouped(), 60),
        timeline,
        "[0,10) a n=1 sum=5; [10,20) c n=1 sum=6",
    );
}

#[test]
fn overlapping_windows_judge_each_record_once() {
    let mut spec = dedup(plain(), 60);
    spec.window = window(20, 10);
    // 8 is late for [-10,10) and judged with [0,20): the younger one, at 9, was counted before.
    let timeline = "p0@9=5 p0@11=6 tick p0@8=5 p0@7=7 p0@31=1 tick";
    let rows = "[-10,10) n=1 sum=5; [0,20) n=3 sum=18; [10,30) n=1 sum=6";
    check(spec, timeline, rows);
}

#[test]
fn copies_are_counted_and_what_waits_is_shown() {
    let mut player = Player::new(dedup(lag(plain(), 2), 60), &["p0", "p1"]);
    player.play("p0@1=5 p1@2=5 p0@3=6 tick");
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!((stats.counted, stats.duplicates, stats.waiting), (0, 0, 3));
    // As if it closed now.
    assert_eq!(open_rows(&mut player.engine), ["{\"n\":2,\"sum\":11}}"]);
    player.play("p0@13=1 p1@13=2 tick");
    assert_eq!(player.results(), "[0,10) n=2 sum=11");
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!((stats.counted, stats.duplicates, stats.waiting), (2, 1, 2));
}

fn open_rows(engine: &mut Engine) -> Vec<String> {
    let rows = engine.open_windows(PIPELINE).into_iter().map(|row| {
        let json = String::from_utf8(row.json).unwrap();
        json.split_once("\"values\":").unwrap().1.to_owned()
    });
    rows.collect()
}

fn cases() -> impl Iterator<Item = (u64, Case)> {
    (0..120).map(|seed| {
        let mut case = case(seed);
        if case.spec.window.gap_ms().is_some() {
            // Sessions know no copies.
            case.spec.window = window(30, 10);
        }
        let within = [1, 7, 30, 100][seed as usize % 4];
        let scale = match case.spec.window {
            WindowSpec::Calendar(_) => 9001,
            WindowSpec::Fixed(_) | WindowSpec::Sessions(_) => 1,
        };
        case.spec = dedup(case.spec, within * scale);
        (seed, case)
    })
}

#[test]
fn ticks_interleaving_and_restarts_decide_no_copy() {
    for (seed, case) in cases() {
        let mut random = Random(seed + 1000);
        let whole = rows_split(&case, &mut random, 1_000_000);
        for most in [1, 3, 60] {
            let split = rows_split(&case, &mut random, most);
            assert_eq!(split, whole, "seed {seed}, most {most}");
        }
    }
}

/// Rows, dead letters, and the bytes of the last checkpoint.
#[test]
fn a_restart_after_any_tick_changes_no_copy() {
    for (seed, mut case) in cases().take(40) {
        case.spec.max_future_ms = Some(300_000);
        assert_eq!(timed(&case, true), timed(&case, false), "seed {seed}");
    }
}

/// A record that is in time: where it is in the order of judging, and the windows that it counts in.
struct InTime {
    order: (i64, i64, usize, usize),
    ends: Vec<i64>,
    event: Event,
}

/// Record by record, in plain terms.
fn in_time(case: &Case) -> Vec<InTime> {
    let mut all = Vec::new();
    for (lane, events) in case.lanes.iter().enumerate() {
        let mut seen: Vec<i64> = Vec::new();
        for (offset, event) in events.iter().enumerate() {
            let time = event.second * 1000;
            seen.sort_unstable_by(|left, right| right.cmp(left));
            let nth = seen.get(case.spec.close.records - 1);
            let watermark = nth.map_or(i64::MIN, |nth| nth - case.spec.close.lag_ms);
            seen.push(time);
            let mut ends = match &case.spec.window {
                WindowSpec::Calendar(calendar) => vec![calendar.bounds(time).1],
                WindowSpec::Sessions(_) => unreachable!("no case has sessions"),
                WindowSpec::Fixed(fixed) => {
                    let (size, slide) = (fixed.size_ms(), fixed.slide_ms());
                    let first = (time.div_euclid(slide) + 1) * slide;
                    (0..size / slide).map(|at| first + at * slide).collect()
                }
            };
            ends.retain(|&end| end > watermark);
            let is_filtered = case.spec.filter.is_some() && event.value <= 0;
            if let (Some(&first), false) = (ends.first(), is_filtered) {
                all.push(InTime {
                    order: (first, time, lane, offset),
                    ends,
                    event: *event,
                });
            }
        }
    }
    all.sort_unstable_by_key(|record| record.order);
    all
}

#[test]
fn rows_are_those_of_a_plain_judge() {
    for (seed, case) in cases() {
        let within = case.spec.dedup.as_ref().unwrap().within_ms;
        let mut known: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        let mut windows: BTreeMap<(i64, u64), (u64, i64)> = BTreeMap::new();
        for InTime { ends, event, .. } in in_time(&case) {
            let time = event.second * 1000;
            let times = known.entry(event.value).or_default();
            if times.iter().any(|known| (known - time).abs() < within) {
                continue;
            }
            times.push(time);
            let group = if case.spec.group_by.is_empty() {
                0
            } else {
                event.group
            };
            for end in ends {
                let row = windows.entry((end, group)).or_default();
                *row = (row.0 + 1, row.1 + event.value);
            }
        }
        let expected: Vec<String> = windows
            .iter()
            .map(|((end, _), (n, sum))| format!("{end} {{\"n\":{n},\"sum\":{sum}}}}}"))
            .collect();
        let rows = rows_split(&case, &mut Random(seed + 1), 7);
        let shown = rows.iter().map(|row| {
            let json = std::str::from_utf8(&row.json).unwrap();
            format!(
                "{} {}",
                row.end.0,
                json.split_once("\"values\":").unwrap().1
            )
        });
        let shown: Vec<String> = shown.filter(|row| !row.contains("\"n\":0,")).collect();
        assert_eq!(shown, expected, "seed {seed}");
    }
}
