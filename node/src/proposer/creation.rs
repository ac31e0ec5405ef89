//! Creating what is to be and is not yet: the cluster's name, sinks, feeds, pipelines.
//!
//! What is to be follows from an operator's command, or from the files of a majority of the voters. Whether this node's own
//! file has it makes no difference: what it lacks, a peer is asked for.

mod look;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_replication::command::{
    BeginCluster, Command, CreateFeed, CreatePipeline, ForgetRemoved, Origin, SetSink,
};
use unisono_replication::machine::Machine;
use unisono_replication::new_cluster_id;
use unisono_replication::rt::{self, Task};

use crate::agreement::Kind;
use crate::core::{Authority, Core};
use crate::status;
use crate::threads::lock;
use look::{Asks, Fault, Look, Step, Wish, home, wishes};

/// How often what cannot be created is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How often files and agreed state are compared while something is missing, and while nothing is.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_AT_REST: Duration = Duration::from_millis(500);

/// Remembers what was tried.
#[derive(Default)]
pub(super) struct Creation {
    looked: Option<Instant>,
    is_complete: bool,
    tried: BTreeMap<String, Instant>,
    /// Asks sources and peers; ticks do not wait for it.
    job: Option<Job>,
}

struct Job {
    name: String,
    done: Task<Result<Step, Fault>>,
}

impl Creation {
    /// How long nothing is looked at.
    pub(super) fn wait(&self) -> Duration {
        match self.is_complete {
            true => LOOK_AT_REST,
            false => LOOK,
        }
    }

    /// The next entry that creates something; `None` if all is there, or cannot be made now.
    pub(super) async fn next(
        &mut self,
        core: &Arc<Core>,
        authority: &Authority,
    ) -> Option<Command> {
        if let Some(job) = self.job.take_if(|job| job.done.is_finished()) {
            let done = job.done.await;
            let done = done.unwrap_or_else(|error| Err(Fault::Reason(error.to_string())));
            let said = self.say(core, authority, &job.name, done);
            if said.is_some() {
                return said;
            }
        }
        if self.job.is_some() || self.looked.is_some_and(|at| rt::since(at) < self.wait()) {
            return None;
        }
        let said = self.look(core, authority);
        self.looked = said.is_none().then(rt::now);
        said
    }

    fn look(&mut self, core: &Arc<Core>, authority: &Authority) -> Option<Command> {
        let machine = core.agreed().machine.clone();
        let term = authority.term;
        if machine.cluster().is_none() {
            let id = new_cluster_id();
            return Some(Command::BeginCluster(BeginCluster { term, id }));
        }
        let votes = status::votes(core);
        let is_forgotten = |name: &&String| votes.none_names(Kind::Pipeline, name);
        let names: Vec<_> = machine
            .removed()
            .iter()
            .filter(is_forgotten)
            .cloned()
            .collect();
        if !names.is_empty() {
            return Some(Command::ForgetRemoved(ForgetRemoved { term, names }));
        }
        let wishes = wishes(&machine, &votes);
        self.is_complete = wishes.is_empty();
        lock(&core.waiting).retain(|name, _| wishes.iter().any(|wish| wish.name == *name));
        let mut look = Look {
            core: Arc::clone(core),
            machine,
            votes,
            asks: Asks::Nobody,
        };
        for wish in wishes {
            if self
                .tried
                .get(&wish.name)
                .is_some_and(|&at| rt::since(at) < RETRY)
            {
                continue;
            }
            match look.prepare(&wish) {
                Err(Fault::Elsewhere) => {
                    look.asks = Asks::Others;
                    self.start_job(core, look, wish);
                    return None;
                }
                prepared => {
                    if let Some(command) = self.say(core, authority, &wish.name, prepared) {
                        return Some(command);
                    }
                }
            }
        }
        None
    }

    fn start_job(&mut self, core: &Arc<Core>, look: Look, wish: Wish) {
        let (name, core) = (wish.name.clone(), Arc::clone(core));
        let done = rt::spawn_blocking(move || {
            let prepared = look.prepare(&wish);
            core.arrivals.notify_one();
            prepared
        });
        self.job = Some(Job { name, done });
    }

    /// The entry that a step is; puts off what cannot be made.
    fn say(
        &mut self,
        core: &Core,
        authority: &Authority,
        name: &str,
        prepared: Result<Step, Fault>,
    ) -> Option<Command> {
        let step = match prepared {
            Ok(step) => step,
            Err(Fault::Elsewhere) => return None,
            Err(Fault::Reason(reason)) => {
                self.put_off(core, name, reason);
                return None;
            }
        };
        lock(&core.waiting).remove(name);
        self.tried.remove(name);
        self.looked = None;
        command(&core.agreed().machine, authority.term, step)
    }

    fn put_off(&mut self, core: &Core, name: &str, reason: String) {
        self.tried.insert(name.to_owned(), rt::now());
        let before = lock(&core.waiting).insert(name.to_owned(), reason.clone());
        if before.as_ref() != Some(&reason) {
            tracing::warn!(name, reason, "cannot be created yet; trying again");
        }
    }
}

/// `None`: the feed that the pipeline was to join ticks by now, so the next look makes another.
fn command(machine: &Machine, term: u64, step: Step) -> Option<Command> {
    Some(match step {
        Step::Sink { name, sink } => Command::SetSink(SetSink {
            term,
            name,
            sink,
            by: Origin::Files,
        }),
        Step::Pipeline {
            name,
            sink,
            definition,
            terms,
            sources,
            lanes,
        } => match (home(machine, &sources, &terms), lanes) {
            (Some(feed), _) => Command::CreatePipeline(CreatePipeline {
                term,
                feed,
                name,
                sink,
                definition,
            }),
            (None, Some(lanes)) => Command::CreateFeed(CreateFeed {
                term,
                sources,
                lanes,
            }),
            (None, None) => return None,
        },
    })
}
