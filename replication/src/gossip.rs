//! What replicas tell each other beside Raft: who they are, whether they have a cluster, their clocks, their status.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::link::{CallError, Link, Topic};
use crate::raft::takeover::Takeover;
use crate::raft::types::decode;

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
    /// Its wall clock minus ours in milliseconds, taking the way there and back as equally long.
    pub clock_offset_ms: f64,
}

#[derive(Clone)]
struct Heard {
    told: Told,
    received: Instant,
    clock_offset_ms: f64,
}

/// What is known of all, oneself among them.
pub(crate) struct Gossip {
    own: Mutex<Told>,
    heard: Mutex<BTreeMap<u16, Heard>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wall_ms() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
        * 1000.0
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
            process: rand::random(),
        };
        Self {
            own: Mutex::new(own),
            heard: Mutex::default(),
        }
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

    /// Notes what a peer answered at its configured address, and how far its clock is from ours. Only answers count: anyone
    /// could ask, under any number.
    pub(crate) fn hear(&self, told: Told, clock_offset_ms: f64) {
        if told.version != VERSION || told.number == lock(&self.own).number {
            return;
        }
        let mut heard = lock(&self.heard);
        heard.insert(
            told.number,
            Heard {
                told,
                received: Instant::now(),
                clock_offset_ms,
            },
        );
    }

    pub(crate) fn peers(&self) -> Vec<PeerStatus> {
        let heard = lock(&self.heard);
        let status = |(&number, heard): (&u16, &Heard)| PeerStatus {
            number,
            status: heard.told.status.clone(),
            received: heard.received,
            clock_offset_ms: heard.clock_offset_ms,
        };
        heard.iter().map(status).collect()
    }

    /// What each peer said lately.
    pub(crate) fn fresh(&self) -> BTreeMap<u16, Told> {
        let heard = lock(&self.heard);
        let fresh = heard
            .iter()
            .filter(|(_, heard)| heard.received.elapsed() < FRESH);
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
    peers: &BTreeMap<u16, String>,
    takeover: &Arc<Takeover>,
) {
    let own = gossip.own().number;
    for (&number, address) in peers.iter().filter(|(number, _)| **number != own) {
        let (gossip, mut link) = (Arc::clone(gossip), Link::new(address.clone()));
        let takeover = Arc::clone(takeover);
        tokio::spawn(async move {
            loop {
                let hear = |told: Told, offset| {
                    takeover.met(&told);
                    gossip.hear(told, offset);
                };
                let attended = attend(&mut link, hear).await;
                if attended != Attended::Well {
                    takeover.connection_ended(number).await;
                }
                if attended == Attended::Absent {
                    tokio::time::sleep(EVERY).await;
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
async fn attend(link: &mut Link, hear: impl FnOnce(Told, f64)) -> Attended {
    match ask(link).await {
        Some((told, offset)) => hear(told, offset),
        // A peer that dies in the midst of a question leaves no connection whose end could be watched: without this its
        // death would be found by silence alone.
        None if link.is_closed() => return Attended::Absent,
        None => {}
    }
    match tokio::time::timeout(EVERY, link.ended()).await {
        Ok(()) => Attended::Ended,
        Err(_) => Attended::Well,
    }
}

async fn ask(link: &mut Link) -> Option<(Told, f64)> {
    let asked = wall_ms();
    let answer = link.call(Topic::Gossip, 0, &[], WITHIN).await;
    let answered = wall_ms();
    let told: Told = answer
        .and_then(|body| decode(&body).map_err(CallError::Broken))
        .inspect_err(|error| tracing::debug!(%error, "a peer does not tell its status"))
        .ok()?;
    let offset = told.wall_ms - f64::midpoint(asked, answered);
    Some((told, offset))
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
        let mut link = Link::new(listener.local_addr().unwrap().to_string());
        let dies = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
        });
        assert_eq!(attend(&mut link, |_, _| ()).await, Attended::Absent);
        dies.await.unwrap();
        // Its port refuses now.
        assert_eq!(attend(&mut link, |_, _| ()).await, Attended::Absent);
    }

    #[test]
    fn a_replica_does_not_hear_itself_nor_another_version() {
        let gossip = Gossip::new(1, 11, false);
        gossip.hear(gossip.own(), 0.0);
        let peer = Gossip::new(2, 22, true);
        let newer = Told {
            version: 9,
            ..peer.own()
        };
        gossip.hear(newer, 0.0);
        assert!(gossip.peers().is_empty());
        gossip.hear(peer.own(), 5.0);
        assert_eq!(
            gossip.peers()[0].clock_offset_ms.to_bits(),
            5.0_f64.to_bits()
        );
        assert_eq!(gossip.fresh()[&2].node_id, 22);
    }
}
