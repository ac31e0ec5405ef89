//! How far the peers are: a network that is slow against the time-outs is said, for elections by mistake look like something
//! else.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::config::NodeConfig;
use crate::core::Core;

/// A way there and back that takes this part of the least election time-out is long: an election takes some of them.
const LONG: u32 = 4;

/// Peers to which the way there and back takes long, and how long.
#[must_use]
fn far_peers(core: &Core) -> Vec<(u16, Duration)> {
    let peers = core.replica.peers().into_iter();
    let ways = peers.filter_map(|peer| Some((peer.number, peer.round_trip?)));
    ways.filter(|&(_, way)| is_long(&core.config, way))
        .collect()
}

fn is_long(config: &NodeConfig, way: Duration) -> bool {
    way * LONG >= config.cluster.election_timeout.0
}

/// The same in words.
#[must_use]
pub fn far_notices(core: &Core) -> Vec<String> {
    let least = core.config.cluster.election_timeout.0.as_millis();
    let far = far_peers(core).into_iter();
    let notice = far.map(|(number, way)| {
        let way = way.as_millis();
        format!(
            "node {number}: a question and its answer take {way} ms, which is long against cluster.election_timeout (from {least} \
             ms on): raise it to ten times that, and cluster.heartbeat in proportion, on all nodes"
        )
    });
    notice.collect()
}

/// Of which peers the log has a line.
#[derive(Default)]
pub(super) struct ToldDistances(BTreeSet<u16>);

impl ToldDistances {
    /// One line when a peer is far, and one when it is no more.
    pub(super) fn tell(&mut self, core: &Core) {
        let config = &core.config;
        for peer in core.replica.peers() {
            let (number, Some(way)) = (peer.number, peer.round_trip) else {
                continue;
            };
            let round_trip_ms = way.as_millis();
            if is_long(config, way) && self.0.insert(number) {
                let election_timeout_ms = config.cluster.election_timeout.0.as_millis();
                tracing::warn!(
                    peer = number,
                    round_trip_ms,
                    election_timeout_ms,
                    "the network is slow against the time-outs: raise cluster.election_timeout and cluster.heartbeat on all nodes"
                );
            }
            // What swings about the bound is not told each time.
            if !is_long(config, way * 2) && self.0.remove(&number) {
                tracing::info!(peer = number, round_trip_ms, "the network is quick enough");
            }
        }
    }
}
