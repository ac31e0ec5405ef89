//! Before a tick: has the others say what they hold of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unisono_replication::command::{FeedId, FeedTick, LaneEmpty};
use unisono_replication::machine;
use unisono_replication::rt::{self, Handle};
use unisono_replication::tick::InHand;

use super::Hand;
use super::aligning::Alignment;
use crate::confirm::{Confirmed, FeedQuestion, LaneQuestion, Question};
use crate::core::{Agreed, Core};
use crate::feed::Feed;
use crate::handover::hand_over;
use crate::ingest::LaneBuffer;
use crate::lead::{Heard, Lines, Sent};
use crate::threads::lock;

/// How long the answers to one question are waited for; later ones count for the next tick.
const GATHER: Duration = Duration::from_millis(20);
/// How long the first one who is asked has before all others are asked as well.
const FIRST: Duration = Duration::from_millis(2);
/// All are asked so often, to know whose word counts.
const ALL: Duration = Duration::from_millis(200);
/// How long after a question that brought nothing new the next one is asked.
pub(super) const AGAIN: Duration = Duration::from_millis(3);
/// A leader that was outvoted hands over, and not again for so long.
const COOL_DOWN: Duration = Duration::from_secs(5);
const OUTVOTED: &str =
    "two other replicas hold the same records of it and this one other ones: it is read again";

/// The leader's lines, and what it noticed.
pub(super) struct Confirming {
    lines: Lines,
    /// Who helped last is asked first: one other is enough.
    first: Option<u16>,
    asked_all: Option<Instant>,
    handed_over: Option<Instant>,
}

impl Confirming {
    /// Lines to all peers; their tasks run on the runtime that this is called on.
    pub(super) fn open(core: &Core) -> Self {
        Self {
            lines: Lines::open(core, &Handle::current()),
            first: None,
            asked_all: None,
            handed_over: None,
        }
    }

    /// Asks the others, and waits until they have confirmed all, or nothing more is to come.
    pub(super) async fn gather(&mut self, core: &Core, term: u64, wanted: Vec<FeedQuestion>) {
        begin(core, term);
        if wanted.is_empty() {
            return;
        }
        let question = Arc::new(Question {
            feeds: wanted,
            rows: Vec::new(),
        });
        let sent = Sent {
            question: Arc::clone(&question),
            index: core.agreed().index,
            at: rt::now(),
        };
        // Answers to earlier questions count as well, and whoever gave one can be asked again.
        while let Some(heard) = self.lines.try_next() {
            note(core, &heard);
        }
        let everybody = self.asked_all.is_none_or(|at| rt::since(at) >= ALL);
        let first = self.first.filter(|_| !everybody);
        if first.is_none() || !self.ask_until(core, &sent, first, FIRST).await {
            self.asked_all = Some(sent.at);
            self.ask_until(core, &sent, None, GATHER).await;
        }
        core.counters.tick_waits.add(rt::since(sent.at));
        for (replica, feed) in lock(&core.seconds).lapse(rt::now()) {
            tracing::warn!(
                replica,
                feed = feed.0,
                "it confirms nothing: its word does not count for now"
            );
        }
        self.yield_if_outvoted(core, &question.feeds).await;
    }

    /// Asks one replica, or all, until there is progress with each lane; `false`: there is none by then.
    async fn ask_until(
        &mut self,
        core: &Core,
        sent: &Sent,
        only: Option<u16>,
        within: Duration,
    ) -> bool {
        let feeds = &sent.question.feeds;
        lock(&core.seconds).asked(only, feeds, sent.at);
        self.lines.ask(sent, only);
        let end = rt::sleep(within);
        tokio::pin!(end);
        while self.lines.waits() {
            tokio::select! {
                biased;
                heard = self.lines.next() => {
                    note(core, &heard);
                    if progresses(core, feeds) {
                        self.first = Some(heard.number);
                        return true;
                    }
                }
                () = &mut end => break,
            }
        }
        progresses(core, feeds)
    }

    /// Says of no lane that it is at its end where nobody else saw that; says of those that are where they end, if no record
    /// lies before.
    pub(super) fn confirm_ends(&self, core: &Core, agreed: &Agreed, feeds: &mut [FeedTick]) {
        let (seconds, now) = (lock(&core.seconds), rt::now());
        for tick in feeds {
            let state = &agreed.machine.feeds()[&tick.feed];
            let Some(feed) = agreed.feeds.get(&tick.feed) else {
                tick.at_end.clear();
                continue;
            };
            let buffers = feed.lanes();
            let (moves, empty) = (&tick.moves, &mut tick.empty);
            tick.at_end.retain(|&lane| {
                let known = &state.lanes[lane as usize];
                let moved = moves.iter().find(|step| step.lane == lane);
                let cut = moved.map_or(known.cut, |step| step.cut);
                let Some(end) = buffers[lane as usize].end_beyond(cut) else {
                    return false;
                };
                let end = seconds.confirmed_end(tick.feed, lane, (cut, end), now);
                let empty_to = end.filter(|&to| to > known.hole.of(cut));
                empty.extend(empty_to.map(|empty_to| LaneEmpty { lane, empty_to }));
                end.is_some()
            });
        }
    }

    /// Whether as many as are left to make a majority read something else than was agreed: nothing more is added to it.
    pub(super) fn is_disputed(&self, core: &Core, feed: FeedId) -> bool {
        let voters = core.replica.view().borrow().voters.len();
        lock(&core.seconds).disputing(feed) * 2 >= voters.max(2)
    }

    /// Two others hold the same records, and this node other ones: it must not lead.
    async fn yield_if_outvoted(&mut self, core: &Core, asked: &[FeedQuestion]) {
        let Some((feed, lane)) = outvoted(core, asked) else {
            return;
        };
        if self.handed_over.is_some_and(|at| rt::since(at) < COOL_DOWN) {
            return;
        }
        self.handed_over = Some(rt::now());
        if let Some(buffer) = lane_of(core, feed, lane) {
            buffer.read_again(OUTVOTED);
        }
        core.counters.disagreements.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            feed = feed.0,
            lane,
            "this node reads other records than the two others: it hands over, and reads the lane again"
        );
        if let Err(error) = hand_over(core, &[]).await {
            tracing::warn!(%error, "no hand-over");
        }
    }
}

/// Who votes counts, this node apart.
fn begin(core: &Core, term: u64) {
    let mut others = core.replica.view().borrow().voters.clone();
    others.retain(|&number| number != core.config.node.id);
    lock(&core.seconds).begin(term, &others, rt::now());
}

fn lane_of(core: &Core, feed: FeedId, lane: u32) -> Option<Arc<LaneBuffer>> {
    let agreed = core.agreed();
    let lanes = agreed.feeds.get(&feed)?.lanes();
    lanes.get(lane as usize).cloned()
}

fn note(core: &Core, heard: &Heard) {
    let sent = &heard.sent;
    let mut seconds = lock(&core.seconds);
    if let Some(answer) = &heard.answer {
        let feeds = &sent.question.feeds;
        seconds.answered(heard.number, feeds, answer, sent.index, sent.at, rt::now());
    }
}

/// What to ask of a feed's lanes, and how much is in hand.
pub(super) fn wanted(
    state: &machine::Feed,
    feed: &Feed,
    alignment: &Alignment,
) -> (InHand, Vec<LaneQuestion>) {
    let (mut hand, mut lanes) = (Hand::default(), Vec::new());
    for (lane, (agreed, buffer)) in (0_u32..).zip(state.lanes.iter().zip(feed.lanes())) {
        let known = agreed.cut;
        let most = alignment.most(lane as usize);
        let choice = (most > 0).then(|| buffer.choose_cut(known, most));
        let choice = choice.flatten();
        if choice.is_some() {
            hand.add(&buffer, known, most);
        }
        let cut = choice.map_or(known, |choice| choice.cut);
        if choice.is_some() || buffer.is_at_end(cut) {
            lanes.push(LaneQuestion { lane, known, cut });
        }
    }
    (hand.is(), lanes)
}

/// How far a lane may go.
pub(super) fn limit(confirmed: Confirmed, known: i64) -> i64 {
    match confirmed {
        Confirmed::UpTo(cut) => cut,
        Confirmed::Alone => i64::MAX,
        Confirmed::Nothing | Confirmed::Differs { .. } => known,
    }
}

/// Whether each lane can be moved, or is at its end, by somebody's word or because nobody's counts.
fn progresses(core: &Core, asked: &[FeedQuestion]) -> bool {
    let (agreed, seconds, now) = (core.agreed(), lock(&core.seconds), rt::now());
    asked.iter().all(|of| {
        let Some(feed) = agreed.feeds.get(&of.feed) else {
            return true;
        };
        let buffers = feed.lanes();
        of.lanes.iter().all(|lane| {
            let own = |cut| buffers.get(lane.lane as usize)?.fingerprint_at(cut);
            if lane.cut == lane.known {
                let end = (lane.cut, lane.cut);
                return seconds
                    .confirmed_end(of.feed, lane.lane, end, now)
                    .is_some();
            }
            match seconds.confirmed(of.feed, lane.lane, lane.known, own) {
                Confirmed::UpTo(_) | Confirmed::Alone => true,
                Confirmed::Nothing | Confirmed::Differs { .. } => false,
            }
        })
    })
}

fn outvoted(core: &Core, asked: &[FeedQuestion]) -> Option<(FeedId, u32)> {
    let (agreed, seconds) = (core.agreed(), lock(&core.seconds));
    for of in asked {
        let Some(feed) = agreed.feeds.get(&of.feed) else {
            continue;
        };
        let buffers = feed.lanes();
        let is_outvoted = |lane: &&LaneQuestion| {
            let own = |cut| buffers.get(lane.lane as usize)?.fingerprint_at(cut);
            let confirmed = seconds.confirmed(of.feed, lane.lane, lane.known, own);
            confirmed == Confirmed::Differs { outvoted: true }
        };
        if let Some(lane) = of.lanes.iter().find(is_outvoted) {
            return Some((of.feed, lane.lane));
        }
    }
    None
}
