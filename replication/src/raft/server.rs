//! The peers' side of the port: Raft's messages and gossip.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::transfer::{self, SnapshotData};
use super::types::{Raft, Snapshot, decode, encode};
use crate::gossip::Gossip;
use crate::snapshots::Snapshots;

/// The largest message. A checkpoint has no bound: it is not held in memory.
const MESSAGE_BYTES: usize = 64 << 20;

#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) raft: Raft,
    pub(crate) node_id: u64,
    pub(crate) gossip: Arc<Gossip>,
    pub(crate) snapshots: Arc<dyn Snapshots>,
    /// Where checkpoints of peers are received.
    pub(crate) incoming: Arc<std::path::Path>,
    /// One question of the peers' nodes at a time: what is asked for is large, and Raft comes first.
    pub(crate) questions: Arc<Semaphore>,
}

pub(crate) fn router(peers: Peers) -> Router {
    Router::new()
        .route("/raft/{target}/append", post(append))
        .route("/raft/{target}/vote", post(vote))
        .route("/raft/{target}/pre-vote", post(pre_vote))
        .route("/raft/{target}/transfer", post(transfer))
        .route("/raft/{target}/snapshot", post(snapshot))
        .route("/gossip", get(gossip))
        .route("/ask", post(ask))
        .layer(DefaultBodyLimit::max(MESSAGE_BYTES))
        .with_state(peers)
}

/// Why a message is not answered.
enum Refusal {
    /// It is for a node that this one is not (any more).
    Misdirected,
    /// Another version's message, or no message at all.
    Unreadable(std::io::Error),
    /// Raft has stopped.
    Stopped(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Misdirected => {
                let text = "this node has another identity: its disk was replaced";
                (StatusCode::MISDIRECTED_REQUEST, text).into_response()
            }
            Self::Unreadable(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
            Self::Stopped(error) => (StatusCode::SERVICE_UNAVAILABLE, error).into_response(),
        }
    }
}

type Answer = Result<Vec<u8>, Refusal>;

fn read<Q: DeserializeOwned>(peers: &Peers, target: &str, body: &[u8]) -> Result<Q, Refusal> {
    check_target(peers, target)?;
    decode(body).map_err(Refusal::Unreadable)
}

fn check_target(peers: &Peers, target: &str) -> Result<(), Refusal> {
    match u64::from_str_radix(target, 16) == Ok(peers.node_id) {
        true => Ok(()),
        false => Err(Refusal::Misdirected),
    }
}

fn answer<A: Serialize, E: ToString>(result: Result<A, E>) -> Answer {
    let answer = result.map_err(|error| Refusal::Stopped(error.to_string()))?;
    encode(&answer).map_err(Refusal::Unreadable)
}

async fn append(State(peers): State<Peers>, Path(target): Path<String>, body: Bytes) -> Answer {
    answer(
        peers
            .raft
            .append_entries(read(&peers, &target, &body)?)
            .await,
    )
}

async fn vote(State(peers): State<Peers>, Path(target): Path<String>, body: Bytes) -> Answer {
    answer(peers.raft.vote(read(&peers, &target, &body)?).await)
}

async fn pre_vote(State(peers): State<Peers>, Path(target): Path<String>, body: Bytes) -> Answer {
    answer(peers.raft.pre_vote(read(&peers, &target, &body)?).await)
}

async fn transfer(State(peers): State<Peers>, Path(target): Path<String>, body: Bytes) -> Answer {
    answer(
        peers
            .raft
            .handle_transfer_leader(read(&peers, &target, &body)?)
            .await,
    )
}

async fn snapshot(State(peers): State<Peers>, Path(target): Path<String>, body: Body) -> Answer {
    check_target(&peers, &target)?;
    let received = transfer::receive(body, &peers.incoming).await;
    let (vote, meta, file) = received.map_err(Refusal::Unreadable)?;
    let snapshot = SnapshotData::Received(file);
    answer(
        peers
            .raft
            .install_full_snapshot(vote, Snapshot { meta, snapshot })
            .await,
    )
}

async fn ask(State(peers): State<Peers>, body: Bytes) -> Answer {
    let stopped = |error: &dyn ToString| Refusal::Stopped(error.to_string());
    let turn = Arc::clone(&peers.questions).acquire_owned().await;
    let turn = turn.map_err(|error| stopped(&error))?;
    let answered = tokio::task::spawn_blocking(move || {
        // Goes with the work: a peer that hangs up does not end the reading.
        let _turn = turn;
        peers.snapshots.answer(&body)
    });
    let answered = answered.await.map_err(|error| stopped(&error))?;
    answered.map_err(|error| stopped(&error))
}

async fn gossip(State(peers): State<Peers>) -> Answer {
    encode(&peers.gossip.own()).map_err(Refusal::Unreadable)
}
