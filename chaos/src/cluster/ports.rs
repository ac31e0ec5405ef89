//! Ports for replicas and brokers.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use rand::RngExt;

/// Below the range from which systems take the ports of outgoing connections: a killed replica's port must still be free
/// when it is started again. Above those that the broker's script takes for controllers.
const RANGE: std::ops::Range<u16> = 20_000..32_000;
const TRIES: usize = 1_000;

/// Those that this process was given: whoever got one may not listen there yet, or for a while.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Different loopback ports that nobody listens on and nobody else in this process was given.
///
/// # Errors
/// There are not enough.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ports = Vec::new();
    for _ in 0..TRIES {
        if ports.len() == count {
            return Ok(ports);
        }
        let port = rand::rng().random_range(RANGE);
        let is_free = || TcpListener::bind(("127.0.0.1", port)).is_ok();
        if !given.contains(&port) && is_free() {
            given.insert(port);
            ports.push(port);
        }
    }
    bail!(
        "found only {} of {count} free ports on 127.0.0.1",
        ports.len()
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let threads: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| free_ports(200).unwrap()))
            .collect();
        let mut ports: Vec<u16> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 1600);
    }
}
