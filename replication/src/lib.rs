//! Replication: the agreed log (Raft), the agreed state that it leads to, and the rules of the ticks.
//!
//! openraft is named only under `raft`. What the log says is [`command`]; what follows from it is [`machine`].

pub mod command;
mod cursor;
mod detector;
mod error;
#[cfg(test)]
#[path = "../../tests/golden/golden.rs"]
mod golden;
mod gossip;
mod handle;
mod identity;
pub mod lately;
mod link;
pub mod machine;
mod raft;
pub mod rt;
mod snapshots;
pub mod tick;
mod view;

pub use cursor::{CursorEvent, LogCursor, Position};
pub use error::{CheckpointError, HandOverError, LogError, ProposeError, RemoveError, StartError};
pub use gossip::PeerStatus;
pub use handle::{Line, Replica, ReplicaConfig};
pub use identity::new_cluster_id;
pub use link::{PortLimits, PortStatus, RefusedPeer, Secret, SecretError};
pub use snapshots::{
    IncomingSnapshot, ReceivedFile, Reply, Snapshots, StoredSnapshot, WriteSnapshot,
};
pub use view::{Pulse, Role, View};
