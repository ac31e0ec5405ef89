use super::*;
use crate::command::{
    CreatePipeline, Decider, EndTicks, HoldFeed, LaneStand, ParkFeed, ReleaseFeed, RemovePipeline,
    RetireLanes, Stream, StreamEnd,
};

const FEED: FeedId = FeedId(5);

/// The feed 5 with pipeline 6, of which ticks 7, 8 and 9 moved lane 0 to 20, 30 and 40; and where it stood before 8.
fn with_ticks() -> (Machine, Vec<LaneStand>) {
    let mut machine = feed_of_two();
    let create = CreatePipeline {
        term: 1,
        feed: FEED,
        name: "p".to_owned(),
        sink: BUILTIN_SINK.to_owned(),
        definition: String::new(),
    };
    applied(&mut machine, 6, &Command::CreatePipeline(create));
    applied(&mut machine, 7, &tick(1, 5, 100, &[(0, 20)]));
    let stands = machine.feeds()[&FEED].stands();
    applied(&mut machine, 8, &tick(1, 7, 200, &[(0, 30), (1, 15)]));
    applied(&mut machine, 9, &tick(1, 8, 300, &[(0, 40)]));
    (machine, stands)
}

fn applied(machine: &mut Machine, index: u64, command: &Command) {
    let effect = machine.apply(index, 1, command);
    assert!(!matches!(effect, Effect::Void(_)), "{index}: {effect:?}");
}

fn hold(tick: u64, stands: Vec<LaneStand>) -> Command {
    Command::HoldFeed(HoldFeed {
        term: 1,
        feed: FEED,
        base: 9,
        tick,
        stands,
        alone: true,
        by: Decider::Majority,
        dispute: None,
    })
}

fn end(base: u64, skips: &[(u32, i64)], next: u64) -> Command {
    let end = |stream| StreamEnd {
        stream: StreamKey {
            incarnation: 6,
            stream,
        },
        next,
        digest: 1,
    };
    Command::EndTicks(EndTicks {
        term: 1,
        feed: FEED,
        base,
        skips: skips.to_vec(),
        streams: vec![end(Stream::Rows), end(Stream::DeadLetters)],
    })
}

fn published(next: u64) -> Command {
    let key = StreamKey {
        incarnation: 6,
        stream: Stream::Rows,
    };
    Command::Frontier(FrontierMoves {
        term: 1,
        next: vec![(key, next)],
        sink: BUILTIN_SINK.to_owned(),
    })
}

#[test]
fn a_held_feed_takes_no_entry_but_a_decision() {
    let (mut machine, stands) = with_ticks();
    let effect = machine.apply(10, 1, &hold(8, stands.clone()));
    assert_eq!(effect, Effect::FeedHeld(FEED));
    let lane = LaneEntry {
        source: 0,
        name: "2".to_owned(),
        start: 0,
        identity: String::new(),
    };
    let more = AddLanes {
        term: 1,
        feed: FEED,
        base: 10,
        lanes: vec![lane],
    };
    let held = Effect::Void(Void::Held);
    let before = machine.clone();
    assert_eq!(machine.apply(11, 1, &tick(1, 10, 400, &[(0, 50)])), held);
    assert_eq!(machine.apply(11, 1, &Command::AddLanes(more)), held);
    assert_eq!(machine, before);
    // One that was on its way is built on what was before.
    let late = machine.apply(11, 1, &tick(1, 9, 400, &[(0, 50)]));
    assert_eq!(late, Effect::Void(Void::Base));
}

#[test]
fn a_released_feed_goes_on_where_it_was() {
    let (mut machine, stands) = with_ticks();
    let lanes = machine.feeds()[&FEED].lanes.clone();
    applied(&mut machine, 10, &hold(8, stands));
    let release = |base| {
        Command::ReleaseFeed(ReleaseFeed {
            term: 1,
            feed: FEED,
            base,
        })
    };
    assert_eq!(machine.apply(11, 1, &release(9)), Effect::Void(Void::Base));
    let effect = machine.apply(11, 1, &release(10));
    let feed = FEED;
    assert_eq!(effect, Effect::FeedReleased { feed, tick: 8 });
    for (lane, before) in machine.feeds()[&FEED].lanes.iter().zip(&lanes) {
        let cut = before.cut;
        assert_eq!(
            (lane.cut, lane.fingerprint, lane.marks.start),
            (cut, 0, cut)
        );
    }
    let again = machine.apply(12, 1, &release(11));
    assert_eq!(again, Effect::Void(Void::Held));
    applied(&mut machine, 12, &tick(1, 11, 400, &[(0, 50)]));
}

#[test]
fn ended_ticks_are_as_if_they_had_never_been_but_for_time() {
    let (mut machine, stands) = with_ticks();
    applied(&mut machine, 10, &hold(8, stands.clone()));
    let effect = machine.apply(11, 1, &end(10, &[(1, 12)], 3));
    assert_eq!(effect, Effect::TicksEnded(FEED));
    let feed = &machine.feeds()[&FEED];
    assert_eq!(feed.stands()[0], stands[0]);
    let skipped = &feed.lanes[1];
    assert_eq!(
        (skipped.cut, skipped.fingerprint, skipped.marks.start),
        (12, 0, 12)
    );
    assert_eq!((feed.agreed_ms, feed.base), (Some(300), 11));
    assert_eq!(feed.ended[0].skipped, [(1, 10, 12)]);
    let counts: Vec<bool> = (7..12).map(|index| feed.counts_at(index)).collect();
    assert_eq!(counts, [true, false, false, false, true]);
    applied(&mut machine, 12, &tick(1, 11, 300, &[(0, 30)]));
}

#[test]
fn ticks_end_only_behind_all_that_is_published() {
    let (mut machine, stands) = with_ticks();
    applied(&mut machine, 10, &hold(8, stands));
    // What was on its way when the feed was held still counts.
    applied(&mut machine, 11, &published(4));
    let before = machine.clone();
    let backwards = Effect::Void(Void::Backwards);
    assert_eq!(machine.apply(12, 1, &end(10, &[], 3)), backwards);
    assert_eq!(machine.apply(12, 1, &end(10, &[(0, 20)], 4)), backwards);
    let mut short = end(10, &[], 4);
    if let Command::EndTicks(end) = &mut short {
        end.streams.pop();
    }
    assert_eq!(machine.apply(12, 1, &short), Effect::Void(Void::Name));
    assert_eq!(machine, before);
    applied(&mut machine, 12, &end(10, &[], 4));
}

#[test]
fn a_feed_is_held_for_a_tick_that_is_and_where_its_lanes_can_have_stood() {
    let (mut machine, stands) = with_ticks();
    let backwards = Effect::Void(Void::Backwards);
    assert_eq!(machine.apply(10, 1, &hold(10, stands.clone())), backwards);
    let mut beyond = stands.clone();
    beyond[0].cut = 41;
    assert_eq!(machine.apply(10, 1, &hold(8, beyond)), backwards);
    applied(&mut machine, 10, &hold(8, stands));
}

#[test]
fn a_lane_that_came_after_the_tick_begins_anew_and_one_that_was_retired_binds_all_before() {
    let (mut machine, stands) = with_ticks();
    let mut bound = machine.clone();
    let feed = bound.feeds.get_mut(&FEED).expect("it is there");
    feed.lanes[1].ended = true;
    let retire = RetireLanes {
        term: 1,
        feed: FEED,
        base: 9,
        lanes: vec![1],
    };
    applied(&mut bound, 10, &Command::RetireLanes(retire));
    let mut held = hold(8, stands.clone());
    if let Command::HoldFeed(hold) = &mut held {
        hold.base = 10;
    }
    applied(&mut bound, 11, &held);
    let ended = bound.apply(12, 1, &end(11, &[], 0));
    assert_eq!(ended, Effect::Void(Void::Apart));

    applied(&mut machine, 10, &hold(8, stands[..1].to_vec()));
    applied(&mut machine, 11, &end(10, &[], 0));
    let later = &machine.feeds()[&FEED].lanes[1];
    assert_eq!((later.cut, later.fingerprint), (10, 0));
}

fn park(base: u64, state: u64, stands: Vec<LaneStand>) -> Command {
    Command::ParkFeed(ParkFeed {
        term: 1,
        feed: FEED,
        base,
        state,
        stands,
    })
}

#[test]
fn a_parked_feed_is_held_right_after_a_state_and_goes_on_from_there() {
    let (mut machine, stands) = with_ticks();
    applied(&mut machine, 10, &park(9, 7, stands.clone()));
    let held = machine.feeds()[&FEED].held.clone().expect("it is held");
    let expected = (10, 8, Some(7), Decider::Length);
    assert_eq!((held.since, held.tick, held.parked, held.by), expected);
    let tick = machine.apply(11, 1, &tick(1, 10, 400, &[(0, 50)]));
    assert_eq!(tick, Effect::Void(Void::Held));
    applied(&mut machine, 11, &end(10, &[], 0));
    assert_eq!(machine.feeds()[&FEED].stands(), stands);
    assert_eq!(machine.feeds()[&FEED].parked(), None);
}

#[test]
fn a_held_feed_is_parked_before_its_tick_alone_and_what_was_told_stays() {
    let (mut machine, stands) = with_ticks();
    applied(&mut machine, 10, &hold(8, stands.clone()));
    let beyond = machine.apply(11, 1, &park(10, 8, stands.clone()));
    assert_eq!(beyond, Effect::Void(Void::Backwards));
    applied(&mut machine, 11, &park(10, 7, stands.clone()));
    let held = machine.feeds()[&FEED].held.clone().expect("it is held");
    assert_eq!(
        (held.since, held.alone, held.by),
        (10, true, Decider::Majority)
    );
    // Where that state is lost, another one takes its place.
    let blank = stands.iter().map(|stand| LaneStand {
        cut: stand.marks.start,
        fingerprint: 0,
        marks: Marks::new(stand.marks.start),
    });
    applied(&mut machine, 12, &park(11, 6, blank.collect()));
    assert_eq!(machine.feeds()[&FEED].parked(), Some(6));
}

#[test]
fn of_a_parked_feed_pipelines_end_together() {
    let (mut machine, stands) = with_ticks();
    let mut second = machine.pipelines[&6].clone();
    "q".clone_into(&mut second.name);
    machine.pipelines.insert(60, second);
    applied(&mut machine, 10, &park(9, 7, stands));
    let before = machine.clone();
    let remove = |name: &str| {
        let name = name.to_owned();
        Command::RemovePipeline(RemovePipeline { term: 1, name })
    };
    assert_eq!(machine.apply(11, 1, &remove("p")), Effect::Void(Void::Held));
    assert_eq!(machine, before);
    machine.pipelines.remove(&60);
    applied(&mut machine, 11, &remove("p"));
    assert!(machine.feeds().is_empty());
}
