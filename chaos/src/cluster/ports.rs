//! Ports for the replicas.

use std::net::TcpListener;

use anyhow::{Result, bail};
use rand::RngExt;

/// Below the range from which systems take the ports of outgoing connections: a killed replica's port must still be free
/// when it is started again.
const RANGE: std::ops::Range<u16> = 15_000..32_000;
const TRIES: usize = 1_000;

/// Different loopback ports that nobody listens on.
///
/// # Errors
/// There are not enough.
pub(super) fn free_ports(count: usize) -> Result<Vec<u16>> {
    // Held until all are found, so that none is found twice.
    let mut held: Vec<(u16, TcpListener)> = Vec::new();
    for _ in 0..TRIES {
        if held.len() == count {
            break;
        }
        let port = rand::rng().random_range(RANGE);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            held.push((port, listener));
        }
    }
    if held.len() < count {
        bail!(
            "found only {} of {count} free ports on 127.0.0.1",
            held.len()
        );
    }
    Ok(held.into_iter().map(|(port, _)| port).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_different() {
        let mut ports = free_ports(20).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
