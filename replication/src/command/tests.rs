#![allow(clippy::unwrap_used)]

use super::*;
use crate::golden;

fn lane(name: &str, start: i64) -> LaneEntry {
    LaneEntry {
        source: 1,
        name: name.to_owned(),
        start,
        identity: format!("cluster/{name}"),
    }
}

fn source(name: &str) -> SourceEntry {
    SourceEntry {
        name: name.to_owned(),
        definition: format!(r#"{{"topic":"{name}"}}"#),
    }
}

fn a_tick(feed: FeedId) -> FeedTick {
    FeedTick {
        feed,
        base: 299,
        agreed_ms: 1_700_000_000_025,
        clock_ms: 1_700_000_000_027,
        alone: true,
        moves: vec![LaneMove {
            lane: 0,
            cut: 4711,
            fingerprint: u64::MAX,
        }],
        empty: vec![LaneEmpty {
            lane: 0,
            empty_to: 4713,
        }],
        at_end: vec![0, 2],
    }
}

/// One command of each kind, with the name of its golden file.
fn examples() -> Vec<(&'static str, Command)> {
    let key = |stream| StreamKey {
        incarnation: 300,
        stream,
    };
    let feed = FeedId(7);
    let create_feed = CreateFeed {
        term: 3,
        sources: vec![source("eu"), source("us")],
        lanes: vec![lane("0", 0), lane("orders.ndjson", -1)],
    };
    let create_pipeline = CreatePipeline {
        term: 3,
        feed,
        name: "per_minute".to_owned(),
        sink: "out".to_owned(),
        definition: r#"{"values":{"n":"count()"}}"#.to_owned(),
    };
    let add_lanes = AddLanes {
        term: 3,
        feed,
        base: 299,
        lanes: vec![lane("3", 0)],
    };
    let frontier = FrontierMoves {
        term: 3,
        next: vec![(key(Stream::Rows), 128), (key(Stream::DeadLetters), 0)],
        sink: "out".to_owned(),
    };
    let join_feeds = JoinFeeds {
        term: 3,
        from: FeedId(300),
        into: feed,
        from_base: 298,
        into_base: 299,
    };
    let retire_lanes = RetireLanes {
        term: 3,
        feed,
        base: 299,
        lanes: vec![0, 300],
    };
    let examples = [
        ("command-create-feed", Command::CreateFeed(create_feed)),
        (
            "command-create-pipeline",
            Command::CreatePipeline(create_pipeline),
        ),
        ("command-add-lanes", Command::AddLanes(add_lanes)),
        (
            "command-ticks",
            Command::Ticks(Ticks {
                term: 3,
                feeds: vec![a_tick(feed)],
            }),
        ),
        ("command-frontier", Command::Frontier(frontier)),
        ("command-join-feeds", Command::JoinFeeds(join_feeds)),
        ("command-retire-lanes", Command::RetireLanes(retire_lanes)),
    ];
    let examples = examples.into_iter().chain(of_the_config());
    examples.chain(of_disputes(feed)).collect()
}

/// Those about a feed whose tick is in dispute.
fn of_disputes(feed: FeedId) -> Vec<(&'static str, Command)> {
    let mut marks = crate::machine::Marks::new(-1);
    marks.pass(4711, 99);
    let hold = HoldFeed {
        term: 3,
        feed,
        base: 299,
        tick: 290,
        stands: vec![LaneStand {
            cut: 4711,
            fingerprint: 99,
            marks,
        }],
        alone: true,
        by: Decider::Majority,
        dispute: Some(Dispute {
            lane: 0,
            from: 4711,
            to: 4713,
            agreed: u64::MAX,
            told: vec![Told {
                node: 2,
                cut: 4712,
                fingerprint: 100,
            }],
        }),
    };
    let park = ParkFeed {
        term: 3,
        feed,
        base: 300,
        state: 280,
        stands: hold.stands.clone(),
    };
    let release = ReleaseFeed {
        term: 3,
        feed,
        base: 300,
    };
    let end = EndTicks {
        term: 3,
        feed,
        base: 300,
        skips: vec![(0, 5000)],
        streams: vec![StreamEnd {
            stream: StreamKey {
                incarnation: 300,
                stream: Stream::Rows,
            },
            next: 128,
            digest: u128::MAX / 3,
        }],
    };
    vec![
        ("command-hold-feed", Command::HoldFeed(hold)),
        ("command-release-feed", Command::ReleaseFeed(release)),
        ("command-end-ticks", Command::EndTicks(end)),
        ("command-park-feed", Command::ParkFeed(park)),
    ]
}

/// Those about the agreed configuration.
fn of_the_config() -> Vec<(&'static str, Command)> {
    let name = || "per_minute".to_owned();
    let sink = SinkEntry {
        identity: r#"{"transactional_id":"unisono-out"}"#.to_owned(),
        definition: r#"{"topic":"rows"}"#.to_owned(),
        takes_dead_letters: true,
    };
    vec![
        (
            "command-begin-cluster",
            Command::BeginCluster(BeginCluster {
                term: 1,
                id: u128::MAX / 3,
            }),
        ),
        (
            "command-set-sink",
            Command::SetSink(SetSink {
                term: 3,
                name: "out".to_owned(),
                sink,
                by: Origin::Operator,
            }),
        ),
        (
            "command-apply-pipeline",
            Command::ApplyPipeline(ApplyPipeline {
                term: 3,
                name: name(),
                sink: "out".to_owned(),
                definition: r#"{"values":{"n":"count()"}}"#.to_owned(),
            }),
        ),
        (
            "command-remove-pipeline",
            Command::RemovePipeline(RemovePipeline {
                term: 3,
                name: name(),
            }),
        ),
        (
            "command-pause-pipeline",
            Command::PausePipeline(PausePipeline {
                term: 3,
                name: name(),
                paused: true,
            }),
        ),
        (
            "command-forget-removed",
            Command::ForgetRemoved(ForgetRemoved {
                term: 3,
                names: vec![name()],
            }),
        ),
    ]
}

#[test]
fn every_command_is_read_from_and_written_to_the_golden_bytes() {
    for (name, command) in examples() {
        let bytes = golden::bytes(name, &command.encode());
        assert_eq!(Command::decode(&bytes).unwrap(), command, "{name}");
    }
}

#[test]
fn another_versions_entry_is_refused_with_what_to_do() {
    let mut bytes = examples()[3].1.encode();
    bytes[0] = 3;
    let older = Command::decode(&bytes).unwrap_err();
    assert!(matches!(older, DecodeError::Older { found: 3 }));
    let text = older.to_string();
    assert!(
        text.contains("version 3") && text.contains("reads version 4") && text.contains("wipe"),
        "{text}"
    );
    bytes[0] = 5;
    let newer = Command::decode(&bytes).unwrap_err();
    assert!(matches!(newer, DecodeError::Newer { found: 5 }));
    assert!(newer.to_string().contains("upgrade it"), "{newer}");
}

#[test]
fn what_is_cut_short_or_too_long_is_damaged() {
    for (name, command) in examples() {
        let whole = command.encode();
        for length in 0..whole.len() {
            let read = Command::decode(&whole[..length]);
            assert!(
                matches!(read, Err(DecodeError::Damaged(_))),
                "{name}: {length}"
            );
        }
        let longer = [whole.as_slice(), &[0]].concat();
        assert!(
            matches!(Command::decode(&longer), Err(DecodeError::Damaged(_))),
            "{name}"
        );
    }
}
