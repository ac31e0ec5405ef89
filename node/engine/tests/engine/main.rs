//! The engine's rules, each as timelines and the rows that are right for them.
#![allow(clippy::unwrap_used, missing_docs)]

mod checkpoints;
mod closing;
#[path = "../../../../tests/golden/golden.rs"]
mod golden;
mod harness;
mod lateness;
mod properties;
mod rows;
mod timeline;
