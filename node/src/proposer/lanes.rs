//! Lanes that come and go: what the sources have now against what the feed has.

use unisono_replication::command::{AddLanes, Command, FeedId, LaneEntry, RetireLanes};
use unisono_replication::machine;

use crate::feed::Feed;
use crate::ingest::SourceState;

/// The entry that brings the feed's lanes nearer to what its sources have. New lanes first: until they are there, those
/// that go hold the windows that their records may belong to.
pub(super) fn change(agreed: &machine::Feed, feed: &Feed, term: u64) -> Option<Command> {
    let states: Vec<SourceState> = feed.fetchers().iter().map(|of| of.state()).collect();
    let (feed_id, base) = (feed.id, agreed.base);
    if let Some(command) = added(agreed, &states, (feed_id, base, term)) {
        return Some(Command::AddLanes(command));
    }
    // What this node has read of a lane and nobody has taken in is no end.
    let buffers = feed.lanes();
    let is_taken = |lane: usize| {
        let buffer = buffers.get(lane);
        buffer.is_some_and(|buffer| buffer.level().1 <= agreed.lanes[lane].cut)
    };
    let command = retired(agreed, &states, (feed_id, base, term), is_taken)?;
    Some(Command::RetireLanes(command))
}

/// A source's lanes as this node saw them count only if it knew all that the feed has.
fn is_current(agreed: &machine::Feed, source: u32, state: &SourceState) -> bool {
    let lanes = agreed.lanes.iter().filter(|lane| lane.source == source);
    lanes.count() == state.known
}

fn added(
    agreed: &machine::Feed,
    states: &[SourceState],
    (feed, base, term): (FeedId, u64, u64),
) -> Option<AddLanes> {
    let mut lanes = Vec::new();
    for (source, state) in (0_u32..).zip(states) {
        if !is_current(agreed, source, state) {
            continue;
        }
        for found in &state.found.new {
            let has_name = |lane: &machine::Lane| {
                !lane.retired && lane.source == source && lane.name == found.name
            };
            if agreed.lanes.iter().any(has_name) {
                continue;
            }
            let (lane, start) = (&found.name, found.start);
            if start == 0 {
                tracing::info!(lane, "a new lane");
            } else {
                tracing::warn!(lane, start, "a new lane, which is read from this offset on");
            }
            lanes.push(LaneEntry {
                source,
                name: found.name.clone(),
                start,
                identity: found.identity.clone(),
            });
        }
    }
    (!lanes.is_empty()).then_some(AddLanes {
        term,
        feed,
        base,
        lanes,
    })
}

fn retired(
    agreed: &machine::Feed,
    states: &[SourceState],
    (feed, base, term): (FeedId, u64, u64),
    is_taken: impl Fn(usize) -> bool,
) -> Option<RetireLanes> {
    let is_gone = |lane: &machine::Lane| {
        let state = states.get(lane.source as usize);
        let state = state.filter(|state| is_current(agreed, lane.source, state));
        state.is_some_and(|state| state.found.gone.contains(&lane.name))
    };
    let lanes: Vec<u32> = (0..)
        .zip(&agreed.lanes)
        .filter(|(at, lane)| lane.ended && !lane.retired && is_gone(lane) && is_taken(*at as usize))
        .map(|(at, _)| at)
        .collect();
    (!lanes.is_empty()).then_some(RetireLanes {
        term,
        feed,
        base,
        lanes,
    })
}

#[cfg(test)]
mod tests {
    use unisono_replication::command::{CreateFeed, FeedTick, LaneMove, SourceEntry, Ticks};
    use unisono_replication::machine::Machine;

    use super::*;
    use crate::source::{Found, FoundLane};

    const ID: FeedId = FeedId(1);

    /// A feed with these lanes, at its base; those in `ended` were at their end at its tick.
    fn feed(lanes: &[&str], ended: &[u32]) -> machine::Feed {
        let mut machine = Machine::default();
        let lane = |name: &&str| LaneEntry {
            source: 0,
            name: (*name).to_owned(),
            start: 0,
            identity: String::new(),
        };
        let source = SourceEntry {
            name: "s".to_owned(),
            definition: String::new(),
        };
        let create = CreateFeed {
            term: 1,
            sources: vec![source],
            lanes: lanes.iter().map(lane).collect(),
        };
        machine.apply(1, 1, &Command::CreateFeed(create));
        let tick = FeedTick {
            feed: ID,
            base: 1,
            agreed_ms: 0,
            clock_ms: 0,
            alone: false,
            moves: vec![LaneMove {
                lane: 0,
                cut: 10,
                fingerprint: 1,
            }],
            empty: vec![],
            at_end: ended.to_vec(),
        };
        let feeds = vec![tick];
        machine.apply(2, 1, &Command::Ticks(Ticks { term: 1, feeds }));
        machine.feeds()[&ID].clone()
    }

    fn state(new: &[(&str, i64)], gone: &[&str], known: usize) -> SourceState {
        let lane = |&(name, start): &(&str, i64)| FoundLane {
            name: name.to_owned(),
            start,
            identity: format!("id of {name}"),
        };
        let found = Found {
            new: new.iter().map(lane).collect(),
            gone: gone.iter().map(|name| (*name).to_owned()).collect(),
            troubles: vec![],
        };
        SourceState {
            trouble: None,
            found,
            known,
        }
    }

    fn added_names(agreed: &machine::Feed, state: SourceState) -> Vec<(String, i64)> {
        let command = added(agreed, &[state], (ID, 2, 1));
        let lanes = command.map(|command| command.lanes).unwrap_or_default();
        lanes
            .into_iter()
            .map(|lane| (lane.name, lane.start))
            .collect()
    }

    #[test]
    fn a_new_lane_begins_where_its_log_does() {
        let feed = feed(&["0"], &[]);
        let added = added_names(&feed, state(&[("1", 42)], &[], 1));
        assert_eq!(added, [("1".to_owned(), 42)]);
    }

    #[test]
    fn a_look_that_did_not_know_all_lanes_adds_and_retires_nothing() {
        let feed = feed(&["0", "1"], &[0, 1]);
        for known in [0, 1, 3] {
            let state = state(&[("2", 0)], &["0"], known);
            assert!(added_names(&feed, state.clone()).is_empty());
            assert_eq!(retired(&feed, &[state], (ID, 2, 1), |_| true), None);
        }
    }

    #[test]
    fn a_name_is_free_when_its_lane_is_retired() {
        let mut feed = feed(&["0"], &[0]);
        assert!(added_names(&feed, state(&[("0", 0)], &["0"], 1)).is_empty());
        feed.lanes[0].retired = true;
        let added = added_names(&feed, state(&[("0", 0)], &[], 1));
        assert_eq!(added, [("0".to_owned(), 0)]);
    }

    #[test]
    fn only_a_lane_that_was_taken_in_to_its_end_is_retired() {
        let gone = || [state(&[], &["0", "1"], 2)];
        let of = |ended: &[u32], taken: bool| {
            let feed = feed(&["0", "1"], ended);
            let command = retired(&feed, &gone(), (ID, 2, 1), |_| taken);
            command.map(|command| command.lanes)
        };
        assert_eq!(of(&[0, 1], true), Some(vec![0, 1]));
        assert_eq!(of(&[1], true), Some(vec![1]));
        assert_eq!(of(&[], true), None);
        assert_eq!(of(&[0, 1], false), None);
    }
}
