//! Raft's messages to peers: small ones over links, checkpoints and the node's questions by HTTP.

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
use reqwest::{Client, RequestBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::transfer::{self, SnapshotData};
use super::types::{Snapshot, TypeConfig, Vote, decode, encode};
use crate::identity::number_of;
use crate::link::{self, CallError, Link, Topic};

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
    pub(crate) client: Client,
    pub(crate) peers: Arc<BTreeMap<u16, String>>,
}

/// The client for what goes by HTTP: requests go straight to the peers, and no answer waits for more bytes.
pub(crate) fn client() -> io::Result<Client> {
    Client::builder()
        .tcp_nodelay(true)
        .no_proxy()
        .http1_only()
        .connect_timeout(Duration::from_millis(500))
        .build()
        .map_err(io::Error::other)
}

/// One peer, as one of openraft's tasks talks to it: its heartbeats, its entries and each election have a link of their own.
pub(crate) struct Peer {
    client: Client,
    target: u64,
    address: Option<String>,
    link: Option<Link>,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Peer {
        let address = self.peers.get(&number_of(target)).cloned();
        Peer {
            client: self.client.clone(),
            target,
            link: address.clone().map(Link::new),
            address,
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
            Err(error @ CallError::Broken(_)) => Err(RPCError::Network(NetworkError::new(&error))),
            Err(error) => Err(RPCError::Unreachable(Unreachable::new(&error))),
        }
    }

    /// Where the peer takes checkpoints.
    fn snapshot_url(&self) -> Result<String, RPCError<TypeConfig>> {
        let Some(address) = &self.address else {
            return Err(unknown_peer(self.target));
        };
        // The target's id is part of the path: a node that came back with a wiped disk is somebody else.
        let version = link::VERSION;
        Ok(format!(
            "http://{address}/v{version}/raft/{:016x}/snapshot",
            self.target
        ))
    }

    async fn answer<A: DeserializeOwned>(
        request: RequestBuilder,
    ) -> Result<A, RPCError<TypeConfig>> {
        let sent = request.send().await;
        let answer = sent
            .and_then(reqwest::Response::error_for_status)
            .map_err(classify)?;
        let body = answer.bytes().await.map_err(classify)?;
        decode(&body).map_err(|error| RPCError::Network(NetworkError::new(&error)))
    }
}

fn unknown_peer(target: u64) -> RPCError<TypeConfig> {
    let number = number_of(target);
    let reason = io::Error::other(format!("replica {number} is not among the peers"));
    RPCError::Unreachable(Unreachable::new(&reason))
}

fn classify(error: reqwest::Error) -> RPCError<TypeConfig> {
    match error.is_connect() || error.is_status() {
        true => RPCError::Unreachable(Unreachable::new(&error)),
        false => RPCError::Network(NetworkError::new(&error)),
    }
}

/// Asks the node of peer `number`, whoever it is by now.
pub(crate) async fn ask(network: &Network, number: u16, question: Vec<u8>) -> io::Result<Vec<u8>> {
    let Some(address) = network.peers.get(&number) else {
        let reason = format!("replica {number} is not among the peers");
        return Err(io::Error::new(io::ErrorKind::NotFound, reason));
    };
    #[cfg(feature = "simulation")]
    if crate::rt::simulated::is_active() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let version = link::VERSION;
    let request = network
        .client
        .post(format!("http://{address}/v{version}/ask"));
    let sent = request.body(question).timeout(QUESTION).send().await;
    let answer = sent
        .and_then(reqwest::Response::error_for_status)
        .map_err(io::Error::other)?;
    let body = answer.bytes().await.map_err(io::Error::other)?;
    Ok(body.into())
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
        let url = self.snapshot_url()?;
        let made = transfer::outgoing(&vote, &snapshot.meta, write);
        let (body, progress) = made.map_err(network)?;
        tokio::select! {
        biased;
                   answer = Self::answer(self.client.post(url).body(body)) => Ok(answer?),
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
