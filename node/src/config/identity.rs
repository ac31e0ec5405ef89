//! What all replicas must agree on of a source or a sink, as canonical JSON for the Raft log.

use serde::{Deserialize, Serialize};
use unisono_replication::command::SinkEntry;

use super::endpoint::{KafkaSink, SinkConfig, SinkKind, SourceConfig, SourceKind};
use super::properties::Properties;

/// The version that this program writes.
const VERSION: u32 = 1;

fn text(endpoint: &Endpoint<'_>) -> String {
    serde_json::to_string(endpoint).expect("texts and numbers always give JSON")
}

#[derive(Serialize)]
struct Endpoint<'a> {
    version: u32,
    name: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frontier_topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transactional_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letters: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pattern: Option<&'a str>,
}

impl<'a> Endpoint<'a> {
    fn new(name: &'a str, kind: &'static str) -> Self {
        Self {
            version: VERSION,
            name,
            kind,
            topic: None,
            frontier_topic: None,
            transactional_id: None,
            dead_letters: None,
            dir: None,
            pattern: None,
        }
    }
}

impl SourceConfig {
    /// What all replicas must agree on, as JSON: name, kind, and topic or directory and pattern.
    #[must_use]
    pub fn canonical(&self) -> String {
        text(&match &self.kind {
            SourceKind::Kafka(kafka) => Endpoint {
                topic: Some(&kafka.topic),
                ..Endpoint::new(&self.name, "kafka")
            },
            SourceKind::Files(files) => Endpoint {
                dir: Some(&files.dir),
                pattern: Some(&files.pattern),
                ..Endpoint::new(&self.name, "files")
            },
        })
    }
}

impl SinkConfig {
    /// What all replicas must agree on, as JSON: name, kind, topics and transactional id.
    #[must_use]
    pub fn canonical(&self) -> String {
        let SinkKind::Kafka(kafka) = &self.kind;
        text(&Endpoint {
            topic: Some(&kafka.topic),
            frontier_topic: Some(&kafka.frontier_topic),
            transactional_id: Some(&kafka.transactional_id),
            dead_letters: kafka.dead_letters.as_deref(),
            ..Endpoint::new(&self.name, "kafka")
        })
    }

    /// What the agreed log has of the sink.
    #[must_use]
    pub fn entry(&self) -> SinkEntry {
        let SinkKind::Kafka(kafka) = &self.kind;
        let identity = Endpoint {
            frontier_topic: Some(&kafka.frontier_topic),
            transactional_id: Some(&kafka.transactional_id),
            ..Endpoint::new("", "kafka")
        };
        SinkEntry {
            identity: text(&identity),
            definition: self.canonical(),
            takes_dead_letters: kafka.dead_letters.is_some(),
        }
    }

    /// This sink as the cluster agreed on it: routed as `agreed` says, reached as this node's file says.
    ///
    /// # Errors
    /// The text is of another version, or damaged.
    pub fn routed(&self, agreed: &SinkEntry) -> Result<Self, String> {
        let sink = Self::of_canonical(&agreed.definition).map_err(|reason| {
            format!(
                "the agreed definition of sink {} cannot be used: {reason}",
                self.name
            )
        })?;
        let (SinkKind::Kafka(routing), SinkKind::Kafka(own)) = (sink.kind, &self.kind);
        let kafka = KafkaSink {
            brokers: own.brokers.clone(),
            properties: own.properties.clone(),
            ..routing
        };
        Ok(Self {
            name: sink.name,
            kind: SinkKind::Kafka(kafka),
        })
    }

    /// The sink of a canonical text, which does not say how it is reached.
    ///
    /// # Errors
    /// The text is of another version, or damaged.
    pub fn of_canonical(text: &str) -> Result<Self, String> {
        let routing: Routing = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if routing.version != VERSION || routing.kind != "kafka" {
            return Err("another version of Unisono made it; use the same one".to_owned());
        }
        let kafka = KafkaSink {
            brokers: String::new(),
            topic: routing.topic,
            frontier_topic: routing.frontier_topic,
            transactional_id: routing.transactional_id,
            dead_letters: routing.dead_letters,
            properties: Properties::default(),
        };
        Ok(Self {
            name: routing.name,
            kind: SinkKind::Kafka(kafka),
        })
    }
}

/// What [`SinkConfig::canonical`] wrote.
#[derive(Deserialize)]
struct Routing {
    version: u32,
    name: String,
    kind: String,
    topic: String,
    frontier_topic: String,
    transactional_id: String,
    dead_letters: Option<String>,
}
