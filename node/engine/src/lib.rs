//! The engine of Unisono: a pure function from ticks and records to rows.
//!
//! It does no I/O and knows no clock, thread, environment, random number or hash order. Everything
//! that decides a row enters through the arguments of [`LaneEngine`] and [`FeedEngine`], so every
//! replica computes the same bytes.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod close;
pub mod dead_letter;
pub mod decimal;
mod dedup;
pub mod expr;
mod feed;
mod group;
mod having;
mod join;
mod lane;
mod merge;
mod next;
mod observed;
mod pane;
mod part;
mod pipeline;
mod plan;
pub mod record;
mod render;
mod revise;
pub mod row;
mod session;
mod share;
mod snapshot;
pub mod spec;
pub mod spill;
mod stats;
pub mod timestamp;
mod value;
mod watermark;
mod window;

pub use close::MOST_EMPTY;
pub use feed::{FeedEngine, Settled, TickEnd};
pub use join::JoinError;
pub use lane::{LaneEngine, time_of as event_time};
pub use next::NextClosing;
pub use observed::Observed;
pub use part::{Grown, RestoreError, VERSION as PART_VERSION};
pub use snapshot::FeedSnapshot;
pub use stats::{Counters, PipelineStats};
pub use value::TEXT_BYTES;
pub use value::avg::AVERAGE_DIGITS;
pub use value::quantile::QUANTILE_DIGITS;
