//! Session windows: what a session is, when it closes, and what is late for it.

use std::collections::BTreeMap;

use unisono_engine::decimal::Decimal;
use unisono_engine::row::Row;
use unisono_engine::spec::{CloseSpec, Function, PipelineSpec, WindowError, WindowSpec};

use crate::harness::Engine;
use crate::properties::{Case, Event, Random, case, rows_split, timed};
use crate::timeline::{PIPELINE, Player, VALUE, check, grouped, idle, lag, plain, value};

fn sessions(spec: PipelineSpec, gap: i64) -> PipelineSpec {
    PipelineSpec {
        window: WindowSpec::sessions(gap * 1000).unwrap(),
        ..spec
    }
}

#[test]
fn a_session_lasts_from_its_first_record_to_a_gap_after_its_last() {
    let spec = || lag(sessions(plain(), 10), 5);
    check(
        spec(),
        "p0@3=1 p0@12=2 p0@21=4 | p0@40=8 tick",
        "[3,31) n=3 sum=7",
    );
    // A row of its own for each group.
    check(
        lag(sessions(grouped(), 10), 5),
        "p0@3:b=1 p0@4:a=2 p0@9:b=4 p0@40:c=8 tick",
        "[4,14) a n=1 sum=2; [3,19) b n=2 sum=5",
    );
    // One that begins at another's very end is the next one.
    check(
        spec(),
        "p0@3=1 p0@13=2 p0@22=4 tick finish",
        "[3,13) n=1 sum=1; [13,32) n=2 sum=6",
    );
    // Records may come in any order: the third makes two sessions one.
    check(
        spec(),
        "p0@3=1 p0@15=2 tick p0@10=4 tick finish",
        "[3,25) n=3 sum=7",
    );
}

#[test]
fn a_session_closes_when_the_watermark_reaches_its_end() {
    let spec = || sessions(plain(), 10);
    check(spec(), "p0@3=1 p0@12=2 tick p0@21=3 tick", "");
    check(
        spec(),
        "p0@3=1 p0@12=2 tick p0@22=3 tick",
        "[3,22) n=2 sum=3",
    );
    // There are no empty windows.
    check(
        spec(),
        "p0@3=1 tick p0@1000=2 tick p0@2000=3 tick",
        "[3,13) n=1 sum=1; [1000,1010) n=1 sum=2",
    );
}

#[test]
fn rows_go_by_end_and_group_and_not_by_ticks() {
    let records = "p0@1:b=1 p0@2:a=1 p0@1:c=1 p0@3:d=1";
    let expected = "[1,11) b n=1 sum=1; [1,11) c n=1 sum=1; [2,12) a n=1 sum=1; \
                    [3,13) d n=1 sum=1";
    let spec = || lag(sessions(grouped(), 10), 5);
    check(spec(), &format!("{records} p0@90:z=1 tick"), expected);
    let ticks = "p0@16:z=1 tick p0@17:z=1 tick p0@18:z=1 tick p0@90:z=1 tick";
    let mut player = Player::new(spec(), &["p0"]);
    player.play(&format!("{records} {ticks}"));
    let results = player.results();
    assert_eq!(results, format!("{expected}; [16,28) z n=3 sum=3"));
}

#[test]
fn lanes_are_joined_as_unions() {
    let spec = || lag(sessions(grouped(), 10), 3);
    // Neither lane alone has all of it.
    check(
        spec(),
        "p0@0:a=1 p0@18:a=2 p1@9:a=4 tick | p0@60:b=1 p1@60:b=1 tick",
        "[0,28) a n=3 sum=7",
    );
    // The slow lane holds it open, and may go on with it.
    check(
        spec(),
        "p0@0:a=1 p0@60:b=1 p1@9:a=2 tick p1@18:a=4 tick p1@31:b=1 tick",
        "[0,28) a n=3 sum=7",
    );
    // What has ended on one lane goes on on the other, and ends there later.
    check(
        spec(),
        "p0@0:a=1 p1@9:a=2 p0@15:b=1 p1@15:b=1 tick p0@22:c=1 p1@22:c=1 tick",
        "[0,19) a n=2 sum=3",
    );
    // Sessions of one group that touch are two.
    check(
        spec(),
        "p0@0:a=1 p1@10:a=2 tick p0@60:b=1 p1@60:b=1 tick",
        "[0,10) a n=1 sum=1; [10,20) a n=1 sum=2",
    );
}

#[test]
fn what_is_below_its_own_lanes_watermark_is_late() {
    let spec = || lag(sessions(plain(), 10), 5);
    check(
        spec(),
        "p0@20=1 p0@15=2 p0@14=4 tick finish",
        "!late p0#2; [15,30) n=2 sum=3",
    );
    // Another lane's watermark makes nothing late.
    check(
        spec(),
        "p0@60=1 tick p1@20=2 p1@15=4 tick finish",
        "[15,30) n=2 sum=6; [60,70) n=1 sum=1",
    );
    // Where the second largest time counts, one wrong clock does no harm.
    let mut second = spec();
    second.close.records = 2;
    check(
        second,
        "p0@3=1 p0@1000=2 p0@4=3 p0@9=1 tick p0@30=1 p0@31=1 tick",
        "[3,19) n=3 sum=5",
    );
}

#[test]
fn timers_close_sessions_and_what_comes_after_them_is_late() {
    // All lanes are idle from 24 on: agreed time, minus the lag, is the watermark.
    check(
        idle(lag(sessions(plain(), 10), 5), 1),
        "p0@3=1 tick@20 tick@21:p0 tick@22:p0 tick@23:p0 | p0@17=2 p0@18=4 tick@24",
        "[3,13) n=1 sum=1; !late p0#1",
    );
    let mut spec = sessions(plain(), 10);
    spec.close.at_most_ms = Some(2000);
    // At 14 it was at its end for a second only.
    let seen = "p0@3=1 tick@13:p0 tick@14:p0";
    check(spec.clone(), seen, "");
    check(
        spec.clone(),
        &format!("{seen} tick@15:p0"),
        "[3,13) n=1 sum=1",
    );
    check(
        spec,
        &format!("{seen} tick@15:p0 p0@12=2 p0@13=4 tick@16 finish"),
        "[3,13) n=1 sum=1; !late p0#1; [13,23) n=1 sum=4",
    );
}

#[test]
fn a_lane_that_joins_is_late_for_what_was_closed_before() {
    let spec = || sessions(plain(), 10);
    check(
        spec(),
        "p0@3=1 p0@30=2 tick +p1 p1@12=4 p1@29=8 p1@31=1 tick finish",
        "[3,13) n=1 sum=1; !late p1#0; !late p1#1; [30,41) n=2 sum=3",
    );
    let mut two = spec();
    two.close.lanes = 2;
    check(
        two,
        "p0@3=1 p0@30=2 tick +p1 p1@12=4 p1@29=8 p1@31=1 tick finish",
        "[3,22) n=2 sum=5; [29,41) n=3 sum=11",
    );
}

#[test]
fn rates_are_by_the_length_of_the_session() {
    let mut spec = lag(sessions(plain(), 10), 20);
    spec.values = vec![
        value("grown", Function::Increase(VALUE)),
        value("rate", Function::Rate(VALUE)),
        value("first", Function::First(VALUE)),
        value("last", Function::Last(VALUE)),
        value(
            "median",
            Function::Quantile(VALUE, Decimal::from_parts(5, 1).unwrap()),
        ),
        value("distinct", Function::Distinct(VALUE)),
    ];
    // Ten seconds of records and ten of the gap.
    check(
        spec,
        "p0@10=30 p0@0=10 p0@5=20 p0@60=1 tick",
        "[0,20) grown=20 rate=1 first=10 last=30 median=20.0854 distinct=3",
    );
}

#[test]
fn open_sessions_are_shown_over_all_lanes() {
    let mut player = Player::new(lag(sessions(grouped(), 10), 5), &["p0", "p1"]);
    player.play("p0@0:a=1 p0@18:a=2 p1@1:b=8 p1@9:a=4 tick");
    assert_eq!(player.results(), "");
    let open = player.engine.open_windows(PIPELINE);
    let open: Vec<String> = open.iter().map(shown).collect();
    let expected = [
        r#"[1000,11000) {"g":"b"} {"n":1,"sum":8}}"#,
        r#"[0,28000) {"g":"a"} {"n":3,"sum":7}}"#,
    ];
    assert_eq!(open, expected);
    // Of each lane: `a` has two on the first, one on the second.
    assert_eq!(player.engine.stats(PIPELINE).unwrap().open_windows, 4);
    player.play("finish");
    assert_eq!(player.engine.stats(PIPELINE).unwrap().open_windows, 0);
}

#[test]
fn gaps_that_are_none_are_refused() {
    let most = 366 * 86_400_000;
    assert!(WindowSpec::sessions(1).is_ok() && WindowSpec::sessions(most).is_ok());
    for gap in [0, -1, most + 1, i64::MIN, i64::MAX] {
        assert_eq!(WindowSpec::sessions(gap), Err(WindowError::Gap), "{gap}");
    }
}

/// A case of the other windows' properties, with sessions.
fn drawn(seed: u64) -> Case {
    let mut case = case(seed);
    let gap_ms = 1000 * (1 + seed as i64 * 7 % 40);
    case.spec.window = WindowSpec::sessions(gap_ms).unwrap();
    for event in case.lanes.iter_mut().flatten() {
        // Those of calendars have seconds that are hours long.
        event.second %= 20_000;
    }
    case
}

#[test]
fn ticks_interleaving_and_restarts_decide_no_session() {
    for seed in 0..80 {
        let case = drawn(seed);
        let mut random = Random(seed + 1000);
        let whole = rows_split(&case, &mut random, 1_000_000);
        for most in [1, 3, 20, 60] {
            let split = rows_split(&case, &mut random, most);
            assert_eq!(split, whole, "seed {seed}, most {most}");
        }
    }
}

#[test]
fn a_restart_after_any_tick_changes_no_session() {
    for seed in 0..40 {
        let mut case = drawn(seed);
        case.spec.max_future_ms = Some(300_000);
        assert_eq!(timed(&case, true), timed(&case, false), "seed {seed}");
    }
}

/// The sessions by sorting all records of a group that are in time and cutting where they pause: end,
/// group, start, count, sum.
fn expected(case: &Case) -> Vec<(i64, u64, i64, u64, i64)> {
    let gap = case.spec.window.gap_ms().unwrap();
    let CloseSpec {
        records, lag_ms, ..
    } = case.spec.close;
    let mut in_time: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    for lane in &case.lanes {
        let mut seen: Vec<i64> = Vec::new();
        for event in lane {
            let time = event.second * 1000;
            seen.sort_unstable_by(|left, right| right.cmp(left));
            let watermark = seen.get(records - 1).map(|nth| nth - lag_ms);
            seen.push(time);
            let selected = case.spec.filter.is_none() || event.value > 0;
            if selected && watermark.is_none_or(|watermark| time >= watermark) {
                let is_grouped = !case.spec.group_by.is_empty();
                let group = if is_grouped { event.group } else { 0 };
                in_time.entry(group).or_default().push(*event);
            }
        }
    }
    let mut sessions = Vec::new();
    for (group, mut events) in in_time {
        events.sort_by_key(|event| event.second);
        let pauses = |left: &Event, right: &Event| (right.second - left.second) * 1000 < gap;
        for session in events.chunk_by(pauses) {
            let (first, last) = (session[0].second, session[session.len() - 1].second);
            let sum = session.iter().map(|event| event.value).sum();
            let n = session.len() as u64;
            sessions.push((last * 1000 + gap, group, first * 1000, n, sum));
        }
    }
    sessions.sort_unstable();
    sessions
}

#[test]
fn rows_are_the_sessions_of_sorted_records() {
    let mut closed_early = 0;
    for seed in 0..200 {
        let case = drawn(seed);
        let rows = rows_split(&case, &mut Random(seed + 1), 7);
        let shown: Vec<String> = rows.iter().map(shown).collect();
        let expected: Vec<String> = expected(&case)
            .iter()
            .map(|(end, group, start, n, sum)| {
                let group = match case.spec.group_by.is_empty() {
                    true => "{}".to_owned(),
                    false => format!("{{\"g\":\"g{group}\"}}"),
                };
                format!("[{start},{end}) {group} {{\"n\":{n},\"sum\":{sum}}}}}")
            })
            .collect();
        assert_eq!(shown, expected, "seed {seed}");
        closed_early += usize::from(shown.len() > 20);
    }
    assert!(closed_early > 50, "{closed_early}");
}

fn shown(row: &Row) -> String {
    let json = std::str::from_utf8(&row.json).unwrap();
    let (start, end) = (row.start.0, row.end.0);
    let values = json.split_once("\"values\":").unwrap().1;
    format!("[{start},{end}) {} {values}", &json[row.group.clone()])
}

/// A damaged part is an error, never a panic or a session that cannot be.
#[test]
fn sessions_of_a_checkpoint_are_whole_or_refused() {
    let mut player = Player::new(lag(sessions(grouped(), 10), 50), &["p0"]);
    player.play("p0@0:a=1 p0@18:a=2 p0@1:b=8 tick");
    let parts = player.engine.checkpoint();
    let spec = |gap| vec![(PIPELINE, lag(sessions(grouped(), gap), 50))];
    let restored = Engine::restore(&parts, spec(10)).unwrap();
    assert_eq!(restored.stats(PIPELINE).unwrap().open_windows, 3);
    // With such a gap there can be no sessions so short.
    assert!(Engine::restore(&parts, spec(11)).is_err());
}
