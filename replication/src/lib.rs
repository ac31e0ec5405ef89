//! Replication: the agreed log (Raft), the agreed state that it leads to, and the rules of the ticks.
//!
//! openraft is named only under `raft`. What the log says is [`command`]; what follows from it is [`machine`].

pub mod command;
pub mod machine;
pub mod tick;
