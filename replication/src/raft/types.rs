//! openraft with our types: opaque bytes as application data, node ids that name a number and an
//! incarnation, standard terms.

use std::fmt;
use std::io;
use std::sync::Arc;

use openraft::BasicNode;
use openraft::alias::{EntryOf, LogIdOf, SnapshotMetaOf};
use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cursor::Position;

openraft::declare_raft_types!(
    /// Standard leader ids, so that a term has one leader: a term fences sinks and ticks.
    pub TypeConfig:
        D = Payload,
        R = (),
        NodeId = u64,
        Node = BasicNode,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = super::async_runtime::Rt,
);

pub(crate) type Raft = openraft::Raft<TypeConfig, super::applier::StateMachine>;
pub(crate) type Entry = EntryOf<TypeConfig>;
pub(crate) type LogId = LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type SnapshotMeta = SnapshotMetaOf<TypeConfig>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type Snapshot = openraft::alias::SnapshotOf<TypeConfig, super::transfer::SnapshotData>;

/// Version of the bytes in which a checkpoint carries its place in the Raft log.
const RAFT_STATE_VERSION: u8 = 1;

/// An application's entry. Shared, because the log cache, replication and the cursor hold it at once.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(pub(crate) Arc<[u8]>);

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Payload;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Payload, E> {
                Ok(Payload(bytes.into()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Encodes what goes to disk or to a peer.
pub(crate) fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Decodes what came from disk or from a peer.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("not a record of this version: {error}"),
        )
    })
}

/// The place of a checkpoint in the log, as opaque bytes for the node to keep with its data.
pub(crate) fn encode_raft_state(meta: &SnapshotMeta) -> io::Result<Vec<u8>> {
    let mut bytes = vec![RAFT_STATE_VERSION];
    bytes.extend(encode(meta)?);
    Ok(bytes)
}

/// Reads what [`encode_raft_state`] wrote.
pub(crate) fn decode_raft_state(bytes: &[u8]) -> io::Result<SnapshotMeta> {
    match bytes.split_first() {
        Some((&RAFT_STATE_VERSION, rest)) => decode(rest),
        Some((version, _)) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the checkpoint's raft state has version {version}, this program reads version \
                 {RAFT_STATE_VERSION}; run the newer program or remove the checkpoint",
            ),
        )),
        None => Err(postcard::Error::DeserializeUnexpectedEnd)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

pub(crate) fn position(log_id: &LogId) -> Position {
    Position {
        index: log_id.index,
        term: log_id.leader_id.term,
    }
}

/// The index up to which a log id reaches; 0 where there is none.
pub(crate) fn index_of(log_id: Option<&LogId>) -> u64 {
    log_id.map_or(0, |log_id| log_id.index)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use openraft::EntryPayload;
    use openraft::entry::RaftEntry;

    fn log_id(term: u64, index: u64) -> LogId {
        LogId::new_term_index(term, index)
    }

    #[test]
    fn an_entry_keeps_its_bytes_and_its_place() {
        let entry = Entry::new(
            log_id(3, 7),
            EntryPayload::Normal(Payload(vec![0, 1, 255].into())),
        );
        let back: Entry = decode(&encode(&entry).unwrap()).unwrap();
        assert_eq!(back, entry);
        assert_eq!(position(&back.log_id), Position { index: 7, term: 3 });
    }

    #[test]
    fn a_raft_state_of_another_version_is_refused_with_both_versions_named() {
        let meta = SnapshotMeta {
            last_log_id: Some(log_id(2, 9)),
            ..Default::default()
        };
        let mut bytes = encode_raft_state(&meta).unwrap();
        assert_eq!(decode_raft_state(&bytes).unwrap(), meta);
        bytes[0] = 9;
        let text = decode_raft_state(&bytes).unwrap_err().to_string();
        assert!(
            text.contains("version 9") && text.contains("version 1"),
            "{text}"
        );
        assert!(decode_raft_state(&[]).is_err());
    }
}
