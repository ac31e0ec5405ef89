//! What is done to the clusters.

use std::ops::{Range, RangeInclusive};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use unisono::simulation::{self, Look, Seen, Wrong};
use unisono_replication::rt::simulated::{self, Node, between, chance};
use unisono_replication::rt::{self, sleep};

use super::{LANES, TELLS, WINDOW, World};

/// How long an operator waits for an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// How long a change of members is waited for.
const AIM: Duration = Duration::from_secs(3);
/// What is wrong in a state is in a row within so long.
const SHOWS: Duration = Duration::from_secs(3);
/// A replica that was wrong is right again within so long.
const WHOLE: Duration = Duration::from_secs(40);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process ends, and is started again.
    Kill,
    /// All processes end, and are started again.
    KillAll,
    /// A process stands still.
    Pause,
    /// A node is cut off from the others.
    Cut,
    /// A node does not reach the source.
    Blind,
    /// A node is said nothing by the source, which takes its connections.
    Deaf,
    /// Nobody is.
    AllDeaf,
    /// Nobody reaches the source.
    AllBlind,
    /// A node does not reach the sink.
    NoSink,
    /// Answers of the sink are lost.
    LostAnswers,
    /// A disk becomes slow.
    SlowDisk,
    /// A disk hangs.
    HungDisk,
    /// A clock is set.
    Clock,
    /// A clock is set while another node is away for longer: of two clocks alone nobody could tell which is wrong.
    ClockOfTwo,
    /// A node reads one record wrongly.
    WrongRecord,
    /// A node comes back with an empty disk.
    Wipe,
    /// A bit of a node's state flips: it computes wrong rows.
    WrongState,
    /// The same while another node is away: there are two, one against the other.
    WrongOfTwo,
    /// All disks become slow.
    SlowDisks,
    /// The leader gives the lead away.
    HandOver,
    /// A node comes back with an empty disk, and the leader ends while it is taken in.
    WipeAndKill,
    /// A node's file has another definition for a while.
    Drift,
    /// All ways take long: a round trip up to 200 ms.
    SlowNetwork,
    /// The leader alone reads on, and one record wrongly; an operator ends its ticks when the others read otherwise. Rows of them
    /// may be out, so this is none of [`Fault::ALL`].
    WrongAlone,
}

impl Fault {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Kill,
        Self::KillAll,
        Self::Pause,
        Self::Cut,
        Self::Blind,
        Self::AllBlind,
        Self::Deaf,
        Self::AllDeaf,
        Self::NoSink,
        Self::LostAnswers,
        Self::SlowDisk,
        Self::HungDisk,
        Self::Clock,
        Self::ClockOfTwo,
        Self::WrongRecord,
        Self::Wipe,
        Self::WrongState,
        Self::WrongOfTwo,
        Self::SlowDisks,
        Self::HandOver,
        Self::WipeAndKill,
        Self::Drift,
        Self::SlowNetwork,
    ];
}

impl World {
    /// Makes a fault, waits, and mends it.
    pub(super) async fn make(&mut self, fault: Fault) {
        let must_settle = [
            Fault::WrongRecord,
            Fault::WrongState,
            Fault::WrongOfTwo,
            Fault::WrongAlone,
            Fault::ClockOfTwo,
            Fault::Wipe,
            Fault::WipeAndKill,
        ];
        if must_settle.contains(&fault) && !self.settle().await {
            return;
        }
        self.faults.push(fault);
        let node = 1 + between(0..self.nodes as u64) as Node;
        let a_while = Duration::from_millis(between(10..2500));
        if TELLS.load(Ordering::Relaxed) {
            let (now, wall) = (simulated::elapsed(), rt::wall().as_millis());
            println!("{now:?} ({wall}): {fault:?}, node {node}, {a_while:?}");
        }
        if !self.trouble_processes(fault, node, a_while).await
            && !self.trouble_states(fault, node, a_while).await
        {
            self.trouble_surroundings(fault, node, a_while).await;
        }
    }

    /// What is done to processes; false: it is another kind.
    async fn trouble_processes(&mut self, fault: Fault, node: Node, a_while: Duration) -> bool {
        match fault {
            Fault::Kill => {
                self.kill(node);
                self.rest(a_while).await;
                self.start(node);
            }
            Fault::KillAll => {
                (1..=self.nodes).for_each(|node| self.kill(node));
                // Longer than `max_future`, now and then.
                self.rest(a_while * 3).await;
                (1..=self.nodes).for_each(|node| self.start(node));
            }
            Fault::Pause => {
                simulated::pause(node);
                self.rest(a_while).await;
                simulated::resume(node);
            }
            Fault::Wipe => {
                self.wipe(node);
                self.rest(a_while).await;
                self.start(node);
            }
            Fault::HandOver => {
                for node in 1..=self.nodes {
                    if let Some(look) = self.seen[node].look().filter(|look| look.leads().is_some())
                    {
                        drop(simulated::spawn_on(node, look.hand_over()));
                    }
                }
                self.rest(a_while / 4).await;
            }
            Fault::WipeAndKill => self.wipe_and_kill(node).await,
            Fault::Drift => {
                self.kill(node);
                self.start_with(node, "2s");
                self.rest(a_while).await;
                self.kill(node);
                self.start_with(node, WINDOW);
            }
            Fault::WrongAlone => self.wrong_alone(a_while).await,
            _ => return false,
        }
        true
    }

    async fn make_deaf(&mut self, nodes: RangeInclusive<Node>, a_while: Duration) {
        let log = Arc::clone(&self.outside.log);
        let set = |deaf| {
            for node in nodes.clone() {
                log.set_deaf(node, deaf);
            }
        };
        set(true);
        self.rest(a_while).await;
        set(false);
    }

    /// What is done to what processes have in memory; false: it is another kind.
    async fn trouble_states(&mut self, fault: Fault, node: Node, a_while: Duration) -> bool {
        match fault {
            Fault::WrongState => {
                simulation::take_twice(node);
                self.rest(a_while).await;
                if chance(30) {
                    // Before or after it is found.
                    self.kill(node);
                    self.start(node);
                }
            }
            Fault::WrongOfTwo => {
                let away = 1 + node % self.nodes;
                self.kill(away);
                // Whose word is lost is known by then: what is alone is right.
                self.rest(Duration::from_millis(500)).await;
                simulation::take_twice(node);
                self.rest(a_while * 2).await;
                self.start(away);
            }
            _ => return false,
        }
        self.until_whole().await;
        true
    }

    /// What is done to networks, disks, clocks, source and sink.
    async fn trouble_surroundings(&mut self, fault: Fault, node: Node, a_while: Duration) {
        match fault {
            Fault::Cut => {
                self.cut_off(node, true);
                self.rest(a_while).await;
                self.cut_off(node, false);
            }
            Fault::SlowNetwork => {
                self.all_ways_take(10_000..100_000);
                self.rest(a_while * 2).await;
                self.all_ways_take(50..500);
            }
            Fault::Blind => {
                self.outside.log.set_blind(node, true);
                self.rest(a_while).await;
                self.outside.log.set_blind(node, false);
            }
            Fault::Deaf => self.make_deaf(node..=node, a_while).await,
            Fault::AllDeaf => self.make_deaf(1..=self.nodes, a_while).await,
            Fault::AllBlind => {
                (1..=self.nodes).for_each(|node| self.outside.log.set_blind(node, true));
                self.rest(a_while).await;
                (1..=self.nodes).for_each(|node| self.outside.log.set_blind(node, false));
            }
            Fault::NoSink => {
                self.outside.topic.set_unreachable(node, true);
                self.rest(a_while).await;
                self.outside.topic.set_unreachable(node, false);
            }
            Fault::LostAnswers => {
                self.outside.topic.set_lost_percent(between(5..50));
                self.rest(a_while).await;
                self.outside.topic.set_lost_percent(0);
            }
            Fault::SlowDisk => {
                self.disks[node].set_sync_micros(10_000..100_000);
                self.rest(a_while).await;
                self.disks[node].set_sync_micros(100..1500);
            }
            Fault::HungDisk => {
                self.disks[node].set_hangs(true);
                self.rest(a_while).await;
                self.disks[node].set_hangs(false);
            }
            Fault::Clock => self.clock(node, a_while).await,
            Fault::ClockOfTwo => self.clock_of_two(node, a_while).await,
            Fault::WrongRecord => {
                let lane = between(0..LANES as u64) as usize;
                let wrong = Wrong(b"{\"t\":0,\"g\":9,\"v\":7}".to_vec());
                self.outside.log.read_wrongly(node, lane, wrong);
                self.rest(a_while).await;
                self.outside.log.mend();
            }
            Fault::SlowDisks => {
                (1..=self.nodes).for_each(|node| self.disks[node].set_sync_micros(20_000..200_000));
                self.rest(a_while * 3).await;
                (1..=self.nodes).for_each(|node| self.disks[node].set_sync_micros(100..1500));
            }
            _ => {}
        }
    }

    /// One clock at a time: two that are wrong alike are right.
    async fn clock(&mut self, node: Node, a_while: Duration) {
        self.all_clocks_are_right().await;
        simulated::set_wall(node, between(0..20_000) as i64 - 10_000);
        self.rest(a_while).await;
        if chance(50) {
            simulated::set_wall(node, 0);
        }
    }

    async fn clock_of_two(&mut self, node: Node, a_while: Duration) {
        self.all_clocks_are_right().await;
        let away = 1 + node % self.nodes;
        self.kill(away);
        simulated::set_wall(node, between(0..20_000) as i64 - 10_000);
        self.rest(Duration::from_secs(4) + a_while * 2).await;
        simulated::set_wall(node, 0);
        self.start(away);
    }

    /// And those who were wrong heard of the others'.
    async fn all_clocks_are_right(&mut self) {
        (1..=self.nodes).for_each(|node| simulated::set_wall(node, 0));
        self.rest(Duration::from_millis(500)).await;
    }

    /// Of one leader at most: the others must be able to tell.
    async fn wrong_alone(&mut self, a_while: Duration) {
        let leads = |&node: &Node| {
            let look = self.seen[node].look();
            look.is_some_and(|look| look.leads().is_some())
        };
        let Some(leader) = (1..=self.nodes).find(leads) else {
            return;
        };
        for node in (1..=self.nodes).filter(|&node| node != leader) {
            self.outside.log.set_blind(node, true);
        }
        self.rest(Duration::from_millis(between(0..800))).await;
        let lane = between(0..LANES as u64) as usize;
        let wrong = Wrong(b"{\"t\":0,\"g\":9,\"v\":7}".to_vec());
        self.outside.log.read_wrongly(leader, lane, wrong);
        self.rest(a_while).await;
        for node in 1..=self.nodes {
            self.outside.log.set_blind(node, false);
        }
        if chance(30) {
            self.kill(leader);
            self.start(leader);
        }
        self.decide(Duration::from_secs(6)).await;
    }

    /// An operator looks for a while whether a feed is held, and ends what is in dispute.
    pub(super) async fn decide(&mut self, within: Duration) {
        let end = simulated::elapsed() + within;
        while simulated::elapsed() < end {
            self.rest(Duration::from_millis(300)).await;
            let node = between(1..self.nodes as u64 + 1) as usize;
            let Some(look) = self.seen[node].look() else {
                continue;
            };
            let Some(feed) = look.held() else {
                continue;
            };
            let done: Arc<Mutex<Option<Result<(), String>>>> = Arc::default();
            let (own, ends) = (Arc::clone(&done), look.end_ticks(feed));
            drop(simulated::spawn_on(node, async move {
                let outcome = ends.await;
                *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            }));
            drop(look);
            // The node may be killed meanwhile.
            let asked = simulated::elapsed();
            while simulated::elapsed() < asked + ANSWERS_WITHIN {
                self.rest(Duration::from_millis(100)).await;
                let outcome = done.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(outcome) = outcome {
                    println!(
                        "{:?}: an operator ends ticks: {outcome:?}",
                        simulated::elapsed()
                    );
                    break;
                }
            }
        }
    }

    fn wipe(&mut self, node: Node) {
        self.kill(node);
        self.disks[node].wipe();
        // There is none before its first start.
        let _ = std::fs::remove_dir_all(self.dir.join(node.to_string()));
    }

    async fn wipe_and_kill(&mut self, node: Node) {
        self.wipe(node);
        self.start(node);
        // It is taken in as a learner first, and then in two steps as a voter: mostly the leader ends between the two.
        let end = simulated::elapsed() + Duration::from_millis(between(50..1500));
        let aimed = chance(75);
        while simulated::elapsed() < end || (aimed && simulated::elapsed() < end + AIM) {
            sleep(Duration::from_micros(300)).await;
            let looks = self.seen.iter().filter_map(Seen::look);
            if aimed
                && looks
                    .into_iter()
                    .any(|look| look.leads().is_some() && look.voters().1)
            {
                break;
            }
        }
        let leads = |&other: &Node| {
            let look = self.seen[other].look();
            other != node && look.is_some_and(|look| look.leads().is_some())
        };
        if let Some(leader) = (1..=self.nodes).find(leads) {
            self.kill(leader);
            self.rest(Duration::from_millis(between(10..2500))).await;
            self.start(leader);
        }
    }

    /// Waits until all replicas are there and count, so that one may be lost or wrong: of three, two must be right. False:
    /// they are not, for a while.
    async fn settle(&mut self) -> bool {
        let mut well = 0;
        for _ in 0..50 {
            self.rest(Duration::from_millis(100)).await;
            let looks = self.seen[1..].iter().filter_map(Seen::look);
            let looks: Vec<_> = looks.collect();
            let records = self.outside.log.len() as i64;
            let is_well = |look: &Look| {
                look.voters() == (self.nodes, false)
                    && look.agreed_records() + 20 >= records
                    // What is agreed it must read as well: lanes rest after an outage.
                    && look.keeps_up()
            };
            well = match looks.len() == self.nodes && looks.iter().all(is_well) {
                true => well + 1,
                false => 0,
            };
            // Those who were away count again only after a while.
            if well == 20 {
                return true;
            }
        }
        false
    }

    /// Of three, two must be right: the next fault comes when all are.
    async fn until_whole(&mut self) {
        // Before its window closes nothing shows.
        self.rest(SHOWS).await;
        let end = simulated::elapsed() + WHOLE;
        let is_whole = |seen: &Seen| seen.look().is_some_and(|look| look.is_whole());
        while !self.seen[1..].iter().all(is_whole) {
            assert!(
                simulated::elapsed() < end,
                "not whole: {}",
                self.standing(0)
            );
            self.rest(Duration::from_millis(100)).await;
        }
    }

    /// Every message takes so many microseconds.
    fn all_ways_take(&self, micros: Range<u64>) {
        simulated::network(|network| {
            for from in 1..=self.nodes {
                for to in 1..=self.nodes {
                    network.way(from, to).micros = micros.clone();
                }
            }
        });
    }

    fn cut_off(&self, node: Node, cut: bool) {
        simulated::network(|network| {
            for other in 1..=self.nodes {
                network.way(node, other).cut = cut;
                network.way(other, node).cut = cut;
            }
        });
    }

    /// All is well.
    pub(super) fn mend(&self) {
        self.outside.log.mend();
        self.outside.topic.mend();
        for node in 1..=self.nodes {
            simulated::set_wall(node, 0);
        }
    }
}
