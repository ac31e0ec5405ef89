//! The agreed configuration: the cluster's name, its sinks, and what operators want of its pipelines.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Effect, Machine, Void};
use crate::command::{
    ApplyPipeline, BeginCluster, CreatePipeline, FeedId, ForgetRemoved, Origin, PausePipeline,
    RemovePipeline, SetSink, SinkEntry, Stream, StreamKey,
};

/// The name of the sink that needs no config: the results that every replica keeps and serves.
pub const BUILTIN_SINK: &str = "builtin";

/// A pipeline that an operator wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The name of its sink.
    pub sink: String,
    /// The checked definition, as canonical JSON.
    pub definition: String,
}

impl Machine {
    pub(super) fn begin_cluster(&mut self, command: BeginCluster) -> Result<Effect, Void> {
        if self.cluster.is_some() {
            return Err(Void::Name);
        }
        self.cluster = Some(command.id);
        Ok(Effect::ConfigChanged)
    }

    /// A sink's fence and frontier never change: what was published is known under them alone.
    pub(super) fn set_sink(&mut self, command: &SetSink) -> Result<Effect, Void> {
        let SetSink { name, sink, by, .. } = command;
        if name == BUILTIN_SINK {
            return Err(Void::Name);
        }
        if let Some(known) = self.sinks.get(name) {
            if *by == Origin::Files || known.identity != sink.identity {
                return Err(Void::Name);
            }
        } else if let Some(former) = self.sink_identified(&sink.identity) {
            // Two sinks with one fence would take it from each other for ever.
            if *by == Origin::Files {
                return Err(Void::Name);
            }
            self.rename_sink(&former, name);
        }
        self.note_begins(name, sink.takes_dead_letters);
        self.sinks.insert(name.clone(), sink.clone());
        Ok(Effect::ConfigChanged)
    }

    /// The agreed sink whose fence and frontier these are.
    #[must_use]
    pub fn sink_identified(&self, identity: &str) -> Option<String> {
        let mut sinks = self.sinks.iter();
        let found = sinks.find(|(_, known)| known.identity == identity);
        found.map(|(name, _)| name.clone())
    }

    fn rename_sink(&mut self, former: &str, name: &str) {
        if let Some(sink) = self.sinks.remove(former) {
            self.sinks.insert(name.to_owned(), sink);
        }
        let named = self.pipelines.values_mut().map(|it| &mut it.sink);
        let wanted = self.wanted.values_mut().map(|it| &mut it.sink);
        for sink in named.chain(wanted).filter(|sink| *sink == former) {
            name.clone_into(sink);
        }
    }

    /// Dead letters that go another way from now on go on there where they are.
    fn note_begins(&mut self, name: &str, takes_dead_letters: bool) {
        let took = self.sinks.get(name).map(|sink| sink.takes_dead_letters);
        if took.is_none_or(|took| took == takes_dead_letters) {
            return;
        }
        for (&incarnation, pipeline) in &self.pipelines {
            if pipeline.sink == name {
                let stream = Stream::DeadLetters;
                let key = StreamKey {
                    incarnation,
                    stream,
                };
                self.begins.insert(key, self.frontier(key));
            }
        }
    }

    pub(super) fn apply_pipeline(&mut self, command: &ApplyPipeline) -> Result<Effect, Void> {
        let ApplyPipeline {
            name,
            sink,
            definition,
            ..
        } = command;
        if !self.knows_sink(sink) {
            return Err(Void::Name);
        }
        let mut effect = Effect::ConfigChanged;
        let known = self.pipeline_named(name);
        let is_so = known.is_some_and(|(_, it)| it.definition == *definition && it.sink == *sink);
        if let Some((incarnation, _)) = known.filter(|_| !is_so) {
            effect = self.end_pipeline(incarnation)?;
        }
        self.removed.remove(name);
        self.wanted.remove(name);
        if is_so {
            return Ok(effect);
        }
        let wanted = Wanted {
            sink: sink.clone(),
            definition: definition.clone(),
        };
        self.wanted.insert(name.clone(), wanted);
        Ok(effect)
    }

    pub(super) fn remove_pipeline(&mut self, command: &RemovePipeline) -> Result<Effect, Void> {
        let known = self
            .pipeline_named(&command.name)
            .map(|(incarnation, _)| incarnation);
        if known.is_none() && !self.wanted.contains_key(&command.name) {
            return Err(Void::Name);
        }
        let effect = known.map_or(Ok(Effect::ConfigChanged), |incarnation| {
            self.end_pipeline(incarnation)
        })?;
        self.wanted.remove(&command.name);
        self.removed.insert(command.name.clone());
        Ok(effect)
    }

    /// A feed without pipelines ends with its last one.
    fn end_pipeline(&mut self, incarnation: u64) -> Result<Effect, Void> {
        let feed = self.pipelines.get(&incarnation).ok_or(Void::Name)?.feed;
        // The state that a parked feed goes on from has all of its pipelines, and the log that would end one of them is gone.
        let mut others = self.pipelines.iter().filter(|(id, _)| **id != incarnation);
        if self.is_parked(feed) && others.any(|(_, other)| other.feed == feed) {
            return Err(Void::Held);
        }
        let ended = self.pipelines.remove(&incarnation).ok_or(Void::Name)?;
        self.frontier
            .retain(|key, _| key.incarnation != incarnation);
        self.begins.retain(|key, _| key.incarnation != incarnation);
        let feed = ended.feed;
        if !self.has_pipelines(feed) {
            self.feeds.remove(&feed);
        }
        Ok(Effect::PipelineRemoved { incarnation, feed })
    }

    pub(super) fn pause_pipeline(&mut self, command: &PausePipeline) -> Result<Effect, Void> {
        let mut pipelines = self.pipelines.values_mut();
        let named = pipelines.find(|pipeline| pipeline.name == command.name);
        named.ok_or(Void::Name)?.paused = command.paused;
        Ok(Effect::ConfigChanged)
    }

    pub(super) fn forget_removed(&mut self, command: &ForgetRemoved) -> Result<Effect, Void> {
        self.removed.retain(|name| !command.names.contains(name));
        Ok(Effect::ConfigChanged)
    }

    /// A removed name comes again only by an operator's command, and then as that says.
    pub(super) fn may_be_created(&self, command: &CreatePipeline) -> bool {
        let wanted = self.wanted.get(&command.name);
        self.pipeline_named(&command.name).is_none()
            && self.knows_sink(&command.sink)
            && !self.removed.contains(&command.name)
            && wanted.is_none_or(|wanted| {
                wanted.definition == command.definition && wanted.sink == command.sink
            })
    }

    /// Whether a feed computes anything: one whose leader died before its first pipeline came does not, and waits for one.
    #[must_use]
    pub fn has_pipelines(&self, feed: FeedId) -> bool {
        self.pipelines
            .values()
            .any(|pipeline| pipeline.feed == feed)
    }

    fn knows_sink(&self, name: &str) -> bool {
        name == BUILTIN_SINK || self.sinks.contains_key(name)
    }

    /// The cluster's random name; `None` before its first entry.
    #[must_use]
    pub fn cluster(&self) -> Option<u128> {
        self.cluster
    }

    /// The sinks but for the built-in one, by name.
    #[must_use]
    pub fn sinks(&self) -> &BTreeMap<String, SinkEntry> {
        &self.sinks
    }

    /// Pipelines that an operator wants and that are not created yet, by name.
    #[must_use]
    pub fn wanted(&self) -> &BTreeMap<String, Wanted> {
        &self.wanted
    }

    /// Names of pipelines that an operator removed and that some file may still name.
    #[must_use]
    pub fn removed(&self) -> &BTreeSet<String> {
        &self.removed
    }

    /// The sink that a stream goes to: its pipeline's, or the built-in one for dead letters that the other has no place for.
    #[must_use]
    pub fn sink_of(&self, key: StreamKey) -> Option<&str> {
        let sink = self.pipelines.get(&key.incarnation)?.sink.as_str();
        let takes = |sink: &SinkEntry| key.stream == Stream::Rows || sink.takes_dead_letters;
        Some(match self.sinks.get(sink).is_some_and(takes) {
            true => sink,
            false => BUILTIN_SINK,
        })
    }

    /// The first number of a stream that goes to the sink that it goes to now: what comes before went another way.
    #[must_use]
    pub fn begin(&self, key: StreamKey) -> u64 {
        self.begins.get(&key).copied().unwrap_or(0)
    }
}
