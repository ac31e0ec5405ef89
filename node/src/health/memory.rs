//! Since when things are as they are: pure; the caller brings the clock and what it sees, several times a second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A row that was published so long ago and is not here is missing here.
const MISSING: Duration = Duration::from_secs(1);

/// Numbers of a stream of rows, as seen at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The next row to be published, as is agreed.
    pub frontier: u64,
    /// The next row to be computed here.
    pub next: u64,
    /// This node is the one to publish.
    pub publishes: bool,
}

/// What was seen before.
#[derive(Debug)]
pub struct Memory<K> {
    /// Up to where rows were published when some of them were found missing, and when that was.
    missing: BTreeMap<K, (u64, Instant)>,
    /// The frontier that has not moved though rows wait, and since when.
    waiting: BTreeMap<K, (u64, Instant)>,
    /// Once this node had all that was published and agreed.
    whole: bool,
}

impl<K> Default for Memory<K> {
    fn default() -> Self {
        Self {
            missing: BTreeMap::new(),
            waiting: BTreeMap::new(),
            whole: false,
        }
    }
}

impl<K: Ord + Copy> Memory<K> {
    /// Takes in how all streams stand. `keeps_up`: this node is in touch with a leader and lacks little of the log.
    pub fn see(&mut self, keeps_up: bool, streams: &BTreeMap<K, Numbers>, now: Instant) {
        self.missing.retain(|key, _| streams.contains_key(key));
        self.waiting.retain(|key, _| streams.contains_key(key));
        for (&key, of) in streams {
            let until = self.missing.get(&key).map_or(of.frontier, |known| known.0);
            if of.next >= until {
                self.missing.remove(&key);
            }
            if of.frontier > of.next {
                self.missing.entry(key).or_insert((of.frontier, now));
            }
            let stands = self.waiting.get(&key).map(|known| known.0) == Some(of.frontier);
            let waits = of.publishes && of.next > of.frontier;
            if !waits || !stands {
                self.waiting.remove(&key);
            }
            if waits {
                self.waiting.entry(key).or_insert((of.frontier, now));
            }
        }
        let lacks_none = streams.values().all(|of| of.next >= of.frontier);
        self.whole |= keeps_up && lacks_none;
    }

    /// Whether rows of a stream, which stands as told, are published and missing here. A node that never had all lacks what
    /// it lacks now; another one gets a moment to compute the newest.
    #[must_use]
    pub fn lacks(&self, key: K, frontier: u64, next: u64, now: Instant) -> bool {
        let old = |(_, since): &(u64, Instant)| now.saturating_duration_since(*since) >= MISSING;
        frontier > next && (!self.whole || self.missing.get(&key).is_some_and(old))
    }

    /// For how long rows of a stream have waited to be published from here while its frontier stood still.
    #[must_use]
    pub fn waits(&self, key: K, now: Instant) -> Option<Duration> {
        let (_, since) = self.waiting.get(&key)?;
        Some(now.saturating_duration_since(*since))
    }

    /// Whether this node once had all that was published and agreed, since it started.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(memory: &mut Memory<u8>, frontier: u64, next: u64, now: Instant) {
        let numbers = Numbers {
            frontier,
            next,
            publishes: true,
        };
        memory.see(true, &[(1, numbers)].into(), now);
    }

    #[test]
    fn a_node_that_never_was_whole_lacks_at_once_what_is_published() {
        let (mut memory, now) = (Memory::<u8>::default(), Instant::now());
        assert!(memory.lacks(1, 5, 4, now), "it has seen nothing yet");
        see(&mut memory, 5, 4, now);
        assert!(memory.lacks(1, 5, 4, now));
        assert!(!memory.lacks(1, 5, 5, now));
        see(&mut memory, 5, 5, now);
        assert!(memory.is_whole());
        assert!(!memory.lacks(1, 6, 5, now), "computed in a moment");
    }

    #[test]
    fn a_node_out_of_touch_is_not_whole_for_lacking_nothing_that_it_knows_of() {
        let (mut memory, now) = (Memory::<u8>::default(), Instant::now());
        memory.see(false, &BTreeMap::new(), now);
        assert!(!memory.is_whole());
    }

    #[test]
    fn the_newest_rows_are_not_missing_as_long_as_they_come() {
        let (mut memory, mut now) = (Memory::<u8>::default(), Instant::now());
        see(&mut memory, 1, 1, now);
        for seq in 1..40 {
            now += MISSING / 4;
            see(&mut memory, seq + 1, seq, now);
            assert!(!memory.lacks(1, seq + 1, seq, now), "row {seq}");
        }
        see(&mut memory, 41, 39, now + MISSING);
        assert!(memory.lacks(1, 41, 39, now + MISSING));
    }

    #[test]
    fn rows_wait_from_when_the_frontier_stood_still() {
        let (mut memory, start) = (Memory::<u8>::default(), Instant::now());
        see(&mut memory, 3, 4, start);
        let later = start + Duration::from_secs(9);
        see(&mut memory, 3, 8, later);
        assert_eq!(memory.waits(1, later), Some(Duration::from_secs(9)));
        see(&mut memory, 4, 8, later);
        assert_eq!(memory.waits(1, later), Some(Duration::ZERO));
        see(&mut memory, 8, 8, later);
        assert_eq!(memory.waits(1, later), None);
    }
}
