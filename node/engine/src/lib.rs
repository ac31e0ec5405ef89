//! The engine of Unisono: a pure function from ticks and records to rows.
//!
//! It does no I/O and knows no clock, thread, environment, random number or hash order. Everything
//! that decides a row enters through [`FeedEngine`]'s arguments, so every replica computes the same
//! bytes.

pub mod cells;
mod checkpoint;
mod close;
pub mod dead_letter;
pub mod decimal;
mod expr;
mod feed;
mod group;
mod lane;
mod pane;
mod pipeline;
mod plan;
pub mod record;
mod render;
pub mod row;
pub mod spec;
mod stats;
pub mod timestamp;
mod value;
mod watermark;
mod window;

pub use checkpoint::{RestoreError, VERSION as CHECKPOINT_VERSION};
pub use close::MOST_EMPTY;
pub use feed::{FeedEngine, OpenTick};
pub use stats::{Counters, PipelineStats};
pub use value::avg::AVERAGE_DIGITS;
