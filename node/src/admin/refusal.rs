//! Why an order is not carried out.

use serde::{Deserialize, Serialize};

/// One variant for each thing that the operator does next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// This node does not lead, or not yet: ask the leader. Nothing was changed.
    #[error("no leader is known that could carry it out; nothing was changed")]
    NotLeader,
    /// There is no such pipeline.
    #[error("there is no pipeline {0:?}")]
    NoPipeline(String),
    /// It does not fit what is agreed, or what the files say: correct it.
    #[error("{0}")]
    Conflict(String),
    /// It may or may not have been carried out: look, then try again.
    #[error("{0}; whether it is done is not known: look at unisono status, and try again")]
    Unknown(String),
}
