//! Sinks: where rows are published.
