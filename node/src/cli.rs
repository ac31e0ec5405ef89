//! The command line.

pub mod check;
pub mod error;
