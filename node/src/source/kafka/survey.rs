//! Which partitions a topic has.

use std::time::Duration;

use super::{told, unavailable};
use crate::config::{self, StartAt};
use crate::kafka::source::KafkaTopic;
use crate::source::{Found, FoundLane, KnownLane, SourceError, SourceSurvey};

/// How long a question to the brokers may take.
const ASK: Duration = Duration::from_secs(2);

/// Surveys one topic.
pub struct KafkaSurvey {
    topic: KafkaTopic,
    start: StartAt,
}

impl KafkaSurvey {
    /// A survey that has asked nothing yet.
    pub fn connect(config: &config::KafkaSource) -> Result<Self, SourceError> {
        Ok(Self {
            topic: KafkaTopic::connect(&told(config, 0)).map_err(unavailable)?,
            start: config.start,
        })
    }

    fn lanes(
        &self,
        start: StartAt,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<FoundLane>, SourceError> {
        let partitions = self.topic.partitions(ASK).map_err(unavailable)?;
        let named = partitions
            .iter()
            .map(|number| (*number, number.to_string()));
        let wanted: Vec<_> = named.filter(|(_, name)| is_wanted(name)).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let identity = self.topic.identity(ASK).map_err(unavailable)?;
        let mut lanes = Vec::with_capacity(wanted.len());
        for (number, name) in wanted {
            let (low, end) = self.topic.bounds(number, ASK).map_err(unavailable)?;
            lanes.push(FoundLane {
                start: match start {
                    StartAt::Earliest => low,
                    StartAt::Latest => end,
                },
                identity: identity.of_partition(&name),
                name,
            });
        }
        Ok(lanes)
    }
}

impl SourceSurvey for KafkaSurvey {
    fn begin(&mut self) -> Result<Vec<FoundLane>, SourceError> {
        let lanes = self.lanes(self.start, |_| true)?;
        self.topic.refuse_compaction(ASK).map_err(unavailable)?;
        Ok(lanes)
    }

    fn stamps(&mut self) -> Result<(), SourceError> {
        self.topic.refuse_producers_times(ASK).map_err(unavailable)
    }

    /// What a new partition holds came after the feed began, so it is read from its log's start.
    fn look(&mut self, known: &[KnownLane]) -> Result<Found, SourceError> {
        let is_known = |name: &str| known.iter().any(|lane| lane.trail.name == name);
        let mut new = self.lanes(StartAt::Earliest, |name| !is_known(name))?;
        // Another topic's partitions are none of ours: the reader says so.
        let ours = |lane: &FoundLane| {
            let other =
                |known: &KnownLane| topic_of(&known.trail.identity) != topic_of(&lane.identity);
            !known.iter().any(other)
        };
        new.retain(ours);
        Ok(Found {
            new,
            ..Found::default()
        })
    }
}

fn topic_of(identity: &str) -> &str {
    identity
        .rsplit_once('/')
        .map_or(identity, |(topic, _)| topic)
}
