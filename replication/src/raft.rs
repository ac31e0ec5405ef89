//! The only place where openraft is named.

pub(crate) mod applier;
mod async_runtime;
pub(crate) mod entry;
#[cfg(test)]
mod golden;
pub(crate) mod log_store;
mod members;
mod network;
pub(crate) mod runtime;
mod server;
pub(crate) mod takeover;
mod transfer;
pub(crate) mod types;
