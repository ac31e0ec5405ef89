//! Sources: where records are read.

pub mod kafka;
