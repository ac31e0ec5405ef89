//! Publishing: while this node leads, rows go out from the frontier on, each once.
//!
//! Safety does not rest on leadership. All replicas have the same rows; whoever publishes takes the frontier along in the
//! same transaction (Kafka) or the same entry (built in), and whoever was fenced cannot add anything.

mod frontier;
mod kafka;

use std::collections::BTreeMap;
use std::sync::Mutex;

use unisono_engine::row::{StreamId, StreamKind};
use unisono_replication::command::StreamKey;

use crate::checkpoint::key_of;
use crate::config::{BUILTIN_SINK, NodeConfig, SinkKind};
use crate::core::Agreed;
use crate::threads::lock;

pub use frontier::run as report_frontiers;
pub use kafka::run as publish_to_kafka;

/// How far this node has published to sinks other than the built-in one: on its way to the agreed log.
#[derive(Debug, Default)]
pub struct Reported(Mutex<BTreeMap<StreamKey, u64>>);

impl Reported {
    /// Notes what a sink has taken.
    pub fn note(&self, stream: StreamId, next: u64) {
        let mut known = lock(&self.0);
        let known = known.entry(key_of(stream)).or_default();
        *known = next.max(*known);
    }

    fn all(&self) -> BTreeMap<StreamKey, u64> {
        lock(&self.0).clone()
    }
}

/// Which streams go to the sink of this name, in the order of their pipelines' creation. Dead letters go to a sink only
/// where it has a place for them; else they are served by the built-in one.
fn streams_of(agreed: &Agreed, config: &NodeConfig, sink: &str) -> Vec<StreamId> {
    let mut streams = Vec::new();
    for (&incarnation, pipeline) in agreed.machine.pipelines() {
        let incarnation = unisono_engine::row::Incarnation(incarnation);
        if pipeline.sink == sink {
            streams.push(StreamId {
                incarnation,
                kind: StreamKind::Rows,
            });
        }
        let letters_to = match takes_dead_letters(config, &pipeline.sink) {
            true => pipeline.sink.as_str(),
            false => BUILTIN_SINK,
        };
        if letters_to == sink {
            streams.push(StreamId {
                incarnation,
                kind: StreamKind::DeadLetters,
            });
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
