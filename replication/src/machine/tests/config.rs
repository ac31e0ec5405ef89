//! The agreed configuration.

use super::*;
use crate::command::{
    ApplyPipeline, BeginCluster, ForgetRemoved, Origin, PausePipeline, RemovePipeline, SetSink,
};

const LETTERS: Stream = Stream::DeadLetters;

fn create(name: &str, sink: &str) -> Command {
    Command::CreatePipeline(CreatePipeline {
        term: 1,
        feed: FeedId(5),
        name: name.to_owned(),
        sink: sink.to_owned(),
        definition: format!("{name} as it was"),
    })
}

fn apply(name: &str, sink: &str, definition: &str) -> Command {
    Command::ApplyPipeline(ApplyPipeline {
        term: 1,
        name: name.to_owned(),
        sink: sink.to_owned(),
        definition: definition.to_owned(),
    })
}

fn remove(name: &str) -> Command {
    let (term, name) = (1, name.to_owned());
    Command::RemovePipeline(RemovePipeline { term, name })
}

fn sink(name: &str, identity: &str, letters: &str, by: Origin) -> Command {
    Command::SetSink(SetSink {
        term: 1,
        name: name.to_owned(),
        sink: SinkEntry {
            identity: identity.to_owned(),
            definition: format!("{identity} with {letters}"),
            takes_dead_letters: !letters.is_empty(),
        },
        by,
    })
}

fn moves(sink: &str, incarnation: u64, stream: Stream, next: u64) -> Command {
    let key = StreamKey {
        incarnation,
        stream,
    };
    Command::Frontier(FrontierMoves {
        term: 1,
        next: vec![(key, next)],
        sink: sink.to_owned(),
    })
}

fn key(incarnation: u64, stream: Stream) -> StreamKey {
    StreamKey {
        incarnation,
        stream,
    }
}

/// The feed 5, the sink `out`, and the pipelines 11 and 12, both on that sink.
fn two_pipelines() -> Machine {
    let mut machine = feed_of_two();
    let commands = [
        sink("out", "id", "", Origin::Files),
        create("p", "out"),
        create("q", "out"),
    ];
    for (index, command) in (10..).zip(commands) {
        let effect = machine.apply(index, 1, &command);
        assert!(!matches!(effect, Effect::Void(_)), "{index}: {effect:?}");
    }
    machine
}

#[test]
fn a_cluster_is_named_once() {
    let mut machine = Machine::default();
    let begin = |id| Command::BeginCluster(BeginCluster { term: 1, id });
    assert_eq!(machine.apply(1, 1, &begin(7)), Effect::ConfigChanged);
    assert_eq!(machine.apply(2, 1, &begin(8)), Effect::Void(Void::Name));
    assert_eq!(machine.cluster(), Some(7));
}

#[test]
fn files_never_change_what_is_agreed_and_an_operator_never_the_identity() {
    let mut machine = two_pipelines();
    for (command, counts) in [
        (sink("out", "id", "letters", Origin::Files), false),
        (sink("other", "id", "", Origin::Files), false),
        (sink("out", "id of another", "", Origin::Operator), false),
        (sink("builtin", "b", "", Origin::Operator), false),
        (sink("out", "id", "letters", Origin::Operator), true),
    ] {
        let effect = machine.apply(20, 1, &command);
        assert_eq!(effect == Effect::ConfigChanged, counts, "{command:?}");
    }
}

#[test]
fn dead_letters_that_go_another_way_go_on_where_they_are() {
    let mut machine = two_pipelines();
    machine.apply(20, 1, &moves("builtin", 11, LETTERS, 25));
    machine.apply(21, 1, &sink("out", "id", "letters", Origin::Operator));
    assert_eq!(machine.begin(key(11, LETTERS)), 25);
    assert_eq!(machine.sink_of(key(11, LETTERS)), Some("out"));
    // The way that they went before has no say any more: its last words may come late.
    machine.apply(22, 1, &moves("builtin", 11, LETTERS, 30));
    assert_eq!(machine.frontier(key(11, LETTERS)), 25);
    machine.apply(23, 1, &moves("out", 11, LETTERS, 31));
    assert_eq!(machine.frontier(key(11, LETTERS)), 31);
    assert_eq!(machine.begin(key(11, Stream::Rows)), 0);
}

#[test]
fn a_sink_under_another_name_is_the_same_and_its_pipelines_go_along() {
    let mut machine = two_pipelines();
    machine.apply(20, 1, &sink("new", "id", "", Origin::Operator));
    let names: Vec<_> = machine.sinks().keys().cloned().collect();
    assert_eq!(names, ["new"]);
    assert_eq!(machine.sink_of(key(11, Stream::Rows)), Some("new"));
}

#[test]
fn a_removed_name_is_not_created_again_until_no_file_names_it_or_an_operator_wants_it() {
    let mut machine = two_pipelines();
    let removed = machine.apply(20, 1, &remove("p"));
    let (incarnation, feed) = (11, FeedId(5));
    assert_eq!(removed, Effect::PipelineRemoved { incarnation, feed });
    assert_eq!(
        machine.apply(21, 1, &create("p", "out")),
        Effect::Void(Void::Name)
    );
    let forget = Command::ForgetRemoved(ForgetRemoved {
        term: 1,
        names: vec!["p".to_owned()],
    });
    machine.apply(22, 1, &forget);
    let again = machine.apply(23, 1, &create("p", "out"));
    assert_eq!(again, Effect::PipelineCreated { incarnation: 23 });

    machine.apply(24, 1, &remove("p"));
    machine.apply(25, 1, &apply("p", "out", "p as it was"));
    let wanted = machine.apply(26, 1, &create("p", "out"));
    assert_eq!(wanted, Effect::PipelineCreated { incarnation: 26 });
    assert!(machine.wanted().is_empty());
    assert_eq!(machine.apply(27, 1, &remove("x")), Effect::Void(Void::Name));
}

#[test]
fn a_replaced_pipeline_ends_and_is_created_only_as_the_operator_wants_it() {
    let mut machine = two_pipelines();
    machine.apply(20, 1, &moves("out", 11, Stream::Rows, 9));
    let same = machine.apply(21, 1, &apply("p", "out", "p as it was"));
    assert_eq!(same, Effect::ConfigChanged);
    assert!(machine.wanted().is_empty());
    let unknown = machine.apply(22, 1, &apply("p", "nowhere", "new"));
    assert_eq!(unknown, Effect::Void(Void::Name));
    let replaced = machine.apply(23, 1, &apply("p", "out", "new"));
    assert!(matches!(
        replaced,
        Effect::PipelineRemoved {
            incarnation: 11,
            ..
        }
    ));
    assert_eq!(machine.frontier(key(11, Stream::Rows)), 0);
    // A proposal from files that was on its way.
    assert_eq!(
        machine.apply(24, 1, &create("p", "out")),
        Effect::Void(Void::Name)
    );
    assert_eq!(machine.wanted()["p"].definition, "new");
}

#[test]
fn a_feed_ends_with_its_last_pipeline() {
    let mut machine = two_pipelines();
    machine.apply(20, 1, &remove("p"));
    assert_eq!(machine.feeds().len(), 1);
    machine.apply(21, 1, &remove("q"));
    assert!(machine.feeds().is_empty());
    let late = machine.apply(22, 1, &tick(1, 5, 100, &[(0, 20)]));
    assert_eq!(late, Effect::Void(Void::Name));
}

#[test]
fn a_pipeline_is_held_and_let_go() {
    let mut machine = two_pipelines();
    let pause = |paused| {
        let (term, name) = (1, "q".to_owned());
        Command::PausePipeline(PausePipeline { term, name, paused })
    };
    machine.apply(20, 1, &pause(true));
    assert!(machine.pipelines()[&12].paused && !machine.pipelines()[&11].paused);
    machine.apply(21, 1, &pause(false));
    assert!(!machine.pipelines()[&12].paused);
}
