//! Sinks: where rows are published.

pub mod kafka;
