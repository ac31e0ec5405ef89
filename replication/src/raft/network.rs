//! Raft's messages to peers, and the node's questions, over links.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::v2::RaftNetworkV2;
use openraft::network::{Backoff, RPCOption, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::transfer::{self, SnapshotData};
use super::types::{Snapshot, TypeConfig, Vote, decode, encode};
use crate::identity::number_of;
use crate::link::{CallError, Link, Secret, Topic};

/// How long a peer that cannot be reached is left alone: a replica that comes back is served soon.
const BACKOFF: Duration = Duration::from_millis(50);
/// The least time that a peer has for entries and heartbeats. openraft gives it one heartbeat's interval, but a disk may
/// take longer, and every call that is given up closes its link.
const APPEND: Duration = Duration::from_secs(1);
/// How long the answer to a node's question may take.
const QUESTION: Duration = Duration::from_secs(30);

/// Makes the links to each peer. A peer's address is the config's, whatever the membership says.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) peers: Arc<BTreeMap<u16, String>>,
    pub(crate) secret: Option<Secret>,
}

impl Network {
    /// A link to a peer.
    pub(crate) fn link(&self, number: u16) -> Option<Link> {
        let address = self.peers.get(&number)?;
        Some(Link::new(address.clone(), self.secret.clone()))
    }
}

/// One peer, as one of openraft's tasks talks to it: its heartbeats, its entries and each election have a link of their own.
pub(crate) struct Peer {
    network: Network,
    target: u64,
    link: Option<Link>,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Peer {
        Peer {
            network: self.clone(),
            target,
            link: self.link(number_of(target)),
        }
    }
}

impl Peer {
    async fn call<Q: Serialize, A: DeserializeOwned>(
        &mut self,
        topic: Topic,
        request: &Q,
        within: Duration,
    ) -> Result<A, RPCError<TypeConfig>> {
        let broken = |error| RPCError::Network(NetworkError::new(&error));
        let body = encode(request).map_err(broken)?;
        let Some(link) = &mut self.link else {
            return Err(unknown_peer(self.target));
        };
        match link.call(topic, self.target, &body, within).await {
            Ok(answer) => decode(&answer).map_err(broken),
            Err(error) => Err(classify(&error)),
        }
    }
}

fn unknown_peer(target: u64) -> RPCError<TypeConfig> {
    let number = number_of(target);
    let reason = io::Error::other(format!("replica {number} is not among the peers"));
    RPCError::Unreachable(Unreachable::new(&reason))
}

fn classify(error: &CallError) -> RPCError<TypeConfig> {
    match error {
        CallError::Broken(_) => RPCError::Network(NetworkError::new(error)),
        CallError::Unreachable(_) | CallError::Refused(_) => {
            RPCError::Unreachable(Unreachable::new(error))
        }
    }
}

/// Asks the node of peer `number`, whoever it is by now. Over a link of its own: what is asked may be a command, which is not
/// to be said twice.
pub(crate) async fn ask(network: &Network, number: u16, question: &[u8]) -> io::Result<Vec<u8>> {
    let Some(mut link) = network.link(number) else {
        let reason = format!("replica {number} is not among the peers");
        return Err(io::Error::new(io::ErrorKind::NotFound, reason));
    };
    let answer = link.call(Topic::Ask, 0, question, QUESTION).await;
    answer.map_err(io::Error::other)
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Topic::Append, &request, option.hard_ttl().max(APPEND))
            .await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Topic::Vote, &request, option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Topic::PreVote, &request, option.hard_ttl()).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Topic::Transfer, &request, option.hard_ttl())
            .await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let network = |error| RPCError::Network(NetworkError::new(&error));
        let SnapshotData::Outgoing(write) = snapshot.snapshot else {
            let reason = io::Error::other("a checkpoint without its data");
            return Err(network(reason).into());
        };
        let head = encode(&(vote, snapshot.meta)).map_err(network)?;
        let link = self.network.link(number_of(self.target));
        let link = link.ok_or_else(|| unknown_peer(self.target))?;
        let (pieces, progress) = transfer::outgoing(write);
        tokio::select! {
            biased;
            answer = link.send(self.target, &head, pieces) => {
                let answer = answer.map_err(|error| classify(&error))?;
                Ok(decode(&answer).map_err(network)?)
            }
            closed = cancel => Err(StreamingError::Closed(closed)),
            () = transfer::stalled(progress) => {
                Err(network(io::Error::from(io::ErrorKind::TimedOut)).into())
            }
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(std::iter::repeat(BACKOFF)))
    }
}
