//! The engine's rules, each as timelines and the rows that are right for them.
#![allow(clippy::unwrap_used, missing_docs)]

mod checkpoints;
mod closing;
mod harness;
mod joining;
mod lateness;
mod properties;
mod rows;
mod timeline;
