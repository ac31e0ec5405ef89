//! At which index a checkpoint stands, and which feeds' states it needs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use unisono_replication::command::FeedId;

/// What is known when a checkpoint is to be made.
#[derive(Debug, Default)]
pub struct Known {
    /// Where the checkpoint before stands; its own index of a feed that has no state there.
    pub base: u64,
    /// How far the log was read.
    pub end: u64,
    /// The feeds that there are at the end.
    pub alive: BTreeSet<FeedId>,
    /// Those of them that have taken in nothing yet: they need no state.
    pub blank: BTreeSet<FeedId>,
    /// Feeds that went on in another one since the checkpoint before: which, in which, and at which index.
    pub joined: Vec<(FeedId, FeedId, u64)>,
    /// How far the states go that are to be had.
    pub states: BTreeMap<FeedId, u64>,
    /// Feeds that are parked, and at which states: those need no log.
    pub parked: BTreeMap<FeedId, u64>,
}

/// What follows.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// Where the checkpoint stands: the log below it is needed no more.
    pub index: u64,
    /// Feeds whose states it has to have, and where each stands.
    pub needed: BTreeMap<FeedId, u64>,
}

/// The least of what the feeds have come to. One that went on in another is needed as long as that one has not got there.
pub fn choose(known: &Known) -> Choice {
    let mut needed: BTreeMap<FeedId, u64> = BTreeMap::new();
    let mut open: Vec<FeedId> = known.alive.iter().copied().collect();
    while let Some(feed) = open.pop() {
        let index = known.index_of(feed);
        needed.insert(feed, index);
        let apart = |&&(_, into, at): &&(FeedId, FeedId, u64)| into == feed && index < at;
        let others = known.joined.iter().filter(apart).map(|&(from, ..)| from);
        open.extend(others.filter(|from| !needed.contains_key(from)));
    }
    let by_log = |(id, index): &(&FeedId, &u64)| known.parked.get(*id) != Some(*index);
    let least = needed.iter().filter(by_log).map(|(_, &index)| index).min();
    Choice {
        index: least.unwrap_or(known.end).min(known.end),
        needed,
    }
}

impl Known {
    fn index_of(&self, feed: FeedId) -> u64 {
        match self.states.get(&feed) {
            Some(&index) => index,
            None if self.blank.contains(&feed) => self.end,
            // It begins anew when the log creates it again.
            None if feed.0 > self.base => feed.0 - 1,
            None => self.base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FeedId = FeedId(3);
    const B: FeedId = FeedId(7);

    fn known(alive: &[FeedId], states: &[(FeedId, u64)]) -> Known {
        Known {
            base: 10,
            end: 100,
            alive: alive.iter().copied().collect(),
            states: states.iter().copied().collect(),
            ..Known::default()
        }
    }

    fn index(known: &Known) -> u64 {
        choose(known).index
    }

    #[test]
    fn it_stands_where_the_least_feed_stands_and_never_beyond_what_was_read() {
        assert_eq!(index(&known(&[], &[])), 100);
        assert_eq!(index(&known(&[A, B], &[(A, 100), (B, 100)])), 100);
        assert_eq!(index(&known(&[A, B], &[(A, 40), (B, 100)])), 40);
        assert_eq!(index(&known(&[A], &[(A, 103)])), 100);
    }

    #[test]
    fn a_feed_that_is_parked_where_its_state_stands_keeps_no_log() {
        let mut known = known(&[A, B], &[(A, 40), (B, 90)]);
        known.parked.insert(A, 41);
        assert_eq!(index(&known), 40, "another state than its own");
        known.parked.insert(A, 40);
        let choice = choose(&known);
        assert_eq!((choice.index, choice.needed[&A]), (90, 40));
        known.parked.insert(B, 90);
        assert_eq!(index(&known), 100);
    }

    #[test]
    fn a_feed_without_a_state_holds_it_where_it_begins_unless_it_took_in_nothing() {
        assert_eq!(index(&known(&[A], &[])), 10, "as the checkpoint before");
        let created = FeedId(50);
        let mut known = known(&[A, created], &[(A, 100)]);
        assert_eq!(index(&known), 49, "it is created again");
        known.blank.insert(created);
        assert_eq!(index(&known), 100);
    }

    #[test]
    fn a_feed_that_went_on_in_another_is_needed_until_that_one_got_there() {
        let mut known = known(&[B], &[(A, 30), (B, 60)]);
        known.joined.push((A, B, 60));
        assert_eq!(choose(&known).needed, BTreeMap::from([(B, 60)]));
        known.states.insert(B, 59);
        let choice = choose(&known);
        assert_eq!(choice.needed, BTreeMap::from([(A, 30), (B, 59)]));
        assert_eq!(choice.index, 30);
    }

    #[test]
    fn a_chain_of_feeds_is_followed_and_one_whose_heir_is_gone_is_not_needed() {
        let c = FeedId(9);
        let mut known = known(&[c], &[(A, 20), (B, 30), (c, 40)]);
        known.joined = vec![(A, B, 35), (B, c, 45)];
        assert_eq!(choose(&known).needed.len(), 3);
        known.alive.clear();
        assert_eq!(index(&known), 100);
    }
}
