//! The peers' side of the port: links with Raft's messages and gossip, and HTTP for checkpoints and questions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use openraft::raft::AppendEntriesRequest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::takeover::Takeover;
use super::transfer::{self, SnapshotData};
use super::types::{Raft, Snapshot, TypeConfig, decode, encode};
use crate::gossip::Gossip;
use crate::identity::number_of;
use crate::link::{self, Refusal, Request, Topic};
use crate::rt::{self, Listener, Stream};
use crate::snapshots::Snapshots;

/// The largest question. A checkpoint has no bound: it is not held in memory.
const QUESTION_BYTES: usize = 64 << 20;
/// How long a connection may say nothing at all.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// Where the system has no connection to give (too many files are open), it is asked again after so long.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) raft: Raft,
    pub(crate) node_id: u64,
    pub(crate) gossip: Arc<Gossip>,
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) snapshots: Arc<dyn Snapshots>,
    /// Where checkpoints of peers are received.
    pub(crate) incoming: Arc<std::path::Path>,
    /// One question of the peers' nodes at a time: what is asked for is large, and Raft comes first.
    pub(crate) questions: Arc<Semaphore>,
}

/// Takes connections for as long as the replica runs, and serves each.
pub(crate) async fn accept(mut listener: Listener, peers: Peers) {
    let (sender, connections) = mpsc::unbounded_channel();
    let app = router(peers.clone()).into_make_service();
    rt::spawn(async move { axum::serve(HttpSide(connections), app).await });
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                rt::spawn(serve(stream, from, peers.clone(), sender.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a peer's connection is not taken");
                rt::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(
    stream: Stream,
    from: SocketAddr,
    peers: Peers,
    http: mpsc::UnboundedSender<(Stream, SocketAddr)>,
) {
    match rt::timeout(FIRST_BYTE, link::is_link(&stream)).await {
        Ok(Ok(true)) => {
            let answer = |request| {
                let peers = peers.clone();
                async move { peers.answer(request).await }
            };
            if let Err(error) = link::serve(stream, answer).await {
                tracing::debug!(%from, %error, "a peer's link has ended");
            }
        }
        // Its receiver lives as long as this runtime.
        Ok(Ok(false)) => drop(http.send((stream, from))),
        Ok(Err(_)) | Err(_) => {}
    }
}

/// Connections that are no links, for axum.
struct HttpSide(mpsc::UnboundedReceiver<(Stream, SocketAddr)>);

impl axum::serve::Listener for HttpSide {
    type Io = Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        match self.0.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

impl Peers {
    async fn answer(&self, request: Request) -> Answer {
        let Request {
            topic,
            target,
            body,
        } = request;
        if topic == Topic::Gossip {
            return encode(&self.gossip.own()).map_err(unreadable);
        }
        if topic == Topic::Suspect {
            return self.takeover.answer(&body).await.map_err(unreadable);
        }
        if topic == Topic::Confirm {
            let (sender, receiver) = oneshot::channel();
            let reply = Box::new(move |answer| drop(sender.send(answer)));
            self.snapshots.confirm(body, reply);
            return receiver.await.map_err(|_| stopped(&"not answered here"));
        }
        if target != self.node_id {
            return Err(Refusal::Misdirected);
        }
        match topic {
            Topic::Append => {
                let request: AppendEntriesRequest<TypeConfig> = read(&body)?;
                let leader = request.vote.leader_id;
                self.takeover
                    .heard(leader.term, number_of(leader.voted_for));
                answer(self.raft.append_entries(request).await)
            }
            Topic::Vote => answer(self.raft.vote(read(&body)?).await),
            Topic::PreVote => answer(self.raft.pre_vote(read(&body)?).await),
            Topic::Transfer => answer(self.raft.handle_transfer_leader(read(&body)?).await),
            Topic::Gossip | Topic::Suspect | Topic::Confirm => Err(Refusal::Misdirected),
        }
    }
}

type Answer = Result<Vec<u8>, Refusal>;

fn unreadable(error: std::io::Error) -> Refusal {
    Refusal::Unreadable(error.to_string())
}

fn stopped(error: &dyn ToString) -> Refusal {
    Refusal::Stopped(error.to_string())
}

fn read<Q: DeserializeOwned>(body: &[u8]) -> Result<Q, Refusal> {
    decode(body).map_err(unreadable)
}

fn check_target(peers: &Peers, target: &str) -> Result<(), Refusal> {
    match u64::from_str_radix(target, 16) == Ok(peers.node_id) {
        true => Ok(()),
        false => Err(Refusal::Misdirected),
    }
}

fn answer<A: Serialize, E: ToString>(result: Result<A, E>) -> Answer {
    encode(&result.map_err(|error| stopped(&error))?).map_err(unreadable)
}

fn router(peers: Peers) -> Router {
    let version = link::VERSION;
    let path = |route: &str| format!("/v{version}/{route}");
    Router::new()
        .route(&path("raft/{target}/snapshot"), post(snapshot))
        .route(&path("ask"), post(ask))
        .layer(DefaultBodyLimit::max(QUESTION_BYTES))
        .fallback(async move || {
            let text = format!(
                "not a message of version {version} of the replicas' protocol: run the same Unisono on all replicas"
            );
            (StatusCode::NOT_FOUND, text)
        })
        .with_state(peers)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Unreadable(_) => StatusCode::BAD_REQUEST,
            Self::Stopped(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, self.text().to_owned()).into_response()
    }
}

async fn snapshot(State(peers): State<Peers>, Path(target): Path<String>, body: Body) -> Answer {
    check_target(&peers, &target)?;
    let received = transfer::receive(body, &peers.incoming).await;
    let (vote, meta, file) = received.map_err(unreadable)?;
    let snapshot = SnapshotData::Received(file);
    answer(
        peers
            .raft
            .install_full_snapshot(vote, Snapshot { meta, snapshot })
            .await,
    )
}

async fn ask(State(peers): State<Peers>, body: Bytes) -> Answer {
    let turn = Arc::clone(&peers.questions).acquire_owned().await;
    let turn = turn.map_err(|error| stopped(&error))?;
    let answered = rt::blocking(move || {
        // Goes with the work: a peer that hangs up does not end the reading.
        let _turn = turn;
        peers.snapshots.answer(&body)
    });
    let answered = answered.await.map_err(|error| stopped(&error))?;
    answered.map_err(|error| stopped(&error))
}
