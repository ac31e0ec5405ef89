//! What the replicas' clocks say.

use std::collections::BTreeMap;
use std::time::Duration;

use unisono_replication::rt;
use unisono_replication::tick::{clock_ms, median_clock_ms};

use crate::core::Core;

/// What another replica's clock said, and this node's monotonic time has run since, counts so long: while one is restarted,
/// two clocks alone could not tell which of them is wrong.
const CLOCKS_FRESH: Duration = Duration::from_secs(600);
/// This node's own clock, in milliseconds since 1970.
pub(crate) fn wall_ms() -> i64 {
    i64::try_from(rt::wall().as_millis()).unwrap_or(i64::MAX)
}

/// What the clocks of all replicas that are heard of say, in milliseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    pub(super) median_ms: i64,
    pub(super) clock_ms: i64,
}

impl Clocks {
    pub(super) fn read(core: &Core) -> Self {
        let own_ms = wall_ms();
        let peers = core.replica.peers();
        let fresh = peers
            .iter()
            .filter(|peer| rt::since(peer.received) < CLOCKS_FRESH);
        let mut offsets: BTreeMap<u16, f64> = fresh
            .map(|peer| (peer.number, peer.clock_offset_ms))
            .collect();
        offsets.insert(core.config.node.id, 0.0);
        let offsets: Vec<f64> = offsets.into_values().collect();
        Self {
            median_ms: median_clock_ms(own_ms, offsets.clone()),
            clock_ms: clock_ms(own_ms, offsets),
        }
    }
}
