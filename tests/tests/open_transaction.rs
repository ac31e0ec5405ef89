//! Leaders that die when all rows of a transaction are with the broker, and it is not ended.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use unisono_tests::bench::Cluster;
use unisono_tests::bench::fault::{Fault, PATIENCE};
use unisono_tests::bench::live::{FIRST, Load, Reader, make_topics, streams, to_topic};
use unisono_tests::kafka::TestBroker;

const KILLS: usize = 3;

#[test]
fn what_a_leader_left_in_an_open_transaction_comes_once_from_the_next_one() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start().unwrap();
    let address = broker.address();
    make_topics(&broker).unwrap();
    let streams = to_topic(&address, &streams(&address, "in", 1));
    let mut replicas = Cluster::start(3, "", &streams).unwrap();
    replicas.wait_pipeline(FIRST, |_| true).unwrap();
    let committed = Reader::of_topic(&address, "out").unwrap();
    let all = Reader::of_uncommitted(&address, "out").unwrap();
    let mut load = Load::start(&address, "in").unwrap();
    for _ in 0..KILLS {
        replicas.wait_ready(PATIENCE).unwrap();
        wait_for_more(&committed);
        Fault::KillOpen.deal(&mut replicas, None).unwrap();
        wait_for_more(&committed);
    }
    load.stop().unwrap();
    let (committed, all) = (committed.end().unwrap(), all.end().unwrap());
    let verdict = load.judge(&committed);
    println!("{verdict:?}; {} records in the topic", all.len());
    let faults = verdict.gaps + verdict.duplicates + verdict.wrong;
    assert_eq!(faults, 0, "{verdict:?}");
    // Else they died elsewhere. Each window that was open has all of its rows twice, or some more.
    let twice = load.judge(&all).duplicates;
    assert!(twice >= KILLS * 10, "{twice} rows were never committed");
}

/// Rows of two more windows.
fn wait_for_more(reader: &Reader) {
    let (had, began) = (reader.rows().len(), Instant::now());
    while reader.rows().len() < had + 20 {
        assert!(began.elapsed() < PATIENCE, "no more rows");
        std::thread::sleep(Duration::from_millis(20));
    }
}
