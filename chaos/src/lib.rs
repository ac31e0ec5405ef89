//! Drills for Unisono: real replica processes, real faults, and a checker that shares no code with the engine.
//!
//! The crate depends on no other crate of the workspace: it sees Unisono as a user does, by its binary, its config file,
//! its HTTP answers and its output topic. So a fault cannot hide by being on both sides.

pub mod checker;
pub mod cluster;
pub mod exact;
pub mod fault;
pub mod folder;
pub mod gate;
pub mod generator;
pub mod http;
pub mod kafka;
pub mod moment;
pub mod order;
pub mod report;
pub mod row;
pub mod run;
mod slow_disk;
pub mod stage;
pub mod watch;
pub mod ways;
