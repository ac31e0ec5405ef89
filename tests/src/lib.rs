//! What the tests share: the program's path, drills on real processes, a broker.

pub mod drill;
pub mod kafka;
pub mod events;
pub mod reference;

mod binary;

pub use binary::unisono_binary;
