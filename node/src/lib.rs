//! The program `unisono`: it composes the engine, the Raft log, sources, sinks and the HTTP API into one replica.

mod backfill;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod core;
pub mod decode;
pub mod driver;
pub mod feed;
pub mod fetch;
#[cfg(test)]
#[path = "../../tests/golden/golden.rs"]
mod golden;
mod proposer;
mod publisher;
pub mod results;
pub mod serve;
mod service;
pub mod sink;
pub mod snapshots;
pub mod source;
mod status;
pub mod telemetry;
