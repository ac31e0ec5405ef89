//! Writes that are going on: a disk that hangs is seen by how long they take.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use unisono_replication::rt;

use crate::threads::lock;

#[derive(Debug, Default)]
pub(super) struct Ongoing(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    begun: u64,
    writes: BTreeMap<u64, Instant>,
}

/// A write that ends when this is dropped.
pub(super) struct Write<'a> {
    ongoing: &'a Ongoing,
    number: u64,
}

impl Ongoing {
    pub(super) fn begin(&self) -> Write<'_> {
        let mut state = lock(&self.0);
        state.begun += 1;
        let number = state.begun;
        state.writes.insert(number, rt::now());
        Write {
            ongoing: self,
            number,
        }
    }

    /// For how long the oldest of them has taken.
    pub(super) fn longest(&self) -> Option<Duration> {
        let state = lock(&self.0);
        state.writes.values().next().map(|&begun| rt::since(begun))
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        lock(&self.ongoing.0).writes.remove(&self.number);
    }
}
