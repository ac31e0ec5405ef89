//! What the tests share: the program's path, drills on real processes, a broker; and what the benchmarks share.

pub mod bench;
pub mod dns;
pub mod drill;
pub mod events;
pub mod kafka;
pub mod reference;
pub mod serve;
pub mod simulation;

mod binary;

pub use binary::unisono_binary;
