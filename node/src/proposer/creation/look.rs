//! What is missing, and what its creation takes.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use unisono_engine::spec::TimeSource;
use unisono_replication::command::{FeedId, LaneEntry, SinkEntry, SourceEntry};
use unisono_replication::machine::{BUILTIN_SINK, Feed, Machine, Wanted};
use unisono_replication::rt;

use crate::agreement::{Kind, Question, Votes, endpoint_hash, pipeline_hash, read_answer};
use crate::core::Core;
use crate::definition::{PipelineDefinition, Terms};
use crate::feed::terms;

/// Something that is to be and is not.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) name: String,
    from: From,
}

#[derive(Clone, Debug)]
enum From {
    /// A sink that a majority's files have, with this hash.
    Sink(u128),
    /// A pipeline that a majority's files have, with this hash.
    Files(u128),
    /// A pipeline that an operator wants.
    Operator(Wanted),
}

/// What is to be said next.
pub(super) enum Step {
    Sink {
        name: String,
        sink: SinkEntry,
    },
    Pipeline {
        name: String,
        sink: String,
        definition: String,
        terms: Terms,
        sources: Vec<SourceEntry>,
        /// If no feed of these sources takes pipelines.
        lanes: Option<Vec<LaneEntry>>,
    },
}

/// Why there is no step.
pub(super) enum Fault {
    /// A source or a peer must be asked, which takes its time.
    Elsewhere,
    /// For the operator.
    Reason(String),
}

impl std::convert::From<String> for Fault {
    fn from(reason: String) -> Self {
        Self::Reason(reason)
    }
}

/// All that is missing: sinks first, and pipelines that can join a feed before those that need a new one, for a feed takes
/// pipelines only until it ticks.
pub(super) fn wishes(machine: &Machine, votes: &Votes) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for (name, hash) in votes.agreed_on(Kind::Sink) {
        if !machine.sinks().contains_key(&name) {
            let from = From::Sink(hash);
            wishes.push(Wish { name, from });
        }
    }
    for (name, wanted) in machine.wanted() {
        let (name, from) = (name.clone(), From::Operator(wanted.clone()));
        wishes.push(Wish { name, from });
    }
    for (name, hash) in votes.agreed_on(Kind::Pipeline) {
        let is_known = machine.pipeline_named(&name).is_some()
            || machine.wanted().contains_key(&name)
            || machine.removed().contains(&name);
        if !is_known {
            let from = From::Files(hash);
            wishes.push(Wish { name, from });
        }
    }
    wishes
}

/// A feed of the same sources that has not ticked yet, that does for its pipelines what the definition wants.
pub(super) fn home(machine: &Machine, sources: &[SourceEntry], wanted: &Terms) -> Option<FeedId> {
    let is_empty = |id: FeedId| machine.pipelines().values().all(|of| of.feed != id);
    let fits = |id: FeedId, feed: &Feed| {
        feed.ticks == 0
            && feed.sources == sources
            && (is_empty(id) || terms(machine, id).as_ref() == Some(wanted))
    };
    let mut feeds = machine.feeds().iter();
    let home = feeds.find(|&(&id, feed)| fits(id, feed));
    home.map(|(&id, _)| id)
}

/// What is known at a moment.
pub(super) struct Look {
    pub(super) core: Arc<Core>,
    pub(super) machine: Machine,
    pub(super) votes: Votes,
    pub(super) asks: Asks,
}

/// Whether time may be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// Only this node's own file is looked at.
    Nobody,
    /// Sources and peers are asked.
    Others,
}

impl Look {
    /// The next step to what is wished for. Blocks where somebody is asked.
    pub(super) fn prepare(&self, wish: &Wish) -> Result<Step, Fault> {
        let name = wish.name.clone();
        let (sink, definition) = match &wish.from {
            From::Sink(hash) => return self.sink(name, *hash),
            From::Operator(wanted) => (wanted.sink.clone(), wanted.definition.clone()),
            From::Files(hash) => self.pipeline(&name, *hash)?,
        };
        if sink != BUILTIN_SINK && !self.machine.sinks().contains_key(&sink) {
            return Err(Fault::Reason(format!(
                "its sink {sink} is not agreed: no majority of the files has the same one; correct them, or have it agreed \
                 with unisono apply"
            )));
        }
        let read = PipelineDefinition::from_canonical(&definition, &sink);
        let read = read.map_err(|error| error.to_string())?;
        let terms = read.terms();
        let names = read.sources;
        let holders = self.holders_of_sources(&names)?;
        let sources: Vec<SourceEntry> = self.fetch(&holders, &Question::Sources(names.clone()))?;
        if matches!(read.spec.time, TimeSource::AppendTime) {
            if self.asks == Asks::Nobody {
                return Err(Fault::Elsewhere);
            }
            self.fetch::<()>(&holders, &Question::Stamps(names.clone()))?;
        }
        let lanes = match home(&self.machine, &sources, &terms) {
            Some(_) => None,
            None if self.asks == Asks::Nobody => return Err(Fault::Elsewhere),
            None => Some(self.fetch(&holders, &Question::Lanes(names))?),
        };
        Ok(Step::Pipeline {
            name,
            sink,
            definition,
            terms,
            sources,
            lanes,
        })
    }

    fn sink(&self, name: String, hash: u128) -> Result<Step, Fault> {
        let holders = self.votes.holders(Kind::Sink, &name, hash);
        let sink: SinkEntry = self.fetch(&holders, &Question::Sink(name.clone()))?;
        if endpoint_hash(&sink.definition) != hash {
            return Err(changed(&name));
        }
        if let Some(other) = self.machine.sink_identified(&sink.identity) {
            return Err(Fault::Reason(format!(
                "sink {name} of a majority's files has the transactional id and frontier topic of the agreed sink {other}: \
                 rename it with unisono apply, or give it others"
            )));
        }
        Ok(Step::Sink { name, sink })
    }

    fn pipeline(&self, name: &str, hash: u128) -> Result<(String, String), Fault> {
        let holders = self.votes.holders(Kind::Pipeline, name, hash);
        let question = Question::Pipeline(name.to_owned());
        let (definition, sink): (String, String) = self.fetch(&holders, &question)?;
        match pipeline_hash(&definition, &sink) == hash {
            true => Ok((sink, definition)),
            false => Err(changed(name)),
        }
    }

    /// Nodes whose files have all of these sources as a majority has them.
    fn holders_of_sources(&self, names: &[String]) -> Result<Vec<u16>, Fault> {
        let mut holders: Option<Vec<u16>> = None;
        for name in names {
            let hash = self.votes.majority(Kind::Source, name).ok_or_else(|| {
                format!("its source {name}: no majority of the files that were heard has the same definition")
            })?;
            let of_this = self.votes.holders(Kind::Source, name, hash);
            holders = Some(match holders {
                None => of_this,
                Some(known) => known
                    .into_iter()
                    .filter(|it| of_this.contains(it))
                    .collect(),
            });
        }
        let holders = holders.unwrap_or_default();
        match holders.is_empty() {
            true => Err(Fault::Reason(
                "no single node's file has all of its sources as they are in the majority's"
                    .to_owned(),
            )),
            false => Ok(holders),
        }
    }

    /// The answer of this node, if it is among the holders, or else of the first that gives one.
    fn fetch<T: DeserializeOwned>(&self, holders: &[u16], question: &Question) -> Result<T, Fault> {
        let own = self.core.config.node.id;
        if holders.contains(&own) {
            let answer = question.ask(&self.core.config)?;
            return Ok(postcard::from_bytes(&answer).map_err(|error| error.to_string())?);
        }
        if self.asks == Asks::Nobody {
            return Err(Fault::Elsewhere);
        }
        // The proposer's own runtime is busy with ticks.
        let mut last = "no node that has it was heard lately".to_owned();
        for &number in holders {
            let asked = rt::thread::run(self.core.replica.ask(number, question.encode()));
            let answer = asked.flatten().map_err(|error| error.to_string());
            match answer.and_then(|bytes| read_answer(&bytes)) {
                Ok(answer) => return Ok(answer),
                Err(reason) => last = format!("node {number}: {reason}"),
            }
        }
        Err(Fault::Reason(last))
    }
}

fn changed(name: &str) -> Fault {
    Fault::Reason(format!("the file that has {name} is changing"))
}
