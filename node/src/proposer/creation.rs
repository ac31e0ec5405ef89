//! Creating what the config names and the agreed log does not know yet: feeds, then their pipelines.

use std::time::{Duration, Instant};

use unisono_replication::command::{
    Command, CreateFeed, CreatePipeline, FeedId, LaneEntry, SourceEntry,
};
use unisono_replication::machine::{Feed, Machine};

use crate::config::{NodeConfig, SourceConfig};
use crate::core::{Authority, Core};
use crate::definition::PipelineDefinition;
use crate::source::{self, SourceError};
use crate::threads::lock;

/// How often a source that cannot be read is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Remembers what was tried.
#[derive(Default)]
pub(super) struct Creation {
    tried: Option<Instant>,
    /// Everything was there at this index of the log.
    complete: bool,
}

impl Creation {
    /// The next entry that creates something; `None` if all is there, or cannot be made now.
    pub(super) async fn next(&mut self, core: &Core, authority: &Authority) -> Option<Command> {
        if self.complete || self.tried.is_some_and(|tried| tried.elapsed() < RETRY) {
            return None;
        }
        let Some((pipeline, home)) = missing(&core.config, &core.agreed().machine) else {
            self.complete = true;
            tell_differences(&core.config, &core.agreed().machine);
            return None;
        };
        if let Some(feed) = home {
            return Some(create_pipeline(authority, feed, &pipeline));
        }
        let sources = sources_of(&core.config, &pipeline);
        let entries = sources.iter().map(source_entry).collect();
        let lanes = tokio::task::spawn_blocking(move || lanes(&sources)).await;
        match lanes.unwrap_or_else(|error| Err(SourceError::Unavailable(error.to_string()))) {
            Ok(lanes) => {
                set_waiting(core, None);
                let term = authority.term;
                Some(Command::CreateFeed(CreateFeed {
                    term,
                    sources: entries,
                    lanes,
                }))
            }
            Err(error) => {
                self.tried = Some(Instant::now());
                let (reason, pipeline) = (error.to_string(), &pipeline.name);
                if set_waiting(core, Some(reason.clone())) {
                    tracing::warn!(pipeline, reason, "pipeline cannot start yet; trying again");
                }
                None
            }
        }
    }
}

/// Keeps the reason for those who ask; says whether it is a new one.
fn set_waiting(core: &Core, reason: Option<String>) -> bool {
    let mut waiting = lock(&core.waiting);
    let is_new = *waiting != reason;
    *waiting = reason;
    is_new
}

/// A pipeline that the config has and the log has not, and the feed that it can join; one that can join comes first, for
/// a feed takes pipelines only until it ticks.
fn missing(config: &NodeConfig, machine: &Machine) -> Option<(PipelineDefinition, Option<FeedId>)> {
    let unknown = config
        .pipelines
        .iter()
        .filter(|pipeline| machine.pipeline_named(&pipeline.name).is_none());
    let mut found: Vec<_> = unknown
        .map(|pipeline| (pipeline.clone(), home(config, machine, pipeline)))
        .collect();
    let at = found
        .iter()
        .position(|(_, home)| home.is_some())
        .unwrap_or(0);
    (!found.is_empty()).then(|| found.swap_remove(at))
}

/// A feed of the same sources that has not ticked yet.
fn home(config: &NodeConfig, machine: &Machine, pipeline: &PipelineDefinition) -> Option<FeedId> {
    let wanted: Vec<_> = sources_of(config, pipeline)
        .iter()
        .map(source_entry)
        .collect();
    let fits = |feed: &Feed| feed.ticks == 0 && feed.sources == wanted;
    machine
        .feeds()
        .iter()
        .find(|(_, feed)| fits(feed))
        .map(|(&id, _)| id)
}

/// Says which definitions of this config are not those that the cluster runs.
fn tell_differences(config: &NodeConfig, machine: &Machine) {
    for pipeline in &config.pipelines {
        if let Some((incarnation, agreed)) = machine.pipeline_named(&pipeline.name)
            && agreed.definition != pipeline.canonical
        {
            let pipeline = &pipeline.name;
            tracing::warn!(
                pipeline,
                incarnation,
                "the definition in this node's config is not the one that the cluster runs; it goes on with its own: \
                 give a changed pipeline a new name"
            );
        }
    }
}

fn create_pipeline(authority: &Authority, feed: FeedId, pipeline: &PipelineDefinition) -> Command {
    Command::CreatePipeline(CreatePipeline {
        term: authority.term,
        feed,
        name: pipeline.name.clone(),
        sink: pipeline.sink.clone(),
        definition: pipeline.canonical.clone(),
    })
}

fn sources_of(config: &NodeConfig, pipeline: &PipelineDefinition) -> Vec<SourceConfig> {
    let named = |name: &String| config.sources.iter().find(|source| source.name == *name);
    // A checked config has all of them.
    pipeline.sources.iter().filter_map(named).cloned().collect()
}

fn source_entry(source: &SourceConfig) -> SourceEntry {
    SourceEntry {
        name: source.name.clone(),
        definition: source.canonical(),
    }
}

/// All lanes of the sources, and where a new feed begins to read them. Asks the sources, and waits for them.
fn lanes(sources: &[SourceConfig]) -> Result<Vec<LaneEntry>, SourceError> {
    let mut lanes = Vec::new();
    for (index, config) in (0_u32..).zip(sources) {
        let found = source::survey(config)?.begin()?;
        lanes.extend(found.into_iter().map(|lane| LaneEntry {
            source: index,
            name: lane.name,
            start: lane.start,
            identity: lane.identity,
        }));
    }
    Ok(lanes)
}
