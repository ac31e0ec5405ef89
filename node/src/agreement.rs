//! From the files of all nodes to the agreed configuration: what each file has, what a majority has, and where a file
//! drifts from what is agreed. Pure.
//!
//! A node's files are proposals. What is agreed changes by an operator's command alone, whoever leads.

mod drift;
mod question;
mod votes;

use serde::{Deserialize, Serialize};
use unisono_replication::command::{SinkEntry, SourceEntry};
use unisono_replication::machine::Machine;
use xxhash_rust::xxh3::xxh3_128;

use crate::config::{NodeConfig, SinkConfig, SourceConfig};
use crate::definition::{PipelineDefinition, as_written};

#[cfg(test)]
pub use drift::{DifferingKey, DriftState};
pub use drift::{Drift, of_node as drift_of};
pub use question::{Question, TAG, answer, read_answer};
pub use votes::Votes;

/// What a definition is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// A stream of events.
    Source,
    /// Where rows go.
    Sink,
    /// Windows and values.
    Pipeline,
}

impl Kind {
    /// As people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Pipeline => "pipeline",
        }
    }
}

/// One definition of a node's file, as peers are told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDefinition {
    /// What it is of.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Of its canonical text: equal for equal definitions.
    pub hash: u128,
}

/// All definitions of a node's files.
#[must_use]
pub fn definitions(config: &NodeConfig) -> Vec<FileDefinition> {
    let define = |kind, name: &str, hash| FileDefinition {
        kind,
        name: name.to_owned(),
        hash,
    };
    let sources = config.sources.iter().map(|source| {
        let hash = hash_of(&[&source.canonical()]);
        define(Kind::Source, &source.name, hash)
    });
    let sinks = config.sinks.iter().map(|sink| {
        let hash = hash_of(&[&sink.canonical()]);
        define(Kind::Sink, &sink.name, hash)
    });
    let pipelines = config.pipelines.iter().map(|pipeline| {
        let hash = pipeline_hash(&pipeline.canonical, &pipeline.sink);
        define(Kind::Pipeline, &pipeline.name, hash)
    });
    sources.chain(sinks).chain(pipelines).collect()
}

/// The hash of a pipeline's canonical text and the name of its sink.
#[must_use]
pub fn pipeline_hash(canonical: &str, sink: &str) -> u128 {
    hash_of(&[&as_written(canonical), sink])
}

/// The hash of texts, none of which holds a zero byte.
fn hash_of(texts: &[&str]) -> u128 {
    xxh3_128(texts.join("\0").as_bytes())
}

/// The hash of a source or sink as it is agreed.
#[must_use]
pub fn endpoint_hash(definition: &str) -> u128 {
    hash_of(&[definition])
}

/// The source of that name in a node's file, as the agreed log has it.
#[must_use]
pub fn source_entry(source: &SourceConfig) -> SourceEntry {
    SourceEntry {
        name: source.name.clone(),
        definition: source.canonical(),
    }
}

/// The pipeline of that name in a node's file.
#[must_use]
pub fn own_pipeline<'a>(config: &'a NodeConfig, name: &str) -> Option<&'a PipelineDefinition> {
    config.pipelines.iter().find(|own| own.name == name)
}

/// How this node reaches an agreed sink: routed as agreed, with the brokers and properties of this node's file, where it
/// may stand under another name.
///
/// # Errors
/// What to do.
pub fn reach_sink(
    config: &NodeConfig,
    name: &str,
    agreed: &SinkEntry,
) -> Result<SinkConfig, String> {
    let named = config.sinks.iter().find(|own| own.name == name);
    let same = |own: &&SinkConfig| own.entry().identity == agreed.identity;
    let own = named.or_else(|| config.sinks.iter().find(same));
    let own = own.ok_or_else(|| {
        format!(
            "sink {name} is part of the agreed configuration but not of this node's file, so this node cannot publish to \
             it: add it to the file as {}, or have the file's own one agreed with unisono apply",
            agreed.definition
        )
    })?;
    own.routed(agreed)
}

/// Whether the cluster has no use for a file's sink of that name: the agreed one of another name has its fence.
#[must_use]
pub fn is_renamed(machine: &Machine, sink: &SinkConfig) -> Option<String> {
    let known = machine.sinks().contains_key(&sink.name);
    (!known)
        .then(|| machine.sink_identified(&sink.entry().identity))
        .flatten()
}
