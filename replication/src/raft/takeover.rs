//! Taking over from a leader that is gone, without waiting for openraft's time-outs.
//!
//! Who has evidence against the leader ([`crate::detector`]) asks the other voters for theirs: what one replica sees may be
//! its own trouble. If a majority, itself counted, agrees, the one with the longest log among them stands, at once: openraft
//! has a call for a planned hand-over, which lifts the lease. All who ask name the same one, so there is no tie. Raft's own
//! votes keep it safe: a false alarm costs an election.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use openraft::async_runtime::WatchReceiver;
use openraft::raft::{TransferLeaderRequest, TransferLeaderResponse};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::network::Network;
use super::types::{LogId, Raft, Vote, decode, encode};
use crate::detector::Detector;
use crate::gossip::Told;
use crate::link::{CallError, Link, Topic};
use crate::rt;
use crate::view::View;

/// How long the other voters have to answer, and the process behind a port that was connected to.
const WITHIN: Duration = Duration::from_millis(100);
/// The same in round trips, where they are far: to connect, to ask, and to have the one who is asked do the same.
const ROUND_TRIPS: u32 = 5;
/// From this round trip on, what is known of others is old.
const FAR: Duration = Duration::from_millis(20);
/// How long after an attempt that brought no leader the next one is made.
const AGAIN: Duration = Duration::from_millis(50);
/// A process that is about to end may still take a connection: it is looked at again, so often.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// A replica that started so lately stands only if no other can.
const YOUNG: Duration = Duration::from_secs(3);

/// A question to another voter.
#[derive(Serialize, Deserialize)]
struct Suspicion {
    term: u64,
    leader: u16,
}

/// What a voter thinks of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Opinion {
    agrees: bool,
    node_id: u64,
    last_log: Option<LogId>,
    young: bool,
}

/// Watches the leader of this replica, and speaks of it with the others.
pub(crate) struct Takeover {
    pub(crate) raft: Raft,
    pub(crate) number: u16,
    pub(crate) node_id: u64,
    network: Network,
    pub(crate) detector: Mutex<Detector>,
    /// The term of the last leader that this replica took for gone, and since when.
    suspected: Mutex<Option<(u64, Instant)>>,
    /// Raised on evidence that cannot wait.
    pub(crate) alarm: Notify,
    pub(crate) started: Instant,
    /// How far the others are.
    round_trips: Mutex<BTreeMap<u16, Duration>>,
}

impl Takeover {
    pub(crate) fn new(
        raft: Raft,
        number: u16,
        node_id: u64,
        network: &Network,
        detector: Detector,
    ) -> Arc<Self> {
        Arc::new(Self {
            raft,
            number,
            node_id,
            network: network.clone(),
            detector: Mutex::new(detector),
            suspected: Mutex::default(),
            alarm: Notify::new(),
            started: rt::now(),
            round_trips: Mutex::default(),
        })
    }

    fn detector(&self) -> MutexGuard<'_, Detector> {
        self.detector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn suspect(&self, term: u64) {
        let mut known = self
            .suspected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.is_none_or(|(of, _)| of < term) {
            *known = Some((term, rt::now()));
        }
    }

    /// Since when the leader before `term` was taken for gone.
    pub(crate) fn suspected(&self, term: u64) -> Option<Instant> {
        let known = self
            .suspected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = known.filter(|&(of, _)| of.checked_add(1) == Some(term));
        before.map(|(_, at)| at)
    }

    /// A message of Raft's leader came.
    pub(crate) fn heard(&self, term: u64, leader: u16) {
        self.detector().heard(term, leader, rt::now());
    }

    /// How long ago the leader of `term` was heard.
    pub(crate) fn silence(&self, term: u64) -> Option<Duration> {
        let heard = self.detector().heard_at(term)?;
        Some(rt::since(heard))
    }

    /// A question to a peer and its answer take so long.
    pub(crate) fn note_round_trip(&self, number: u16, took: Duration) {
        let mut known = self
            .round_trips
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.insert(number, took);
    }

    fn round_trip(&self, number: u16) -> Option<Duration> {
        let known = self.round_trips.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        known.get(&number).copied()
    }

    fn within(&self, number: u16) -> Duration {
        let far = self.round_trip(number).map(|took| took * ROUND_TRIPS);
        WITHIN.max(far.unwrap_or_default())
    }

    /// What a peer told of itself.
    pub(crate) fn met(&self, told: &Told) {
        let mut detector = self.detector();
        detector.met(told.number(), told.process);
        if is_dead(&detector) {
            self.alarm.notify_one();
        }
    }

    /// A connection to a peer has ended: finds out whether its process has.
    pub(crate) async fn connection_ended(&self, number: u16) {
        let leads = self
            .detector()
            .leader()
            .is_some_and(|(_, leader)| leader == number);
        if leads && self.has_ended(number).await {
            tracing::info!(leader = number, "the leader's process has ended");
            self.detector().ended(number);
            self.alarm.notify_one();
        }
    }

    /// Whether the process that led is gone: its port refuses, or another process answers. Silence says nothing.
    async fn has_ended(&self, number: u16) -> bool {
        for _ in 0..LOOKS {
            let Some(mut link) = self.network.link(number) else {
                return false;
            };
            match link.call(Topic::Gossip, 0, &[], self.within(number)).await {
                Ok(body) => {
                    let known = self.detector().process_of(number);
                    let told = decode::<Told>(&body).ok().map(|told| told.process);
                    return known.is_some() && told.is_some() && known != told;
                }
                Err(CallError::Unreachable(error)) => {
                    return error.kind() == io::ErrorKind::ConnectionRefused;
                }
                Err(CallError::Broken(error)) if error.kind() != io::ErrorKind::TimedOut => {
                    rt::sleep(BETWEEN_LOOKS).await;
                }
                Err(_) => return false,
            }
        }
        false
    }

    /// Answers another voter that suspects the leader.
    pub(crate) async fn answer(&self, body: &[u8]) -> io::Result<Vec<u8>> {
        let asked: Suspicion = decode(body)?;
        encode(&self.opinion(&asked).await)
    }

    async fn opinion(&self, asked: &Suspicion) -> Opinion {
        let evidence = || {
            self.detector()
                .evidence(asked.term, asked.leader, rt::now())
        };
        let metrics = self.raft.metrics().borrow_watched().clone();
        let leads = metrics.state.is_leader();
        let agrees = match () {
            () if asked.leader == self.number => !leads,
            () if evidence().is_some() => true,
            () => {
                let follows = self.detector().leader() == Some((asked.term, asked.leader));
                let gone = follows && self.has_ended(asked.leader).await;
                if gone {
                    self.detector().ended(asked.leader);
                }
                gone
            }
        };
        if agrees {
            self.suspect(asked.term);
        }
        Opinion {
            agrees: agrees && metrics.current_term == asked.term,
            node_id: self.node_id,
            last_log: self.raft.data_metrics().borrow_watched().last_log,
            young: rt::since(self.started) < YOUNG,
        }
    }

    /// Takes over whenever the leader is gone, for as long as the replica runs.
    pub(crate) async fn run(self: Arc<Self>, mut view: watch::Receiver<View>) {
        let others = self.network.peers.keys();
        let others = others.filter(|&&number| number != self.number);
        let mut links: BTreeMap<u16, Link> = others
            .filter_map(|&number| Some((number, self.network.link(number)?)))
            .collect();
        loop {
            let suspected = {
                let view = view.borrow_and_update();
                let leader = view.leader.filter(|&leader| leader != self.number);
                let votes = view.voters.contains(&self.number);
                let mut detector = self.detector();
                let now = rt::now();
                detector.follow(view.term, leader.filter(|_| votes), now);
                let of = detector.leader();
                of.filter(|&(term, leader)| detector.evidence(term, leader, now).is_some())
            };
            if let Some((term, leader)) = suspected {
                self.suspect(term);
                let voters = view.borrow().voters.clone();
                self.attempt(term, leader, &voters, &mut links).await;
                let moved = view.wait_for(|view| view.term > term);
                // Its sender lives as long as this runtime.
                let _ = rt::timeout(AGAIN, moved).await;
                continue;
            }
            let due = self.detector().due();
            let ended = tokio::select! {
                biased;
                changed = view.changed() => changed.is_err(),
                () = self.alarm.notified() => false,
                () = wait_until(due) => {
                    if let Some(due) = due {
                        self.detector().woke(due, rt::now());
                    }
                    false
                }
            };
            if ended {
                return;
            }
        }
    }

    /// Asks the others, and has the best of those who agree stand, if they are a majority.
    async fn attempt(
        &self,
        term: u64,
        leader: u16,
        voters: &[u16],
        links: &mut BTreeMap<u16, Link>,
    ) {
        let Ok(question) = encode(&Suspicion { term, leader }) else {
            return;
        };
        let asked = links
            .iter_mut()
            .filter(|(number, _)| voters.contains(number));
        let answers = asked.map(|(&number, link)| {
            let (question, within) = (&question, self.within(number));
            async move { Some((number, ask(link, question, within).await?)) }
        });
        let answers = futures_util::future::join_all(answers);
        let suspicion = Suspicion { term, leader };
        let (own, answers) = tokio::join!(self.opinion(&suspicion), answers);
        let mut agreed: BTreeMap<u16, Opinion> = answers.into_iter().flatten().collect();
        agreed.insert(self.number, own);
        agreed.retain(|_, opinion| opinion.agrees);
        if let Some(best) = nominate(&agreed, voters, leader) {
            let opinion = &agreed[&best];
            tracing::info!(term, leader, stands = best, "the leader is gone");
            if best == self.number && !self.is_first(&agreed, term).await {
                return;
            }
            self.have_stand(best, opinion, links).await;
        }
    }

    /// Where the others are far, what two know of each other may differ by what was on its way, and each would stand. So of those
    /// who agree the one with the lowest number is given the time to ask for votes before: `false` if it did.
    async fn is_first(&self, agreed: &BTreeMap<u16, Opinion>, term: u64) -> bool {
        let lowest = agreed.keys().copied().next();
        let lowest = lowest.filter(|&lowest| lowest != self.number);
        let way = lowest.and_then(|lowest| self.round_trip(lowest));
        let is_in_term = || self.raft.metrics().borrow_watched().current_term == term;
        let end = rt::now() + way.filter(|way| *way >= FAR).unwrap_or_default();
        while rt::now() < end && is_in_term() {
            rt::sleep(FAR / 4).await;
        }
        is_in_term()
    }

    async fn have_stand(&self, number: u16, opinion: &Opinion, links: &mut BTreeMap<u16, Link>) {
        let vote: Vote = self.raft.server_metrics().borrow_watched().vote;
        let request = TransferLeaderRequest::new(vote, opinion.node_id, opinion.last_log);
        if number == self.number {
            // If it is refused, the vote has changed, or it is tried again.
            let _ = self.raft.handle_transfer_leader(request).await;
            return;
        }
        let (Some(link), Ok(body)) = (links.get_mut(&number), encode(&request)) else {
            return;
        };
        let answer = link
            .call(Topic::Transfer, opinion.node_id, &body, self.within(number))
            .await;
        let answer =
            answer.map(|body| decode::<TransferLeaderResponse<super::types::TypeConfig>>(&body));
        tracing::debug!(?answer, number, "was asked to stand");
    }
}

/// Who is to stand: of those who agree, the one with the longest log, started long ago, with the lowest number. `None`: they
/// are no majority of the voters. The leader, if it came back, stands only if it has what the others lack.
fn nominate(agreed: &BTreeMap<u16, Opinion>, voters: &[u16], leader: u16) -> Option<u16> {
    let agreeing = voters
        .iter()
        .filter(|voter| agreed.contains_key(voter))
        .count();
    if agreeing <= voters.len() / 2 {
        return None;
    }
    let worth = |(number, opinion): &(&u16, &Opinion)| {
        let settled = !opinion.young;
        (
            opinion.last_log,
            settled,
            **number != leader,
            Reverse(**number),
        )
    };
    agreed.iter().max_by_key(worth).map(|(&number, _)| number)
}

async fn ask(link: &mut Link, question: &[u8], within: Duration) -> Option<Opinion> {
    let answer = link.call(Topic::Suspect, 0, question, within).await.ok()?;
    decode(&answer).ok()
}

fn is_dead(detector: &Detector) -> bool {
    let now = rt::now();
    let evidence = detector
        .leader()
        .and_then(|(term, leader)| detector.evidence(term, leader, now));
    evidence == Some(crate::detector::Evidence::Dead)
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => rt::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opinion(index: u64, young: bool) -> Opinion {
        Opinion {
            agrees: true,
            node_id: 1,
            last_log: Some(LogId::new_term_index(3, index)),
            young,
        }
    }
    #[test]
    fn the_longest_log_stands_then_the_settled_one_then_the_lowest_number() {
        let all = [1, 2, 3];
        let of =
            |opinions: &[(u16, Opinion)]| nominate(&opinions.iter().cloned().collect(), &all, 1);
        assert_eq!(
            of(&[(2, opinion(9, false)), (3, opinion(10, true))]),
            Some(3)
        );
        assert_eq!(
            of(&[(2, opinion(9, true)), (3, opinion(9, false))]),
            Some(3)
        );
        assert_eq!(
            of(&[(2, opinion(9, false)), (3, opinion(9, false))]),
            Some(2)
        );
        assert_eq!(
            of(&[(1, opinion(9, false)), (3, opinion(9, false))]),
            Some(3)
        );
    }

    #[test]
    fn nobody_stands_without_a_majority_of_the_voters() {
        let agreed: BTreeMap<u16, Opinion> = [(2, opinion(9, false))].into();
        assert_eq!(nominate(&agreed, &[1, 2, 3], 1), None);
        assert_eq!(nominate(&agreed, &[1, 2], 1), None);
        assert_eq!(nominate(&agreed, &[2], 1), Some(2));
        let outsider: BTreeMap<u16, Opinion> =
            [(2, opinion(9, false)), (9, opinion(9, false))].into();
        assert_eq!(nominate(&outsider, &[1, 2, 3], 1), None);
    }
}
