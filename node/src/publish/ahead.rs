//! A sink that has more rows than are computed here. Just after a takeover that is nothing: the feed has yet to work off
//! what was committed. Once it has, and still lacks them, the rows are not this cluster's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_engine::row::{Seq, StreamId};
use unisono_replication::command::FeedId;
use unisono_replication::rt;
use unisono_replication::rt::mpsc::{Receiver, TryRecvError};

use super::sink::{Frontier, PublishError};
use super::streams_of;
use crate::core::Core;
use crate::feed::{Feed, FeedCheckpoint};

/// Most feeds are there within milliseconds: only then they are asked, for it is not free.
const PATIENCE: Duration = Duration::from_secs(1);

/// Streams of which a sink has rows that are not computed here.
pub(super) struct Ahead {
    streams: BTreeMap<StreamId, Seq>,
    since: Instant,
    /// States of feeds after all that was committed when the sink was acquired, on their way.
    asked: BTreeMap<FeedId, Receiver<FeedCheckpoint>>,
}

/// What is known of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Some are still on their way.
    Open,
    /// All rows that the sink has were computed here too.
    Settled,
}

impl Ahead {
    /// `None` if the sink has nothing that is not here.
    pub(super) fn of(core: &Core, sink: &str, frontier: &Frontier) -> Option<Self> {
        let streams = streams_of(&core.agreed(), sink).into_iter();
        let streams: BTreeMap<StreamId, Seq> = streams
            .map(|stream| (stream, Seq(frontier.next(stream))))
            .filter(|&(stream, next)| next > core.results.next_seq(stream))
            .collect();
        (!streams.is_empty()).then(|| Self {
            streams,
            since: rt::now(),
            asked: BTreeMap::new(),
        })
    }

    /// Looks again.
    pub(super) fn judge(&mut self, core: &Core, sink: &str) -> Result<Judgement, PublishError> {
        let known = streams_of(&core.agreed(), sink);
        self.streams.retain(|stream, next| {
            known.contains(stream) && *next > core.results.next_seq(*stream)
        });
        if self.streams.is_empty() {
            return Ok(Judgement::Settled);
        }
        if rt::since(self.since) < PATIENCE {
            return Ok(Judgement::Open);
        }
        for feed in feeds_of(core, self.streams.keys()) {
            match self.asked.get(&feed.id).map(Receiver::try_recv) {
                None => {
                    self.asked.insert(feed.id, feed.checkpoint(0));
                }
                Some(Err(TryRecvError::Empty)) => {}
                // It has stopped, and says why itself: that is no reason to accuse the sink.
                Some(Err(TryRecvError::Disconnected)) => {
                    self.asked.remove(&feed.id);
                    self.since = rt::now();
                }
                Some(Ok(state)) => {
                    self.asked.remove(&feed.id);
                    self.since = rt::now();
                    self.compare(sink, &state)?;
                }
            }
        }
        Ok(Judgement::Open)
    }

    /// The feed has worked off all that was committed before the sink was acquired, and so all that a predecessor can have
    /// published.
    fn compare(&self, sink: &str, state: &FeedCheckpoint) -> Result<(), PublishError> {
        for head in &state.heads {
            let Some(&published) = self.streams.get(&head.stream) else {
                continue;
            };
            if head.next < published {
                let (sink, incarnation) = (sink.to_owned(), head.stream.incarnation.0);
                let reason = format!(
                    "its frontier says that pipeline {incarnation} was published up to row {}, but this cluster has computed \
                     rows up to {} only, ever: the rows there are not these (were data directories put back from a copy?); \
                     nothing is published there any more: give the pipeline a sink with another topic, frontier_topic and \
                     transactional_id by unisono apply",
                    published.0, head.next.0
                );
                return Err(PublishError::Foreign { sink, reason });
            }
        }
        Ok(())
    }
}

/// The feeds of these streams' pipelines that run here.
fn feeds_of<'a>(core: &Core, streams: impl Iterator<Item = &'a StreamId>) -> Vec<Arc<Feed>> {
    let agreed = core.agreed();
    let mut feeds: BTreeMap<FeedId, Arc<Feed>> = BTreeMap::new();
    for stream in streams {
        let pipeline = agreed.machine.pipelines().get(&stream.incarnation.0);
        if let Some(feed) = pipeline.and_then(|pipeline| agreed.feeds.get(&pipeline.feed)) {
            feeds.insert(feed.id, Arc::clone(feed));
        }
    }
    feeds.into_values().collect()
}
