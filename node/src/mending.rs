//! The task that compares rows which nobody asked for, and sees to feeds in doubt.

mod evidence;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unisono_engine::row::StreamId;
use unisono_replication::command::FeedId;
use unisono_replication::rt;

use crate::alike::{self, Asked, Told};
use crate::core::Core;
use crate::doubt::{Dispute, Doubt, Own, Stage, Verdict, judge};
use crate::ids::{key_of, streams_of};
use crate::snapshots::NodeSnapshots;

/// How often feeds in doubt are looked at.
const EVERY: Duration = Duration::from_millis(200);
/// The leader asks a follower for the rows that it is about to publish: only what it did not ask for in time is asked here.
const IN_TIME: Duration = Duration::from_millis(100);
/// Without anything in doubt, and without news.
const AT_REST: Duration = Duration::from_secs(5);
/// How often a state is asked for that no peer has yet.
const AGAIN: Duration = Duration::from_secs(1);
/// A majority may take so long to tell.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long nobody has the rows: those who answer have not computed them.
const NOBODY: Duration = Duration::from_secs(2);

/// Compares, and heals, for as long as the node runs.
pub async fn run(core: Arc<Core>, snapshots: Arc<NodeSnapshots>) {
    let mut news = core.news();
    let mut late = BTreeMap::new();
    loop {
        forget_gone(&core);
        compare(&core, &mut late).await;
        let feeds = core.doubts.board().feeds();
        for &feed in &feeds {
            attend(&core, &snapshots, feed).await;
        }
        let rest = match (feeds.is_empty(), late.is_empty()) {
            (false, _) => EVERY,
            (true, false) => IN_TIME,
            (true, true) => AT_REST,
        };
        tokio::select! {
            biased;
            () = core.doubts.raised.notified() => {}
            // More often than this, nothing is late.
            _ = news.changed(), if late.is_empty() && feeds.is_empty() => rt::sleep(IN_TIME).await,
            () = rt::sleep(rest) => {}
        }
    }
}

/// Where a feed's pipelines went on in another one, whatever differs is found again there.
fn forget_gone(core: &Core) {
    let agreed = core.agreed();
    let pipelines = agreed.machine.pipelines();
    core.doubts.board().retain(
        |stream| pipelines.contains_key(&stream.incarnation.0),
        |feed| agreed.machine.has_pipelines(feed),
    );
}

/// Compares what is published and was not compared in time; after a start all that is here. `late`: since when, and up to where.
async fn compare(core: &Arc<Core>, late: &mut BTreeMap<StreamId, (u64, Instant)>) {
    let mut feeds = BTreeMap::new();
    let mut due: Asked = Vec::new();
    {
        let agreed = core.agreed();
        let board = core.doubts.board();
        let pipelines = agreed.machine.pipelines().iter();
        let streams = pipelines.flat_map(|(&id, pipeline)| {
            streams_of(id).map(|stream| {
                (
                    stream,
                    pipeline.feed,
                    agreed.machine.frontier(key_of(stream)),
                )
            })
        });
        for (stream, feed, frontier) in streams {
            let next = frontier.min(core.results.next_seq(stream).0);
            let alike = board.alike_below(stream);
            if next <= alike.unwrap_or(0) || board.of(feed).is_some() {
                late.remove(&stream);
                continue;
            }
            let (until, since) = *late.entry(stream).or_insert((next, rt::now()));
            if alike.is_some_and(|alike| alike >= until) {
                late.insert(stream, (next, rt::now()));
            } else if alike.is_none() || rt::since(since) >= IN_TIME {
                feeds.insert(stream, feed);
                due.push((stream, next));
            }
        }
    }
    if due.is_empty() {
        return;
    }
    let (others, voters) = alike::others(core);
    if voters == 0 {
        return;
    }
    let (told, own) = match others.is_empty() {
        true => (BTreeMap::new(), Vec::new()),
        false => (
            alike::all(core, &due).await,
            alike::own(core, &due, 0).await,
        ),
    };
    for (at, &(stream, next)) in due.iter().enumerate() {
        let digest_of = |told: &Vec<Told>| told.get(at).and_then(|told| told.digest);
        let here = digest_of(&own);
        let theirs: Vec<u128> = told.values().filter_map(digest_of).collect();
        let waited = late
            .get(&stream)
            .map_or(Duration::ZERO, |late| rt::since(late.1));
        if others.is_empty() || theirs.iter().any(|&theirs| Some(theirs) == here) {
            core.doubts.alike(stream, next);
        } else if !theirs.is_empty() && here.is_some() {
            core.doubts.raise(feeds[&stream], stream, next);
        } else if theirs.is_empty() && !told.is_empty() && waited >= NOBODY {
            // They were published by one replica's word alone.
            core.counters
                .rows_served_alone
                .fetch_add(1, Ordering::Relaxed);
            core.doubts.alike(stream, next);
        }
    }
}

/// Goes on with a feed in doubt.
async fn attend(core: &Arc<Core>, snapshots: &Arc<NodeSnapshots>, feed: FeedId) {
    let doubt = core.doubts.board().of(feed).cloned();
    let Some(doubt) = doubt else { return };
    let asked: Asked = doubt
        .streams
        .iter()
        .map(|(&stream, dispute)| (stream, dispute.next))
        .collect();
    let told = alike::all(core, &asked).await;
    let own = alike::own(core, &asked, 0).await;
    let (mut right, mut all_right) = (doubt.state.clone(), doubt.state.is_none());
    let mut other = None;
    for (at, dispute) in doubt.streams.values().enumerate() {
        let digest_of = |told: &Vec<Told>| told.get(at).and_then(|told| told.digest);
        let here = digest_of(&own);
        let told = told.iter();
        let told: BTreeMap<u16, u128> = told
            .filter_map(|(&number, told)| Some((number, digest_of(told)?)))
            .collect();
        let with = match (here, dispute.computed) {
            (Some(before), Some(now)) => Own::Twice(before, now),
            (Some(digest), None) => Own::Digest(digest),
            (None, _) => Own::Nothing,
        };
        let differs = |(&number, &theirs): (&u16, &u128)| (Some(theirs) != here).then_some(number);
        other = other.or(told.iter().find_map(differs));
        match judge(with, &told, alike::others(core).1) {
            Verdict::Right => {}
            Verdict::Odd(numbers) => {
                all_right = false;
                right = Some(match right {
                    Some(known) => known.intersection(&numbers).copied().collect(),
                    None => numbers,
                });
            }
            // With one other, who has the same by now, there is nothing to judge.
            Verdict::Open => {
                let agree = !told.is_empty() && told.values().all(|&theirs| Some(theirs) == here);
                all_right &= agree && !doubt.is_out();
            }
        }
    }
    let computes = own.iter().any(|told| told.digest.is_none());
    match right {
        None if all_right => clear(core, feed, &doubt),
        None => tie(core, snapshots, feed, &doubt, other).await,
        Some(right) => {
            let runs = core.agreed().feeds.contains_key(&feed) && !doubt.has_diverged();
            if doubt.stage == Stage::Odd && runs && computes {
                return;
            }
            if doubt.stage != Stage::Odd || runs {
                step_out(core, snapshots, feed, &right).await;
            }
            if doubt.tried.is_none_or(|at| rt::since(at) >= AGAIN) {
                core.doubts
                    .board()
                    .change(feed, |doubt| doubt.tried = Some(rt::now()));
                take(core, snapshots, feed, &right).await;
            }
        }
    }
}

fn clear(core: &Core, feed: FeedId, doubt: &Doubt) {
    core.doubts.board().clear(feed);
    match doubt.stage {
        Stage::Asking => tracing::info!(feed = feed.0, "this replica's rows are those of most"),
        _ => tracing::warn!(
            feed = feed.0,
            "this replica's rows are those of others again"
        ),
    }
    core.notify();
}

/// Others are right: this replica's state and rows of the feed count no more.
async fn step_out(
    core: &Arc<Core>,
    snapshots: &Arc<NodeSnapshots>,
    feed: FeedId,
    right: &BTreeSet<u16>,
) {
    core.doubts
        .board()
        .change(feed, |doubt| doubt.stage = Stage::Odd);
    core.counters.odd.fetch_add(1, Ordering::Relaxed);
    evidence::keep(core, feed, right.iter().copied()).await;
    let reason = core.doubts.out(feed).unwrap_or_default();
    let own = Arc::clone(snapshots);
    let ended = rt::blocking(move || own.end_feed(feed, reason)).await;
    if let Err(error) = ended.and_then(|ended| ended) {
        tracing::warn!(feed = feed.0, %error, "the feed is not ended yet");
    }
}

/// Takes state and rows from one that is right, if its state is as far as this node's log reaches back.
async fn take(
    core: &Arc<Core>,
    snapshots: &Arc<NodeSnapshots>,
    feed: FeedId,
    right: &BTreeSet<u16>,
) {
    let taken = core.doubts.board().of(feed).map_or(0, |doubt| doubt.taken);
    for &peer in right {
        match snapshots.take_right(core, feed, taken, peer).await {
            Ok(Some(index)) => {
                tracing::warn!(
                    feed = feed.0,
                    peer,
                    index,
                    "the feed's state and rows are taken from a peer that is right"
                );
                core.doubts.board().change(feed, |doubt| {
                    doubt.taken = index;
                    doubt.state = None;
                    for (&stream, dispute) in &mut doubt.streams {
                        // It is whole when it has the same rows up to there, which it may have to compute first.
                        let next = core.results.next_seq(stream).0;
                        *dispute = Dispute {
                            next: dispute.next.max(next),
                            computed: None,
                            ..*dispute
                        };
                    }
                });
                return;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(feed = feed.0, peer, %error, "no state of the feed from this peer");
            }
        }
    }
}

/// There is no majority.
async fn tie(
    core: &Arc<Core>,
    snapshots: &Arc<NodeSnapshots>,
    feed: FeedId,
    doubt: &Doubt,
    other: Option<u16>,
) {
    match doubt.stage {
        // Nothing can be told from a word against one's own, and the state may be damaged.
        _ if doubt.has_diverged() => {}
        Stage::Asking if rt::since(doubt.since) >= PATIENCE && other.is_some() => {
            evidence::keep(core, feed, other).await;
            replay(core, snapshots, feed).await;
        }
        Stage::Replaying(end) => {
            let index = core.agreed().feeds.get(&feed).map(|feed| feed.index());
            if index.is_none_or(|index| index >= end) {
                become_tied(core, feed);
            }
        }
        Stage::Asking | Stage::Tied | Stage::Odd => {}
    }
}

async fn replay(core: &Arc<Core>, snapshots: &Arc<NodeSnapshots>, feed: FeedId) {
    let own = Arc::clone(snapshots);
    let replayed = rt::blocking(move || own.replay(feed)).await;
    match replayed.and_then(|replayed: io::Result<u64>| replayed) {
        Ok(end) => core
            .doubts
            .board()
            .change(feed, |doubt| doubt.stage = Stage::Replaying(end)),
        Err(error) => {
            tracing::warn!(feed = feed.0, %error, "the feed is not computed again");
            become_tied(core, feed);
        }
    }
}

fn become_tied(core: &Core, feed: FeedId) {
    core.doubts
        .board()
        .change(feed, |doubt| doubt.stage = Stage::Tied);
    let reason = core.doubts.trouble(feed).unwrap_or_default();
    tracing::error!(feed = feed.0, reason, "rows are in dispute");
}
