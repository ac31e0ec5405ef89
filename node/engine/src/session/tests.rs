#![allow(clippy::unwrap_used)]

use super::*;
use crate::spec::Function;
use crate::value::{Input, WindowLength};

const GAP: i64 = 10;

fn values() -> Vec<ValueSpec> {
    vec![ValueSpec {
        name: "n".into(),
        function: Function::CountAll,
    }]
}

/// A lane of one pipeline.
struct Lane {
    store: SessionStore,
    dictionary: Dictionary,
}

impl Lane {
    fn new() -> Self {
        Self {
            store: SessionStore::new(&values(), GAP),
            dictionary: Dictionary::default(),
        }
    }

    fn record(&mut self, key: &[u8], time: i64) {
        let group = self.dictionary.number(key);
        let time = Timestamp(time);
        let (columns, place) = self.store.take_in(group, time, &mut self.dictionary);
        columns[0].add(place, time, Input::Other);
    }

    /// Key, start, end and count of each session, in order.
    fn shown(&mut self) -> Vec<(Vec<u8>, i64, i64, String)> {
        let keys = self.dictionary.keys();
        let table = self.store.lend();
        let shown = table.sessions().map(|(session, place)| {
            let mut count = Vec::new();
            table.columns()[0].write_to(place as usize, WindowLength(0), &mut count);
            (
                keys.key(session.group).to_vec(),
                session.start,
                session.end,
                String::from_utf8(count).unwrap(),
            )
        });
        let mut shown: Vec<_> = shown.collect();
        shown.sort();
        assert_eq!(shown.len() as u64, self.store.open());
        shown
    }
}

#[track_caller]
fn check(times: &[i64], expected: &[(i64, i64, u64)]) {
    let mut lane = Lane::new();
    times.iter().for_each(|&time| lane.record(b"a", time));
    let shown = lane.shown();
    let shown: Vec<_> = shown
        .iter()
        .map(|(_, start, end, n)| (*start, *end, n.parse().unwrap()))
        .collect();
    assert_eq!(shown, expected, "{times:?}");
}

#[test]
fn intervals_that_overlap_are_one_session_in_whatever_order_they_come() {
    check(&[0, 5, 14], &[(0, 24, 3)]);
    check(&[14, 0, 5], &[(0, 24, 3)]);
    // The one in the middle joins two.
    check(&[0, 14], &[(0, 10, 1), (14, 24, 1)]);
    check(&[0, 14, 9], &[(0, 24, 3)]);
    check(&[0, 14, 40, 9], &[(0, 24, 3), (40, 50, 1)]);
    // It comes before, between and within.
    check(
        &[50, 0, 20, 25, -5],
        &[(-5, 10, 2), (20, 35, 2), (50, 60, 1)],
    );
    check(
        &[50, 0, 20, 45, 44],
        &[(0, 10, 1), (20, 30, 1), (44, 60, 3)],
    );
}

#[test]
fn a_record_at_the_very_end_of_a_session_begins_the_next() {
    check(&[0, 10], &[(0, 10, 1), (10, 20, 1)]);
    check(&[10, 0], &[(0, 10, 1), (10, 20, 1)]);
    check(&[0, 9], &[(0, 19, 2)]);
    check(&[0, 20, 10], &[(0, 10, 1), (10, 20, 1), (20, 30, 1)]);
    check(&[0, 19, 10], &[(0, 10, 1), (10, 29, 2)]);
}

#[test]
fn a_session_is_given_once_when_it_has_ended_however_long_it_grew() {
    let mut lane = Lane::new();
    for time in 0..30 {
        lane.record(b"a", time);
    }
    lane.record(b"b", 3);
    let ended = |lane: &mut Lane, through| -> Vec<(i64, i64)> {
        let ended = lane.store.ended(through).into_iter();
        ended
            .map(|(session, _)| (session.start, session.end))
            .collect()
    };
    assert_eq!(ended(&mut lane, 12), []);
    assert_eq!(ended(&mut lane, 13), [(3, 13)]);
    assert_eq!(ended(&mut lane, 38), []);
    assert_eq!(ended(&mut lane, 39), [(0, 39)]);
    assert_eq!(ended(&mut lane, 1000), []);
    assert_eq!(lane.store.soonest_end(), None);
}

#[test]
fn with_the_last_session_its_room_is_given_back() {
    let mut lane = Lane::new();
    let empty = lane.store.memory();
    for number in 0_u32..1000 {
        lane.record(&number.to_be_bytes(), i64::from(number));
        lane.record(&number.to_be_bytes(), i64::from(number) - 500);
    }
    assert!(lane.store.memory() > empty + 2000 * size_of::<Session>());
    for (_, place) in lane.store.ended(5000) {
        lane.store.remove(place, &mut lane.dictionary);
    }
    assert_eq!((lane.store.open(), lane.store.memory()), (0, empty));
    lane.record(b"a", 1);
    assert_eq!(lane.shown(), [(b"a".to_vec(), 1, 11, "1".to_owned())]);
}

/// The groups' sessions by sorting and cutting.
fn plain(records: &[(u8, i64)]) -> Vec<(Vec<u8>, i64, i64, String)> {
    let mut records = records.to_vec();
    records.sort_unstable();
    let mut sessions: Vec<(Vec<u8>, i64, i64, u64)> = Vec::new();
    for (group, time) in records {
        match sessions.last_mut() {
            Some(last) if last.0 == [group] && time < last.2 => {
                (last.2, last.3) = (time + GAP, last.3 + 1);
            }
            _ => sessions.push((vec![group], time, time + GAP, 1)),
        }
    }
    let shown = sessions.into_iter();
    let shown = shown.map(|(key, start, end, n)| (key, start, end, n.to_string()));
    shown.collect()
}

/// Some are removed on the way, as if they had been closed.
#[test]
fn sessions_are_those_of_sorted_records() {
    for seed in 1..2000_u64 {
        let mut state = seed;
        let mut below = |bound: u64| {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
        };
        let (mut lane, mut kept) = (Lane::new(), Vec::new());
        for _ in 0..below(60) {
            let (group, time) = (below(3) as u8, below(150) as i64);
            lane.record(&[group], time);
            kept.push((group, time));
            if below(40) > 0 {
                continue;
            }
            for (session, place) in lane.store.ended(below(150) as i64) {
                let key = lane.dictionary.key(session.group)[0];
                let is_in = |time: i64| session.start <= time && time < session.end;
                kept.retain(|&(group, time)| group != key || !is_in(time));
                lane.store.remove(place, &mut lane.dictionary);
            }
        }
        assert_eq!(lane.shown(), plain(&kept), "seed {seed}");
    }
}
