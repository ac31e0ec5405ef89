//! Who is asked for a partition's records where we have a rack: its leader, or a replica nearer by that the leader names
//! (KIP-392). Pure; the caller brings the clock.
//!
//! The end of a log is the leader's to tell. A replica has what it has: when it has nothing more, and once a second
//! anyway, the leader is asked too. It answers at once, without records, and names the replica anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the leader is asked at least.
const WORD: Duration = Duration::from_secs(1);
/// A replica that does not answer for so long is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long the leader gives the records of a partition whose replica failed.
const CALM: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Nearby {
    replicas: BTreeMap<i32, Replica>,
    /// Partitions that are read from their leader until then.
    shunned: BTreeMap<i32, Instant>,
}

#[derive(Debug)]
struct Replica {
    broker: i32,
    /// When the leader named it last.
    named: Instant,
    /// It had nothing more.
    is_dry: bool,
    /// Since when it is to answer.
    asked: Option<Instant>,
}

impl Nearby {
    /// Who is to be asked for a partition now.
    pub(super) fn asked(&mut self, partition: i32, leader: i32, now: Instant) -> i32 {
        let Some(replica) = self.replicas.get(&partition) else {
            return leader;
        };
        let passed = |since: Instant| now.saturating_duration_since(since);
        if replica.is_dry || passed(replica.named) >= WORD {
            return leader;
        }
        if replica.asked.is_some_and(|since| passed(since) >= PATIENCE) {
            self.failed(partition, now);
            return leader;
        }
        replica.broker
    }

    /// A replica is being asked.
    pub(super) fn asking(&mut self, partition: i32, now: Instant) {
        if let Some(replica) = self.replicas.get_mut(&partition) {
            replica.asked.get_or_insert(now);
        }
    }

    /// The leader answered, and named that one, if any. Whether it is another one than before.
    pub(super) fn named(&mut self, partition: i32, replica: Option<i32>, now: Instant) -> bool {
        let Some(broker) = replica.filter(|_| !self.is_shunned(partition, now)) else {
            self.replicas.remove(&partition);
            return false;
        };
        let known = self.replicas.get_mut(&partition);
        if let Some(known) = known.filter(|known| known.broker == broker) {
            (known.named, known.is_dry) = (now, false);
            return false;
        }
        let replica = Replica {
            broker,
            named: now,
            is_dry: false,
            asked: None,
        };
        self.replicas.insert(partition, replica);
        true
    }

    /// A replica answered. Whether the leader is to be asked now.
    pub(super) fn answered(&mut self, partition: i32, broker: i32, is_dry: bool) -> bool {
        let replica = self.replicas.get_mut(&partition);
        let Some(replica) = replica.filter(|replica| replica.broker == broker) else {
            return false;
        };
        (replica.is_dry, replica.asked) = (is_dry, None);
        is_dry
    }

    /// Its replica does not give the partition: the leader is to do it for a while.
    pub(super) fn failed(&mut self, partition: i32, now: Instant) {
        self.replicas.remove(&partition);
        self.shunned.insert(partition, now + CALM);
    }

    /// A broker cannot be reached. Whether partitions were read from it.
    pub(super) fn lost(&mut self, broker: i32, now: Instant) -> bool {
        let of = self.replicas.iter();
        let of = of.filter(|(_, replica)| replica.broker == broker);
        let of: Vec<i32> = of.map(|(partition, _)| *partition).collect();
        of.iter().for_each(|partition| self.failed(*partition, now));
        !of.is_empty()
    }

    /// Whether a leader must give this partition itself.
    pub(super) fn is_shunned(&self, partition: i32, now: Instant) -> bool {
        self.shunned
            .get(&partition)
            .is_some_and(|until| *until > now)
    }

    /// The replicas that are read from.
    pub(super) fn brokers(&self) -> impl Iterator<Item = i32> {
        self.replicas.values().map(|replica| replica.broker)
    }

    /// Only these partitions are read.
    pub(super) fn retain(&mut self, is_read: impl Fn(i32) -> bool) {
        self.replicas.retain(|partition, _| is_read(*partition));
        self.shunned.retain(|partition, _| is_read(*partition));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: i32 = 1;
    const NEAR: i32 = 2;

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_replica_is_read_until_it_has_nothing_and_then_the_leader_is_asked() {
        let (mut nearby, now) = (Nearby::default(), Instant::now());
        assert_eq!(nearby.asked(0, LEADER, now), LEADER);
        assert!(nearby.named(0, Some(NEAR), now));
        assert_eq!(nearby.asked(0, LEADER, now), NEAR);
        assert_eq!(nearby.asked(1, LEADER, now), LEADER);
        assert!(!nearby.answered(0, NEAR, false));
        assert_eq!(nearby.asked(0, LEADER, now), NEAR);
        assert!(nearby.answered(0, NEAR, true));
        assert_eq!(nearby.asked(0, LEADER, now), LEADER);
        assert!(!nearby.named(0, Some(NEAR), now), "the same");
        assert_eq!(nearby.asked(0, LEADER, now), NEAR);
        // Also while it has something.
        assert_eq!(nearby.asked(0, LEADER, after(now, 999)), NEAR);
        assert_eq!(nearby.asked(0, LEADER, after(now, 1000)), LEADER);
        // The leader gave it itself.
        assert!(!nearby.named(0, None, now));
        assert_eq!(nearby.asked(0, LEADER, now), LEADER);
    }

    #[test]
    fn a_replica_that_fails_is_left_alone_for_a_while() {
        let (mut nearby, now) = (Nearby::default(), Instant::now());
        for partition in [0, 1] {
            nearby.named(partition, Some(NEAR), now);
        }
        nearby.named(2, Some(3), now);
        assert!(!nearby.lost(7, now));
        assert!(nearby.lost(NEAR, now));
        assert_eq!(nearby.asked(0, LEADER, now), LEADER);
        assert_eq!(nearby.asked(2, LEADER, now), 3);
        assert!(nearby.is_shunned(1, after(now, 59_000)));
        assert!(!nearby.named(1, Some(NEAR), after(now, 59_000)));
        assert!(nearby.named(1, Some(NEAR), after(now, 60_000)));
    }

    #[test]
    fn a_replica_that_does_not_answer_fails() {
        let (mut nearby, now) = (Nearby::default(), Instant::now());
        nearby.named(0, Some(NEAR), now);
        nearby.asking(0, now);
        for second in 1..5 {
            nearby.named(0, Some(NEAR), after(now, second * 1000));
            assert_eq!(nearby.asked(0, LEADER, after(now, second * 1000)), NEAR);
        }
        nearby.named(0, Some(NEAR), after(now, 5000));
        assert_eq!(nearby.asked(0, LEADER, after(now, 5000)), LEADER);
        assert!(nearby.is_shunned(0, after(now, 5000)));
    }
}
