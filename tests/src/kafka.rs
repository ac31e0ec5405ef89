//! A real Kafka broker for tests, started by the script under `deploy/kafka`.

mod broker;
mod clients;
mod cluster;
mod lanes;

pub use broker::{Denied, TestBroker};
pub use clients::{Committed, Outcome};
pub use cluster::TestBrokers;
pub use lanes::{Lane, Lanes};
