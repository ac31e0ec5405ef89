//! From the agreed state to a feed that can run: definitions, fields, lanes and the engine at a checkpoint.

use std::io::Read;

use unisono_engine::row::Incarnation;
use unisono_engine::spec::{LaneId, PipelineSpec};
use unisono_engine::{FeedEngine, LaneEngine};
use unisono_replication::command::FeedId;
use unisono_replication::machine::Machine;

use super::lane_label;
use crate::config::{NodeConfig, SourceConfig, SourceKind};
use crate::decode::{Decoder, Framing};
use crate::definition::{FieldSet, PipelineDefinition, Terms, remap};
use crate::room::FeedRoom;
use crate::source::LaneTrail;

/// All that a feed needs to start.
pub struct FeedPlan {
    /// The index of the log entry that created it.
    pub id: FeedId,
    /// In the feed's order.
    pub sources: Vec<SourceConfig>,
    /// All fields that some pipeline uses.
    pub fields: FieldSet,
    /// Its pipelines have all the same.
    pub terms: Terms,
    /// In the feed's order.
    pub lanes: Vec<PlannedLane>,
    /// What of the state belongs to no lane.
    pub engine: FeedEngine,
    /// As many as there are lanes, once the plan is whole.
    pub engines: Vec<LaneEngine>,
    /// What they hold of the node's memory for state, if they come from a checkpoint.
    pub room: Option<FeedRoom>,
    pub(super) specs: Vec<(Incarnation, PipelineSpec)>,
}

/// A lane and the index of its source.
pub struct PlannedLane {
    /// The index of its source.
    pub source: usize,
    /// As far as it is taken in.
    pub trail: LaneTrail,
    /// Nothing more comes of it.
    pub retired: bool,
}

/// Why a feed cannot start on this replica.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages name")]
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
    /// The plan of feed `id` as `machine` has it, without state: it follows from the parts of a checkpoint at the same
    /// index, or by [`FeedPlan::begin`].
    ///
    /// # Errors
    /// What keeps this replica from running the feed.
    pub fn new(machine: &Machine, id: FeedId, config: &NodeConfig) -> Result<Self, SetupError> {
        let feed = &machine.feeds()[&id];
        let sources = feed
            .sources
            .iter()
            .map(|source| own_source(config, &source.name, &source.definition))
            .collect::<Result<Vec<_>, _>>()?;
        let mut definitions = Vec::new();
        for (&incarnation, pipeline) in machine.pipelines() {
            if pipeline.feed == id {
                let definition =
                    PipelineDefinition::from_canonical(&pipeline.definition, &pipeline.sink)
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
        Ok(Self {
            id,
            sources,
            fields,
            terms: terms(machine, id).unwrap_or_default(),
            lanes: feed.lanes.iter().map(PlannedLane::new).collect(),
            engine: FeedEngine::new(),
            engines: Vec::new(),
            room: None,
            specs,
        })
    }

    /// The decoder of the lanes of each source.
    pub(super) fn decoders(&self) -> Vec<Decoder> {
        let decoder = |source: &SourceConfig| {
            let framing = match source.kind {
                SourceKind::Kafka(_) => Framing::Message,
                SourceKind::Files(_) => Framing::Line,
            };
            Decoder::new(&self.fields, &self.terms.decoding, framing)
        };
        self.sources.iter().map(decoder).collect()
    }

    /// A feed that has taken nothing in yet.
    #[must_use]
    pub fn begin(mut self) -> Self {
        for lane in &self.lanes {
            let source = &self.sources[lane.source].name;
            let label = lane_label(source, &lane.trail.name);
            self.engines.push(self.engine.add_lane(label).1);
        }
        let mut lanes: Vec<_> = self.engines.iter_mut().collect();
        for (incarnation, spec) in self.specs.drain(..) {
            self.engine.add_pipeline(incarnation, spec, &mut lanes);
        }
        self
    }

    /// Reads the feed's part of a checkpoint; the lanes' follow.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_feed(&mut self, part: &mut dyn Read) -> Result<(), SetupError> {
        let specs = std::mem::take(&mut self.specs);
        self.engine = FeedEngine::restore(part, specs).map_err(|error| self.damaged(&error))?;
        Ok(())
    }

    /// Reads a lane's part of a checkpoint; lanes come in their order.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_lane(&mut self, lane: u32, part: &mut dyn Read) -> Result<(), SetupError> {
        if lane as usize != self.engines.len() {
            return Err(self.damaged(&"its lanes are not in their order"));
        }
        let (engines, room) = (&mut self.engines, &mut self.room);
        let mut grown = |lane: &mut LaneEngine| {
            let Some(room) = room else { return Ok(()) };
            let mut lanes: Vec<_> = engines.iter_mut().chain(std::iter::once(lane)).collect();
            room.keep_within(None, &mut lanes)
        };
        let engine = self
            .engine
            .restore_lane_in_pieces(LaneId(lane), part, &mut grown);
        let engine = engine.map_err(|error| self.damaged(&error))?;
        self.engines.push(engine);
        Ok(())
    }

    /// All parts of the checkpoint were read.
    ///
    /// # Errors
    /// Some were missing.
    pub fn resume(mut self) -> Result<Self, SetupError> {
        if self.engines.len() != self.lanes.len() {
            return Err(self.damaged(&"it lacks a lane"));
        }
        let lanes: Vec<_> = self.engines.iter_mut().collect();
        self.engine.resume(&lanes);
        Ok(self)
    }

    fn damaged(&self, reason: &dyn std::fmt::Display) -> SetupError {
        SetupError::Checkpoint {
            feed: self.id.0,
            reason: reason.to_string(),
        }
    }
}

impl PlannedLane {
    fn new(lane: &unisono_replication::machine::Lane) -> Self {
        Self {
            source: lane.source as usize,
            trail: LaneTrail::of(lane),
            retired: lane.retired,
        }
    }
}

/// What a feed does for its pipelines; `None`: it has none. Feeds are kept apart by it.
#[must_use]
pub fn terms(machine: &Machine, id: FeedId) -> Option<Terms> {
    let mut pipelines = machine.pipelines().values();
    let pipeline = pipelines.find(|pipeline| pipeline.feed == id)?;
    let definition = PipelineDefinition::from_canonical(&pipeline.definition, &pipeline.sink);
    Some(definition.ok()?.terms())
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
