#![allow(clippy::unwrap_used)]
//! Every route through real HTTP on a port of this machine.

mod admin;
mod client;
mod connections;
mod node;
mod routes;
