//! Carrying orders out, on the node that leads.

use std::time::Duration;

use unisono_api::Order;
use unisono_api::dto::{AppliedPipeline, AppliedSink, Apply};
use unisono_replication::command::{
    ApplyPipeline, Command, Origin, PausePipeline, RemovePipeline, SetSink, SinkEntry,
};
use unisono_replication::machine::{BUILTIN_SINK, Machine};
use unisono_replication::rt;
use unisono_replication::{HandOverError, RemoveError};

use super::{Outcome, Refusal};
use crate::agreement::Kind;
use crate::config::SinkConfig;
use crate::core::{Authority, Core};
use crate::definition::PipelineDefinition;
use crate::handover::hand_over;
use crate::status;
use crate::threads::lock;

/// How long the creation of an applied pipeline is waited for.
const CREATE_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Has it agreed, if this node leads.
pub(super) async fn carry_out(core: &Core, order: &Order) -> Result<Outcome, Refusal> {
    let authority = core.authority().ok_or(Refusal::NotLeader)?;
    let mut hand = Hand {
        core,
        authority,
        outcome: Outcome {
            index: 0,
            told: Vec::new(),
        },
    };
    match order {
        Order::Apply(apply) => hand.apply(apply).await?,
        Order::RemovePipeline(name) => hand.remove(name).await?,
        Order::PausePipeline(name) => hand.pause(name, Held::Back).await?,
        Order::ResumePipeline(name) => hand.pause(name, Held::No).await?,
        Order::RemoveMember(number) => hand.remove_member(*number).await?,
        Order::Transfer(to) => hand.transfer(*to).await?,
        Order::HoldFeed(name) => hand.hold_feed(name).await?,
        Order::AcceptTicks(name) => hand.accept_ticks(name).await?,
        Order::EndTicks(name, end) => hand.end_ticks(name, end).await?,
    }
    Ok(hand.outcome)
}

/// Whether a pipeline's rows are held back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Back,
    No,
}

pub(super) struct Hand<'a> {
    pub(super) core: &'a Core,
    pub(super) authority: Authority,
    pub(super) outcome: Outcome,
}

impl Hand<'_> {
    pub(super) fn tell(&mut self, line: String) {
        tracing::info!(line, "carried out an operator's command");
        self.outcome.told.push(line);
    }

    fn agreed<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.core.agreed().machine)
    }

    /// Has the quorum take an entry, and waits until it is applied here.
    pub(super) async fn propose(&mut self, command: Command) -> Result<(), Refusal> {
        let proposed = self.core.replica.propose(command.encode()).await;
        let position = proposed.map_err(|error| match error {
            unisono_replication::ProposeError::NotLeader { .. } => Refusal::NotLeader,
            error => Refusal::Unknown(error.to_string()),
        })?;
        self.core.read_up_to(position.index).await;
        self.outcome.index = position.index;
        // An entry of another term than its proposer's is void.
        match position.term == self.authority.term {
            true => Ok(()),
            false => Err(Refusal::NotLeader),
        }
    }

    /// All is checked before anything is changed, as far as it can be.
    async fn apply(&mut self, apply: &Apply) -> Result<(), Refusal> {
        let mut sinks = Vec::new();
        for sink in &apply.sinks {
            sinks.push((sink.name.as_str(), self.check_sink(sink)?));
        }
        for pipeline in &apply.pipelines {
            self.check_pipeline(pipeline, &sinks)?;
        }
        for (name, sink) in sinks {
            self.set_sink(name, sink).await?;
        }
        for pipeline in &apply.pipelines {
            self.apply_pipeline(pipeline).await?;
        }
        for pipeline in &apply.pipelines {
            self.wait_created(&pipeline.name).await;
        }
        Ok(())
    }

    fn check_sink(&self, sink: &AppliedSink) -> Result<SinkEntry, Refusal> {
        let name = &sink.name;
        let read = SinkConfig::of_canonical(&sink.definition);
        let read = read.map_err(|reason| Refusal::Conflict(format!("sink {name}: {reason}")))?;
        if read.name != *name || name == BUILTIN_SINK {
            let reason = format!("sink {name}: its definition names {}", read.name);
            return Err(Refusal::Conflict(reason));
        }
        let entry = read.entry();
        let known = self.agreed(|machine| machine.sinks().get(name).cloned());
        match known {
            Some(known) if known.identity != entry.identity => Err(Refusal::Conflict(format!(
                "sink {name} is agreed with {}, which never changes, for what was published is known under it alone: leave \
                 transactional_id and frontier_topic as they are, or give the sink a new name, and its pipelines that sink",
                known.identity
            ))),
            _ => Ok(entry),
        }
    }

    fn check_pipeline(
        &self,
        pipeline: &AppliedPipeline,
        sinks: &[(&str, SinkEntry)],
    ) -> Result<(), Refusal> {
        let AppliedPipeline {
            name,
            sink,
            definition,
        } = pipeline;
        let refuse = |reason: String| Refusal::Conflict(format!("pipeline {name}: {reason}"));
        let read = PipelineDefinition::from_canonical(definition, sink);
        let read = read.map_err(|error| refuse(error.to_string()))?;
        if read.name != *name {
            return Err(refuse(format!("its definition names {}", read.name)));
        }
        let is_new = sinks.iter().any(|(known, _)| known == sink);
        let knows = self.agreed(|machine| machine.sinks().contains_key(sink));
        if sink != BUILTIN_SINK && !is_new && !knows {
            return Err(refuse(format!(
                "its sink {sink} is not agreed: apply the node's file that has it, or put it into a majority's files"
            )));
        }
        let votes = status::votes(self.core);
        for source in &read.sources {
            if votes.majority(Kind::Source, source).is_none() {
                return Err(refuse(format!(
                    "its source {source}: no majority of the nodes' files that were heard has the same definition; correct the \
                     files first"
                )));
            }
        }
        Ok(())
    }

    async fn set_sink(&mut self, name: &str, sink: SinkEntry) -> Result<(), Refusal> {
        let known = self.agreed(|machine| machine.sinks().get(name).cloned());
        if known.as_ref() == Some(&sink) {
            self.tell(format!("sink {name}: is agreed so already"));
            return Ok(());
        }
        let former = self.agreed(|machine| machine.sink_identified(&sink.identity));
        let command = Command::SetSink(SetSink {
            term: self.authority.term,
            name: name.to_owned(),
            sink: sink.clone(),
            by: Origin::Operator,
        });
        self.propose(command).await?;
        if self.agreed(|machine| machine.sinks().get(name) != Some(&sink)) {
            let reason = format!("sink {name} was changed by another command at the same time");
            return Err(Refusal::Conflict(reason));
        }
        self.tell(match (known, former) {
            (Some(_), _) => format!("sink {name}: changed"),
            (None, Some(former)) => format!("sink {name}: renamed, it was {former}"),
            (None, None) => format!("sink {name}: agreed"),
        });
        Ok(())
    }

    async fn apply_pipeline(&mut self, pipeline: &AppliedPipeline) -> Result<(), Refusal> {
        let AppliedPipeline {
            name,
            sink,
            definition,
        } = pipeline;
        let known = |machine: &Machine| {
            let known = machine.pipeline_named(name);
            known.map(|(incarnation, it)| {
                (
                    incarnation,
                    it.definition == *definition && it.sink == *sink,
                )
            })
        };
        let before = self.agreed(known);
        if let Some((incarnation, true)) = before {
            self.tell(format!(
                "pipeline {name}: is agreed so already, incarnation {incarnation}"
            ));
            return Ok(());
        }
        let command = Command::ApplyPipeline(ApplyPipeline {
            term: self.authority.term,
            name: name.clone(),
            sink: sink.clone(),
            definition: definition.clone(),
        });
        self.propose(command).await?;
        let is_agreed = |machine: &Machine| {
            let wanted = machine.wanted().get(name);
            wanted.is_some_and(|it| it.definition == *definition && it.sink == *sink)
        };
        if !self.agreed(|machine| is_agreed(machine) || known(machine).is_some_and(|it| it.1)) {
            let reason = format!("pipeline {name} was changed by another command at the same time");
            return Err(Refusal::Conflict(reason));
        }
        self.core.arrivals.notify_one();
        self.tell(match before {
            Some((incarnation, _)) => {
                format!("pipeline {name}: incarnation {incarnation} ended, and its rows with it")
            }
            None => format!("pipeline {name}: agreed"),
        });
        Ok(())
    }

    /// It is agreed; that it can begin takes its sources.
    async fn wait_created(&mut self, name: &str) {
        let deadline = rt::now() + CREATE_WITHIN;
        loop {
            let created = self.agreed(|machine| machine.pipeline_named(name).map(|it| it.0));
            if let Some(incarnation) = created {
                self.outcome.index = self.outcome.index.max(incarnation);
                return self.tell(format!(
                    "pipeline {name}: runs as incarnation {incarnation}"
                ));
            }
            let reason = lock(&self.core.waiting).get(name).cloned();
            if rt::now() > deadline || reason.is_some() {
                let reason =
                    reason.unwrap_or_else(|| "its sources have not answered yet".to_owned());
                return self.tell(format!(
                    "pipeline {name}: begins as soon as it can be created: {reason}"
                ));
            }
            rt::sleep(LOOK_EVERY).await;
        }
    }

    async fn remove(&mut self, name: &str) -> Result<(), Refusal> {
        let known = self.agreed(|machine| {
            machine.pipeline_named(name).is_some() || machine.wanted().contains_key(name)
        });
        if !known {
            return Err(Refusal::NoPipeline(name.to_owned()));
        }
        let (term, name) = (self.authority.term, name.to_owned());
        let command = RemovePipeline {
            term,
            name: name.clone(),
        };
        self.propose(Command::RemovePipeline(command)).await?;
        if self.agreed(|machine| machine.pipeline_named(&name).is_some()) {
            return Err(Refusal::Conflict(format!(
                "pipeline {name}: its feed is parked, with other pipelines on it: decide about the feed first (unisono feeds end)"
            )));
        }
        self.tell(format!(
            "pipeline {name}: removed; its rows are no longer published or served, and leave the disks with the checkpoints after \
             the next. Files that still name it do not bring it back"
        ));
        Ok(())
    }

    async fn pause(&mut self, name: &str, held: Held) -> Result<(), Refusal> {
        let paused = held == Held::Back;
        let known = self.agreed(|machine| machine.pipeline_named(name).map(|it| it.1.paused));
        let known = known.ok_or_else(|| Refusal::NoPipeline(name.to_owned()))?;
        let state = match held {
            Held::Back => "paused: its rows are computed, and held back from publishing",
            Held::No => "its rows are published",
        };
        if known == paused {
            self.tell(format!("pipeline {name}: {state}, as it was before"));
            return Ok(());
        }
        let term = self.authority.term;
        let command = PausePipeline {
            term,
            name: name.to_owned(),
            paused,
        };
        self.propose(Command::PausePipeline(command)).await?;
        self.tell(format!("pipeline {name}: {state}"));
        Ok(())
    }

    async fn transfer(&mut self, to: Option<u16>) -> Result<(), Refusal> {
        let own = self.core.config.node.id;
        if to == Some(own) {
            self.tell(format!("node {own}: leads, as it did before"));
            return Ok(());
        }
        let voters = self.core.replica.view().borrow().voters.clone();
        if let Some(to) = to.filter(|to| !voters.contains(to)) {
            return Err(Refusal::Conflict(format!(
                "node {to} does not vote, so it cannot lead; those that vote are {voters:?}"
            )));
        }
        let given = match to {
            Some(to) => hand_over(self.core, &[to]).await,
            None => status::give_away(self.core).await,
        };
        given.map_err(|error| match error {
            HandOverError::NotLeader => Refusal::NotLeader,
            HandOverError::NoCandidate => Refusal::Conflict(
                "none that could lead follows closely enough: node {own} leads on"
                    .replace("{own}", &own.to_string()),
            ),
            error => Refusal::Unknown(error.to_string()),
        })?;
        let leader = self.core.replica.view().borrow().leader;
        let leader = leader.map_or_else(|| "another one".to_owned(), |it| format!("node {it}"));
        self.tell(format!("{leader} leads, no longer node {own}"));
        Ok(())
    }

    /// Of a node that files name, the next look at the members would make a member again.
    async fn remove_member(&mut self, number: u16) -> Result<(), Refusal> {
        let own = self.core.config.node.id;
        let named_by: Vec<String> = status::files(self.core)
            .into_iter()
            .filter(|(node, file)| *node != number && file.members.contains(&number))
            .map(|(node, _)| node.to_string())
            .collect();
        let leaders_file = self.core.config.cluster.peers.contains_key(&number);
        let voters = self.core.replica.view().borrow().voters.len();
        if leaders_file || named_by.len() * 2 > voters {
            return Err(Refusal::Conflict(format!(
                "node {number} is among the peers in the files of node {} (node {own} leads): take it out of them first, one \
                 restart after the other, or it joins again at once",
                named_by.join(" and node ")
            )));
        }
        let removed = self.core.replica.remove_member(number).await;
        removed.map_err(|error| match error {
            RemoveError::NotLeader { .. } => Refusal::NotLeader,
            RemoveError::Unknown(reason) => Refusal::Unknown(reason),
            error @ (RemoveError::Changing
            | RemoveError::NoMember { .. }
            | RemoveError::LastVoter { .. }) => Refusal::Conflict(error.to_string()),
        })?;
        self.tell(format!("node {number}: is no member any more"));
        Ok(())
    }
}
