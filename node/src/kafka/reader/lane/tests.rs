use std::time::Duration;

use super::*;
use crate::kafka::reader::batch::Located;

const SHARE: usize = 256 << 10;
const MS: Duration = Duration::from_millis(1);

/// The records of three batches: offsets 10 to 15.
fn records() -> Bytes {
    let batches = (0..3).flat_map(|at| super::super::batch::plain_batch(10 + at * 2, 2));
    batches.collect::<Vec<u8>>().into()
}

#[derive(Default)]
struct Offsets {
    bytes: Vec<u8>,
    found: Vec<i64>,
}

impl Target for Offsets {
    fn weight(&self) -> usize {
        self.found.len()
    }

    fn add(
        &mut self,
        batch: &Batch<'_>,
        from: i64,
        decompressor: &mut Decompressor,
    ) -> Result<usize, BatchError> {
        let found = &mut self.found;
        batch.read(from, decompressor, &mut self.bytes, |record: Located| {
            found.push(record.offset);
        })
    }
}

struct Bench {
    lane: Lane,
    now: Instant,
}

fn answered(stable: i64, high: i64, preferred: Option<i32>) -> Answered {
    Answered {
        partition: 0,
        error: 0,
        high_watermark: high,
        last_stable: stable,
        log_start: 0,
        diverging: None,
        leader: None,
        aborted: Vec::new(),
        preferred,
        records: 0..0,
    }
}

impl Bench {
    fn new() -> Self {
        let now = Instant::now();
        let mut lane = Lane::new(11, "", now);
        lane.identified = true;
        Self { lane, now }
    }

    fn wanted(&mut self) -> Wanted {
        self.lane.wanted(SHARE, 4, true).unwrap()
    }

    /// Of a replica that is not the leader, or of the leader that names it.
    fn wanted_of(&mut self, epoch: i32, led: bool) -> Wanted {
        self.lane.wanted(SHARE, epoch, led).unwrap()
    }

    /// A leader that names another.
    fn name(&mut self, wanted: Wanted, high: i64) -> Taken {
        let answered = answered(high, high, Some(2));
        let taken = self.lane.take(&wanted, &answered, Bytes::new(), self.now);
        taken.unwrap()
    }

    fn answer(&mut self, wanted: Wanted, records: Bytes, stable: i64, high: i64) -> Taken {
        let answered = answered(stable, high, None);
        let asked = self.now;
        self.lane.take(&wanted, &answered, records, asked).unwrap()
    }

    /// At most so many records in one go; which offsets came.
    fn read(&mut self, most: usize) -> Vec<i64> {
        let mut to = Offsets::default();
        let mut decompressor = Decompressor::default();
        while to.weight() < most {
            let Some((mut chunk, from)) = self.lane.lend().unwrap() else {
                break;
            };
            let (_, read) = chunk.read(from, most, &mut decompressor, &mut to);
            read.unwrap();
            self.lane.give_back(chunk, SHARE);
        }
        self.lane.looked(to.found.is_empty(), self.now);
        to.found
    }
}

#[test]
fn what_was_fetched_is_given_once_from_where_the_lane_begins() {
    let mut bench = Bench::new();
    let wanted = bench.wanted();
    assert_eq!(
        (wanted.offset, wanted.leader_epoch, wanted.last_epoch),
        (11, 4, -1)
    );
    assert_eq!(bench.answer(wanted, records(), 16, 16), Taken::Records);
    let next = bench.wanted();
    assert_eq!((next.offset, next.last_epoch), (16, 5));
    assert_eq!(bench.read(2), [11, 12, 13], "whole batches");
    assert_eq!(bench.lane.at_end(bench.now), None);
    assert_eq!(bench.read(9), [14, 15]);
    assert_eq!(bench.lane.at_end(bench.now), Some(16));
    // The answer to a question from before is no news.
    assert_eq!(bench.answer(wanted, records(), 99, 99), Taken::Nothing);
    assert_eq!(bench.lane.at_end(bench.now), Some(16));
    assert_eq!(bench.read(9), Vec::<i64>::new());
}

#[test]
fn the_end_is_known_for_as_long_as_its_leader_said_so_lately() {
    let mut bench = Bench::new();
    assert_eq!(bench.lane.at_end(bench.now), None, "nobody has said it yet");
    let wanted = bench.wanted();
    bench.answer(wanted, Bytes::new(), 11, 11);
    let at = |ms: u32, bench: &Bench| bench.lane.at_end(bench.now + MS * ms);
    assert_eq!((at(1999, &bench), at(2000, &bench)), (Some(11), None));
    bench.lane.unchanged(&wanted, bench.now + MS * 1500);
    assert_eq!((at(3499, &bench), at(3500, &bench)), (Some(11), None));
    // What was fetched is in hand, though a new leader knows less to be safe than the one before.
    bench.answer(wanted, records(), 16, 16);
    let next = bench.wanted();
    bench.answer(next, Bytes::new(), 11, 11);
    assert_eq!(at(0, &bench), None);
    assert_eq!(bench.read(9), [11, 12, 13, 14, 15]);
    assert_eq!(at(0, &bench), Some(16));
    // More was appended than came.
    let wanted = bench.wanted();
    bench.answer(wanted, Bytes::new(), 20, 20);
    assert_eq!(
        (at(0, &bench), bench.lane.log_end(bench.now)),
        (None, Some(20))
    );
}

#[test]
fn an_open_transaction_is_no_end_and_is_told_once_when_it_lasts() {
    let mut bench = Bench::new();
    let start = bench.now;
    let wanted = bench.wanted();
    let mut told = Vec::new();
    for second in 0..15 {
        bench.now = start + MS * 1000 * second;
        bench.lane.looked(true, bench.now);
        if bench.answer(wanted, Bytes::new(), 11, 13) == Taken::Held {
            told.push(second);
        }
        assert_eq!(bench.lane.at_end(bench.now), None);
        let held = bench.lane.held_since(bench.now);
        assert_eq!(held, (second >= 2).then_some(start), "{second}");
    }
    assert_eq!(told, [10]);
    assert_eq!(bench.lane.unanswered_since(), Some(bench.now));
}

#[test]
fn a_lane_that_is_full_is_fetched_again_when_half_of_it_was_read() {
    let mut bench = Bench::new();
    let mut decompressor = Decompressor::default();
    let large = |at: i64| Bytes::from(super::super::batch::large_batch(11 + at, SHARE / 2));
    for at in 0..2 {
        let wanted = bench.wanted();
        assert_eq!(bench.answer(wanted, large(at), 99, 99), Taken::Records);
    }
    assert_eq!(bench.lane.wanted(SHARE, 4, true), None);
    assert!(bench.lane.starved);
    for room in [false, true] {
        let (mut chunk, from) = bench.lane.lend().unwrap().unwrap();
        let mut to = Offsets::default();
        chunk.read(from, 9, &mut decompressor, &mut to).1.unwrap();
        assert_eq!(bench.lane.give_back(chunk, SHARE), room);
    }
    assert!(!bench.lane.starved && bench.lane.wanted(SHARE, 4, true).is_some());
}

#[test]
fn a_lane_that_failed_gives_what_came_before_and_then_the_error() {
    let mut bench = Bench::new();
    let wanted = bench.wanted();
    bench.answer(wanted, records(), 16, 16);
    let error = |text: &str| KafkaSourceError::TopicMissing {
        topic: text.to_owned(),
        brokers: String::new(),
    };
    bench.lane.fail(error("first"));
    bench.lane.fail(error("second"));
    assert_eq!(bench.lane.wanted(SHARE, 4, true), None);
    let mut to = Offsets::default();
    let (mut chunk, from) = bench.lane.lend().unwrap().unwrap();
    chunk
        .read(from, 9, &mut Decompressor::default(), &mut to)
        .1
        .unwrap();
    bench.lane.give_back(chunk, SHARE);
    assert_eq!(to.found, [11, 12, 13, 14, 15]);
    assert_eq!(bench.lane.lend().unwrap_err(), error("first"));
    assert_eq!(bench.lane.at_end(bench.now), None);
}

#[test]
fn the_end_is_the_leaders_to_tell_though_another_gives_the_records() {
    let mut bench = Bench::new();
    let leader = bench.wanted_of(4, true);
    bench.name(leader, 16);
    assert!(bench.lane.was_answered());
    let replica = bench.wanted_of(4, false);
    assert_eq!(bench.answer(replica, records(), 16, 16), Taken::Records);
    assert_eq!(bench.read(9), [11, 12, 13, 14, 15]);
    // It had been said already where the log ends.
    assert_eq!(bench.lane.at_end(bench.now), Some(16));
    bench.now += MS * 2000;
    let replica = bench.wanted_of(4, false);
    bench.answer(replica, Bytes::new(), 16, 16);
    bench.lane.unchanged(&replica, bench.now);
    assert_eq!(bench.lane.at_end(bench.now), None, "not by its word");
    let leader = bench.wanted_of(4, true);
    bench.name(leader, 17);
    assert_eq!(bench.lane.at_end(bench.now), None, "it lags");
    bench.name(leader, 16);
    assert_eq!(bench.lane.at_end(bench.now), Some(16));
}

#[test]
fn a_leader_that_names_another_did_not_look_at_what_was_read() {
    let mut bench = Bench::new();
    let leader = bench.wanted_of(4, true);
    bench.name(leader, 11);
    assert_eq!(bench.lane.at_end(bench.now), None, "nobody compared");
    let replica = bench.wanted_of(4, false);
    bench.answer(replica, Bytes::new(), 11, 11);
    bench.name(leader, 11);
    assert_eq!(bench.lane.at_end(bench.now), Some(11));
    // Another one leads; the replica may have followed the one before.
    let leader = bench.wanted_of(5, true);
    bench.name(leader, 11);
    let replica = bench.wanted_of(5, false);
    bench.lane.unchanged(&replica, bench.now);
    assert_eq!(bench.lane.at_end(bench.now), None);
    bench.name(leader, 11);
    assert_eq!(bench.lane.at_end(bench.now), Some(11));
    // One that gives the records itself compares.
    let leader = bench.wanted_of(6, true);
    bench.answer(leader, Bytes::new(), 11, 11);
    assert_eq!(bench.lane.at_end(bench.now), Some(11));
}
