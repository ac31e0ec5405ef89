//! What the benchmarks share: events, replicas as processes, what a process used, medians, a table.
//!
//! Absolute figures of a shared machine mean little: a benchmark runs what it compares by turns and prints ratios of one run.

mod cluster;
mod events;
pub mod fault;
mod hogs;
pub mod live;
mod network;
mod process;
mod table;
mod waits;

use std::path::PathBuf;

use anyhow::{Context, Result};

pub use cluster::{Cluster, get};
pub use events::{EVENT_BYTES, Events, T0, append_now, fill_topic, producer};
pub use hogs::Hogs;
pub use network::Network;
pub use process::{Used, cpu, finished, memory, peak};
pub use table::{Table, figure, median};
pub use waits::Waits;

/// A whole number from the environment.
///
/// # Errors
/// It is set, but no number.
pub fn setting(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{name} must be a number")),
        Err(_) => Ok(default),
    }
}

/// The program to measure: the one that `UNISONO` names, so that an older one can be measured alike, else today's.
#[must_use]
pub fn program() -> PathBuf {
    std::env::var_os("UNISONO").map_or_else(crate::unisono_binary, PathBuf::from)
}
