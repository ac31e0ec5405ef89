//! What operators decide of feeds, on the node that leads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use unisono_api::dto::{EndTicks, LaneStart};
use unisono_engine::row::Seq;
use unisono_replication::command::{
    self, Command, Decider, FeedId, HoldFeed, ReleaseFeed, StreamEnd,
};
use unisono_replication::machine::{self, Held, Pipeline};
use unisono_replication::rt;

use super::Refusal;
use super::leader::Hand;
use crate::core::Agreed;
use crate::disputed::{Wanted, find};
use crate::health::Condition;
use crate::ids::{key_of, streams_of};
use crate::status;

/// How long it may take to hear from the sinks how far they were published to, and to copy rows that are lacking here.
const KNOWN_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(50);

fn conflict(reason: String) -> Refusal {
    Refusal::Conflict(reason)
}

impl Hand<'_> {
    fn feed(&self, name: &str) -> Result<(FeedId, machine::Feed), Refusal> {
        let agreed = self.core.agreed();
        let found = status::feed_named(&agreed, name);
        found
            .map(|id| (id, agreed.machine.feeds()[&id].clone()))
            .ok_or_else(|| {
                let feeds = agreed.machine.feeds().keys();
                let names: Vec<_> = feeds.map(|&id| status::feed_name(&agreed, id)).collect();
                conflict(format!(
                    "there is no feed {name:?}, but {}",
                    names.join(", ")
                ))
            })
    }

    fn held(&self, name: &str) -> Result<(FeedId, machine::Feed, Held), Refusal> {
        let (id, feed) = self.feed(name)?;
        let held = feed.held.clone();
        let held = held.ok_or_else(|| {
            conflict(format!(
                "feed {name} is not held: nothing is to be decided. One that is stuck at a tick that nobody can read again is held by \
                 unisono feeds hold {name}"
            ))
        })?;
        Ok((id, feed, held))
    }

    /// How the voters do that are heard, this node among them.
    fn conditions(&self) -> (usize, BTreeMap<u16, Condition>) {
        let core = self.core;
        let voters = core.replica.view().borrow().voters.clone();
        let peers = status::peers(core, status::FRESH).into_iter();
        let told = peers.map(|(node, told)| (node, told.condition));
        let own = (core.config.node.id, status::own(core));
        let of_voters = told.chain([own]).filter(|(node, _)| voters.contains(node));
        (voters.len(), of_voters.collect())
    }

    pub(super) async fn hold_feed(&mut self, name: &str) -> Result<(), Refusal> {
        let (id, feed) = self.feed(name)?;
        if feed.held.is_some() {
            self.tell(format!("feed {name}: is held already"));
            return Ok(());
        }
        let (voters, told) = self.conditions();
        let disputes = told.iter().flat_map(|(node, told)| {
            let own = told.disputes.iter().filter(|it| it.feed == id.0);
            own.map(|dispute| (*node, dispute.clone()))
        });
        let first = disputes.min_by_key(|(_, dispute)| dispute.to);
        let wanted = match &first {
            Some((_, dispute)) => Wanted::Move {
                lane: dispute.lane,
                from: dispute.from,
                to: dispute.to,
            },
            None => Wanted::Beyond(furthest(id, voters, &told)?),
        };
        let found = find(self.core, id, wanted);
        let found = found.map_err(|error| Refusal::Unknown(error.to_string()))?;
        let tick = match (found, first) {
            (Some(tick), _) => tick,
            (None, Some((node, _))) if node != self.core.config.node.id => {
                // It has kept the log from there on.
                let handed = self.core.replica.hand_over_to(&[node]).await;
                handed.map_err(|error| Refusal::Unknown(error.to_string()))?;
                return Err(Refusal::NotLeader);
            }
            (None, _) => {
                return Err(conflict(format!(
                    "feed {name} is not stuck: all replicas have taken in all of its ticks; unisono pipelines pause holds the \
                     publishing of a pipeline"
                )));
            }
        };
        let hold = HoldFeed {
            term: self.authority.term,
            feed: id,
            base: feed.base,
            tick: tick.index,
            stands: tick.stands,
            alone: tick.alone,
            by: Decider::Operator,
            dispute: None,
        };
        self.propose(Command::HoldFeed(hold)).await?;
        self.is_now(id, name, |feed| feed.held.is_some())?;
        self.tell(format!(
            "feed {name}: held at the tick of entry {}; unisono feeds accept or end says what becomes of it",
            tick.index
        ));
        Ok(())
    }

    pub(super) async fn accept_ticks(&mut self, name: &str) -> Result<(), Refusal> {
        let (id, feed, held) = self.held(name)?;
        let (_, told) = self.conditions();
        let mut taken = told.values().filter_map(|told| told.taken.get(&id.0));
        if held.parked.is_some() && !taken.any(|&at| at >= held.tick) {
            return Err(conflict(format!(
                "feed {name} is parked, and no replica that is heard of has taken in what the log says: it can only be ended; nothing was \
                 changed"
            )));
        }
        let release = ReleaseFeed {
            term: self.authority.term,
            feed: id,
            base: feed.base,
        };
        self.propose(Command::ReleaseFeed(release)).await?;
        self.is_now(id, name, |feed| feed.accepted == Some(held.tick))?;
        self.tell(format!(
            "feed {name}: goes on, and what the log says counts; replicas that read something else take the state of one that took it \
             in, from its next checkpoint"
        ));
        Ok(())
    }

    pub(super) async fn end_ticks(&mut self, name: &str, end: &EndTicks) -> Result<(), Refusal> {
        let (id, feed, held) = self.held(name)?;
        let skips = skips(&feed, &held, &end.starts)?;
        let (voters, told) = self.conditions();
        let stands = |told: &Condition| match held.parked {
            Some(state) => told.saved.get(&id.0) == Some(&state),
            None => told.taken.get(&id.0).is_some_and(|&at| at < held.tick),
        };
        let before = told.values().filter(|told| stands(told)).count();
        if before * 2 < voters {
            return Err(conflict(format!(
                "the tick of entry {} cannot be ended: only {before} of {voters} replicas are heard of and have not taken it in, and \
                 what the others had before it is gone; start those that are missing, or accept it",
                held.tick
            )));
        }
        let streams = self.published(id, &held).await?;
        let end = command::EndTicks {
            term: self.authority.term,
            feed: id,
            base: feed.base,
            skips: skips.clone(),
            streams,
        };
        self.propose(Command::EndTicks(end)).await?;
        let index = self.outcome.index;
        let is_done = |feed: &machine::Feed| feed.ended.last().is_some_and(|it| it.at == index);
        self.is_now(id, name, is_done)?;
        self.tell(format!(
            "feed {name}: the tick of entry {} and all after it were ended; it goes on from before it. What was published of them stays; \
             the windows that they closed are published again, under later numbers",
            held.tick
        ));
        for (lane, to) in skips {
            let from = held.stands.get(lane as usize).map_or(0, |stand| stand.cut);
            let lane = &feed.lanes[lane as usize].name;
            self.tell(format!(
                "lane {lane}: offsets {from} to {to} are never taken in"
            ));
        }
        Ok(())
    }

    /// Else the entry did not count: another one came before it.
    fn is_now(
        &self,
        id: FeedId,
        name: &str,
        is_so: impl FnOnce(&machine::Feed) -> bool,
    ) -> Result<(), Refusal> {
        let agreed = self.core.agreed();
        match agreed.machine.feeds().get(&id).is_some_and(is_so) {
            true => Ok(()),
            false => Err(conflict(format!(
                "feed {name} has changed meanwhile, or what came to it since the tick cannot be undone with it (a lane that was \
                 retired, another feed that joined it): nothing was decided; look at unisono status and try again"
            ))),
        }
    }

    /// How far the feed's streams were published, once that is known for sure: a publisher of this term has looked at each sink
    /// since the feed is held, and all that it found is agreed, and here.
    async fn published(&self, feed: FeedId, held: &Held) -> Result<Vec<StreamEnd>, Refusal> {
        let deadline = rt::now() + KNOWN_WITHIN;
        loop {
            match self.published_now(feed, held) {
                Err(reason) if rt::now() >= deadline => return Err(conflict(reason)),
                Err(_) => rt::sleep(LOOK_EVERY).await,
                Ok(ends) => return Ok(ends),
            }
        }
    }

    fn published_now(&self, feed: FeedId, held: &Held) -> Result<Vec<StreamEnd>, String> {
        let core = self.core;
        let agreed = core.agreed();
        let pipelines = agreed.machine.pipelines().iter();
        let own: Vec<_> = pipelines.filter(|(_, it)| it.feed == feed).collect();
        for sink in sinks(&agreed, &own) {
            if !core
                .reported
                .has_looked(&sink, self.authority.term, held.since)
            {
                return Err(format!(
                    "how far sink {sink} was published to is not known, since it cannot be reached: see to it first; nothing was changed"
                ));
            }
        }
        let reported = core.reported.all();
        let mut ends = Vec::new();
        for (&incarnation, pipeline) in own {
            for stream in streams_of(incarnation) {
                let (key, name) = (key_of(stream), &pipeline.name);
                let next = agreed.machine.frontier(key);
                let told = reported.values().filter_map(|sink| sink.get(&key)).max();
                if told.is_some_and(|&told| told > next) {
                    return Err(format!("what was published of {name} is not agreed yet"));
                }
                let here = core.results.next_seq(stream).0;
                let digest = match here >= next {
                    true => core.results.digest_before(stream, Seq(next)).ok().flatten(),
                    false => None,
                };
                let digest = digest.ok_or_else(|| {
                    format!(
                        "rows {here} to {next} of pipeline {name} are published and not here: they are copied from the replica that computed \
                         them, which has to be there for that; nothing was changed"
                    )
                })?;
                ends.push(StreamEnd {
                    stream: key,
                    next,
                    digest: digest.0,
                });
            }
        }
        Ok(ends)
    }
}

fn sinks(agreed: &Agreed, pipelines: &[(&u64, &Pipeline)]) -> BTreeSet<String> {
    let streams = pipelines.iter().flat_map(|&(&id, _)| streams_of(id));
    let sink = |stream| agreed.machine.sink_of(key_of(stream)).map(str::to_owned);
    streams.filter_map(sink).collect()
}

/// How far somebody has taken in the feed, if all that could have are heard.
fn furthest(id: FeedId, voters: usize, told: &BTreeMap<u16, Condition>) -> Result<u64, Refusal> {
    let taken: Vec<u64> = told
        .values()
        .filter_map(|told| told.taken.get(&id.0).copied())
        .collect();
    match taken.len() == voters {
        true => Ok(taken.into_iter().max().unwrap_or(0)),
        false => Err(conflict(format!(
            "only {} of {voters} replicas are heard of and run the feed: what the others have taken in is not known",
            taken.len()
        ))),
    }
}

fn skips(
    feed: &machine::Feed,
    held: &Held,
    starts: &[LaneStart],
) -> Result<Vec<(u32, i64)>, Refusal> {
    let mut skips = BTreeMap::new();
    for start in starts {
        let is_it = |lane: &&(u32, &machine::Lane)| {
            let source = &feed.sources[lane.1.source as usize].name;
            let name = &lane.1.name;
            !lane.1.retired && (*name == start.lane || format!("{source}/{name}") == start.lane)
        };
        let lanes: Vec<_> = (0_u32..).zip(&feed.lanes).collect();
        let mut found = lanes.iter().filter(is_it);
        let (Some(&(lane, _)), None) = (found.next(), found.next()) else {
            return Err(conflict(format!(
                "the feed has not exactly one lane {}: name it as unisono status does, source/lane",
                start.lane
            )));
        };
        let stood = held.stands.get(lane as usize).map(|stand| stand.cut);
        let stood = stood.unwrap_or(feed.lanes[lane as usize].marks.start);
        if start.offset < stood {
            return Err(conflict(format!(
                "lane {}: it stood at offset {stood}, and what lies below is taken in already",
                start.lane
            )));
        }
        if start.offset > stood {
            skips.insert(lane, start.offset);
        }
    }
    Ok(skips.into_iter().collect())
}
