//! When windows close: watermarks, silent lanes, wrong clocks.

use unisono_engine::decimal::Decimal;
use unisono_engine::record::RecordState;
use unisono_engine::spec::{CloseSpec, PipelineSpec, Timestamp};

use crate::harness::{Batch, Engine};
use crate::timeline::{
    GROUP, PIPELINE, Player, TIME, check, grouped, idle, lag, only_values_above_zero, plain, window,
};

#[test]
fn the_slowest_lane_holds_the_window_open() {
    check(plain(), "p0@3=1 p0@30=1 tick p1@4=2 tick", "");
    check(
        plain(),
        "p0@3=1 p0@30=1 tick p1@4=2 p1@16=9 tick",
        "[0,10) n=2 sum=3",
    );
}

#[test]
fn a_record_far_ahead_of_agreed_time_is_a_dead_letter_and_moves_nothing() {
    let spec = PipelineSpec {
        max_future_ms: Some(300_000),
        ..lag(plain(), 5)
    };
    let timeline = "p0@0=1 p0@1=1 p0@7200=1 p0@2=1 p0@3=1 tick@10 p0@30=1 tick@40";
    check(
        spec,
        timeline,
        "!future p0#2; [0,10) n=4 sum=4; [10,20) n=0 sum=null",
    );
}

#[test]
fn one_wrong_clock_does_not_make_the_others_late() {
    let close = CloseSpec {
        lag_ms: 0,
        records: 2,
        idle_ms: Some(10_000),
        ..CloseSpec::default()
    };
    let spec = PipelineSpec { close, ..grouped() };
    let mut timeline = String::from("p0@1:a=1 p0@11:a=1 p0@86400:a=1 ");
    (12..22).for_each(|second| timeline += &format!("p0@{second}:a=1 "));
    timeline += "tick@30 ";
    (31..60).for_each(|second| timeline += &format!("tick@{second}:p0 "));
    // Ten right ones and the far one; idleness carries the watermark to agreed time, not to the far
    // window.
    let expected = "[0,10) a n=1 sum=1; [10,20) a n=9 sum=9; [20,30) a n=2 sum=2";
    check(spec, &timeline, expected);
}

#[test]
fn the_minimum_over_no_lanes_is_unknown() {
    let spec = idle(plain(), 5);
    check(
        spec,
        "tick@1 tick@100 +p0 p0@3=1 tick@101 p0@19=1 tick@102",
        "[0,10) n=1 sum=1",
    );
}

#[test]
fn a_lane_that_was_always_empty_becomes_idle() {
    let mut timeline = String::from("p0@3=1 p0@13=1 tick@100:p1 ");
    (101..105).for_each(|second| timeline += &format!("p0@{}=1 tick@{second}:p1 ", second - 87));
    check(idle(plain(), 5), &timeline, "");
    timeline += "p0@19=1 tick@105:p1";
    check(idle(plain(), 5), &timeline, "[0,10) n=1 sum=1");
}

#[test]
fn silence_for_ever_closes_by_agreed_time() {
    let mut timeline = String::from("p0@1=1 p0@2=1 p0@3=1 tick@4 ");
    (5..14).for_each(|second| timeline += &format!("tick@{second}:p0 "));
    check(
        idle(lag(grouped(), 2), 5),
        &timeline,
        "[0,10) null n=3 sum=3",
    );
}

#[test]
fn a_retired_lane_holds_nothing_and_what_it_took_in_stays() {
    let held = "p0@1=1 p1@2=2 tick p0@25=1 tick";
    check(plain(), held, "");
    check(
        plain(),
        &format!("{held} -p1 tick"),
        "[0,10) n=2 sum=3; [10,20) n=0 sum=null",
    );
    // A lane that shows nothing holds all, unless it is retired; without any other nothing is known.
    check(
        plain(),
        "p0@1=1 p0@25=1 tick -p1 tick",
        "[0,10) n=1 sum=1; [10,20) n=0 sum=null",
    );
    check(
        idle(plain(), 1),
        "p0@1=1 tick@2 -p0 tick@3:p0 tick@9:p0 tick@99:p0",
        "",
    );
}

#[test]
fn an_idle_lane_is_idle_only_while_somebody_sees_its_end() {
    // Idle after five seconds, and the window's end is reached by agreed time.
    let idle_by_8 = "p0@1=1 tick@2 tick@3:p0 tick@4:p0 tick@5:p0 tick@6:p0 tick@7:p0 tick@8:p0 ";
    let closed = "[0,10) n=1 sum=1";
    check(
        idle(plain(), 5),
        &format!("{idle_by_8} tick@9:p0 tick@10:p0"),
        closed,
    );
    // Nobody sees it: the window waits, and goes on at once if that was short.
    check(
        idle(plain(), 5),
        &format!("{idle_by_8} tick@9:p0 tick@10"),
        "",
    );
    let short = format!("{idle_by_8} tick@9:p0 tick@9 tick@10:p0");
    check(idle(plain(), 5), &short, closed);
    // Not even in the tick in which another lane would close the window.
    let other = format!("{idle_by_8} p1@11=1");
    check(idle(plain(), 5), &format!("{other} tick@8:p0"), closed);
    check(idle(plain(), 5), &format!("{other} tick@8"), "");
    // An outage: what was written meanwhile is not late when it can be read.
    let outage = format!("{idle_by_8} tick@9 tick@10 tick@11 tick@12:p0");
    check(idle(plain(), 5), &outage, "");
    let read = format!("{outage} p0@2=1 p0@9=1 p0@12=1 tick@13");
    check(idle(plain(), 5), &read, "[0,10) n=3 sum=3");
    let still = format!("{outage} tick@13:p0 tick@14:p0 tick@15:p0");
    check(idle(plain(), 5), &still, "");
    check(idle(plain(), 5), &format!("{still} tick@16:p0"), closed);
}

#[test]
fn time_without_evidence_closes_nothing() {
    let spec = || idle(plain(), 5);
    let start = "p0@1=1 tick@2 ";
    let unseen: String = (3..100).map(|second| format!("tick@{second} ")).collect();
    check(spec(), &(start.to_owned() + &unseen), "");
    // An outage of a day between two ticks counts for a second.
    check(
        spec(),
        "p0@1=1 tick@2 tick@86402:p0 tick@86403:p0 tick@86404:p0 tick@86405:p0",
        "",
    );
}

#[test]
fn nothing_becomes_idle_without_agreed_time() {
    check(
        idle(plain(), 1),
        "p0@1=1 p1@2=1 tick p0@30=1 tick tick tick tick",
        "",
    );
}

#[test]
fn the_watermark_follows_filtered_records_too() {
    let spec = PipelineSpec {
        filter: only_values_above_zero(),
        ..plain()
    };
    check(
        spec,
        "p0@1=1 p0@2=-5 p0@3 p0@12=-1 tick",
        "[0,10) n=1 sum=1",
    );
}

#[test]
fn before_the_first_record_watermark_and_frontier_are_unknown() {
    let mut player = Player::new(plain(), &["p0"]);
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!((stats.watermark, stats.closed_through), (None, None));
    player.play("p0@3=1 p0@2=1 tick");
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!(stats.watermark, Some(Timestamp(3000)));
    assert_eq!(
        (stats.open_windows, stats.open_groups, stats.records),
        (1, 1, 2)
    );
}

#[test]
fn windows_have_the_same_bounds_whenever_a_process_starts() {
    check(
        plain(),
        "p0@-3=1 p0@3=1 p0@13=1 tick finish",
        "[-10,0) n=1 sum=1; [0,10) n=1 sum=1; [10,20) n=1 sum=1",
    );
}

#[test]
fn groups_vanish_when_their_windows_close() {
    let mut player = Player::new(grouped(), &["p0"]);
    for minute in 0..50 {
        let records: String = (0..100)
            .map(|group| format!("p0@{}:g{minute}x{group}=1 ", minute * 10))
            .collect();
        player.play(&(records + "tick"));
        assert_eq!(player.engine.stats(PIPELINE).unwrap().open_groups, 100);
    }
    player.play("finish");
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!(
        (stats.open_groups, stats.open_windows, stats.next_row_seq.0),
        (0, 0, 5000)
    );
}

#[test]
fn a_record_of_1970_does_not_make_a_million_empty_windows() {
    let mut player = Player::new(plain(), &["p0"]);
    player.play("p0@0=1 p0@1521911720=1 tick finish");
    let results = player.results();
    assert_eq!(results.split("; ").count(), 1002);
    assert!(results.starts_with("[0,10) n=1 sum=1; [10,20) n=0 sum=null; "));
    assert!(results.ends_with("[10000,10010) n=0 sum=null; [1521911720,1521911730) n=1 sum=1"));
}

#[test]
fn a_group_takes_few_bytes_beyond_its_key() {
    let mut spec = grouped();
    spec.window = window(100, 10);
    spec.values.truncate(1);
    spec.close.lag_ms = 60_000;
    let mut engine = Engine::default();
    engine.add_pipeline(PIPELINE, spec);
    let lane = engine.add_lane("l/0".into());
    let groups: i64 = 100_000;
    let mut fill = |second: i64| {
        let mut batch = Batch::default();
        for group in 0..groups {
            batch.push(group, RecordState::Decoded, b"{}");
            batch.set_number(TIME, Decimal::from_i64(second));
            batch.set_text(GROUP, &format!("user-{group:07}"));
        }
        engine.begin(None);
        engine.absorb(lane, &batch, 0..batch.len());
        assert!(engine.close(&[]).is_empty());
        engine.state_bytes() as i64 / groups
    };
    // A key's bytes are its twelve characters and three of form.
    let first = fill(5);
    assert!(first <= 60 + 15, "{first} bytes a group");
    let next_pane = fill(15) - first;
    assert!(next_pane <= 10, "{next_pane} bytes a group of another pane");
}

fn at_most(seconds: i64) -> PipelineSpec {
    let close = CloseSpec {
        at_most_ms: Some(seconds * 1000),
        ..CloseSpec::default()
    };
    PipelineSpec { close, ..plain() }
}

#[test]
fn a_lane_that_is_seen_at_its_end_holds_a_window_no_longer_than_at_most() {
    let mut player = Player::new(at_most(3), &["p0", "p1"]);
    player.play("p0@1=1 p1@2=2 p0@25=1 tick@10:p0,p1 tick@11:p0,p1 tick@12:p0,p1");
    assert_eq!(player.results(), "");
    // Three seconds after the window's end.
    player.play("tick@13:p0,p1");
    assert_eq!(player.results(), "[0,10) n=2 sum=3");
    // What comes later for it is late, on the lane that was not waited for too.
    player.play("p1@3=5 p1@12=7 tick@14:p0,p1");
    assert_eq!(player.results(), "!late p1#1");
}

#[test]
fn at_most_does_not_run_while_nobody_sees_the_end_of_a_lane() {
    let mut player = Player::new(at_most(3), &["p0", "p1"]);
    player.play("p0@1=1 p1@2=2 p0@25=1 tick@10:p0,p1");
    // An outage, or a backlog, or a transaction that is open.
    player.play("tick@11:p0 tick@12:p0 tick@13:p0 tick@14:p0 tick@60:p0");
    // Then time begins anew, however long ago the window ended.
    player.play("p1@4=3 tick@61:p0 tick@62:p0,p1 tick@63:p0,p1");
    assert_eq!(player.results(), "");
    player.play("tick@64:p0,p1");
    assert_eq!(
        player.results(),
        "[0,10) n=3 sum=6; [10,20) n=0 sum=null; [20,30) n=1 sum=1; [30,40) n=0 sum=null; [40,50) n=0 sum=null; [50,60) n=0 sum=null"
    );
}

#[test]
fn a_lane_without_records_is_waited_for_at_most_so_long_too() {
    let mut player = Player::new(at_most(3), &["p0", "p1"]);
    player.play("p0@1=1 p0@25=1 tick@10:p1 tick@11:p0,p1 tick@12:p0,p1");
    assert_eq!(player.results(), "");
    player.play("tick@13:p0,p1 tick@14:p0,p1");
    assert_eq!(player.results(), "[0,10) n=1 sum=1");
}

#[test]
fn without_agreed_time_at_most_closes_nothing() {
    let mut player = Player::new(at_most(3), &["p0", "p1"]);
    player.play("p0@1=1 p1@2=2 p0@25=1 tick tick tick");
    assert_eq!(player.results(), "");
}

#[test]
fn windows_wait_until_so_many_lanes_are_there() {
    let mut spec = plain();
    spec.close.lanes = 2;
    let mut player = Player::new(spec, &["p0"]);
    player.play("p0@1=1 p0@12=2 p0@23=3 tick");
    assert_eq!(player.results(), "");
    // The second one's records for the same windows are in time.
    player.play("+p1 p1@2=10 p1@13=20 p1@24=30 tick");
    assert_eq!(player.results(), "[0,10) n=2 sum=11; [10,20) n=2 sum=22");
    // One that has come to its end was there.
    player.play("-p0 p1@35=1 tick");
    assert_eq!(player.results(), "[20,30) n=2 sum=33");
}

/// Also before the next window closes, and whether or not a replica restarted in between.
#[test]
fn what_a_lane_that_joins_brings_for_closed_windows_is_late_at_once() {
    check(
        grouped(),
        "p0@3:a=1 p0@30:a=2 tick +p1 p1@12:a=4 p1@31:a=1 tick finish",
        "[0,10) a n=1 sum=1; !late p1#0; [30,40) a n=2 sum=3",
    );
}
