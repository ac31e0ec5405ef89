#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use unisono_engine::record::Stamp;

use super::super::end::SILENT;
use super::super::read_ahead::{OUTSIDE, ReadAhead};
use super::*;
use crate::signal::Signal;
use crate::source::{HEAD_BYTES, Unanswered};

fn buffer(from: i64) -> LaneBuffer {
    let node = ReadAhead::new(64 << 20);
    LaneBuffer::new(LaneRoom::new(&node, Arc::default()), from)
}

/// A buffer with records at the given offsets, `size` bytes each, `per_block` to a block; and each record's fingerprint.
/// A block that somebody has a part of is not added to, so each stays as it is.
fn filled(offsets: &[i64], size: usize, per_block: usize) -> (LaneBuffer, Vec<u64>) {
    let buffer = buffer(offsets[0]);
    let payload = vec![b'x'; size];
    let mut running = 0;
    let mut fingerprints = Vec::new();
    let mut parts = Vec::new();
    for group in offsets.chunks(per_block) {
        let mut block = Block::default();
        for &offset in group {
            block.push(offset, offset + 1, Stamp::None, Some(&payload));
        }
        running = block.seal(running);
        fingerprints.extend(block.heads().iter().map(|head| head.fingerprint));
        assert!(buffer.push(block).is_none());
        parts.push(Arc::clone(&buffer.lock().blocks.back().unwrap().block));
    }
    (buffer, fingerprints)
}

fn offsets(parts: &[Part]) -> Vec<i64> {
    let of = |(block, range): &Part| {
        range
            .clone()
            .map(|index| block.record(index).offset)
            .collect::<Vec<_>>()
    };
    parts.iter().flat_map(of).collect()
}

/// What so many records of so many bytes weigh.
fn weight(records: usize, size: usize) -> usize {
    records * (size + HEAD_BYTES)
}

#[test]
fn a_cut_takes_as_many_records_as_fit_across_blocks() {
    let (buffer, fingerprints) = filled(&[0, 1, 2, 3, 4, 5], 10, 2);
    let choice = buffer.choose_cut(0, weight(4, 10) - 1).unwrap();
    assert_eq!(
        choice,
        CutChoice {
            cut: 3,
            fingerprint: fingerprints[2]
        }
    );
    assert_eq!(buffer.choose_cut(1, weight(2, 10)).unwrap().cut, 3);
    assert_eq!(buffer.choose_cut(0, 1_000).unwrap().cut, 6);
    assert_eq!(buffer.choose_cut(6, 1_000), None);
}

#[test]
fn one_record_larger_than_a_tick_moves_alone() {
    let (buffer, _) = filled(&[0, 1, 2], 100, 3);
    assert_eq!(buffer.choose_cut(0, 10).unwrap().cut, 1);
    assert_eq!(buffer.choose_cut(1, 10).unwrap().cut, 2);
}

#[test]
fn holes_left_by_markers_and_compaction_hold_nothing_up() {
    let (buffer, fingerprints) = filled(&[4, 7, 8, 20], 10, 3);
    let parts = buffer.take(4, 9, fingerprints[2]).unwrap();
    assert_eq!(offsets(&parts), [4, 7, 8]);
    let parts = buffer.take(9, 21, fingerprints[3]).unwrap();
    assert_eq!(offsets(&parts), [20]);
    assert_eq!(buffer.level().0, 0);
}

#[test]
fn a_block_is_taken_in_parts_each_record_once() {
    let (buffer, fingerprints) = filled(&[0, 1, 2, 3], 10, 4);
    let parts = buffer.take(0, 1, fingerprints[0]).unwrap();
    assert_eq!(offsets(&parts), [0]);
    let parts = buffer.take(1, 4, fingerprints[3]).unwrap();
    assert_eq!(offsets(&parts), [1, 2, 3]);
}

#[test]
fn other_records_under_the_same_offsets_are_dropped_and_read_again() {
    let (buffer, fingerprints) = filled(&[0, 1, 2, 3], 10, 4);
    buffer.take(0, 1, fingerprints[0]).unwrap();
    let other = buffer.take(1, 3, fingerprints[2] ^ 1);
    assert_eq!(other.unwrap_err(), TakeError::NotYet);
    assert!(buffer.disputes());
    // The same words before and while it is read again: whoever looks in between sees no other reason.
    let fault = buffer.fault().unwrap();
    assert!(
        fault.contains("offsets 1 to 3 hold other records"),
        "{fault}"
    );
    assert_eq!(buffer.level(), (0, 1));
    // What the reader had under way does not follow on what is here.
    let mut late = Block::default();
    late.push(4, 5, Stamp::None, Some(b"late"));
    assert!(buffer.push(late).is_some());
    let (from, fingerprint, marks, reason) = buffer.take_again().unwrap();
    assert_eq!((from, fingerprint), (1, fingerprints[0]));
    assert_eq!(marks.last.offset, 1);
    assert!(
        reason.contains("offsets 1 to 3 hold other records"),
        "{reason}"
    );
    assert!(buffer.take_again().is_none());
    // The right ones this time.
    let mut right = Block::default();
    for offset in 1..4 {
        right.push(offset, offset + 1, Stamp::None, Some(&[b'x'; 10]));
    }
    right.seal(fingerprint);
    let agreed = right.heads()[1].fingerprint;
    buffer.push(right);
    let parts = buffer.take(1, 3, agreed).unwrap();
    assert_eq!(offsets(&parts), [1, 2]);
    assert!(!buffer.disputes() && buffer.fault().is_none());
}

#[test]
fn a_hole_that_should_not_be_one_is_no_agreement() {
    // A record that the leader had just below the cut is missing here.
    let (buffer, fingerprints) = filled(&[0, 2], 10, 3);
    let hole = buffer.take(0, 2, fingerprints[0]);
    assert_eq!(hole.unwrap_err(), TakeError::NotYet);
    assert!(buffer.disputes());
}

#[test]
fn a_full_buffer_makes_room_for_what_a_tick_asks() {
    let signal = Arc::new(Signal::default());
    let room = LaneRoom::new(&ReadAhead::new(0), Arc::clone(&signal));
    let buffer = LaneBuffer::new(Arc::clone(&room), 0);
    let mut large = Block::default();
    large.push(0, 1, Stamp::None, Some(&vec![b'x'; OUTSIDE + 1]));
    buffer.push(large);
    assert!(!buffer.has_room() && !room.has_room());
    assert!(!signal.is_raised());
    assert_eq!(buffer.take(0, 5, 0).unwrap_err(), TakeError::NotYet);
    assert!(signal.is_raised(), "the reader must read on");
    assert!(buffer.has_room() && !room.has_room());
}

#[test]
fn the_taker_is_told_once_of_what_it_asked_for_and_of_nothing_else() {
    let buffer = buffer(0);
    let told = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&told);
    buffer.set_waker(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    let mut running = 0;
    let mut push = |offset| {
        let mut block = Block::default();
        block.push(offset, offset + 1, Stamp::None, Some(b"x"));
        running = block.seal(running);
        buffer.push(block);
        (running, told.load(Ordering::SeqCst))
    };
    assert_eq!(push(0).1, 0);
    assert_eq!(buffer.take(0, 3, 0).unwrap_err(), TakeError::NotYet);
    assert_eq!(push(1).1, 0, "not all of it");
    let (fingerprint, calls) = push(2);
    assert_eq!(calls, 1);
    assert_eq!(push(3).1, 1);
    assert_eq!(offsets(&buffer.take(0, 3, fingerprint).unwrap()), [0, 1, 2]);
    assert_eq!(buffer.take(3, 5, 0).unwrap_err(), TakeError::NotYet);
    buffer.fail("gone".to_owned());
    assert_eq!(told.load(Ordering::SeqCst), 1, "it may still come");
    assert_eq!(push(4).1, 2);
}

#[test]
fn small_blocks_become_one_and_what_was_taken_stays_as_it_was() {
    let buffer = buffer(0);
    let mut running = 0;
    let mut fingerprints = Vec::new();
    let mut push = |offset: i64| {
        let mut block = Block::default();
        block.push(offset, offset + 1, Stamp::None, Some(b"x"));
        running = block.seal(running);
        fingerprints.push(running);
        assert_eq!(buffer.push(block).is_some(), offset % 1000 != 0, "{offset}");
        running
    };
    let fingerprint = (0..500).map(&mut push).last().unwrap();
    let part = buffer.take(0, 500, fingerprint).unwrap();
    assert_eq!(part.len(), 1);
    let _ = (1000..1500).map(&mut push).last();
    assert_eq!(offsets(&part), (0..500).collect::<Vec<_>>());
    assert_eq!(buffer.backlog(500), weight(500, 1));
    assert_eq!(buffer.backlog(1100), weight(400, 1));
    assert_eq!(buffer.backlog(1500), 0);
    let choice = buffer.choose_cut(500, weight(10, 1)).unwrap();
    assert_eq!((choice.cut, choice.fingerprint), (1010, fingerprints[509]));
}

#[test]
fn a_million_tombstones_and_a_million_empty_lines_stay_within_the_budget() {
    for payload in [None, Some(&b""[..])] {
        let node = ReadAhead::new(8 << 20);
        let lanes: Vec<_> = (0..2)
            .map(|_| LaneBuffer::new(LaneRoom::new(&node, Arc::default()), 0))
            .collect();
        let (mut next, mut most) = ([0; 2], 0);
        for turn in 0.. {
            let lane = turn % 2;
            if !lanes.iter().any(LaneBuffer::has_room) {
                break;
            }
            assert!(next[lane] < 1_000_000, "no bound");
            if !lanes[lane].has_room() {
                continue;
            }
            let mut block = node.block();
            while block.weight() < FULL {
                block.push(next[lane], next[lane] + 1, Stamp::None, payload);
                next[lane] += 1;
            }
            block.seal(0);
            lanes[lane].push(block);
            most = most.max(node.held());
        }
        // Each block is filled by one that was seen to have room.
        assert!(most < (8 << 20) + 2 * (OUTSIDE + 2 * FULL), "{most}");
        assert!(most > 4 << 20, "{most}");
    }
}

#[test]
fn a_fault_holds_back_what_has_not_arrived_and_is_no_end() {
    let (buffer, fingerprints) = filled(&[0, 1], 10, 2);
    buffer.set_end(End::at(Some(2)));
    buffer.fail("gone".to_owned());
    assert_eq!(buffer.fault().as_deref(), Some("gone"));
    assert!(!buffer.is_at_end(2));
    assert!(buffer.take(0, 2, fingerprints[1]).is_ok());
    assert_eq!(buffer.take(2, 3, 0).unwrap_err(), TakeError::NotYet);
    buffer.recover();
    assert_eq!(buffer.fault(), None);
}

#[test]
fn a_lane_is_at_its_end_only_when_all_that_arrived_is_cut() {
    let (buffer, _) = filled(&[0, 1], 10, 2);
    assert!(!buffer.is_at_end(2));
    buffer.set_end(End::at(Some(2)));
    assert!(buffer.is_at_end(2));
    assert!(!buffer.is_at_end(1));
    buffer.set_end(End::at(None));
    assert!(!buffer.is_at_end(2));
}

#[test]
fn how_much_lies_beyond_a_cut_is_measured_to_the_logs_end_and_not_known_without_evidence() {
    let (buffer, _) = filled(&[0, 1], 10, 2);
    assert_eq!(buffer.beyond(1), None, "nobody has said where it ends");
    buffer.set_log_end(Some(500));
    assert_eq!(buffer.beyond(1), Some((500, 499)), "two are in hand");
    // All was read, and what is beyond holds no record.
    buffer.set_end(End::at(Some(500)));
    assert_eq!(buffer.beyond(2), Some((500, 0)));
    buffer.set_end(End::at(None));
    assert_eq!(buffer.beyond(2), Some((500, 498)), "a transaction is open");
    // Another replica was faster to see it.
    assert_eq!(buffer.beyond(600), Some((600, 0)));
    buffer.fail("gone".to_owned());
    assert_eq!(buffer.beyond(2), None);
    buffer.set_log_end(Some(500));
    buffer.set_log_end(None);
    assert_eq!(buffer.beyond(2), None, "the broker answers no more");
}

#[test]
fn a_tick_that_is_left_out_or_taken_twice_stops_the_feed() {
    let (buffer, fingerprints) = filled(&[0, 1, 2, 3], 10, 2);
    let left_out = buffer.take(1, 2, fingerprints[1]);
    let out_of_step = |from, taken_to| TakeError::OutOfStep { from, taken_to };
    assert_eq!(left_out.unwrap_err(), out_of_step(1, 0));
    buffer.take(0, 2, fingerprints[1]).unwrap();
    let twice = buffer.take(0, 2, fingerprints[1]);
    assert_eq!(twice.unwrap_err(), out_of_step(0, 2));
    buffer.take(2, 4, fingerprints[3]).unwrap();
}

#[test]
fn who_waits_for_an_arrival_is_woken_once() {
    use std::task::{Context, Poll, Waker};
    let (buffer, _) = filled(&[0], 10, 1);
    let push = |offset: i64| {
        let mut block = Block::default();
        block.push(offset, offset + 1, Stamp::None, None);
        buffer.push(block);
    };
    let waiting = Arc::new(Notify::new());
    let woken = || {
        let mut notified = std::pin::pin!(waiting.notified());
        let mut context = Context::from_waker(Waker::noop());
        notified.as_mut().poll(&mut context) == Poll::Ready(())
    };
    push(1);
    assert!(!woken(), "nobody had asked");
    buffer.tell_arrival(&waiting, 0);
    assert!(!woken(), "what was here before does not count");
    push(2);
    assert!(woken());
    push(3);
    assert!(!woken(), "once for each time it is asked");
    buffer.tell_arrival(&waiting, 0);
    buffer.tell_arrival(&waiting, HEAD_BYTES + 1);
    push(4);
    assert!(!woken(), "the last wish counts, and less came");
    push(5);
    assert!(woken());
}

#[test]
fn a_cut_below_a_limit_lies_at_the_end_of_a_record_in_hand() {
    let (buffer, fingerprints) = filled(&[3, 4, 9, 10], 10, 2);
    let cut = |limit| buffer.cut_up_to(limit);
    assert_eq!(cut(3), None);
    for (limit, cut, at) in [(4, 4, 0), (5, 5, 1), (9, 5, 1), (10, 10, 2), (99, 11, 3)] {
        let fingerprint = fingerprints[at];
        let choice = Some(CutChoice { cut, fingerprint });
        assert_eq!(buffer.cut_up_to(limit), choice, "{limit}");
    }
}

#[test]
fn a_lane_is_silent_once_its_source_has_not_answered_for_long_until_something_comes() {
    let (buffer, _) = filled(&[0], 10, 1);
    let slowly = |for_so_long: Duration, slowest: Duration| End {
        unanswered: Some(Unanswered {
            since: Instant::now().checked_sub(for_so_long).unwrap(),
            slowest,
        }),
        ..End::default()
    };
    let unanswered = |for_so_long| slowly(for_so_long, Duration::ZERO);
    buffer.set_end(unanswered(SILENT / 2));
    assert_eq!(buffer.silence(), None);
    buffer.set_end(slowly(SILENT, SILENT / 2));
    assert_eq!(buffer.silence(), None, "its answers take that long");
    assert!(buffer.unheard().0 >= SILENT);
    buffer.set_end(unanswered(SILENT));
    assert!(buffer.silence().unwrap() >= SILENT);
    buffer.fail("unreadable".into());
    assert_eq!(buffer.silence(), None, "its fault says more");
}
