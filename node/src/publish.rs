//! Publishing: while this node leads, rows go out from the frontier on, each once.
//!
//! Safety does not rest on leadership. All replicas have the same rows; whoever publishes takes the frontier along in the
//! same transaction (Kafka) or the same entry (built in), and whoever was fenced cannot add anything.

mod confirm;
mod course;
mod publisher;
mod report;
pub mod sink;

use unisono_engine::row::{Incarnation, StreamId, StreamKind};

use crate::config::{NodeConfig, SinkKind};
use crate::core::Agreed;
use crate::definition::BUILTIN_SINK;

pub use publisher::run;
pub use report::run as report_frontiers;

/// Which streams go to the sink of this name, in the order of their pipelines' creation. Dead letters go to a sink only
/// where it has a place for them; else they are served by the built-in one.
fn streams_of(agreed: &Agreed, config: &NodeConfig, sink: &str) -> Vec<StreamId> {
    let mut streams = Vec::new();
    for (&incarnation, pipeline) in agreed.machine.pipelines() {
        let stream = |kind| StreamId {
            incarnation: Incarnation(incarnation),
            kind,
        };
        if pipeline.sink == sink {
            streams.push(stream(StreamKind::Rows));
        }
        let letters_to = match takes_dead_letters(config, &pipeline.sink) {
            true => pipeline.sink.as_str(),
            false => BUILTIN_SINK,
        };
        if letters_to == sink {
            streams.push(stream(StreamKind::DeadLetters));
        }
    }
    streams
}

fn takes_dead_letters(config: &NodeConfig, sink: &str) -> bool {
    config.sinks.iter().any(|known| {
        let SinkKind::Kafka(kafka) = &known.kind;
        known.name == sink && kafka.dead_letters.is_some()
    })
}
