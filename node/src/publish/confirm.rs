//! Rows are published once another replica has computed the same ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unisono_engine::row::{Seq, StreamId};
use unisono_replication::command::FeedId;
use unisono_replication::rt::{self, Handle};

use crate::confirm::{Question, RowsAnswer, RowsQuestion};
use crate::core::Core;
use crate::ids::key_of;
use crate::lead::{Heard, Lines, Sent};
use crate::threads::lock;

/// How long after an answer that did not help the question is asked again.
const AGAIN: Duration = Duration::from_millis(2);

/// Asks the other replicas for one publisher.
pub(super) struct RowsConfirm {
    lines: Lines,
    runtime: Handle,
}

/// Why rows are not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unconfirmed {
    /// This node does not know yet that it leads, or no more.
    Early,
    /// Others computed other rows, and nobody the same.
    Differs {
        /// As many as are a majority without this node agree.
        outvoted: bool,
    },
}

/// A stream whose rows are about to be published.
#[derive(Clone, Copy)]
pub(super) struct Moved {
    pub(super) stream: StreamId,
    /// One past the last of them.
    pub(super) next: u64,
    pub(super) rows: u64,
}

struct Asked {
    feed: FeedId,
    question: RowsQuestion,
    rows: u64,
    stream: StreamId,
    same: bool,
    other: BTreeSet<u16>,
}

impl RowsConfirm {
    pub(super) fn open(core: &Core, runtime: &Handle) -> Self {
        Self {
            lines: Lines::open(core, runtime),
            runtime: runtime.clone(),
        }
    }

    /// Waits until each of these streams was computed alike by another replica whose word counts, or nobody's does.
    pub(super) fn confirm(
        &mut self,
        core: &Core,
        term: u64,
        moved: &[Moved],
    ) -> Result<(), Unconfirmed> {
        if lock(&core.seconds).term() != Some(term) {
            return Err(Unconfirmed::Early);
        }
        let mut asked = questions(core, moved);
        let rows = asked.iter().map(|asked| asked.question).collect();
        let question = Arc::new(Question {
            feeds: Vec::new(),
            rows,
        });
        let began = rt::now();
        loop {
            match standing(core, &asked, began) {
                Standing::Done { alone } => {
                    core.counters.row_waits.add(rt::since(began));
                    core.counters.rows_alone.fetch_add(alone, Ordering::Relaxed);
                    for of in &asked {
                        core.doubts.alike(of.stream, of.question.next);
                    }
                    return Ok(());
                }
                Standing::Differs { outvoted } => {
                    core.counters.disagreements.fetch_add(1, Ordering::Relaxed);
                    for of in asked.iter().filter(|of| !of.same && !of.other.is_empty()) {
                        core.doubts.raise(of.feed, of.stream, of.question.next);
                    }
                    return Err(Unconfirmed::Differs { outvoted });
                }
                Standing::Open if core.is_stopping() => return Err(Unconfirmed::Early),
                Standing::Open => {}
            }
            let sent = Sent {
                question: Arc::clone(&question),
                index: 0,
                at: rt::now(),
            };
            self.lines.ask(&sent, None);
            let heard = self
                .runtime
                .block_on(async { rt::timeout(AGAIN, self.lines.next()).await });
            if let Ok(heard) = heard {
                note(&mut asked, &question, &heard);
            }
        }
    }
}

fn questions(core: &Core, moved: &[Moved]) -> Vec<Asked> {
    let agreed = core.agreed();
    let ask = |moved: &Moved| {
        let pipeline = agreed
            .machine
            .pipelines()
            .get(&moved.stream.incarnation.0)?;
        let before = core.results.digest_before(moved.stream, Seq(moved.next));
        Some(Asked {
            feed: pipeline.feed,
            question: RowsQuestion {
                stream: key_of(moved.stream),
                next: moved.next,
                // A digest that cannot be read here is nobody else's.
                digest: before.ok().flatten().unwrap_or_default().0,
            },
            rows: moved.rows,
            stream: moved.stream,
            same: false,
            other: BTreeSet::new(),
        })
    };
    moved.iter().filter_map(ask).collect()
}

fn note(asked: &mut [Asked], question: &Arc<Question>, heard: &Heard) {
    // An answer to an earlier question may be about other rows.
    if !Arc::ptr_eq(question, &heard.sent.question) {
        return;
    }
    let answers = heard.answer.as_ref().map_or(&[][..], |answer| &answer.rows);
    for (asked, answer) in asked.iter_mut().zip(answers) {
        match answer {
            RowsAnswer::Same => asked.same = true,
            RowsAnswer::Other => drop(asked.other.insert(heard.number)),
            RowsAnswer::Unknown => {}
        }
    }
}

enum Standing {
    Done { alone: u64 },
    Differs { outvoted: bool },
    Open,
}

/// Where the question stands; those who were waited for too long lose their word.
fn standing(core: &Core, asked: &[Asked], began: Instant) -> Standing {
    let mut seconds = lock(&core.seconds);
    let mut alone = 0;
    let mut open = false;
    for of in asked {
        if of.same {
            tell_odd(of);
            continue;
        }
        let mut eligible = seconds.eligible(of.feed);
        eligible.retain(|number| !of.other.contains(number));
        if of.other.len() > 1 {
            return Standing::Differs { outvoted: true };
        }
        for &number in &eligible {
            if rt::since(began) >= seconds.patience(number) {
                tracing::warn!(
                    replica = number,
                    feed = of.feed.0,
                    "it does not confirm rows: its word does not count for now"
                );
                seconds.lost(number, of.feed);
            }
        }
        eligible.retain(|&number| rt::since(began) < seconds.patience(number));
        match (eligible.is_empty(), of.other.is_empty()) {
            (false, _) => open = true,
            (true, true) => alone += of.rows,
            (true, false) => return Standing::Differs { outvoted: false },
        }
    }
    if open {
        Standing::Open
    } else {
        Standing::Done { alone }
    }
}

/// Another one computed other rows than this node and a third one.
fn tell_odd(of: &Asked) {
    for replica in &of.other {
        let (incarnation, below) = (of.question.stream.incarnation, of.question.next);
        tracing::error!(
            replica,
            incarnation,
            below,
            "it has other rows than this node and a third one, and will take theirs"
        );
    }
}

/// Which streams are counted how often, from two frontiers.
pub(super) fn moved(
    before: &BTreeMap<StreamId, u64>,
    after: &BTreeMap<StreamId, u64>,
) -> Vec<Moved> {
    let of = |(&stream, &next): (&StreamId, &u64)| {
        let from = before.get(&stream).copied().unwrap_or(0);
        (next > from).then(|| Moved {
            stream,
            next,
            rows: next - from,
        })
    };
    after.iter().filter_map(of).collect()
}
