#![allow(clippy::unwrap_used)]

use std::io;
use std::net::TcpListener;

use tempfile::TempDir;

use super::*;
use crate::{IncomingSnapshot, Replica, ReplicaConfig, Snapshots, StoredSnapshot, View};

/// Far more than anything takes on a busy machine; a test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(40);

/// A node without an engine.
struct NoEngine;

impl Snapshots for NoEngine {
    fn current(&self) -> io::Result<Option<StoredSnapshot>> {
        Ok(None)
    }

    fn build(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn install(&self, _snapshot: IncomingSnapshot) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Replicas in one process.
struct Nodes {
    dir: TempDir,
    addresses: BTreeMap<u16, String>,
    running: BTreeMap<u16, Replica>,
}

impl Nodes {
    /// Nodes that know each other as peers.
    fn start(numbers: &[u16]) -> Self {
        let mut nodes = Self {
            dir: TempDir::new().unwrap(),
            addresses: BTreeMap::new(),
            running: BTreeMap::new(),
        };
        let listeners: Vec<(u16, TcpListener)> = numbers
            .iter()
            .map(|&number| (number, TcpListener::bind("127.0.0.1:0").unwrap()))
            .collect();
        for (number, listener) in &listeners {
            let address = listener.local_addr().unwrap().to_string();
            nodes.addresses.insert(*number, address);
        }
        for (number, listener) in listeners {
            nodes.open(number, numbers, listener);
        }
        nodes
    }

    fn open(&mut self, number: u16, peers: &[u16], listener: TcpListener) {
        listener.set_nonblocking(true).unwrap();
        let address = |number: &u16| (*number, self.addresses[number].clone());
        let config = ReplicaConfig {
            number,
            peers: peers.iter().map(address).collect(),
            secret: None,
            heartbeat: Duration::from_millis(50),
            election_timeout: (Duration::from_millis(250), Duration::from_millis(500)),
            keep_log_entries: 1000,
            forget_learners: Duration::from_secs(3),
            port: crate::link::PortLimits::default(),
        };
        let dir = self.dir.path().join(number.to_string());
        let start = || Replica::start(config, listener, &dir, Arc::new(NoEngine));
        let replica = tokio::task::block_in_place(start);
        self.running.insert(number, replica.unwrap());
    }

    /// Starts a node that was stopped, or a new one, with these peers.
    async fn reopen(&mut self, number: u16, peers: &[u16]) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match TcpListener::bind(&self.addresses[&number]) {
                Ok(listener) => return self.open(number, peers, listener),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn stop(&mut self, number: u16) {
        self.running.remove(&number).unwrap().shutdown().await;
    }

    fn view(&self, number: u16) -> View {
        self.running[&number].view().borrow().clone()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            if Instant::now() > deadline {
                let views: Vec<_> = self.running.keys().map(|&it| self.view(it)).collect();
                panic!("not so in time: {what}; {views:#?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn leader(&self) -> u16 {
        let leads = |nodes: &Self| {
            let mut running = nodes.running.keys().copied();
            running.find(|&number| nodes.view(number).blank_applied)
        };
        self.until("one leads", |nodes| leads(nodes).is_some())
            .await;
        leads(self).unwrap()
    }

    /// Waits until all see these voters, in a membership that is not joint.
    async fn voters(&self, voters: &[u16]) {
        let what = format!("the voters are {voters:?}");
        self.until(&what, |nodes| {
            nodes.running.keys().all(|&number| {
                let view = nodes.view(number);
                view.voters == voters && !view.joint
            })
        })
        .await;
    }

    fn id_of(&self, number: u16) -> u64 {
        let metrics = self.running[&number].raft().metrics();
        metrics.borrow_watched().id
    }

    async fn stop_all(mut self) {
        while let Some((_, replica)) = self.running.pop_first() {
            replica.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_voters_whose_leader_dies_half_way_is_completed_by_the_next_one() {
    let mut nodes = Nodes::start(&[1, 2, 3]);
    nodes.voters(&[1, 2, 3]).await;
    let leader = nodes.leader().await;
    let others: BTreeSet<u64> = [1, 2, 3]
        .into_iter()
        .filter(|&number| number != leader)
        .map(|number| nodes.id_of(number))
        .collect();
    let is_joint = |nodes: &Nodes, number: u16| {
        let metrics = nodes.running[&number].raft().metrics();
        let membership = metrics.borrow_watched().membership_config.clone();
        membership.membership().get_joint_config().len() > 1
    };
    // The first half is in the log, and whoever asked for it asks for no second one: its future is polled only until then.
    let raft = nodes.running[&leader].raft().clone();
    let mut half = Box::pin(raft.change_membership(others.clone(), false));
    while !is_joint(&nodes, leader) {
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(half.as_mut().poll(context)));
        assert!(polled.await.is_pending(), "it is not refused");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(half);
    let survivors: Vec<u16> = others.iter().map(|&id| number_of(id)).collect();
    // Or this leader has completed it already, as any does.
    let voters = |nodes: &Nodes, number: u16| nodes.running[&number].view().borrow().voters.clone();
    let reached = |nodes: &Nodes| {
        let by = |&number: &u16| is_joint(nodes, number) || voters(nodes, number) == survivors;
        survivors.iter().any(by)
    };
    nodes
        .until("the first half has reached a survivor", reached)
        .await;
    nodes.stop(leader).await;
    nodes.voters(&survivors).await;
    // Its disk is as it was, so it comes again as a learner, and votes once more.
    nodes.reopen(leader, &[1, 2, 3]).await;
    nodes.voters(&[1, 2, 3]).await;
    nodes.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_removed_by_command_and_does_not_come_again() {
    let mut nodes = Nodes::start(&[1, 2, 3]);
    nodes.voters(&[1, 2, 3]).await;
    // Node 3 is replaced by node 4 in all files, one restart after the other.
    nodes.stop(3).await;
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    nodes.addresses.insert(4, address.unwrap().to_string());
    for number in [1, 2] {
        nodes.stop(number).await;
        nodes.reopen(number, &[1, 2, 4]).await;
    }
    nodes.reopen(4, &[1, 2, 4]).await;
    nodes.voters(&[1, 2, 3, 4]).await;
    let leader = nodes.leader().await;
    let replica = nodes.running[&leader].clone();
    replica.remove_member(3).await.unwrap();
    nodes.voters(&[1, 2, 4]).await;
    let again = replica.remove_member(3).await.unwrap_err();
    assert_eq!(again, RemoveError::NoMember { number: 3 });
    let follower = [1, 2, 4].into_iter().find(|&it| it != leader).unwrap();
    let refused = nodes.running[&follower].remove_member(1).await.unwrap_err();
    assert!(
        matches!(refused, RemoveError::NotLeader { .. }),
        "{refused}"
    );
    nodes.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_that_never_came_is_removed() {
    let nodes = Nodes::start(&[1, 2, 3]);
    nodes.voters(&[1, 2, 3]).await;
    let leader = nodes.leader().await;
    let raft = nodes.running[&leader].raft().clone();
    let ghost = (4_u64 << 48) | 7;
    raft.add_learner(ghost, BasicNode::new("127.0.0.1:1"), false)
        .await
        .unwrap();
    let learners = |nodes: &Nodes| nodes.view(leader).learners;
    nodes
        .until("it is a learner", |nodes| learners(nodes) == [4])
        .await;
    nodes
        .until("it is none", |nodes| learners(nodes).is_empty())
        .await;
    nodes.voters(&[1, 2, 3]).await;
    nodes.stop_all().await;
}
