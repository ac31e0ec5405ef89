//! Publishing: while this node leads, rows go out from the frontier on, each once.
//!
//! Safety does not rest on leadership. All replicas have the same rows; whoever publishes takes the frontier along in the
//! same transaction (Kafka) or the same entry (built in), and whoever was fenced cannot add anything.

mod ahead;
mod confirm;
mod course;
mod key;
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

#[cfg(test)]
mod tests {
    use unisono_replication::command::{
        Command, CreateFeed, CreatePipeline, Decider, FeedId, HoldFeed, ReleaseFeed,
    };
    use unisono_replication::machine::{BUILTIN_SINK, Effect};

    use super::*;

    #[test]
    fn nothing_of_a_held_feed_goes_out_until_it_is_released() {
        let (mut agreed, feed) = (Agreed::default(), FeedId(5));
        let create = CreateFeed {
            term: 1,
            sources: Vec::new(),
            lanes: Vec::new(),
        };
        let pipeline = CreatePipeline {
            term: 1,
            feed,
            name: "p".to_owned(),
            sink: BUILTIN_SINK.to_owned(),
            definition: String::new(),
        };
        let hold = HoldFeed {
            term: 1,
            feed,
            base: 5,
            tick: 5,
            stands: Vec::new(),
            alone: true,
            by: Decider::Majority,
            dispute: None,
        };
        let release = ReleaseFeed {
            term: 1,
            feed,
            base: 7,
        };
        let mut streams = Vec::new();
        let commands = [
            Command::CreateFeed(create),
            Command::CreatePipeline(pipeline),
            Command::HoldFeed(hold),
            Command::ReleaseFeed(release),
        ];
        for (index, command) in (5..).zip(commands) {
            let effect = agreed.machine.apply(index, 1, &command);
            assert!(!matches!(effect, Effect::Void(_)), "{index}: {effect:?}");
            streams.push(streams_of(&agreed, BUILTIN_SINK).len());
        }
        assert_eq!(streams, [0, 2, 0, 2]);
    }
}
