//! The built-in sink: the rows are in every replica's results log already, and an entry of the agreed log moves the
//! frontier below which all replicas serve them. The fence is the term: an entry of a deposed leader is void.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use unisono_replication::command::{Command, FrontierMoves, StreamKey};
use unisono_replication::rt::{self, Handle};

use super::{Bounds, Frontier, PublishError, PublishRow, Sink};
use crate::core::{Agreed, Authority, Core};
use crate::definition::BUILTIN_SINK;
use crate::ids::key_of;
use crate::publish::streams_of;

/// How often a wait for the agreed log looks whether the node stops.
const LOOK: Duration = Duration::from_millis(50);

/// The agreed log as a sink.
pub struct BuiltinSink {
    core: Arc<Core>,
    runtime: Handle,
    held: Option<Authority>,
}

impl BuiltinSink {
    /// Not acquired.
    #[must_use]
    pub fn new(core: Arc<Core>, runtime: Handle) -> Self {
        Self {
            core,
            runtime,
            held: None,
        }
    }

    /// Has the quorum take an entry that moves frontiers, and reads it back.
    fn agree(&self, moves: FrontierMoves) -> Result<(), String> {
        let agreed = async {
            let proposed = self.core.replica.propose(Command::Frontier(moves).encode());
            let position = proposed.await.map_err(|error| error.to_string())?;
            self.core.read_up_to(position.index).await;
            Ok(())
        };
        let stopping = async {
            while !self.core.is_stopping() {
                rt::sleep(LOOK).await;
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                result = agreed => result,
                () = stopping => Err("the node stops".to_owned()),
            }
        })
    }
}

impl Sink for BuiltinSink {
    fn bounds(&self) -> Option<Bounds> {
        None
    }

    /// The authority is the fence: an entry of this term was read back, so no older one can count any more.
    fn acquire(&mut self) -> Result<Frontier, PublishError> {
        let Some(authority) = self.core.authority() else {
            return Err(fenced());
        };
        let agreed = self.core.agreed();
        let streams = streams_of(&agreed, BUILTIN_SINK);
        let known = |stream| (stream, agreed.machine.frontier(key_of(stream)));
        let frontier = streams.into_iter().map(known).collect();
        drop(agreed);
        self.held = Some(authority);
        Ok(Frontier::of(frontier))
    }

    fn publish(
        &mut self,
        _batch: &[PublishRow<'_>],
        frontier: &Frontier,
    ) -> Result<(), PublishError> {
        let Some(authority) = self.held.take() else {
            return Err(fenced());
        };
        let next: Vec<_> = {
            let agreed = self.core.agreed();
            let streams = frontier.streams.iter();
            let next = streams.map(|(&stream, &next)| (key_of(stream), next));
            next.filter(|&(key, next)| is_ours(&agreed, key) && next > agreed.machine.frontier(key))
                .collect()
        };
        let term = authority.term;
        let moves = FrontierMoves {
            term,
            next: next.clone(),
            sink: BUILTIN_SINK.to_owned(),
        };
        if let Err(reason) = self.agree(moves) {
            let counters = &self.core.counters;
            counters.proposals_lost.fetch_add(1, Ordering::Relaxed);
            let sink = BUILTIN_SINK.to_owned();
            return Err(PublishError::Unknown { sink, reason });
        }
        // An entry of a term that has ended is void, though it stands in the log.
        let agreed = self.core.agreed();
        let moved = |&(key, next)| !is_ours(&agreed, key) || agreed.machine.frontier(key) >= next;
        if !next.iter().all(moved) {
            return Err(fenced());
        }
        drop(agreed);
        self.held = Some(authority);
        Ok(())
    }

    fn release(&mut self) {
        self.held = None;
    }
}

/// Whether the stream is there and goes nowhere else.
fn is_ours(agreed: &Agreed, key: StreamKey) -> bool {
    agreed.machine.sink_of(key) == Some(BUILTIN_SINK)
}

fn fenced() -> PublishError {
    PublishError::Fenced {
        sink: BUILTIN_SINK.to_owned(),
    }
}
