use super::*;
use crate::ingest::{LaneRoom, ReadAhead};
use crate::source::Block;
use unisono_engine::record::Stamp;

/// A lane's buffer with a record at each of the offsets; the chain of fingerprints begins at the first of them.
fn buffer(offsets: std::ops::Range<i64>) -> Arc<LaneBuffer> {
    let node = ReadAhead::new(64 << 20);
    let buffer = LaneBuffer::new(LaneRoom::new(&node, Arc::default()), offsets.start);
    let mut running = 0;
    for offset in offsets {
        let mut block = Block::default();
        block.push(offset, offset + 1, Stamp::None, Some(b"x"));
        running = block.seal(running);
        buffer.push(block);
    }
    Arc::new(buffer)
}

fn agreed(cut: i64) -> machine::Lane {
    machine::Lane {
        source: 0,
        name: "0".to_owned(),
        identity: String::new(),
        cut,
        fingerprint: 0,
        marks: machine::Marks::new(0),
        hole: machine::Hole::default(),
        ended: false,
        retired: false,
    }
}

/// Where the two meet: the elder is agreed to `cuts[0]` and would go to `most`, the younger is agreed to `cuts[1]`.
fn meet(cuts: [i64; 2], most: Option<i64>, buffers: &[Arc<LaneBuffer>; 2]) -> Option<Meeting> {
    let [elder, younger] = cuts.map(agreed);
    let lane = SharedLane {
        at: [3, 5],
        elder: &elder,
        younger: &younger,
        buffers: buffers.clone(),
    };
    let step = |cut| LaneMove {
        lane: 3,
        cut,
        fingerprint: 0,
    };
    lane.meet(most.map(step).as_ref())
}

fn known(lane: u32, buffer: &LaneBuffer, cut: i64) -> Option<LaneMove> {
    let choice = buffer.cut_up_to(cut).filter(|choice| choice.cut == cut);
    choice.map(|choice| LaneMove {
        lane,
        cut,
        fingerprint: choice.fingerprint,
    })
}

#[test]
fn the_elder_is_held_back_to_what_the_younger_has() {
    let buffers = [buffer(10..30), buffer(0..25)];
    let met = meet([20, 7], Some(30), &buffers);
    let expected = Meeting {
        cut: 25,
        elder: known(3, &buffers[0], 25),
        younger: known(5, &buffers[1], 25),
    };
    assert!(expected.elder.is_some() && expected.younger.is_some());
    assert_eq!(met, Some(expected));
}

#[test]
fn the_younger_goes_no_further_than_the_elder() {
    let buffers = [buffer(10..30), buffer(0..40)];
    let met = meet([20, 7], Some(28), &buffers);
    assert_eq!(met.map(|met| met.cut), Some(28));
    let met = meet([20, 7], None, &buffers).map(|met| (met.cut, met.elder));
    assert_eq!(met, Some((20, None)), "the elder does not move");
}

#[test]
fn a_younger_feed_that_holds_less_than_the_elder_took_in_is_waited_for() {
    let buffers = [buffer(10..30), buffer(0..19)];
    assert_eq!(meet([20, 7], Some(30), &buffers), None);
    // Exactly that much is enough: the elder stands still for this tick.
    let buffers = [buffer(10..30), buffer(0..20)];
    let met = meet([20, 7], Some(30), &buffers).map(|met| (met.cut, met.elder));
    assert_eq!(met, Some((20, None)));
}

#[test]
fn lanes_where_nothing_is_new_meet_where_they_are() {
    let buffers = [buffer(0..0), buffer(0..0)];
    let there = Meeting {
        cut: 20,
        elder: None,
        younger: None,
    };
    assert_eq!(meet([20, 20], None, &buffers), Some(there));
    assert_eq!(meet([20, 21], None, &buffers), None);
    assert_eq!(meet([21, 20], None, &buffers), None);
}
