//! Two feeds of the same sources that become one.

use super::*;

const ELDER: FeedId = FeedId(5);
const YOUNGER: FeedId = FeedId(20);

fn create_feed(source: &str, lanes: &[(&str, i64)]) -> Command {
    let lane = |&(name, start): &(&str, i64)| LaneEntry {
        source: 0,
        name: name.to_owned(),
        start,
        identity: String::new(),
    };
    Command::CreateFeed(CreateFeed {
        term: 1,
        sources: vec![SourceEntry {
            name: source.to_owned(),
            definition: String::new(),
        }],
        lanes: lanes.iter().map(lane).collect(),
    })
}

fn create_pipeline(feed: FeedId, name: &str) -> Command {
    Command::CreatePipeline(CreatePipeline {
        term: 1,
        feed,
        name: name.to_owned(),
        sink: "builtin".to_owned(),
        definition: String::new(),
    })
}

/// A tick of the younger feed, whose fingerprints are not the elder's.
fn younger_tick(base: u64, agreed_ms: i64, cuts: &[(u32, i64)]) -> Command {
    let Command::Ticks(mut ticks) = tick(1, base, agreed_ms, cuts) else {
        unreachable!("it makes ticks")
    };
    ticks.feeds[0].feed = YOUNGER;
    ticks.feeds[0]
        .moves
        .iter_mut()
        .for_each(|step| step.fingerprint = 8);
    Command::Ticks(ticks)
}

fn join(from: FeedId, into: FeedId, from_base: u64, into_base: u64) -> Command {
    Command::JoinFeeds(JoinFeeds {
        term: 1,
        from,
        into,
        from_base,
        into_base,
    })
}

/// The elder feed at 20 and 30, at agreed time 100; the younger, whose lanes lie the other way round, has not moved.
fn two_feeds() -> Machine {
    let mut machine = feed_of_two();
    machine.apply(6, 1, &create_pipeline(ELDER, "a"));
    machine.apply(7, 1, &tick(1, 5, 100, &[(0, 20), (1, 30)]));
    machine.apply(20, 1, &create_feed("s", &[("1", 0), ("0", 0)]));
    machine.apply(21, 1, &create_pipeline(YOUNGER, "b"));
    machine
}

#[test]
fn feeds_at_equal_cuts_become_one_that_goes_on_as_the_elder() {
    let mut machine = two_feeds();
    machine.apply(22, 1, &younger_tick(20, 99, &[(0, 30), (1, 20)]));
    let lanes = machine.feeds()[&ELDER].lanes.clone();
    let effect = machine.apply(23, 1, &join(YOUNGER, ELDER, 22, 7));
    let (from, into) = (YOUNGER, ELDER);
    assert_eq!(effect, Effect::FeedsJoined { from, into });
    assert_eq!(machine.feeds().keys().collect::<Vec<_>>(), [&ELDER]);
    assert!(machine.pipelines().values().all(|of| of.feed == ELDER));
    let joint = &machine.feeds()[&ELDER];
    assert_eq!((&joint.lanes, joint.agreed_ms), (&lanes, Some(100)));
    // A tick on the base before it was in flight.
    let in_flight = machine.apply(24, 1, &tick(1, 7, 101, &[]));
    assert_eq!(in_flight, Effect::Void(Void::Base));
    let next = machine.apply(25, 1, &tick(1, 23, 101, &[(0, 21)]));
    assert!(matches!(next, Effect::Ticked(_)), "{next:?}");
    let gone = machine.apply(26, 1, &younger_tick(22, 101, &[]));
    assert_eq!(gone, Effect::Void(Void::Name));
}

#[test]
fn a_join_that_does_not_fit_is_void_and_changes_nothing() {
    let mut machine = two_feeds();
    machine.apply(22, 1, &younger_tick(20, 99, &[(0, 30), (1, 20)]));
    let refused = [
        (join(YOUNGER, ELDER, 21, 7), Void::Base),
        (join(YOUNGER, ELDER, 22, 5), Void::Base),
        (join(ELDER, ELDER, 7, 7), Void::Name),
        (join(FeedId(9), ELDER, 22, 7), Void::Name),
        (join(YOUNGER, FeedId(9), 22, 7), Void::Name),
        // The younger's agreed time lies before the elder's.
        (join(ELDER, YOUNGER, 7, 22), Void::Backwards),
    ];
    let before = machine.clone();
    for (command, void) in refused {
        let effect = machine.apply(23, 1, &command);
        assert_eq!(effect, Effect::Void(void), "{command:?}");
        assert_eq!(machine, before);
    }
}

#[test]
fn feeds_that_have_not_taken_in_the_same_stay_apart() {
    let apart = |create: Command, younger: Command| {
        let mut machine = two_feeds();
        machine.apply(20, 1, &create);
        let ticked = machine.apply(22, 1, &younger);
        assert!(matches!(ticked, Effect::Ticked(_)), "{ticked:?}");
        let effect = machine.apply(23, 1, &join(YOUNGER, ELDER, 22, 7));
        assert_eq!(effect, Effect::Void(Void::Apart), "{create:?} {younger:?}");
    };
    let same = || create_feed("s", &[("0", 0), ("1", 0)]);
    apart(same(), younger_tick(20, 99, &[(0, 20), (1, 29)]));
    apart(same(), younger_tick(20, 99, &[(0, 21), (1, 30)]));
    apart(
        create_feed("s", &[("0", 0)]),
        younger_tick(20, 99, &[(0, 20)]),
    );
    apart(
        create_feed("s", &[("0", 0), ("2", 0)]),
        younger_tick(20, 99, &[(0, 20), (1, 30)]),
    );
    apart(
        create_feed("t", &[("0", 0), ("1", 0)]),
        younger_tick(20, 99, &[(0, 20), (1, 30)]),
    );
}

#[test]
fn feeds_join_though_the_younger_lacks_lanes_that_are_retired() {
    let mut machine = feed_of_two();
    machine.apply(6, 1, &create_pipeline(ELDER, "a"));
    machine.apply(7, 1, &tick_at_end(5, &[(0, 20), (1, 30)], &[0]));
    machine.apply(20, 1, &create_feed("s", &[("1", 0)]));
    machine.apply(21, 1, &create_pipeline(YOUNGER, "b"));
    machine.apply(22, 1, &younger_tick(20, 99, &[(0, 30)]));
    let apart = machine.apply(23, 1, &join(YOUNGER, ELDER, 22, 7));
    assert_eq!(apart, Effect::Void(Void::Apart));
    machine.apply(24, 1, &retire(7, &[0]));
    let effect = machine.apply(25, 1, &join(YOUNGER, ELDER, 22, 24));
    let (from, into) = (YOUNGER, ELDER);
    assert_eq!(effect, Effect::FeedsJoined { from, into });
}

#[test]
fn lanes_of_the_same_name_that_are_not_the_same_keep_their_feeds_apart() {
    let mut machine = feed_of_two();
    machine.apply(6, 1, &create_pipeline(ELDER, "a"));
    machine.apply(7, 1, &tick(1, 5, 100, &[(0, 20), (1, 30)]));
    let Command::CreateFeed(mut create) = create_feed("s", &[("0", 0), ("1", 0)]) else {
        unreachable!("it creates a feed")
    };
    create.lanes[0].identity = "another".to_owned();
    machine.apply(20, 1, &Command::CreateFeed(create));
    machine.apply(22, 1, &younger_tick(20, 99, &[(0, 20), (1, 30)]));
    let effect = machine.apply(23, 1, &join(YOUNGER, ELDER, 22, 7));
    assert_eq!(effect, Effect::Void(Void::Apart));
}
