//! The proposer: while this node leads, it makes the ticks. One proposal is in flight at a time, and each builds on the
//! agreed state that this node has read, so what it proposes after losing the lead is void.

mod aligning;
mod clocks;
mod confirm;
mod creation;
mod holding;
mod joining;
mod lanes;
mod parking;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unisono_replication::command::{Command, FeedId, FeedTick, LaneMove, Ticks};
use unisono_replication::machine;
use unisono_replication::rt;
use unisono_replication::tick::{InHand, LastTick, Metronome, next_agreed_ms};

use crate::confirm::{Confirmed, FeedQuestion};
use crate::core::{Agreed, Authority, Core};
use crate::feed::Feed;
use crate::ingest::LaneBuffer;
use crate::status;
use crate::threads::{Role, lock, test_panic};
use aligning::{Alignment, Paces};
use clocks::Clocks;
pub(crate) use clocks::wall_ms;
use confirm::Confirming;
use creation::Creation;
use holding::Holding;
use parking::Parking;

/// A feed where nothing moves ticks so often: its timers stand still between ticks.
const AT_LEAST: Duration = Duration::from_millis(500);
/// So many bytes in hand beyond the cut of one lane are a backlog, or half of what a tick may move if that is less.
const BACKLOG_BYTES: usize = 1 << 20;
/// And so many beyond the cuts of all lanes of a feed are little.
const LITTLE_BYTES: usize = 64 << 10;
/// The timers count whole milliseconds and fire late: what is due so soon is due now.
const EARLY: Duration = Duration::from_millis(1);
/// How often sources are looked at for new lanes; they are asked less often themselves.
const LOOK_AROUND: Duration = Duration::from_millis(500);
/// How long after a failed proposal the next one is made.
const PAUSE: Duration = Duration::from_millis(10);

/// Makes ticks for as long as the node runs. A runtime of this one thread: each tick has some waits, and on a pool each of
/// them would wake another thread.
pub fn run(core: Arc<Core>) {
    if let Err(error) = rt::thread::run(propose_all(Arc::clone(&core))) {
        core.fail(format!("the proposer's runtime: {error}"));
    }
}

async fn propose_all(core: Arc<Core>) {
    let mut view = core.replica.view();
    let mut applied = core.applied();
    let mut proposer = Proposer {
        metronome: Metronome {
            interval: core.config.cluster.tick_interval,
            at_least: AT_LEAST,
        },
        core: Arc::clone(&core),
        creation: Creation::default(),
        proposed: BTreeMap::new(),
        looked: None,
        confirming: Confirming::open(&core),
        holding: Holding::default(),
        parking: Parking::default(),
        paces: Paces::default(),
    };
    while !core.is_stopping() {
        let wait = match core.authority() {
            Some(authority) => proposer.beat(&authority).await,
            None => AT_LEAST,
        };
        if wait.is_zero() {
            continue;
        }
        // While this node leads, only records wake it early: each entry that it reads would do so for nothing.
        let leads = view.borrow_and_update().is_leader();
        let waits_for_blank = leads && core.authority().is_none();
        tokio::select! {
            biased;
            () = rt::sleep(wait) => {}
            () = core.arrivals.notified() => {}
            _ = view.changed() => {}
            _ = applied.changed(), if waits_for_blank => {}
        }
    }
}

/// A tick as it was proposed, whatever became of it.
#[derive(Clone, Copy)]
struct Proposed {
    at: Instant,
    agreed_ms: i64,
}

struct Proposer {
    core: Arc<Core>,
    metronome: Metronome,
    creation: Creation,
    /// Each feed's last tick from here.
    proposed: BTreeMap<FeedId, Proposed>,
    looked: Option<Instant>,
    confirming: Confirming,
    holding: Holding,
    parking: Parking,
    paces: Paces,
}

/// How far a feed's lanes can be moved.
struct Reach {
    moves: Vec<LaneMove>,
    at_end: Vec<u32>,
    in_hand: InHand,
    /// A lane moves by nobody else's word.
    alone: bool,
    /// What lanes hold that would move if another replica said that it holds the same.
    unconfirmed: InHand,
    alignment: Alignment,
}

/// What is to be said now, or how long to wait before that is asked again, unless records arrive.
enum Next {
    Say(Command),
    Wait(Duration),
}

impl Proposer {
    /// Says what is due, if anything, and tells how long there is nothing more to say.
    async fn beat(&mut self, authority: &Authority) -> Duration {
        let core = Arc::clone(&self.core);
        if let Some(command) = self.creation.next(&core, authority).await {
            self.propose(command).await;
            return Duration::ZERO;
        }
        if let Some(command) = self.holding.next(&core, authority).await {
            self.propose(Command::HoldFeed(command)).await;
            return Duration::ZERO;
        }
        if let Some(command) = self.parking.next(&core, authority).await {
            self.propose(Command::ParkFeed(command)).await;
            return Duration::ZERO;
        }
        let (held, wanted) = {
            let agreed = core.agreed();
            let held = status::held_feeds(&core, &agreed);
            for (id, feed, _) in agreed.known() {
                self.paces.measure(id, feed);
            }
            let wanted = self.wanted(&agreed, &held);
            (held, wanted)
        };
        self.confirming.gather(&core, authority.term, wanted).await;
        match self.next_entry(authority, &held) {
            Next::Say(command) => {
                self.propose(command).await;
                Duration::ZERO
            }
            Next::Wait(wait) => wait.min(self.creation.wait()),
        }
    }

    /// Proposes and waits until this node has read the entry back.
    async fn propose(&self, command: Command) {
        test_panic(Role::Proposer);
        match self.core.replica.propose(command.encode()).await {
            Ok(position) => self.core.read_up_to(position.index).await,
            Err(error) => {
                let lost = &self.core.counters.proposals_lost;
                lost.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "proposal lost");
                rt::sleep(PAUSE).await;
            }
        }
    }

    /// New lanes first, then the ticks that are due.
    fn next_entry(&mut self, authority: &Authority, held: &BTreeSet<FeedId>) -> Next {
        let core = Arc::clone(&self.core);
        let agreed = core.agreed();
        let mut pairs = joining::pairs(&agreed);
        pairs.retain(|pair| !held.contains(&pair.from) && !held.contains(&pair.into));
        if let Some(command) = joining::of_equal_cuts(&agreed, &pairs, authority.term) {
            self.proposed.remove(&command.from);
            return Next::Say(Command::JoinFeeds(command));
        }
        if self.looked.is_none_or(|at| rt::since(at) >= LOOK_AROUND) {
            for (_, feed, known) in agreed.known().filter(|(id, ..)| !held.contains(id)) {
                if let Some(command) = lanes::change(known, feed, authority.term) {
                    return Next::Say(command);
                }
            }
            self.looked = Some(rt::now());
        }
        let clocks = Clocks::read(&core);
        let mut feeds = Vec::new();
        let mut wait = AT_LEAST;
        for (id, feed, _) in agreed.known().filter(|(id, ..)| !held.contains(id)) {
            let pair = pairs.iter().find(|pair| pair.from == id);
            let limits = pair.map(|pair| pair.limits(&agreed, &feeds));
            match self.tick(&agreed, id, feed, clocks, limits.as_deref()) {
                Ok(tick) => feeds.push(tick),
                Err(due_in) => wait = wait.min(due_in),
            }
        }
        for pair in &pairs {
            let next_ms = self.next_ms(&agreed, pair.from, clocks);
            if pair.meet(&agreed, &mut feeds, next_ms) {
                break;
            }
        }
        if feeds.is_empty() {
            return Next::Wait(wait);
        }
        self.confirming.confirm_ends(&core, &agreed, &mut feeds);
        for tick in &feeds {
            self.note(&agreed, tick);
        }
        let term = authority.term;
        Next::Say(Command::Ticks(Ticks { term, feeds }))
    }

    /// The feed's next tick, or how long it is not due.
    fn tick(
        &self,
        agreed: &Agreed,
        id: FeedId,
        feed: &Feed,
        clocks: Clocks,
        limits: Option<&[i64]>,
    ) -> Result<FeedTick, Duration> {
        let state = &agreed.machine.feeds()[&id];
        let mut reach = self.reach(id, state, feed, limits);
        if reach.in_hand.max(reach.unconfirmed) == InHand::Nothing {
            // First asked to be woken, then looked again: what arrives between the two is not missed.
            for buffer in feed.lanes() {
                buffer.tell_arrival(&self.core.arrivals, 0);
            }
            reach = self.reach(id, state, feed, limits);
        }
        if self.confirming.is_disputed(&self.core, id) {
            return Err(AT_LEAST);
        }
        self.see_closing(state, feed, &mut reach);
        let due_in = self.due_in(agreed, id, reach.in_hand);
        if due_in > EARLY {
            // Nobody is asked before what is in hand is due.
            let asks_in = match reach.unconfirmed {
                InHand::Nothing => due_in,
                unconfirmed => self.due_in(agreed, id, unconfirmed),
            };
            let asks_in = asks_in.saturating_sub(EARLY).max(confirm::AGAIN);
            if reach.in_hand.max(reach.unconfirmed) == InHand::Little {
                // Not woken for each record; but it may be much more soon.
                for buffer in feed.lanes() {
                    buffer.tell_arrival(&self.core.arrivals, LITTLE_BYTES);
                }
            }
            let again_in = match reach.alignment.holds_any() {
                // Nobody says when the others have come near enough.
                true => self.metronome.interval,
                false => AT_LEAST,
            };
            return Err(asks_in.min(due_in.saturating_sub(EARLY)).min(again_in));
        }
        Ok(FeedTick {
            feed: id,
            base: state.base,
            agreed_ms: self.next_ms(agreed, id, clocks),
            clock_ms: clocks.clock_ms,
            alone: reach.alone,
            moves: reach.moves,
            empty: Vec::new(),
            at_end: reach.at_end,
        })
    }

    /// A window that can close is a reason for a tick: for this one if what it lacks is among the moves, and else for asking
    /// whether another replica holds it.
    fn see_closing(&self, state: &machine::Feed, feed: &Feed, reach: &mut Reach) {
        let known = known_cuts(state, &reach.alignment);
        if !feed.closes_beyond(&known) {
            return;
        }
        let moved = |lane: usize| {
            let step = reach.moves.iter().find(|step| step.lane as usize == lane);
            step.map_or_else(|| known(lane), |step| step.cut)
        };
        if feed.closes_beyond(moved) {
            reach.unconfirmed = reach.unconfirmed.max(InHand::Closing);
        } else {
            reach.in_hand = reach.in_hand.max(InHand::Closing);
        }
    }

    fn due_in(&self, agreed: &Agreed, id: FeedId, in_hand: InHand) -> Duration {
        let proposed = self
            .proposed
            .get(&id)
            .map(|proposed| rt::since(proposed.at));
        let seen = agreed.ticked.get(&id).map(|&at| rt::since(at));
        self.metronome.due_in(proposed.or(seen), in_hand)
    }

    /// What others have to confirm for the ticks that are due.
    fn wanted(&self, agreed: &Agreed, held: &BTreeSet<FeedId>) -> Vec<FeedQuestion> {
        let mut wanted = Vec::new();
        for (id, feed, state) in agreed.known().filter(|(id, ..)| !held.contains(id)) {
            let alignment = self.alignment(state, id, feed);
            let (mut in_hand, lanes) = confirm::wanted(state, feed, &alignment);
            let no_closing = (InHand::Little..InHand::Closing).contains(&in_hand);
            if no_closing && feed.closes_beyond(known_cuts(state, &alignment)) {
                in_hand = InHand::Closing;
            }
            if !lanes.is_empty() && self.due_in(agreed, id, in_hand) <= EARLY {
                wanted.push(FeedQuestion { feed: id, lanes });
            }
        }
        wanted
    }

    /// The agreed time of a feed's next tick.
    fn next_ms(&self, agreed: &Agreed, id: FeedId, clocks: Clocks) -> i64 {
        let seen = || agreed.ticked.get(&id).map(|&at| rt::since(at));
        let last_ms = agreed.machine.feeds()[&id].agreed_ms;
        let last = last_ms.map(|agreed_ms| LastTick {
            agreed_ms,
            seen: self.anchor(id, agreed_ms).map(rt::since).or_else(seen),
        });
        next_agreed_ms(last, clocks.median_ms, clocks.clock_ms)
    }

    fn alignment(&self, state: &machine::Feed, id: FeedId, feed: &Feed) -> Alignment {
        let most = self.core.config.cluster.tick_bytes;
        self.paces.alignment(state, (id, feed), most)
    }

    /// How far the lanes can be moved now, none beyond its limit or what another one holds.
    fn reach(
        &self,
        id: FeedId,
        state: &machine::Feed,
        feed: &Feed,
        limits: Option<&[i64]>,
    ) -> Reach {
        let mut reach = Reach {
            alignment: self.alignment(state, id, feed),
            moves: Vec::new(),
            at_end: Vec::new(),
            in_hand: InHand::Nothing,
            alone: false,
            unconfirmed: InHand::Nothing,
        };
        let (mut movable, mut unconfirmed) = (Hand::default(), Hand::default());
        let seconds = lock(&self.core.seconds);
        for (lane, (known, buffer)) in (0_u32..).zip(state.lanes.iter().zip(feed.lanes())) {
            let limit = limits.map_or(i64::MAX, |limits| limits[lane as usize]);
            let most = reach.alignment.most(lane as usize);
            let choice = (most > 0).then(|| buffer.choose_cut(known.cut, most));
            let choice = choice.flatten();
            let limit = match choice {
                None => limit,
                Some(_) => {
                    let own = |cut| buffer.fingerprint_at(cut);
                    let confirmed = seconds.confirmed(id, lane, known.cut, own);
                    reach.alone |= confirmed == Confirmed::Alone;
                    if confirmed == Confirmed::Nothing {
                        unconfirmed.add(&buffer, known.cut, most);
                    }
                    limit.min(confirm::limit(confirmed, known.cut))
                }
            };
            let choice = match choice {
                Some(choice) if choice.cut > limit => buffer.cut_up_to(limit),
                choice => choice,
            };
            let choice = choice.filter(|choice| choice.cut > known.cut);
            if let Some(choice) = choice {
                movable.add(&buffer, known.cut, most);
                reach.moves.push(LaneMove {
                    lane,
                    cut: choice.cut,
                    fingerprint: choice.fingerprint,
                });
            }
            if buffer.is_at_end(choice.map_or(known.cut, |choice| choice.cut)) {
                reach.at_end.push(lane);
            }
        }
        (reach.in_hand, reach.unconfirmed) = (movable.is(), unconfirmed.is());
        reach
    }

    /// When the feed's last tick was proposed, if that was done here: agreed time goes on from there, not from when it was
    /// read back, so that a slow disk costs no time.
    fn anchor(&self, id: FeedId, agreed_ms: i64) -> Option<Instant> {
        let proposed = self.proposed.get(&id)?;
        (proposed.agreed_ms == agreed_ms).then_some(proposed.at)
    }

    fn note(&mut self, agreed: &Agreed, tick: &FeedTick) {
        let now = rt::now();
        let last_ms = agreed.machine.feeds()[&tick.feed].agreed_ms;
        // Agreed time has whole milliseconds: the parts of one that it lacks must not add up.
        let anchor = last_ms.and_then(|last_ms| self.anchor(tick.feed, last_ms));
        let whole = |at: Instant| {
            let gone = u64::try_from(rt::since(at).as_millis()).unwrap_or(u64::MAX);
            at.checked_add(Duration::from_millis(gone))
        };
        let at = anchor.and_then(whole).unwrap_or(now);
        let agreed_ms = tick.agreed_ms;
        self.proposed.insert(tick.feed, Proposed { at, agreed_ms });
        self.paces.note(agreed, tick);
    }
}

/// The cuts; of lanes that wait for others, beyond all records.
fn known_cuts(state: &machine::Feed, alignment: &Alignment) -> impl Fn(usize) -> i64 {
    |lane| match state.lanes.get(lane) {
        Some(known) if !alignment.holds(lane) => known.cut,
        _ => i64::MAX,
    }
}

/// What lies beyond the cuts of several lanes.
#[derive(Default)]
struct Hand {
    bytes: usize,
    is_backlog: bool,
}

impl Hand {
    /// Adds a lane, of which a tick moves `most` bytes.
    fn add(&mut self, lane: &LaneBuffer, cut: i64, most: usize) {
        let bytes = lane.backlog(cut);
        self.bytes = self.bytes.saturating_add(bytes);
        self.is_backlog |= bytes >= BACKLOG_BYTES.min(most / 2);
    }

    fn is(&self) -> InHand {
        match self.bytes {
            _ if self.is_backlog => InHand::Backlog,
            0 => InHand::Nothing,
            1..LITTLE_BYTES => InHand::Little,
            _ => InHand::Some,
        }
    }
}
