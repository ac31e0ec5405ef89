//! Some seeds of the simulation, each run of a cluster with all kinds of faults; `--bench simulate` runs many.

use std::time::Duration;

use unisono_tests::simulation::{Fault, prompt, run, skew};

/// A leader that is wrong while it is alone, among what else may happen then.
const WRONG_ALONE: &[Fault] = &[
    Fault::WrongAlone,
    Fault::Kill,
    Fault::Pause,
    Fault::HandOver,
    Fault::NoSink,
    Fault::LostAnswers,
];

fn seeds() -> std::ops::Range<u64> {
    let seeds = std::env::var("UNISONO_SEEDS").unwrap_or_default();
    match seeds.split_once("..") {
        Some((from, to)) => from.parse().unwrap_or(0)..to.parse().unwrap_or(0),
        None => 0..seeds.parse().unwrap_or(10),
    }
}

#[test]
fn without_faults_all_is_counted_once() {
    for seed in 0..4 {
        let ran = run(seed, &[]);
        println!("{ran:?}");
        assert_eq!(ran.alone, 0, "rows went out that nobody else had computed");
        assert_eq!(ran.doubted, (0, 0, 0));
        let (made, alone, not_kept) = ran.checkpoints;
        assert!(made > 10 && (alone, not_kept) == (0, 0), "{ran:?}");
    }
}

/// At the slowest beat that a config may say, a tick every 500 ms, a window's rows are in the sink soon after the records that
/// close it: an eighth of the beat, and what a tick, its confirmation and a transaction take.
#[test]
fn rows_come_when_their_window_is_complete_not_when_the_beat_comes() {
    let mut late: Vec<Duration> = (0..4).flat_map(prompt::lateness).collect();
    late.sort();
    println!("{late:?}");
    assert!(late.len() >= 4 * 18, "rows of {} windows", late.len());
    let worst = late.last().copied().unwrap_or_default();
    assert!(worst < prompt::BEAT / 4, "rows took up to {worst:?}");
}

/// What a tick moves at least is the rest of what a lane may be ahead; the lane that is larger by far gives the pace.
#[test]
fn aligned_lanes_of_a_backlog_stay_side_by_side_and_others_are_not_held() {
    for seed in 0..3 {
        let skews = skew::skews(seed);
        println!("{skews:?}");
        assert!(
            skews.aligned <= skew::MAX_SKEW + skew::OF_A_TICK,
            "{skews:?}"
        );
        assert!(skews.free > 4 * skew::MAX_SKEW, "{skews:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(1, Fault::ALL), run(1, Fault::ALL));
}

#[test]
fn what_a_leader_took_in_alone_and_wrongly_is_ended_and_all_is_counted() {
    let mut ends = 0;
    for seed in 0..8 {
        let ran = run(seed, WRONG_ALONE);
        println!("seed {seed}: {ran:?}");
        ends += ran.ends;
    }
    assert!(ends > 0, "no tick was ended");
}

#[test]
fn whatever_happens_all_is_counted_once() {
    for seed in seeds() {
        println!("seed {seed}");
        println!("{:?}", run(seed, Fault::ALL));
    }
}
