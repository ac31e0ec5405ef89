use super::*;
use crate::command::{FeedTick, LaneEmpty, LaneMove, Stream};

mod config;
mod holding;
mod joining;

fn feed_of_two() -> Machine {
    let mut machine = Machine::default();
    let source = SourceEntry {
        name: "s".to_owned(),
        definition: String::new(),
    };
    let lane = |name: &str| LaneEntry {
        source: 0,
        name: name.to_owned(),
        start: 10,
        identity: String::new(),
    };
    let lanes = vec![lane("0"), lane("1")];
    let create = CreateFeed {
        term: 1,
        sources: vec![source],
        lanes,
    };
    let effect = machine.apply(5, 1, &Command::CreateFeed(create));
    assert_eq!(effect, Effect::FeedCreated(FeedId(5)));
    machine
}

fn tick(term: u64, base: u64, agreed_ms: i64, cuts: &[(u32, i64)]) -> Command {
    let step = |&(lane, cut): &(u32, i64)| LaneMove {
        lane,
        cut,
        fingerprint: 7,
    };
    let moves = cuts.iter().map(step).collect();
    let feed = FeedTick {
        feed: FeedId(5),
        base,
        agreed_ms,
        clock_ms: agreed_ms,
        alone: false,
        moves,
        empty: vec![],
        at_end: vec![],
    };
    Command::Ticks(Ticks {
        term,
        feeds: vec![feed],
    })
}

#[test]
fn a_tick_counts_only_on_the_last_accepted_entry() {
    let mut machine = feed_of_two();
    assert!(matches!(
        machine.apply(6, 1, &tick(1, 5, 100, &[(0, 20)])),
        Effect::Ticked(_)
    ));
    let before = machine.clone();
    let repeated = machine.apply(7, 1, &tick(1, 5, 100, &[(0, 20)]));
    assert_eq!(repeated, Effect::Void(Void::Base));
    assert_eq!(machine, before);
    let next = machine.apply(8, 1, &tick(1, 6, 100, &[(0, 21), (1, 11)]));
    let Effect::Ticked(accepted) = next else {
        panic!("{next:?}")
    };
    let first = AcceptedMove {
        lane: 0,
        from: 20,
        to: 21,
        fingerprint: 7,
    };
    let second = AcceptedMove {
        lane: 1,
        from: 10,
        to: 11,
        fingerprint: 7,
    };
    assert_eq!(accepted[0].moves, [first, second]);
}

#[test]
fn an_entry_of_a_deposed_leader_is_void() {
    let mut machine = feed_of_two();
    let effect = machine.apply(6, 2, &tick(1, 5, 100, &[(0, 20)]));
    assert_eq!(effect, Effect::Void(Void::Term));
}

#[test]
fn one_tick_that_does_not_fit_voids_its_whole_entry() {
    let mut machine = feed_of_two();
    let good = FeedTick {
        feed: FeedId(5),
        base: 5,
        agreed_ms: 1,
        clock_ms: 1,
        alone: false,
        moves: vec![LaneMove {
            lane: 0,
            cut: 11,
            fingerprint: 1,
        }],
        empty: vec![],
        at_end: vec![],
    };
    let bad = FeedTick {
        feed: FeedId(9),
        ..good.clone()
    };
    let before = machine.clone();
    let entry = Command::Ticks(Ticks {
        term: 1,
        feeds: vec![good, bad],
    });
    assert_eq!(machine.apply(6, 1, &entry), Effect::Void(Void::Name));
    assert_eq!(machine, before);
}

#[test]
fn neither_time_nor_a_cut_goes_back() {
    let mut machine = feed_of_two();
    machine.apply(6, 1, &tick(1, 5, 100, &[(0, 20)]));
    let earlier = machine.apply(7, 1, &tick(1, 6, 99, &[]));
    assert_eq!(earlier, Effect::Void(Void::Backwards));
    let behind = machine.apply(8, 1, &tick(1, 6, 100, &[(0, 20)]));
    assert_eq!(behind, Effect::Void(Void::Backwards));
    let twice = machine.apply(9, 1, &tick(1, 6, 100, &[(0, 21), (0, 22)]));
    assert_eq!(twice, Effect::Void(Void::Backwards));
}

#[test]
fn a_feed_that_has_ticked_takes_no_pipeline_and_a_name_is_taken_once() {
    let mut machine = feed_of_two();
    let create = |name: &str| {
        Command::CreatePipeline(CreatePipeline {
            term: 1,
            feed: FeedId(5),
            name: name.to_owned(),
            sink: "builtin".to_owned(),
            definition: String::new(),
        })
    };
    let first = machine.apply(6, 1, &create("a"));
    assert_eq!(first, Effect::PipelineCreated { incarnation: 6 });
    assert_eq!(machine.apply(7, 1, &create("a")), Effect::Void(Void::Name));
    machine.apply(8, 1, &tick(1, 5, 100, &[]));
    assert_eq!(machine.apply(9, 1, &create("b")), Effect::Void(Void::Name));
}

#[test]
fn the_frontier_only_grows() {
    let mut machine = feed_of_two();
    let create = CreatePipeline {
        term: 1,
        feed: FeedId(5),
        name: "a".to_owned(),
        sink: "builtin".to_owned(),
        definition: String::new(),
    };
    machine.apply(6, 1, &Command::CreatePipeline(create));
    let key = StreamKey {
        incarnation: 6,
        stream: Stream::Rows,
    };
    let to = |next| {
        Command::Frontier(FrontierMoves {
            term: 1,
            next: vec![(key, next)],
            sink: "builtin".to_owned(),
        })
    };
    machine.apply(7, 1, &to(12));
    machine.apply(8, 1, &to(9));
    assert_eq!(machine.frontier(key), 12);
}

#[test]
fn a_new_lane_moves_the_base_so_that_a_tick_in_flight_is_void() {
    let mut machine = feed_of_two();
    let lane = LaneEntry {
        source: 0,
        name: "2".to_owned(),
        start: 0,
        identity: String::new(),
    };
    let add = AddLanes {
        term: 1,
        feed: FeedId(5),
        base: 5,
        lanes: vec![lane],
    };
    let added = machine.apply(6, 1, &Command::AddLanes(add));
    assert_eq!(
        added,
        Effect::LanesAdded {
            feed: FeedId(5),
            first: 2
        }
    );
    assert_eq!(
        machine.apply(7, 1, &tick(1, 5, 1, &[(0, 20)])),
        Effect::Void(Void::Base)
    );
}

#[test]
fn a_hole_lies_beyond_the_cut_that_its_tick_leaves() {
    let with_holes = |base, cuts: &[(u32, i64)], holes: &[(u32, i64)]| {
        let Command::Ticks(mut ticks) = tick(1, base, 100, cuts) else {
            unreachable!("it makes ticks")
        };
        let hole = |&(lane, empty_to): &(u32, i64)| LaneEmpty { lane, empty_to };
        ticks.feeds[0].empty = holes.iter().map(hole).collect();
        Command::Ticks(ticks)
    };
    let mut machine = feed_of_two();
    let refused = [
        (with_holes(5, &[(0, 20)], &[(0, 20)]), Void::Backwards),
        (with_holes(5, &[], &[(1, 10)]), Void::Backwards),
        (with_holes(5, &[], &[(1, 11), (0, 11)]), Void::Backwards),
        (with_holes(5, &[], &[(2, 99)]), Void::Name),
    ];
    for (index, (command, void)) in (6..).zip(refused) {
        assert_eq!(
            machine.apply(index, 1, &command),
            Effect::Void(void),
            "{command:?}"
        );
    }
    let fits = with_holes(5, &[(0, 20)], &[(0, 21), (1, 11)]);
    assert!(matches!(machine.apply(20, 1, &fits), Effect::Ticked(_)));
    let holes = |machine: &Machine| {
        let lanes = &machine.feeds()[&FeedId(5)].lanes;
        let beyond = lanes.iter().map(|lane| lane.hole.of(lane.cut));
        beyond.collect::<Vec<_>>()
    };
    assert_eq!(holes(&machine), [21, 11]);
    // It says nothing of a lane that has gone on, or back.
    machine.apply(21, 1, &tick(1, 20, 100, &[(0, 30)]));
    assert_eq!(holes(&machine), [30, 11]);
}

fn retire(base: u64, lanes: &[u32]) -> Command {
    Command::RetireLanes(RetireLanes {
        term: 1,
        feed: FeedId(5),
        base,
        lanes: lanes.to_vec(),
    })
}

/// A tick that says which lanes were at their end.
fn tick_at_end(base: u64, cuts: &[(u32, i64)], at_end: &[u32]) -> Command {
    let Command::Ticks(mut ticks) = tick(1, base, 100, cuts) else {
        unreachable!("it makes ticks")
    };
    ticks.feeds[0].at_end = at_end.to_vec();
    Command::Ticks(ticks)
}

#[test]
fn only_a_lane_that_was_at_its_end_is_retired_and_its_name_is_free_then() {
    let mut machine = feed_of_two();
    let void = Effect::Void(Void::Name);
    assert_eq!(machine.apply(6, 1, &retire(5, &[0])), void);
    machine.apply(7, 1, &tick_at_end(5, &[(0, 20)], &[0]));
    // That it gave more was its last word.
    machine.apply(8, 1, &tick(1, 7, 100, &[(0, 21)]));
    assert_eq!(machine.apply(9, 1, &retire(8, &[0])), void);
    machine.apply(10, 1, &tick_at_end(8, &[], &[0]));
    machine.apply(11, 1, &tick(1, 10, 100, &[(1, 11)]));
    let old = machine.apply(12, 1, &retire(10, &[0]));
    assert_eq!(old, Effect::Void(Void::Base));
    assert_eq!(machine.apply(13, 1, &retire(11, &[0, 1])), void);
    let effect = machine.apply(14, 1, &retire(11, &[0]));
    let (feed, lanes) = (FeedId(5), vec![0]);
    assert_eq!(effect, Effect::LanesRetired { feed, lanes });
    assert_eq!(machine.apply(15, 1, &retire(14, &[0])), void);
    assert_eq!(machine.apply(16, 1, &tick(1, 14, 100, &[(0, 22)])), void);

    let lane = LaneEntry {
        source: 0,
        name: "0".to_owned(),
        start: 0,
        identity: "another".to_owned(),
    };
    let add = |base| {
        Command::AddLanes(AddLanes {
            term: 1,
            feed: FeedId(5),
            base,
            lanes: vec![lane.clone()],
        })
    };
    let effect = machine.apply(17, 1, &add(14));
    let (feed, first) = (FeedId(5), 2);
    assert_eq!(effect, Effect::LanesAdded { feed, first });
    assert_eq!(machine.apply(18, 1, &add(17)), void);
    let feed = &machine.feeds()[&FeedId(5)];
    assert_eq!((feed.lanes[0].cut, feed.lanes[2].cut), (21, 0));
    assert_eq!(feed.lanes[2].identity, "another");
}
