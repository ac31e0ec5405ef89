//! What operators want of the cluster. Any node takes it; one that does not lead passes it on to the one that does, which
//! has it agreed and answers when it is committed and applied there.

mod feeds;
mod leader;
mod refusal;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use unisono_api::Order;
use unisono_replication::HandOverError;
use unisono_replication::rt::{self, Handle};

use crate::agreement;
use crate::alike;
use crate::core::Core;
use crate::status;
pub use refusal::Refusal;

/// The first byte of a command that is passed on, which tells it from questions.
pub const TAG: u8 = b'C';
/// The version of what is passed on, and of answers; the first byte of each.
const VERSION: u8 = 1;
/// How long a leader is looked for.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long this node may take to read what the leader has read.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The last entry of the agreed log that belongs to it; 0 for a change of members.
    index: u64,
    /// For people, a line for each thing.
    pub told: Vec<String>,
}

/// Has an order carried out, here or by the leader.
///
/// # Errors
/// Why not, and whether anything was changed.
pub async fn order(core: &Arc<Core>, order: &Order) -> Result<Outcome, Refusal> {
    let deadline = rt::now() + LOOK_WITHIN;
    loop {
        let leader = core.replica.view().borrow().leader;
        let outcome = match leader {
            Some(leader) if leader == core.config.node.id => leader::carry_out(core, order).await,
            Some(leader) => pass_on(core, leader, order).await,
            None => Err(Refusal::NotLeader),
        };
        match outcome {
            Err(Refusal::NotLeader) if rt::now() < deadline => {
                rt::sleep(LOOK_EVERY).await;
            }
            Ok(outcome) => {
                // Whoever asks this node next finds it done.
                let read = core.read_up_to(outcome.index);
                let _ = rt::timeout(READ_WITHIN, read).await;
                return Ok(outcome);
            }
            refused => return refused,
        }
    }
}

/// Has this node lead only while no other can, or like any other again; tells what came of it.
pub async fn drain(core: &Core, drained: bool) -> String {
    let own = core.config.node.id;
    core.drained.store(drained, Ordering::Relaxed);
    tracing::info!(drained, "an operator wants it so");
    if !drained {
        return format!("node {own}: leads like any other when it is its turn");
    }
    match status::give_away(core).await {
        Ok(()) => format!("node {own}: gave the lead away"),
        Err(HandOverError::NotLeader) => format!("node {own}: does not lead"),
        Err(error) => format!(
            "node {own}: leads on, for {error}; it gives the lead away as soon as another one can take it"
        ),
    }
}

async fn pass_on(core: &Core, leader: u16, order: &Order) -> Result<Outcome, Refusal> {
    let unknown = |error: &dyn std::fmt::Display| {
        Refusal::Unknown(format!(
            "node {leader}, which leads, gave no answer: {error}"
        ))
    };
    let question = postcard::to_extend(order, vec![TAG, VERSION]);
    let question = question.map_err(|error| unknown(&error))?;
    let answer = core.replica.ask(leader, question).await;
    let answer = answer.map_err(|error| unknown(&error))?;
    match answer.split_first() {
        Some((&VERSION, body)) => postcard::from_bytes::<Result<Outcome, Refusal>>(body)
            .map_err(|error| unknown(&error))?,
        _ => Err(unknown(
            &"it runs another version: run the same Unisono on all replicas",
        )),
    }
}

/// Answers a peer.
pub type Answerer = Box<dyn Fn(&[u8]) -> io::Result<Vec<u8>> + Send + Sync>;

/// Carries out what peers pass on and answers what they ask of this node's files and rows, for as long as the node is there.
#[must_use]
pub fn for_peers(core: &Arc<Core>, runtime: &Handle) -> Answerer {
    // Raft, which is part of the core, holds this.
    let (core, runtime): (Weak<Core>, _) = (Arc::downgrade(core), runtime.clone());
    Box::new(move |bytes| {
        let core = core.upgrade();
        let core = core.ok_or_else(|| io::Error::other("the node is stopping"))?;
        let outcome = match bytes {
            [TAG, VERSION, body @ ..] => {
                let order: Order = postcard::from_bytes(body).map_err(io::Error::other)?;
                runtime.block_on(leader::carry_out(&core, &order))
            }
            [TAG, ..] => return Err(io::Error::other("another version's command")),
            [alike::TAG, ..] => return alike::answer(&core, bytes),
            question => return agreement::answer(&core.config, question),
        };
        postcard::to_extend(&outcome, vec![VERSION]).map_err(io::Error::other)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use unisono_api::dto::{AppliedPipeline, AppliedSink, Apply};

    use super::*;
    use crate::golden;

    #[test]
    fn what_is_passed_on_and_answered_is_read_from_and_written_to_the_golden_bytes() {
        let text = |text: &str| text.to_owned();
        let order = Order::Apply(Apply {
            sinks: vec![AppliedSink {
                name: text("out"),
                definition: text("{}"),
            }],
            pipelines: vec![AppliedPipeline {
                name: text("p"),
                sink: text("out"),
                definition: text("{}"),
            }],
        });
        let encoded = postcard::to_stdvec(&(&order, Order::RemoveMember(3))).unwrap();
        let bytes = golden::bytes("admin-order", &encoded);
        let (read, _): (Order, Order) = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, order);
        let outcome = Outcome {
            index: 300,
            told: vec![text("done")],
        };
        let refused: Result<Outcome, Refusal> = Err(Refusal::Conflict(text("no")));
        let encoded = postcard::to_stdvec(&(Ok::<_, Refusal>(&outcome), &refused)).unwrap();
        let bytes = golden::bytes("admin-answer", &encoded);
        type Answers = (Result<Outcome, Refusal>, Result<Outcome, Refusal>);
        let read: Answers = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, (Ok(outcome), refused));
    }
}
