//! Which records are late, and for which windows.

use unisono_engine::dead_letter::Reason;
use unisono_engine::decimal::Decimal;
use unisono_engine::record::{Cells, Record, RecordState};
use unisono_engine::spec::{PipelineSpec, TimeSource, Timestamp};
use unisono_engine::{FeedEngine, TickEnd};

use crate::timeline::{PIPELINE, Player, check, idle, lag, only_values_above_zero, plain, window};

#[test]
fn out_of_order_within_the_lag_counts() {
    let spec = PipelineSpec {
        window: window(60, 60),
        ..lag(plain(), 30)
    };
    // 11:50:10, 11:50:40, 11:51:01, 11:50:50
    check(
        spec,
        "p0@10=1 p0@40=1 p0@61=1 p0@50=1 tick p0@90=1 tick",
        "[0,60) n=3 sum=3",
    );
}

#[test]
fn history_replayed_gives_the_rows_of_the_same_day_live() {
    let spec = || PipelineSpec {
        window: window(60, 60),
        ..plain()
    };
    let record = |at: i64| format!("p0@{}=1 ", at * 60 / 500);
    let replayed: String = (0..500).map(record).collect();
    let live: String = (0..500).map(|at| record(at) + "tick ").collect();
    for timeline in [replayed, live] {
        check(spec(), &(timeline + "p0@60=1 tick"), "[0,60) n=500 sum=500");
    }
}

#[test]
fn late_is_what_its_own_lane_had_passed_however_ticks_split_it() {
    let expected = "[0,10) n=1 sum=1; !late p0#2";
    check(plain(), "p0@3=1 p0@10=1 p0@9=5 tick", expected);
    check(plain(), "p0@3=1 p0@10=1 tick p0@9=5 tick", expected);
    // Another lane's progress makes nothing late.
    check(
        plain(),
        "p0@30=1 tick p1@3=1 tick p1@10=1 tick",
        "[0,10) n=1 sum=1",
    );
}

#[test]
fn a_record_at_the_watermark_itself_is_in_time_for_its_window() {
    check(
        plain(),
        "p0@10=1 p0@10=2 p0@10=3 tick finish",
        "[10,20) n=3 sum=6",
    );
}

#[test]
fn a_window_closed_by_idleness_makes_late() {
    let spec = idle(plain(), 1);
    let timeline = "p0@1=1 tick@2 tick@3:p0 tick@12:p0 p0@5=1 p0@15=1 tick@13";
    check(spec, timeline, "[0,10) n=1 sum=1; !late p0#1");
}

#[test]
fn a_hopping_record_counts_in_the_windows_that_it_is_in_time_for() {
    let spec = || PipelineSpec {
        window: window(30, 10),
        ..plain()
    };
    let expected = "[-20,10) n=1 sum=1; [-10,20) n=2 sum=3; [0,30) n=3 sum=7; \
                    [10,40) n=1 sum=4; [20,50) n=1 sum=4";
    check(
        spec(),
        "p0@1=1 p0@10=2 p0@21=4 p0@5=0 tick finish",
        &expected
            .replace("[0,30) n=3", "[0,30) n=4")
            .replace("[10,40) n=1 sum=4", "[10,40) n=2 sum=6"),
    );
    let mut player = Player::new(spec(), &["p0"]);
    player.play("p0@21=4 p0@5=1 p0@-5=1 p0@-20=1 tick finish");
    let expected = "[0,30) n=2 sum=5; [10,40) n=1 sum=4; [20,50) n=1 sum=4; ";
    assert_eq!(
        player.results() + "; ",
        format!("!late p0#2; !late p0#3; {expected}")
    );
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!((stats.partly_late, stats.late, stats.counted), (1, 2, 2));
}

#[test]
fn what_where_drops_is_never_a_dead_letter() {
    let spec = PipelineSpec {
        filter: only_values_above_zero(),
        ..plain()
    };
    let mut player = Player::new(spec, &["p0"]);
    player.play("p0@30=1 p0@3=-1 p0@-=0 p0@x p0@x=1 p0@3=1 tick");
    assert_eq!(player.results(), "!bad_time p0#4; !late p0#5");
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!(
        (stats.records, stats.counted, stats.filtered, stats.late),
        (6, 1, 3, 1)
    );
}

/// Of records of these event times and append times, in seconds: how many count, and how many lie in the future.
fn counted_and_future(agreed: Option<i64>, times: &[(i64, Option<i64>)]) -> (u64, u64) {
    let spec = PipelineSpec {
        max_future_ms: Some(300_000),
        ..plain()
    };
    let TimeSource::Field { column, .. } = spec.time else {
        unreachable!("a field holds the time")
    };
    let mut feed = FeedEngine::new();
    feed.add_pipeline(PIPELINE, spec, &mut []);
    let (_, mut lane) = feed.add_lane("a".to_owned());
    let seconds = |time: i64| Timestamp(time * 1000);
    lane.begin(agreed.map(seconds));
    for (offset, &(time, appended)) in (0..).zip(times) {
        let mut cells = Cells::new(8);
        cells.set_number(column, Decimal::from_i64(time));
        lane.absorb(&Record {
            offset,
            append_time: appended.map(seconds),
            state: RecordState::Decoded,
            payload: b"{}",
            cells: &cells,
        });
    }
    let end = TickEnd {
        agreed: agreed.map(seconds),
        at_end: &[],
    };
    drop(feed.settle(&mut [&mut lane], end));
    let stats = feed.stats(PIPELINE).unwrap();
    (stats.counted, stats.dead_letters.get(Reason::Future))
}

#[test]
fn what_the_log_stamped_is_judged_by_that_live_and_replayed_alike() {
    let times = [(1000, Some(1000)), (1301, Some(1000)), (1300, Some(1000))];
    for agreed in [None, Some(0), Some(1000), Some(100_000)] {
        assert_eq!(counted_and_future(agreed, &times), (2, 1), "{agreed:?}");
    }
}

#[test]
fn what_nobody_stamped_is_judged_by_the_ticks_clock() {
    let times = [(1000, None), (1301, None), (1300, None)];
    assert_eq!(counted_and_future(None, &times), (3, 0));
    assert_eq!(counted_and_future(Some(1000), &times), (2, 1));
    assert_eq!(counted_and_future(Some(100_000), &times), (3, 0));
}
