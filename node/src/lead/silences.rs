//! A source of which the leader hears nothing: do the others hear of it? One that is slow for everybody is no reason to give
//! the lead away, and one that is gone for the leader alone is one at once. So the others are asked, as soon as there is a doubt
//! and as long as there is, and only then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use unisono_replication::command::FeedId;
use unisono_replication::rt::{self, Handle};

use super::{Heard, Lines, Sent};
use crate::confirm::{FeedQuestion, FeedState, Question};
use crate::core::Core;
use crate::health::silence::Silence;

/// How long the answers to one question are waited for; later ones count for the next.
const GATHER: Duration = Duration::from_millis(20);

/// The leader's lines for its silences.
pub struct Silences {
    lines: Lines,
}

impl Silences {
    /// Lines to all other replicas, which are connected when there is a doubt.
    pub fn open(core: &Core) -> Self {
        Self {
            lines: Lines::open(core, &Handle::current()),
        }
    }

    /// Feeds of which this node has not heard all sources for longer than it is usual.
    pub fn of(core: &Core) -> BTreeMap<FeedId, Silence> {
        let agreed = core.agreed();
        let mut silences = BTreeMap::new();
        // One that has stopped reads no more, and its lanes know nothing new.
        let running = agreed.feeds.iter().filter(|(_, feed)| !feed.has_stopped());
        for (&id, feed) in running {
            let lanes = feed.lanes();
            let unheard = lanes.iter().map(|lane| lane.unheard());
            let doubt = unheard
                .max()
                .and_then(|(age, slowest)| Silence::of(age, slowest, rt::now()));
            silences.extend(doubt.map(|doubt| (id, doubt)));
        }
        silences
    }

    /// Who of the others runs all these feeds, and has heard of their sources so much later than this node that it is not
    /// the sources that are slow.
    pub async fn ask(
        &mut self,
        core: &Core,
        silences: &BTreeMap<FeedId, Silence>,
    ) -> BTreeSet<u16> {
        let asked = |&feed: &FeedId| FeedQuestion {
            feed,
            lanes: Vec::new(),
        };
        let sent = Sent {
            question: Arc::new(Question {
                feeds: silences.keys().map(asked).collect(),
                rows: Vec::new(),
            }),
            index: core.agreed().index,
            at: rt::now(),
        };
        while self.lines.try_next().is_some() {}
        self.lines.ask(&sent, None);
        let mut better = BTreeSet::new();
        while self.lines.waits() {
            let left = GATHER.saturating_sub(rt::since(sent.at));
            let heard = tokio::select! {
                biased;
                heard = self.lines.next() => heard,
                () = rt::sleep(left) => break,
            };
            if is_better(&heard, silences) {
                better.insert(heard.number);
            }
        }
        better
    }
}

fn is_better(heard: &Heard, silences: &BTreeMap<FeedId, Silence>) -> bool {
    let Some(answer) = &heard.answer else {
        return false;
    };
    silences.iter().all(|(id, doubt)| {
        let theirs = answer.feeds.iter().find(|theirs| theirs.feed == *id);
        theirs.is_some_and(|theirs| {
            let unheard = Duration::from_millis(theirs.unheard_ms.into());
            theirs.state == FeedState::Runs && doubt.is_confirmed(heard.sent.at, unheard)
        })
    })
}
