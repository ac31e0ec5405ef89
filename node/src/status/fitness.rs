//! The leader compares itself with the others, and hands over to one that is fitter.
//!
//! What is told comes late and has to last for a while. Where this node itself has a doubt, it does not wait for that: it asks the
//! others whether they hear of a source that is silent here, and sees in what they acknowledge whether their disks write what
//! hangs here. What all of them lack alike is no reason, however long it lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use unisono_replication::command::FeedId;
use unisono_replication::rt;

use super::condition::own_without;
use super::{FRESH, peers, writing};
use crate::core::Core;
use crate::handover;
use crate::health::HUNG;
use crate::lead::Silences;
use crate::threads::lock;

/// How often it is looked whether another one is fitter, and how often the leader looks.
const LOOK: Duration = Duration::from_millis(100);
const LEADER_LOOKS: Duration = Duration::from_millis(50);
/// And where it is in doubt about itself.
const IN_DOUBT: Duration = Duration::from_millis(20);
/// A write that others have done, and that has taken so long here, hangs; what is merely slow takes less.
const HANGS: Duration = Duration::from_millis(300);

/// Gives the lead to a fitter replica when there is one, for as long as the node runs.
pub async fn watch_fitness(core: Arc<Core>) {
    let mut silences = Silences::open(&core);
    let mut pause = LOOK;
    loop {
        rt::sleep(pause).await;
        let leads = core.replica.view().borrow().is_leader();
        let unfit = match leads {
            true => Unfit::look(&core, &mut silences).await,
            // Whoever does not lead has nothing to give.
            false => Unfit::default(),
        };
        pause = match (leads, unfit.in_doubt) {
            (false, _) => LOOK,
            (true, false) => LEADER_LOOKS,
            (true, true) => IN_DOUBT,
        };
        let own = own_without(&core, &unfit.silent, unfit.hung).score;
        let voters = core.replica.view().borrow().voters.clone();
        let others = peers(&core, FRESH / 2).into_iter();
        let others = others.filter(|(number, _)| voters.contains(number));
        let others: BTreeMap<_, _> = others
            .map(|(number, told)| (number, told.condition.score))
            .collect();
        let others = (&others, &unfit.proven);
        let fitter = lock(&core.health.fitness).look(leads, own, others, rt::now());
        if let Some(fitter) = fitter {
            hand_over(&core, own, &fitter, unfit).await;
        }
    }
}

async fn hand_over(core: &Core, own: u32, fitter: &[u16], unfit: Unfit) {
    let Unfit { silent, proven, .. } = unfit;
    let (silent, writing) = (silent.len(), writing(core).unwrap_or_default());
    tracing::warn!(
        own,
        ?fitter,
        ?proven,
        silent_feeds = silent,
        writing_ms = writing.as_millis(),
        "others can read and publish more pipelines than this node: it hands the lead over"
    );
    core.counters.unfit.fetch_add(1, Ordering::Relaxed);
    if let Err(error) = handover::hand_over(core, fitter).await {
        tracing::warn!(%error, "no hand-over");
    }
}

/// In what this node, which leads, is unfit, and others are proven not to be.
struct Unfit {
    /// Feeds of which nothing comes here.
    silent: BTreeSet<FeedId>,
    /// A write to the disk hangs that takes so long.
    hung: Duration,
    /// Who does better in all of that.
    proven: BTreeSet<u16>,
    in_doubt: bool,
}

impl Default for Unfit {
    fn default() -> Self {
        Self {
            silent: BTreeSet::new(),
            hung: HUNG,
            proven: BTreeSet::new(),
            in_doubt: false,
        }
    }
}

impl Unfit {
    async fn look(core: &Core, silences: &mut Silences) -> Self {
        let mut unfit = Self::default();
        if core.replica.pulse().writing.is_some_and(|age| age >= HANGS) {
            unfit.in_doubt = true;
            unfit.proven = core.replica.durable_elsewhere();
            if !unfit.proven.is_empty() {
                unfit.hung = HANGS;
                return unfit;
            }
        }
        let silent = Silences::of(core);
        if !silent.is_empty() {
            unfit.in_doubt = true;
            unfit.proven = silences.ask(core, &silent).await;
            if !unfit.proven.is_empty() {
                unfit.silent = silent.into_keys().collect();
            }
        }
        unfit
    }
}
