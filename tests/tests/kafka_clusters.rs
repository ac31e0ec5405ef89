//! Two clusters, or an older self, at one Kafka sink: each says it, and nothing is lost or mixed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use unisono::publish::sink::kafka::{KafkaSink, KafkaSinkConfig, SinkError};
use unisono::publish::sink::{Fate, Frontier, PublishError, PublishRow, Sink};
use unisono_engine::row::{Incarnation, StreamId, StreamKind};
use unisono_tests::kafka::TestBroker;

const ROWS: StreamId = StreamId {
    incarnation: Incarnation(7),
    kind: StreamKind::Rows,
};

/// The sink `name` of a cluster.
fn config(broker: &TestBroker, name: &str, cluster: u128) -> KafkaSinkConfig {
    KafkaSinkConfig {
        brokers: broker.address(),
        topic: format!("{name}-rows"),
        dead_letter_topic: None,
        frontier_topic: format!("{name}-frontier"),
        transactional_id: name.to_owned(),
        cluster,
        properties: BTreeMap::new(),
    }
}

/// Publishes rows `from..to`.
fn publish(sink: &mut KafkaSink, from: u64, to: u64) -> Result<(), PublishError> {
    let row = |seq: u64| PublishRow {
        pipeline: "p",
        incarnation: 7,
        seq,
        digest: String::new(),
        kind: StreamKind::Rows,
        key: b"{}",
        value: b"{}",
        fate: Fate::Goes,
    };
    let rows: Vec<PublishRow<'_>> = (from..to).map(row).collect();
    sink.publish(&rows, &Frontier::of(BTreeMap::from([(ROWS, to)])))
}

#[test]
fn a_cluster_leaves_another_ones_sink_alone_and_says_whose_it_is() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let mut ours = KafkaSink::connect(&config(broker, "taken", 10)).unwrap();
    // Connected while nobody had published: only acquiring tells it.
    let mut theirs = KafkaSink::connect(&config(broker, "taken", 11)).unwrap();
    ours.acquire().unwrap();
    publish(&mut ours, 0, 3).unwrap();
    let error = theirs.acquire().unwrap_err();
    assert!(matches!(error, PublishError::Foreign { .. }), "{error}");
    let text = error.to_string();
    for part in [
        "belongs to cluster 0000000000000000000000000000000a",
        "this is cluster 0000000000000000000000000000000b",
        "another transactional_id, frontier_topic and topic",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(matches!(
        publish(&mut ours, 3, 4),
        Err(PublishError::Fenced { .. })
    ));
    assert_eq!(ours.acquire().unwrap().next(ROWS), 3);
    // From now on connecting tells it, and fences nobody.
    let refused = KafkaSink::connect(&config(broker, "taken", 11)).map(|_| ());
    let refused = refused.unwrap_err();
    assert!(matches!(refused, SinkError::Foreign(_)), "{refused}");
    publish(&mut ours, 3, 5).unwrap();
    assert_eq!(broker.read_committed("taken-rows").unwrap().len(), 5);
}

#[test]
fn another_cluster_in_the_same_frontier_topic_is_said_and_keeps_nothing_from_going_on() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let shared = |name: &str, cluster| KafkaSinkConfig {
        frontier_topic: "shared-frontier".into(),
        ..config(broker, name, cluster)
    };
    let mut one = KafkaSink::connect(&shared("one", 10)).unwrap();
    one.acquire().unwrap();
    publish(&mut one, 0, 3).unwrap();
    assert_eq!(one.notice(), None);
    let mut other = KafkaSink::connect(&shared("other", 11)).unwrap();
    let notice = other.notice().unwrap_or_default();
    for part in [
        "cluster 0000000000000000000000000000000a writes to frontier topic shared-frontier too",
        "a frontier topic of its own",
    ] {
        assert!(notice.contains(part), "{notice}");
    }
    assert_eq!(other.acquire().unwrap(), Frontier::default());
    publish(&mut other, 0, 2).unwrap();
    assert_eq!(one.acquire().unwrap().next(ROWS), 3);
    assert!(one.notice().is_some(), "the first one says it too");
}

#[test]
fn a_topic_that_was_made_again_is_noticed_while_publishing_and_after_a_restart() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let mut sink = KafkaSink::connect(&config(broker, "again", 10)).unwrap();
    sink.acquire().unwrap();
    publish(&mut sink, 0, 48).unwrap();
    assert_eq!(sink.notice(), None);
    broker.delete_topic("again-rows").unwrap();
    broker.create_topic("again-rows", 1).unwrap();
    let restarted = KafkaSink::connect(&config(broker, "again", 10)).unwrap();
    let notice = restarted.notice().unwrap_or_default();
    assert!(
        notice.contains("48 rows were published") && notice.contains("topic again-rows"),
        "{notice}"
    );
    // The client may take a while to see the new topic.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while publish(&mut sink, 48, 50).is_err() {
        assert!(std::time::Instant::now() < deadline, "nothing is published");
        while sink.acquire().is_err() {
            assert!(std::time::Instant::now() < deadline, "not acquired");
        }
    }
    let notice = sink.notice().unwrap_or_default();
    assert!(
        notice.contains("again-rows was deleted and made again"),
        "{notice}"
    );
}
