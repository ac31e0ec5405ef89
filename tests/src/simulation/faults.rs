//! What is done to the clusters.

use std::time::Duration;

use unisono::simulation::Wrong;
use unisono_replication::rt::simulated::{self, Node, between, chance};

use super::{LANES, NODES, World};

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
    /// A node reads one record wrongly.
    WrongRecord,
    /// A node comes back with an empty disk.
    Wipe,
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
        Self::NoSink,
        Self::LostAnswers,
        Self::SlowDisk,
        Self::HungDisk,
        Self::Clock,
        Self::WrongRecord,
        Self::Wipe,
    ];
}

impl World {
    /// Makes a fault, waits, and mends it.
    pub(super) async fn make(&mut self, fault: Fault) {
        if matches!(fault, Fault::WrongRecord | Fault::Wipe) && !self.settle().await {
            return;
        }
        self.faults.push(fault);
        let node = 1 + between(0..NODES as u64) as Node;
        let a_while = Duration::from_millis(between(10..2500));
        match fault {
            Fault::Kill => {
                self.kill(node);
                self.rest(a_while).await;
                self.start(node);
            }
            Fault::KillAll => {
                (1..=NODES).for_each(|node| self.kill(node));
                self.rest(a_while).await;
                (1..=NODES).for_each(|node| self.start(node));
            }
            Fault::Pause => {
                simulated::pause(node);
                self.rest(a_while).await;
                simulated::resume(node);
            }
            Fault::Cut => {
                self.cut_off(node, true);
                self.rest(a_while).await;
                self.cut_off(node, false);
            }
            Fault::Blind => {
                self.outside.log.set_blind(node, true);
                self.rest(a_while).await;
                self.outside.log.set_blind(node, false);
            }
            Fault::AllBlind => {
                (1..=NODES).for_each(|node| self.outside.log.set_blind(node, true));
                self.rest(a_while).await;
                (1..=NODES).for_each(|node| self.outside.log.set_blind(node, false));
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
            Fault::Clock => {
                let step = between(0..4000) as i64 - 2000;
                simulated::set_wall(node, step);
                self.rest(a_while).await;
                if chance(50) {
                    simulated::set_wall(node, 0);
                }
            }
            Fault::WrongRecord => {
                let lane = between(0..LANES as u64) as usize;
                let wrong = Wrong(b"{\"t\":0,\"g\":9,\"v\":7}".to_vec());
                self.outside.log.read_wrongly(node, lane, wrong);
                self.rest(a_while).await;
                self.outside.log.mend();
            }
            Fault::Wipe => {
                self.kill(node);
                self.disks[node].wipe();
                let _ = std::fs::remove_dir_all(self.dir.join(node.to_string()));
                self.rest(a_while).await;
                self.start(node);
            }
        }
    }

    /// Waits until all replicas are there and count, so that one may be lost or wrong: of three, two must be right. False:
    /// they are not, for a while.
    async fn settle(&mut self) -> bool {
        let mut well = 0;
        for _ in 0..50 {
            self.rest(Duration::from_millis(100)).await;
            let looks = self.seen[1..]
                .iter()
                .filter_map(unisono::simulation::Seen::look);
            let looks: Vec<_> = looks.collect();
            let records = self.outside.log.len() as i64;
            let is_well = |look: &unisono::simulation::Look| {
                look.voters() == (NODES, false) && look.agreed_records() + 20 >= records
            };
            well = match looks.len() == NODES && looks.iter().all(is_well) {
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

    fn cut_off(&self, node: Node, cut: bool) {
        simulated::network(|network| {
            for other in 1..=NODES {
                network.way(node, other).cut = cut;
                network.way(other, node).cut = cut;
            }
        });
    }

    /// All is well.
    pub(super) fn mend(&self) {
        self.outside.log.mend();
        self.outside.topic.mend();
        for node in 1..=NODES {
            simulated::set_wall(node, 0);
        }
    }
}
