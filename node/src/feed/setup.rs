//! From the agreed state to a feed that can run: definitions, fields, lanes and the engine at a checkpoint.

use unisono_engine::FeedEngine;
use unisono_engine::row::Incarnation;
use unisono_replication::command::FeedId;
use unisono_replication::machine::Machine;

use super::lane_label;
use crate::config::{FieldSet, NodeConfig, PipelineDefinition, SourceConfig, remap};
use crate::ingest::LaneStart;

/// All that a feed needs to start.
pub struct FeedPlan {
    pub id: FeedId,
    /// In the feed's order.
    pub sources: Vec<SourceConfig>,
    /// All fields that some pipeline uses.
    pub fields: FieldSet,
    pub lanes: Vec<PlannedLane>,
    pub incarnations: Vec<Incarnation>,
    pub engine: FeedEngine,
}

/// A lane and the index of its source.
pub struct PlannedLane {
    pub source: usize,
    pub start: LaneStart,
}

/// Why a feed cannot start on this replica.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The cluster reads a source that this replica's config lacks: add it, as the other replicas have it.
    #[error(
        "source {name} is part of the cluster's agreed log but not of this node's config: add it, as {definition}"
    )]
    SourceMissing { name: String, definition: String },
    /// The same name means another topic or directory here: correct the config.
    #[error(
        "source {name} is {own} in this node's config, but {agreed} in the cluster's agreed log: correct the config, or \
         use another name"
    )]
    SourceDiffers {
        name: String,
        own: String,
        agreed: String,
    },
    /// A definition from the log cannot be used: another version of the program made it.
    #[error("pipeline {name} in the agreed log cannot be used: {reason}")]
    Definition { name: String, reason: String },
    /// The checkpoint does not fit the definitions: wipe the data directory, the node rejoins.
    #[error("the checkpoint of feed {feed} cannot be used: {reason}")]
    Checkpoint { feed: u64, reason: String },
    /// The system has no thread left.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl FeedPlan {
    /// The plan of feed `id` as `machine` has it; `state` is its engine's part of the checkpoint at the same index.
    ///
    /// # Errors
    /// What keeps this replica from running the feed.
    pub fn new(
        machine: &Machine,
        id: FeedId,
        state: Option<&[u8]>,
        config: &NodeConfig,
    ) -> Result<Self, SetupError> {
        let feed = &machine.feeds()[&id];
        let sources = feed
            .sources
            .iter()
            .map(|source| own_source(config, &source.name, &source.definition))
            .collect::<Result<Vec<_>, _>>()?;
        let mut definitions = Vec::new();
        for (&incarnation, pipeline) in machine.pipelines() {
            if pipeline.feed == id {
                let definition = PipelineDefinition::from_canonical(&pipeline.definition)
                    .map_err(|error| unusable(&pipeline.name, &error))?;
                definitions.push((Incarnation(incarnation), definition));
            }
        }
        let fields = FieldSet::union(definitions.iter().map(|(_, definition)| &definition.fields));
        let mut specs = Vec::new();
        for (incarnation, definition) in &definitions {
            let spec = remap(&definition.spec, &definition.fields, &fields)
                .ok_or_else(|| unusable(&definition.name, &"a field is missing"))?;
            specs.push((*incarnation, spec));
        }
        let incarnations = specs.iter().map(|(incarnation, _)| *incarnation).collect();
        let lanes: Vec<PlannedLane> = feed.lanes.iter().map(PlannedLane::new).collect();
        let engine = match state {
            Some(bytes) => {
                FeedEngine::restore(bytes, specs).map_err(|error| SetupError::Checkpoint {
                    feed: id.0,
                    reason: error.to_string(),
                })?
            }
            None => {
                let mut engine = FeedEngine::new();
                for lane in &feed.lanes {
                    let source = &sources[lane.source as usize].name;
                    engine.add_lane(lane_label(source, &lane.name));
                }
                for (incarnation, spec) in specs {
                    engine.add_pipeline(incarnation, spec);
                }
                engine
            }
        };
        Ok(Self {
            id,
            sources,
            fields,
            lanes,
            incarnations,
            engine,
        })
    }
}

impl PlannedLane {
    fn new(lane: &unisono_replication::machine::Lane) -> Self {
        let start = LaneStart {
            name: lane.name.clone(),
            cut: lane.cut,
            fingerprint: lane.fingerprint,
        };
        Self {
            source: lane.source as usize,
            start,
        }
    }
}

fn own_source(config: &NodeConfig, name: &str, agreed: &str) -> Result<SourceConfig, SetupError> {
    let found = config.sources.iter().find(|source| source.name == name);
    let source = found.ok_or_else(|| SetupError::SourceMissing {
        name: name.to_owned(),
        definition: agreed.to_owned(),
    })?;
    let own = source.canonical();
    if own != agreed {
        let (name, agreed) = (name.to_owned(), agreed.to_owned());
        return Err(SetupError::SourceDiffers { name, own, agreed });
    }
    Ok(source.clone())
}

fn unusable(name: &str, reason: &dyn std::fmt::Display) -> SetupError {
    SetupError::Definition {
        name: name.to_owned(),
        reason: reason.to_string(),
    }
}
