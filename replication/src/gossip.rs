//! What replicas tell each other beside Raft: who they are, whether they have a cluster, their clocks, their status.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::link::{CallError, Link, Topic};
use crate::raft::takeover::Takeover;
use crate::raft::types::decode;
use crate::rt;

/// How often each peer is asked.
const EVERY: Duration = Duration::from_millis(200);
/// How long an answer may take.
const WITHIN: Duration = Duration::from_millis(500);
/// What was heard longer ago counts no more when a cluster is made.
const FRESH: Duration = Duration::from_secs(2);

/// What a replica says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    version: u8,
    number: u16,
    pub(crate) node_id: u64,
    pub(crate) in_cluster: bool,
    wall_ms: f64,
    status: Vec<u8>,
    /// Drawn when the process started: another one under the same number is another process.
    pub(crate) process: u64,
}

const VERSION: u8 = 2;

/// What was heard of a peer last.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Its number in the cluster.
    pub number: u16,
    /// What its node gave to [`crate::Replica::set_status`].
    pub status: Vec<u8>,
    /// When it was heard.
    pub received: Instant,
    /// When its process was first heard.
    pub since: Instant,
    /// The connection on which it was heard has not ended since.
    pub connected: bool,
    /// Its wall clock minus ours in milliseconds, taking the way there and back as equally long.
    pub clock_offset_ms: f64,
    /// How long a question and its answer took of late, on a connection that was there.
    pub round_trip: Option<Duration>,
}

#[derive(Clone)]
struct Heard {
    told: Told,
    received: Instant,
    /// When its process was first heard.
    since: Instant,
    connected: bool,
    /// Its wall clock when that was received. Not how far it is from ours: ours may be set at any time.
    wall_ms: f64,
    /// How long questions and their answers took of late.
    round_trip: Option<Duration>,
}

/// What is known of all, oneself among them.
pub(crate) struct Gossip {
    own: Mutex<Told>,
    heard: Mutex<BTreeMap<u16, Heard>>,
    /// Peers that refuse what this replica says, and why.
    refusing: Mutex<BTreeMap<u16, String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wall_ms() -> f64 {
    rt::wall().as_secs_f64() * 1000.0
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

impl Gossip {
    pub(crate) fn new(number: u16, node_id: u64, in_cluster: bool) -> Self {
        let (status, wall_ms) = (Vec::new(), 0.0);
        let own = Told {
            version: VERSION,
            number,
            node_id,
            in_cluster,
            wall_ms,
            status,
            process: rt::random(),
        };
        Self {
            own: Mutex::new(own),
            heard: Mutex::default(),
            refusing: Mutex::default(),
        }
    }

    /// Notes how a peer answered last; a refusal is said when it is new.
    fn note_refusal(&self, number: u16, error: Option<&CallError>) {
        let mut refusing = lock(&self.refusing);
        let Some(CallError::Refused(reason)) = error else {
            // Who is out of reach has not changed its mind.
            if error.is_none() {
                refusing.remove(&number);
            }
            return;
        };
        if refusing.get(&number) != Some(reason) {
            tracing::warn!(peer = number, reason, "a peer refuses this replica");
            refusing.insert(number, reason.clone());
        }
    }

    /// Peers that refuse what this replica says, and why.
    pub(crate) fn refusing(&self) -> BTreeMap<u16, String> {
        lock(&self.refusing).clone()
    }

    /// What to say of oneself now.
    pub(crate) fn own(&self) -> Told {
        Told {
            wall_ms: wall_ms(),
            ..lock(&self.own).clone()
        }
    }

    pub(crate) fn set_status(&self, status: Vec<u8>) {
        lock(&self.own).status = status;
    }

    pub(crate) fn set_in_cluster(&self) {
        lock(&self.own).in_cluster = true;
    }

    /// Notes what a peer answered just now at its configured address, and what its wall clock says. Only answers count:
    /// anyone could ask, under any number.
    pub(crate) fn hear(&self, told: Told, wall_ms: f64, took: Option<Duration>) {
        if told.version != VERSION || told.number == lock(&self.own).number {
            return;
        }
        let mut heard = lock(&self.heard);
        // One that was slow says little of the way; a way that is slow shows within some questions.
        let known = heard.get(&told.number).and_then(|known| known.round_trip);
        let round_trip = match (known, took) {
            (Some(known), Some(took)) => Some((known * 7 + took) / 8),
            (known, took) => took.or(known),
        };
        let now = rt::now();
        let before = heard.get(&told.number);
        let before = before.filter(|before| before.told.process == told.process);
        let since = before.map_or(now, |before| before.since);
        heard.insert(
            told.number,
            Heard {
                told,
                received: now,
                since,
                connected: true,
                wall_ms,
                round_trip,
            },
        );
    }

    /// Notes that the connection to a peer has ended: its process may have, too.
    pub(crate) fn lose(&self, number: u16) {
        if let Some(heard) = lock(&self.heard).get_mut(&number) {
            heard.connected = false;
        }
    }

    /// How long a question to a peer and its answer took of late.
    fn round_trip(&self, number: u16) -> Option<Duration> {
        lock(&self.heard).get(&number)?.round_trip
    }

    pub(crate) fn peers(&self) -> Vec<PeerStatus> {
        let own_ms = wall_ms();
        let heard = lock(&self.heard);
        let status = |(&number, heard): (&u16, &Heard)| PeerStatus {
            number,
            status: heard.told.status.clone(),
            received: heard.received,
            since: heard.since,
            connected: heard.connected,
            clock_offset_ms: heard.wall_ms + millis(rt::since(heard.received)) - own_ms,
            round_trip: heard.round_trip,
        };
        heard.iter().map(status).collect()
    }

    /// What each peer said lately.
    pub(crate) fn fresh(&self) -> BTreeMap<u16, Told> {
        let heard = lock(&self.heard);
        let fresh = heard
            .iter()
            .filter(|(_, heard)| rt::since(heard.received) < FRESH);
        fresh
            .map(|(&number, heard)| (number, heard.told.clone()))
            .collect()
    }
}

impl Told {
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Asks all peers again and again, each by a task of its own: one that is gone does not delay the others. The end of a
/// connection is seen at once.
pub(crate) fn ask_all(
    gossip: &Arc<Gossip>,
    links: impl Iterator<Item = (u16, Link)>,
    takeover: &Arc<Takeover>,
) {
    for (number, mut link) in links {
        let (gossip, takeover) = (Arc::clone(gossip), Arc::clone(takeover));
        rt::spawn(async move {
            loop {
                let note = |asked: Result<(Told, f64, Option<Duration>), CallError>| {
                    gossip.note_refusal(number, asked.as_ref().err());
                    if let Ok((told, wall_ms, took)) = asked {
                        takeover.met(&told);
                        gossip.hear(told, wall_ms, took);
                        if let Some(way) = gossip.round_trip(number) {
                            takeover.note_round_trip(number, way);
                        }
                    }
                };
                let attended = attend(&mut link, note).await;
                if attended != Attended::Well {
                    gossip.lose(number);
                    takeover.connection_ended(number).await;
                }
                if attended == Attended::Absent {
                    rt::sleep(EVERY).await;
                }
            }
        });
    }
}

/// What came of a question and of the time until the next one.
#[derive(Debug, PartialEq, Eq)]
enum Attended {
    Well,
    /// The connection has ended.
    Ended,
    /// The question failed, and there is no connection.
    Absent,
}

/// Asks a peer, then watches the connection until the next question is due.
async fn attend(
    link: &mut Link,
    note: impl FnOnce(Result<(Told, f64, Option<Duration>), CallError>),
) -> Attended {
    let asked = ask(link).await;
    let failed = asked.is_err();
    note(asked);
    // A peer that dies in the midst of a question leaves no connection whose end could be watched: without this its
    // death would be found by silence alone.
    if failed && link.is_closed() {
        return Attended::Absent;
    }
    match rt::timeout(EVERY, link.ended()).await {
        Ok(()) => Attended::Ended,
        Err(_) => Attended::Well,
    }
}

/// What a peer tells, its wall clock now, taking the way there and back as equally long, and how long that took where there was a connection.
async fn ask(link: &mut Link) -> Result<(Told, f64, Option<Duration>), CallError> {
    let was_connected = !link.is_closed();
    let asked = rt::now();
    let answer = link.call(Topic::Gossip, 0, &[], WITHIN).await;
    let took = rt::since(asked);
    let told: Told = answer
        .and_then(|body| decode(&body).map_err(CallError::Broken))
        .inspect_err(|error| tracing::debug!(%error, "a peer does not tell its status"))?;
    let wall_ms = told.wall_ms + millis(took) / 2.0;
    Ok((told, wall_ms, was_connected.then_some(took)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::golden;
    use crate::raft::types::encode;

    #[test]
    fn what_a_replica_tells_is_read_from_and_written_to_the_golden_bytes() {
        let told = Told {
            version: VERSION,
            number: 2,
            node_id: (2 << 48) | 77,
            in_cluster: true,
            wall_ms: 1_700_000_000_025.5,
            status: vec![1, 44],
            process: 99,
        };
        let bytes = golden::bytes("gossip", &encode(&told).unwrap());
        let read: Told = decode(&bytes).unwrap();
        assert_eq!(encode(&read).unwrap(), bytes);
        assert_eq!(
            (read.node_id, read.in_cluster, read.status),
            (told.node_id, true, vec![1, 44])
        );
    }

    #[tokio::test]
    async fn a_peer_that_dies_while_it_is_asked_is_lost_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut link = Link::new(listener.local_addr().unwrap().to_string(), None);
        let dies = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
        });
        assert_eq!(attend(&mut link, |_| ()).await, Attended::Absent);
        dies.await.unwrap();
        // Its port refuses now.
        assert_eq!(attend(&mut link, |_| ()).await, Attended::Absent);
    }

    #[test]
    fn a_replica_does_not_hear_itself_nor_another_version() {
        let gossip = Gossip::new(1, 11, false);
        gossip.hear(gossip.own(), 0.0, None);
        let peer = Gossip::new(2, 22, true);
        let newer = Told {
            version: 9,
            ..peer.own()
        };
        gossip.hear(newer, 0.0, None);
        assert!(gossip.peers().is_empty());
        let way = Some(Duration::from_millis(80));
        gossip.hear(peer.own(), wall_ms() + 60_000.0, way);
        gossip.hear(peer.own(), wall_ms() + 60_000.0, None);
        assert_eq!(gossip.peers()[0].round_trip, way);
        let ahead = gossip.peers()[0].clock_offset_ms;
        assert!((59_000.0..61_000.0).contains(&ahead), "{ahead}");
        assert_eq!(gossip.fresh()[&2].node_id, 22);
    }

    #[test]
    fn a_peers_process_is_known_since_it_was_first_heard() {
        let gossip = Gossip::new(1, 11, false);
        let since = |peer: &Gossip| {
            gossip.hear(peer.own(), 0.0, None);
            gossip.peers()[0].since
        };
        let (before, after) = (Gossip::new(2, 22, true), Gossip::new(2, 22, true));
        let first = since(&before);
        assert_eq!(since(&before), first);
        let restarted = since(&after);
        assert!(restarted > first);
        assert_eq!(since(&after), restarted);
        // Between the two nothing of it holds, however lately it was told.
        assert!(gossip.peers()[0].connected);
        gossip.lose(2);
        assert!(!gossip.peers()[0].connected);
        assert_eq!(since(&after), restarted, "it was the way that failed");
        assert!(gossip.peers()[0].connected);
    }
}
