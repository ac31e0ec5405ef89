//! Raft's messages to peers: one HTTP request each, on kept-alive connections.

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

/// How long a peer that cannot be reached is left alone: a replica that comes back is served soon.
const BACKOFF: Duration = Duration::from_millis(50);
/// The least time that a peer has for entries and heartbeats. openraft gives it one heartbeat's interval, but a disk may
/// take longer, and every call that is given up closes its connection.
const APPEND: Duration = Duration::from_secs(1);
/// How long the answer to a node's question may take.
const QUESTION: Duration = Duration::from_secs(30);

/// Makes the connection to each peer. A peer's address is the config's, whatever the membership says.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) client: Client,
    pub(crate) peers: Arc<BTreeMap<u16, String>>,
}

/// The client for peers: requests go straight to them, and no answer waits for more bytes.
pub(crate) fn client() -> io::Result<Client> {
    Client::builder()
        .tcp_nodelay(true)
        .no_proxy()
        .http1_only()
        .connect_timeout(Duration::from_millis(500))
        .build()
        .map_err(io::Error::other)
}

/// One peer.
pub(crate) struct Peer {
    client: Client,
    target: u64,
    address: Option<String>,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Peer {
        let address = self.peers.get(&number_of(target)).cloned();
        Peer {
            client: self.client.clone(),
            target,
            address,
        }
    }
}

impl Peer {
    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        route: &str,
        request: &Q,
        within: Duration,
    ) -> Result<A, RPCError<TypeConfig>> {
        let body = encode(request).map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        let request = self.client.post(self.url(route)?).body(body);
        Self::answer(request.timeout(within)).await
    }

    fn url(&self, route: &str) -> Result<String, RPCError<TypeConfig>> {
        let Some(address) = &self.address else {
            let number = number_of(self.target);
            let reason = io::Error::other(format!("replica {number} is not among the peers"));
            return Err(RPCError::Unreachable(Unreachable::new(&reason)));
        };
        // The target's id is part of the path: a node that came back with a wiped disk is somebody else.
        Ok(format!(
            "http://{address}/raft/{:016x}/{route}",
            self.target
        ))
    }

    async fn answer<A: DeserializeOwned>(
        request: RequestBuilder,
    ) -> Result<A, RPCError<TypeConfig>> {
        let sent = request.send().await;
        let answer = sent
            .and_then(reqwest::Response::error_for_status)
            .map_err(judge)?;
        let body = answer.bytes().await.map_err(judge)?;
        decode(&body).map_err(|error| RPCError::Network(NetworkError::new(&error)))
    }
}

/// Asks the node of peer `number`, whoever it is by now.
pub(crate) async fn ask(network: &Network, number: u16, question: Vec<u8>) -> io::Result<Vec<u8>> {
    let Some(address) = network.peers.get(&number) else {
        let reason = format!("replica {number} is not among the peers");
        return Err(io::Error::new(io::ErrorKind::NotFound, reason));
    };
    let request = network.client.post(format!("http://{address}/ask"));
    let sent = request.body(question).timeout(QUESTION).send().await;
    let answer = sent
        .and_then(reqwest::Response::error_for_status)
        .map_err(io::Error::other)?;
    let body = answer.bytes().await.map_err(io::Error::other)?;
    Ok(body.into())
}

fn judge(error: reqwest::Error) -> RPCError<TypeConfig> {
    match error.is_connect() || error.is_status() {
        true => RPCError::Unreachable(Unreachable::new(&error)),
        false => RPCError::Network(NetworkError::new(&error)),
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call("append", &request, option.hard_ttl().max(APPEND))
            .await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call("vote", &request, option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call("pre-vote", &request, option.hard_ttl()).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call("transfer", &request, option.hard_ttl()).await
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
        let url = self.url("snapshot")?;
        let made = transfer::outgoing(&vote, &snapshot.meta, write);
        let (body, progress) = made.map_err(network)?;
        tokio::select! {
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
