//! The leader's lines to the others: one task for each, with one question on its way at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use unisono_replication::Line;
use unisono_replication::rt::{self, Handle};

use crate::confirm::{Answer, Question, decode, encode};
use crate::core::Core;
use crate::threads::{Role, spawn_task};

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(1);

/// A question on its way.
#[derive(Clone, Debug)]
pub struct Sent {
    /// What was asked.
    pub question: Arc<Question>,
    /// The index of the log up to which the leader had read.
    pub index: u64,
    /// When it was asked.
    pub at: Instant,
}

/// What came of it.
pub struct Heard {
    /// Whose answer.
    pub number: u16,
    /// To what.
    pub sent: Sent,
    /// `None`: it did not answer.
    pub answer: Option<Answer>,
}

/// All of them.
pub struct Lines {
    lines: BTreeMap<u16, UnboundedSender<Sent>>,
    /// Those who have not answered yet.
    busy: BTreeMap<u16, bool>,
    answers: UnboundedReceiver<Heard>,
}

impl Lines {
    /// Lines to all other replicas; their tasks run on `runtime`.
    pub fn open(core: &Core, runtime: &Handle) -> Self {
        let (sender, answers) = unbounded_channel();
        let open = |number: u16| {
            let (questions, receiver) = unbounded_channel();
            let line = core.replica.line(number)?;
            let asks = ask(number, line, receiver, sender.clone());
            spawn_task(Role::Lines, runtime, asks);
            Some((number, questions))
        };
        let numbers = core.config.cluster.peers.keys().copied();
        let others = numbers.filter(|&number| number != core.config.node.id);
        let lines: BTreeMap<_, _> = others.filter_map(open).collect();
        Self {
            busy: lines.keys().map(|&number| (number, false)).collect(),
            lines,
            answers,
        }
    }

    /// Asks those who have nothing to answer yet, or one of them.
    pub fn ask(&mut self, sent: &Sent, only: Option<u16>) {
        for (number, line) in &self.lines {
            if only.is_some_and(|only| only != *number) {
                continue;
            }
            let busy = self.busy.entry(*number).or_default();
            if !*busy && line.send(sent.clone()).is_ok() {
                *busy = true;
            }
        }
    }

    /// Whether somebody has yet to answer.
    pub fn waits(&self) -> bool {
        self.busy.values().any(|&busy| busy)
    }

    /// An answer that is there already.
    pub fn try_next(&mut self) -> Option<Heard> {
        let heard = self.answers.try_recv().ok()?;
        self.busy.insert(heard.number, false);
        Some(heard)
    }

    /// The next answer, or the next failure to answer.
    pub async fn next(&mut self) -> Heard {
        match self.answers.recv().await {
            Some(heard) => {
                self.busy.insert(heard.number, false);
                heard
            }
            // There are no lines: nobody will answer.
            None => std::future::pending().await,
        }
    }
}

async fn ask(
    number: u16,
    mut line: Line,
    mut questions: UnboundedReceiver<Sent>,
    answers: UnboundedSender<Heard>,
) {
    while let Some(sent) = questions.recv().await {
        let asked = line.ask(&encode(&*sent.question), WITHIN).await;
        if asked.is_err() {
            // One that is gone is not asked again in the same moment.
            rt::sleep(WITHIN / 20).await;
        }
        let answer = asked.ok().and_then(|bytes| decode(&bytes));
        let heard = Heard {
            number,
            sent,
            answer,
        };
        if answers.send(heard).is_err() {
            return;
        }
    }
}
