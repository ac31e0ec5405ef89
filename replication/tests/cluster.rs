//! Three replicas in one process: what they agree on survives kills, restarts, wiped disks and purges.

#![allow(clippy::unwrap_used)]

#[path = "cluster/nodes.rs"]
mod nodes;

use std::time::Duration;

use nodes::{Cluster, Pace, payload};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use unisono_replication::{ProposeError, Role};

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_cluster_elects_and_all_cursors_see_the_same_entries() {
    let mut cluster = Cluster::start("elects").await;
    let leader = cluster.leader().await;
    for count in 0..50 {
        cluster.propose(payload(count)).await;
    }
    let entries = cluster.settled(50).await;
    let expected: Vec<_> = (0..50).map(payload).collect();
    assert_eq!(
        entries
            .iter()
            .map(|(_, bytes)| bytes.clone())
            .collect::<Vec<_>>(),
        expected
    );
    assert!(
        entries.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "positions grow"
    );
    assert_eq!(cluster.view(leader).voters, [1, 2, 3]);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_names_the_leader_and_writes_nothing() {
    let mut cluster = Cluster::start("names").await;
    let leader = cluster.leader().await;
    let follower = if leader == 1 { 2 } else { 1 };
    cluster
        .until("the follower knows the leader", |cluster| {
            cluster.view(follower).leader == Some(leader)
        })
        .await;
    let refused = cluster.replica(follower).propose(payload(0)).await;
    assert_eq!(
        refused,
        Err(ProposeError::NotLeader {
            leader: Some(leader)
        })
    );
    cluster.propose(payload(1)).await;
    assert_eq!(cluster.settled(1).await[0].1, payload(1));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_committed_entry_is_lost_with_its_leader() {
    let mut cluster = Cluster::start("lost").await;
    for round in 0..3 {
        for count in 0..10 {
            cluster.propose(payload(round * 10 + count)).await;
        }
        let old = cluster.leader().await;
        let term = cluster.view(old).term;
        cluster.stop(old).await;
        let new = cluster.leader().await;
        assert_ne!(new, old);
        assert!(cluster.view(new).term > term, "a term has one leader");
        cluster.restart(old).await;
    }
    let entries = cluster.settled(30).await;
    let expected: Vec<_> = (0..30).map(payload).collect();
    assert_eq!(
        entries
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect::<Vec<_>>(),
        expected
    );
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_stopped_at_once_come_back_with_every_entry() {
    let mut cluster = Cluster::start("at_once").await;
    for count in 0..20 {
        cluster.propose(payload(count)).await;
    }
    let before = cluster.settled(20).await;
    cluster.stop_all().await;
    for number in 1..=3 {
        cluster.restart(number).await;
    }
    cluster.propose(payload(20)).await;
    let after = cluster.settled(21).await;
    assert_eq!(after[..20], before[..]);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_disk_rejoins_and_votes_again() {
    let mut cluster = Cluster::start("wiped").await;
    let leader = cluster.leader().await;
    for count in 0..20 {
        cluster.propose(payload(count)).await;
    }
    let wiped = leader % 3 + 1;
    cluster.stop(wiped).await;
    cluster.wipe(wiped);
    cluster.restart(wiped).await;
    cluster
        .until("the wiped replica votes", |cluster| {
            cluster.view(wiped).role == Role::Follower && cluster.view(wiped).voters == [1, 2, 3]
        })
        .await;
    // Its vote counts: with another one gone, the two of them commit.
    let other = 6 - leader - wiped;
    cluster.stop(other).await;
    cluster.propose(payload(20)).await;
    cluster.settled(21).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_disk_does_not_vote_as_the_one_it_was() {
    let mut cluster = Cluster::start("old_vote").await;
    cluster.propose(payload(0)).await;
    cluster.settled(1).await;
    cluster.stop_all().await;
    cluster.wipe(3);
    cluster.restart(1).await;
    cluster.restart(3).await;
    // One that remembers and one that has forgotten are no majority of the three. They are in touch for several times the
    // longest election time-out: between two exchanges lie 200 ms.
    for _ in 0..10 {
        cluster.exchanged(1, 3).await;
        assert!(!cluster.view(1).is_leader() && !cluster.view(3).is_leader());
    }
    assert!(!cluster.view(3).voters.contains(&3));
    cluster.restart(2).await;
    cluster.propose(payload(1)).await;
    let entries = cluster.settled(2).await;
    assert_eq!(entries[0].1, payload(0));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_missed_the_purged_log_takes_a_checkpoint() {
    let mut cluster = Cluster::start("purged").await;
    let leader = cluster.leader().await;
    let away = leader % 3 + 1;
    cluster.propose(payload(0)).await;
    cluster.settled(1).await;
    cluster.stop(away).await;
    for count in 1..100 {
        cluster.propose(payload(count)).await;
    }
    cluster.settled(100).await;
    let leader = cluster.leader().await;
    assert!(cluster.replica(leader).trigger_checkpoint().await.unwrap());
    cluster
        .until("the checkpoint counts", |cluster| {
            cluster.view(leader).snapshot >= 99
        })
        .await;
    // The purge follows the checkpoint a moment later.
    cluster
        .until("the log is purged", |cluster| cluster.is_purged(leader))
        .await;
    // Whoever leads by then.
    let others = [1, 2, 3].into_iter().filter(|&number| number != away);
    others
        .clone()
        .for_each(|number| cluster.break_off(number, 2));
    cluster.restart(away).await;
    let entries = cluster.settled(100).await;
    assert_eq!(entries[99].1, payload(99));
    let begun_anew = |number: u16| cluster.left_to_break_off(number) == 0;
    assert!(others.clone().any(begun_anew));
    assert_eq!(
        cluster.installs(away),
        1,
        "the log alone could not have done it"
    );
    // What comes after a checkpoint comes by the log.
    cluster.propose(payload(100)).await;
    cluster.settled(101).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_hands_over_and_the_next_one_proposes() {
    let mut cluster = Cluster::start("hands_over").await;
    cluster.propose(payload(0)).await;
    cluster.settled(1).await;
    let old = cluster.leader().await;
    cluster.replica(old).hand_over().await.unwrap();
    cluster
        .until("another leads", |cluster| {
            (1..=3).any(|number| number != old && cluster.view(number).blank_applied)
        })
        .await;
    cluster.propose(payload(1)).await;
    cluster.settled(2).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_leaders_process_is_seen_and_no_time_out_is_waited_for() {
    // By silence or by the time-outs the next leader would come after the test's deadline.
    let pace = Pace {
        heartbeat: Duration::from_secs(60),
        election_timeout: (Duration::from_secs(3600), Duration::from_secs(7200)),
    };
    let mut cluster = Cluster::start_with("takes_over", pace).await;
    cluster.propose(payload(0)).await;
    cluster.settled(1).await;
    for (entry, end) in [(1, true), (2, false)] {
        let old = cluster.leader().await;
        let term = cluster.view(old).term;
        // What follows the leader must have met it, or it cannot tell its process from the next.
        for other in (1..=3).filter(|&other| other != old) {
            cluster.exchanged(other, old).await;
        }
        cluster.stop(old).await;
        if !end {
            // Back at once: the port answers again, but another process does.
            cluster.restart(old).await;
        }
        let leader = cluster.leader().await;
        assert!(leader != old && cluster.view(leader).term > term);
        if end {
            cluster.restart(old).await;
        }
        cluster.propose(payload(entry)).await;
        cluster.settled(entry as usize + 1).await;
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_another_identity_is_refused() {
    let mut cluster = Cluster::start("identity").await;
    cluster.leader().await;
    // The id of a disk that replica 1 does not have: another random part.
    let other = (1_u64 << 48) | 42;
    let expected = "this node has another identity: its disk was replaced";
    // Appending, a vote, a pre-vote, the lead, a checkpoint: over one link, by their numbers.
    let mut link = TcpStream::connect(cluster.address(1)).await.unwrap();
    link.write_all(b"unisono\x04\x00").await.unwrap();
    for topic in [1, 2, 3, 4, 9_u8] {
        let request = [&[10, 0, 0, 0, topic], other.to_le_bytes().as_slice(), b"?"].concat();
        link.write_all(&request).await.unwrap();
        let mut length = [0; 4];
        link.read_exact(&mut length).await.unwrap();
        let mut answer = vec![0; u32::from_le_bytes(length) as usize];
        link.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, [&[1], expected.as_bytes()].concat(), "{topic}");
    }
    let refused = cluster.replica(1).port().refused;
    assert_eq!(refused["target"], 5);
    // What the version before said is understood by nobody.
    let mut link = TcpStream::connect(cluster.address(1)).await.unwrap();
    link.write_all(b"unisono\x03").await.unwrap();
    link.write_all(&[10, 0, 0, 0]).await.unwrap();
    let mut answer = Vec::new();
    link.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("run the same Unisono on both"), "{text}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_with_one_secret_are_a_cluster_and_one_with_another_is_not_of_it() {
    let secret = |number| (number, "what only these three know".to_owned());
    let secrets = (1..=3).map(secret).collect();
    let mut cluster = Cluster::start_secret("secret", Pace::default(), secrets).await;
    cluster.propose(payload(0)).await;
    cluster.settled(1).await;
    let answer = cluster.replica(1).ask(2, b"who?".to_vec()).await;
    assert_eq!(answer.unwrap(), b"who? me");
    // One comes back with another secret, then with none: nobody listens to it, and all say so.
    for other in [Some("what nobody else knows"), None] {
        cluster.stop(3).await;
        match other {
            Some(other) => cluster.secrets.insert(3, other.to_owned()),
            None => cluster.secrets.remove(&3),
        };
        cluster.restart(3).await;
        let before = cluster.replica(1).port().refused["secret"];
        cluster
            .until("the others refuse it, and it knows", |cluster| {
                cluster.replica(1).port().refused["secret"] > before
                    && cluster.replica(3).port().refused["secret"] > 0
                    && cluster.replica(3).refusing().len() == 2
                    && cluster.replica(1).refusing().contains_key(&3)
            })
            .await;
        cluster.propose(payload(1)).await;
        assert!(cluster.replica(3).peers().is_empty());
    }
    // With the secret it is one of them again.
    cluster.stop(3).await;
    cluster.secrets.insert(3, secret(3).1);
    cluster.restart(3).await;
    cluster.settled(3).await;
    cluster
        .until("nobody is refused", |cluster| {
            (1..=3).all(|number| cluster.replica(number).refusing().is_empty())
        })
        .await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_answers_what_a_peer_asks() {
    let mut cluster = Cluster::start("asks").await;
    cluster.leader().await;
    let answer = cluster.replica(1).ask(2, b"who?".to_vec()).await;
    assert_eq!(answer.unwrap(), b"who? me");
    let refused = cluster.replica(1).ask(3, b"refuse".to_vec()).await;
    assert!(refused.is_err());
    let unknown = cluster.replica(1).ask(9, Vec::new()).await.unwrap_err();
    assert_eq!(unknown.to_string(), "replica 9 is not among the peers");
    cluster.stop(2).await;
    assert!(cluster.replica(1).ask(2, Vec::new()).await.is_err());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_restarted_at_once_lose_nothing() {
    let mut cluster = Cluster::start("two_of_three").await;
    for round in 0..3 {
        for count in 0..10 {
            cluster.propose(payload(round * 10 + count)).await;
        }
        let leader = cluster.leader().await;
        let follower = leader % 3 + 1;
        cluster.stop(leader).await;
        cluster.stop(follower).await;
        cluster.restart(follower).await;
        cluster.restart(leader).await;
    }
    let entries = cluster.settled(30).await;
    let expected: Vec<_> = (0..30).map(payload).collect();
    let found: Vec<_> = entries.into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(found, expected);
    cluster.stop_all().await;
}
