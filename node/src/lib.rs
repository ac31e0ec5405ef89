//! The program `unisono`: it composes the engine, the Raft log, sources, sinks and the HTTP API into one replica.

mod admin;
mod agreement;
mod alike;
mod backfill;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod confirm;
pub mod core;
pub mod decode;
pub mod definition;
mod disputed;
mod doubt;
pub mod driver;
pub mod feed;
#[cfg(test)]
#[path = "../../tests/golden/golden.rs"]
mod golden;
mod handles;
pub mod handover;
pub mod health;
pub mod ids;
pub mod ingest;
pub mod kafka;
pub mod lead;
mod likeness;
mod mending;
mod proposer;
pub mod publish;
pub mod refused;
pub mod results;
pub mod room;
pub mod serve;
mod service;
pub mod signal;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod snapshots;
pub mod source;
mod status;
pub mod telemetry;
pub mod threads;
pub mod transit;
mod versioned;
mod waits;
