//! The drills' own Kafka code, held to what a broker does.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use unisono_chaos::checker::Expectation;
use unisono_chaos::generator::{Generator, GeneratorOptions, LANES, TopicTarget};
use unisono_chaos::kafka::{TopicReader, create_topics, delete_topics};
use unisono_chaos::moment::Clock;
use unisono_tests::kafka::{Outcome, TestBroker};

#[test]
fn the_checker_reads_from_the_topic_what_the_generator_produced() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let (brokers, topic) = (broker.address(), "drill-tools-orders");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lanes = i32::try_from(LANES).unwrap();
    runtime
        .block_on(create_topics(&brokers, &[(topic, lanes)]))
        .unwrap();
    let options = GeneratorOptions {
        rate: 3_000,
        seed: 5,
        late_share: 0.0,
    };
    let target = TopicTarget::connect(&brokers, topic).unwrap();
    let generator = Generator::start(options, Clock::start(), target).unwrap();
    let mut reader = TopicReader::connect(&brokers, topic).unwrap();
    let mut grown = Expectation::default();
    while generator.produced() < 1_500 {
        reader.read_orders(&mut grown).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let produced = generator.stop().unwrap();
    reader.read_orders(&mut grown).unwrap();
    let mut whole = Expectation::default();
    TopicReader::connect(&brokers, topic)
        .unwrap()
        .read_orders(&mut whole)
        .unwrap();
    grown.settle();
    whole.settle();
    let rows = |expectation: &Expectation| -> Vec<_> {
        let row = |key: &(i64, String)| (key.clone(), expectation.get(key).cloned());
        expectation.keys().map(row).collect()
    };
    assert_eq!(rows(&grown), rows(&whole));
    assert!(!whole.is_empty() && whole.late() == 0);
    let texts = TopicReader::read_committed(&brokers, topic).unwrap();
    assert_eq!(texts.len() as u64, produced);
    runtime.block_on(delete_topics(&brokers, &[topic])).unwrap();
}

#[test]
fn the_checker_does_not_see_rows_of_an_aborted_transaction() {
    let Some(broker) = TestBroker::shared() else {
        return;
    };
    let topic = "drill-tools-rows";
    broker.create_topic(topic, 1).unwrap();
    broker
        .transaction(topic, 0, &["kept"], &Outcome::Commit)
        .unwrap();
    broker
        .transaction(topic, 0, &["aborted"], &Outcome::Abort)
        .unwrap();
    let texts = TopicReader::read_committed(&broker.address(), topic).unwrap();
    assert_eq!(texts, ["kept"]);
}
