//! The bytes of openraft's types, as they lie on disk and go to peers: a new openraft must not change them unnoticed.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use openraft::entry::RaftEntry;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, EntryPayload, Membership};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::types::{
    Entry, LogId, Payload, SnapshotMeta, StoredMembership, TypeConfig, Vote, decode,
    decode_raft_state, encode, encode_raft_state,
};
use crate::golden;

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

fn membership() -> Membership<u64, BasicNode> {
    let node = |number: u64| {
        (
            number << 48 | 7,
            BasicNode::new(format!("10.0.0.{number}:8201")),
        )
    };
    let nodes: BTreeMap<u64, BasicNode> = (1..=3).map(node).collect();
    let voters: BTreeSet<u64> = nodes.keys().copied().take(2).collect();
    Membership::new(vec![voters], nodes).unwrap()
}

fn entries() -> Vec<Entry> {
    let payloads = [
        EntryPayload::Blank,
        EntryPayload::Normal(Payload(vec![2, 0, 255].into())),
        EntryPayload::Membership(membership()),
    ];
    let place = |(index, payload)| Entry::new(log_id(3, index), payload);
    (300..).zip(payloads).map(place).collect()
}

/// The value is written to the golden bytes, and read from them as the same.
fn check<T: Serialize + DeserializeOwned + Debug>(name: &str, value: &T) {
    let bytes = golden::bytes(name, &encode(value).unwrap());
    let read: T = decode(&bytes).unwrap();
    assert_eq!(format!("{read:?}"), format!("{value:?}"), "{name}");
    assert_eq!(encode(&read).unwrap(), bytes, "{name}");
}

#[test]
fn what_lies_in_the_log_store() {
    check("raft-entries", &entries());
    check(
        "raft-marks",
        &(log_id(3, 301), Vote::new_committed(3, 1 << 48 | 7)),
    );
}

#[test]
fn what_goes_over_links() {
    let vote = Vote::new_committed(3, 1 << 48 | 7);
    let append = AppendEntriesRequest::<TypeConfig> {
        vote,
        prev_log_id: Some(log_id(2, 299)),
        leader_commit: Some(log_id(2, 298)),
        entries: entries(),
    };
    check("raft-append", &append);
    let answers: Vec<AppendEntriesResponse<TypeConfig>> = vec![
        AppendEntriesResponse::Success,
        AppendEntriesResponse::PartialSuccess(Some(log_id(3, 300))),
        AppendEntriesResponse::Conflict,
        AppendEntriesResponse::HigherVote(vote),
    ];
    check("raft-append-answers", &answers);
    check(
        "raft-vote",
        &VoteRequest::<TypeConfig>::new(vote, Some(log_id(3, 301))),
    );
    check(
        "raft-vote-answer",
        &VoteResponse::<TypeConfig>::new(vote, Some(log_id(3, 301)), true),
    );
    let transfer =
        TransferLeaderRequest::<TypeConfig>::new(vote, 2 << 48 | 7, Some(log_id(3, 301)));
    check("raft-transfer", &transfer);
    let done: TransferLeaderResponse<TypeConfig> = Ok(());
    check("raft-transfer-answer", &done);
}

#[test]
fn what_goes_with_a_checkpoint() {
    let meta = SnapshotMeta {
        last_log_id: Some(log_id(3, 302)),
        last_membership: StoredMembership::new(Some(log_id(3, 302)), membership()),
    };
    let bytes = golden::bytes("raft-state", &encode_raft_state(&meta).unwrap());
    assert_eq!(decode_raft_state(&bytes).unwrap(), meta);
    let sent = (
        Vote::new_committed(3, 1 << 48 | 7),
        meta,
        b"checkpoint".to_vec(),
    );
    check("raft-snapshot", &sent);
    let vote = Vote::new_committed(3, 1 << 48 | 7);
    check(
        "raft-snapshot-answer",
        &SnapshotResponse::<TypeConfig>::new(vote),
    );
}
