//! A real Kafka broker for tests, started by the script under `deploy/kafka`.

mod broker;
mod clients;
mod cluster;

pub use broker::{Denied, TestBroker};
pub use clients::{Committed, Outcome};
pub use cluster::TestBrokers;
