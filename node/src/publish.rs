//! Publishing: while this node leads, rows go out from the frontier on, each once.
//!
//! Safety does not rest on leadership. All replicas have the same rows; whoever publishes takes the frontier along in the
//! same transaction (Kafka) or the same entry (built in), and whoever was fenced cannot add anything.

mod ahead;
mod confirm;
mod course;
mod narrow;
mod publisher;
mod report;
pub mod sink;
mod sinks;

use unisono_engine::row::StreamId;
use unisono_replication::machine::Pipeline;

use crate::core::Agreed;
use crate::ids::key_of;

pub use publisher::run;
pub use report::run as report_frontiers;
pub use sinks::{Publishers, tend as tend_sinks};

/// Which streams go to the sink of this name, in the order of their pipelines' creation. Those of a paused pipeline, or of
/// one whose feed is held, go nowhere meanwhile.
fn streams_of(agreed: &Agreed, sink: &str) -> Vec<StreamId> {
    let machine = &agreed.machine;
    let goes_on = |pipeline: &Pipeline| !pipeline.paused && !machine.is_held(pipeline.feed);
    let running = machine.pipelines().iter().filter(|(_, it)| goes_on(it));
    let streams = running.flat_map(|(&incarnation, _)| crate::ids::streams_of(incarnation));
    let goes_here = |stream: &StreamId| machine.sink_of(key_of(*stream)) == Some(sink);
    streams.filter(goes_here).collect()
}
