//! All that speaks with Kafka, but for publishing: what clients are told, and the reader of topics. It knows nothing of
//! lanes, blocks or ticks.

mod answers;
mod batch;
mod client;
pub(crate) mod context;
mod describe;
pub mod properties;
mod quiet;
pub mod reader;
mod security;
pub mod source;
mod tokens;

mod wait;

pub(crate) use client::{Refused, client, fault_of, refused};
pub(crate) use tokens::Clients;
pub(crate) use wait::block_on;
