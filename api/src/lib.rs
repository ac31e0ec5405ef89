//! The HTTP interface of a replica: what it answers ([`dto`]), what it asks of the node ([`Service`]), the routes
//! ([`router`]) and a client for them ([`client`]).
//!
//! It knows neither the engine nor Raft. Rows pass through as the bytes they were computed as; nothing here parses a
//! number of theirs.

pub mod client;
mod connections;
pub mod dto;
mod error;
pub mod prometheus;
mod query;
mod router;
mod routes;
mod service;
#[cfg(test)]
mod tests;

pub use connections::serve;
pub use prometheus::{Metric, MetricKind};
pub use query::{DEFAULT_LIMIT, MAX_LIMIT};
pub use router::router;
pub use service::{
    OpenPage, OpenPlace, OpenQuery, Order, Service, ServiceError, WindowsPage, WindowsQuery,
};
