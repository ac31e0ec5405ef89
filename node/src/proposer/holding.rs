//! A tick that was made alone, and that most replicas read otherwise: the leader has the feed held.
//!
//! Each replica tells what it reads otherwise than is agreed once it has read it twice. If a majority of the voters tell the
//! same, it is the log that is wrong; whoever leads proposes that, with all that was told. A tick that another replica had
//! confirmed is no such case: then those who read something else now read it again and again, until their source is mended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use unisono_replication::command::{Decider, Dispute, FeedId, HoldFeed, Told};
use unisono_replication::rt;

use crate::core::{Authority, Core};
use crate::disputed::{FoundTick, Wanted, find};
use crate::handover::hand_over;
use crate::health::TakenOtherwise;
use crate::status;

/// How often is looked.
const LOOK: Duration = Duration::from_millis(200);
/// How long after one hand-over for this the next one is tried.
const COOL_DOWN: Duration = Duration::from_secs(5);

/// What the leader remembers of disputes.
#[derive(Default)]
pub(super) struct Holding {
    looked: Option<Instant>,
    handed_over: Option<Instant>,
    /// Disputes about ticks that another replica had confirmed, or an operator accepted.
    settled: BTreeSet<TakenOtherwise>,
}

/// What is told of one stretch by all who read the same there.
struct Alike {
    what: TakenOtherwise,
    nodes: Vec<u16>,
}

impl Holding {
    /// The entry that holds a feed, if one is due.
    pub(super) async fn next(&mut self, core: &Core, authority: &Authority) -> Option<HoldFeed> {
        if self.looked.is_some_and(|at| rt::since(at) < LOOK) {
            return None;
        }
        self.looked = Some(rt::now());
        let Alike { what, nodes } = self.majority(core)?;
        let feed = FeedId(what.feed);
        let wanted = Wanted::Move {
            lane: what.lane,
            from: what.from,
            to: what.to,
        };
        let found = find(core, feed, wanted);
        let found = found.inspect_err(|error| tracing::warn!(%error, "the agreed log is not read"));
        match found.ok()? {
            Some(tick) if tick.alone && !is_accepted(core, feed, tick.index) => {
                hold(core, authority.term, &what, &nodes, tick)
            }
            Some(_) => {
                self.settled.insert(what);
                None
            }
            // Those who tell it have kept the log: they have not taken it in.
            None => {
                self.hand_over(core, &nodes).await;
                None
            }
        }
    }

    /// What a majority of the voters read alike, and otherwise than the log says.
    fn majority(&self, core: &Core) -> Option<Alike> {
        let voters = core.replica.view().borrow().voters.clone();
        let mut told: BTreeMap<TakenOtherwise, Vec<u16>> = BTreeMap::new();
        let peers = status::peers(core, status::FRESH).into_iter();
        let peers = peers.map(|(node, told)| (node, told.condition.disputes));
        let own = (core.config.node.id, status::disputes(&core.agreed()));
        for (node, disputes) in peers.chain([own]) {
            for dispute in disputes.into_iter().filter(|_| voters.contains(&node)) {
                told.entry(dispute).or_default().push(node);
            }
        }
        let agreed = core.agreed();
        let known = |id| agreed.machine.feeds().get(&FeedId(id));
        let is_open = |what: &TakenOtherwise| {
            known(what.feed).is_some_and(|feed| feed.held.is_none()) && !self.settled.contains(what)
        };
        told.into_iter()
            .find(|(what, nodes)| nodes.len() * 2 > voters.len() && is_open(what))
            .map(|(what, nodes)| Alike { what, nodes })
    }

    async fn hand_over(&mut self, core: &Core, nodes: &[u16]) {
        let cools = self.handed_over.is_some_and(|at| rt::since(at) < COOL_DOWN);
        if cools || nodes.contains(&core.config.node.id) {
            return;
        }
        self.handed_over = Some(rt::now());
        tracing::error!(
            ?nodes,
            "others read otherwise what this node has taken in: one of them is to lead"
        );
        if let Err(error) = hand_over(core, nodes).await {
            tracing::warn!(%error, "no hand-over");
        }
    }
}

fn is_accepted(core: &Core, feed: FeedId, tick: u64) -> bool {
    let agreed = core.agreed();
    let feed = agreed.machine.feeds().get(&feed);
    feed.is_some_and(|feed| feed.accepted == Some(tick))
}

fn hold(
    core: &Core,
    term: u64,
    what: &TakenOtherwise,
    nodes: &[u16],
    tick: FoundTick,
) -> Option<HoldFeed> {
    let feed = FeedId(what.feed);
    let base = core.agreed().machine.feeds().get(&feed)?.base;
    let told = |&node: &u16| Told {
        node,
        cut: what.cut,
        fingerprint: what.fingerprint,
    };
    Some(HoldFeed {
        term,
        feed,
        base,
        tick: tick.index,
        stands: tick.stands,
        alone: tick.alone,
        by: Decider::Majority,
        dispute: Some(Dispute {
            lane: what.lane,
            from: what.from,
            to: what.to,
            agreed: what.agreed,
            told: nodes.iter().map(told).collect(),
        }),
    })
}
