//! The engine of Unisono: a pure function from ticks and records to rows.
//!
//! It does no I/O and knows no clock, thread, environment, random number or hash order. Everything that decides a row
//! enters through [`FeedEngine`]'s arguments, so every replica computes the same bytes.

pub mod decimal;
pub mod record;
pub mod row;
pub mod spec;
