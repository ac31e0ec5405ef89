//! The peers' side of the port: links with all that replicas say to each other.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft::raft::AppendEntriesRequest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::takeover::Takeover;
use super::transfer::{self, SnapshotData};
use super::types::{Raft, Snapshot, SnapshotMeta, TypeConfig, Vote, decode, encode};
use crate::gossip::Gossip;
use crate::identity::number_of;
use crate::link::{self, Answered, Pieces, Port, Refusal, Request, Serve, Topic};
use crate::rt::{self, Listener, Stream};
use crate::snapshots::Snapshots;

/// Where the system has no connection to give (too many files are open), it is asked again after so long.
const PAUSE: Duration = Duration::from_millis(100);
/// Checkpoints that are received at once: one that comes, and one whose sender may be gone.
const CHECKPOINTS: usize = 2;

#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) raft: Raft,
    pub(crate) node_id: u64,
    pub(crate) port: Arc<Port>,
    pub(crate) gossip: Arc<Gossip>,
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) snapshots: Arc<dyn Snapshots>,
    /// Where checkpoints of peers are received.
    pub(crate) incoming: Arc<Path>,
    pub(crate) turns: Turns,
}

/// What is large, and must wait: Raft comes first.
#[derive(Clone)]
pub(crate) struct Turns {
    /// One question of the peers' nodes at a time.
    questions: Arc<Semaphore>,
    checkpoints: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            questions: Arc::new(Semaphore::new(1)),
            checkpoints: Arc::new(Semaphore::new(CHECKPOINTS)),
        }
    }
}

/// Takes connections for as long as the replica runs, and serves each.
pub(crate) async fn accept(mut listener: Listener, peers: Peers) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                if let Some(place) = peers.port.enter(from) {
                    rt::spawn(serve(stream, from, place, peers.clone()));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a peer's connection is not taken");
                rt::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(stream: Stream, from: SocketAddr, place: OwnedSemaphorePermit, peers: Peers) {
    if let Err(error) = link::serve(stream, from, &peers.port, Some(place), &peers).await {
        tracing::debug!(%from, %error, "a peer's link has ended");
    }
}

impl Serve for Peers {
    fn node_id(&self) -> u64 {
        self.node_id
    }

    async fn answer(&self, request: Request) -> Result<Answered, Refusal> {
        let Request { topic, body } = request;
        match topic {
            Topic::Append => {
                let request: AppendEntriesRequest<TypeConfig> = read(&body)?;
                // Its bytes are needed no more.
                drop(body);
                let leader = request.vote.leader_id;
                self.takeover
                    .heard(leader.term, number_of(leader.voted_for));
                answer(self.raft.append_entries(request).await)
            }
            Topic::Vote => answer(self.raft.vote(read(&body)?).await),
            Topic::PreVote => answer(self.raft.pre_vote(read(&body)?).await),
            Topic::Transfer => answer(self.raft.handle_transfer_leader(read(&body)?).await),
            Topic::Gossip => Ok(encode(&self.gossip.own()).map_err(unreadable)?.into()),
            Topic::Suspect => {
                let opinion = self.takeover.answer(&body).await;
                Ok(opinion.map_err(unreadable)?.into())
            }
            Topic::Confirm => {
                let (sender, receiver) = oneshot::channel();
                let reply = Box::new(move |answer| drop(sender.send(answer)));
                self.snapshots.confirm(body, reply);
                let answer = receiver.await.map_err(|_| stopped(&"not answered here"));
                answer.map(Answered::from)
            }
            Topic::Ask => self.ask(body).await,
            Topic::Checkpoint => Err(Refusal::Unreadable(
                "a checkpoint without pieces".to_owned(),
            )),
        }
    }

    async fn receive<S: AsyncRead + Send + Unpin>(
        &self,
        head: Vec<u8>,
        pieces: Pieces<'_, S>,
    ) -> Result<Answered, Refusal> {
        let (vote, meta): (Vote, SnapshotMeta) = read(&head)?;
        let turn = self.turns.checkpoints.try_acquire();
        let _turn = turn.map_err(|_| stopped(&"other checkpoints are being received"))?;
        let received = transfer::receive(pieces, &self.incoming).await;
        let snapshot = SnapshotData::Received(received.map_err(|error| stopped(&error))?);
        let installed = Snapshot { meta, snapshot };
        answer(self.raft.install_full_snapshot(vote, installed).await)
    }
}

impl Peers {
    async fn ask(&self, question: Vec<u8>) -> Result<Answered, Refusal> {
        let turn = Arc::clone(&self.turns.questions).acquire_owned().await;
        let turn = turn.map_err(|error| stopped(&error))?;
        let snapshots = Arc::clone(&self.snapshots);
        let answered = rt::blocking(move || {
            // The turn goes with the work, then with the answer: a peer that hangs up does not end the reading, and no
            // other answer is made while this one is not sent.
            (snapshots.answer(&question), turn)
        });
        let (answered, turn) = answered.await.map_err(|error| stopped(&error))?;
        let body = answered.map_err(|error: io::Error| stopped(&error))?;
        let held = Some(turn);
        Ok(Answered { body, held })
    }
}

fn unreadable(error: io::Error) -> Refusal {
    Refusal::Unreadable(error.to_string())
}

fn stopped(error: &dyn ToString) -> Refusal {
    Refusal::Stopped(error.to_string())
}

fn read<Q: DeserializeOwned>(body: &[u8]) -> Result<Q, Refusal> {
    decode(body).map_err(unreadable)
}

fn answer<A: Serialize, E: ToString>(result: Result<A, E>) -> Result<Answered, Refusal> {
    let answer = result.map_err(|error| stopped(&error))?;
    Ok(encode(&answer).map_err(unreadable)?.into())
}
