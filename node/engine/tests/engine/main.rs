//! The engine's rules, each as timelines and the rows that are right for them.
#![allow(clippy::unwrap_used, missing_docs)]

mod calendars;
mod checkpoints;
mod closing;
mod dedup;
mod expressions;
#[allow(
    clippy::disallowed_methods,
    reason = "a golden file is read, and written on request"
)]
#[path = "../../../../tests/golden/golden.rs"]
mod golden;
mod harness;
mod joining;
mod lateness;
mod properties;
mod revising;
mod rows;
mod sessions;
mod spilling;
mod timeline;
mod values;
