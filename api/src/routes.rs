//! One handler for each route.

pub(crate) mod admin;
pub(crate) mod cluster;
pub(crate) mod health;
pub(crate) mod pipelines;
pub(crate) mod rows;
