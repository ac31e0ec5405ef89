//! A real Kafka broker for tests, started by the script under `deploy/kafka`.

mod broker;
mod clients;
mod cluster;
mod lanes;
mod secured;

pub use broker::{Denied, TestBroker};
pub use clients::{Committed, Outcome};
pub use cluster::TestBrokers;
pub use lanes::{Lane, Lanes};
pub use secured::{Door, SecuredBroker, TokenEndpoint};
