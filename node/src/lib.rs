//! The program `unisono`: it composes the engine, the Raft log, sources, sinks and the HTTP API into one replica.

pub mod cli;
pub mod config;
pub mod decode;
pub mod fetch;
pub mod results;
pub mod sink;
pub mod source;
