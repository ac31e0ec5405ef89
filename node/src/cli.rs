//! The command line.

pub mod check;
pub mod demo;
pub mod error;
