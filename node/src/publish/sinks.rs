//! A thread for each agreed sink: it comes when the sink is agreed, and goes when it is no more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unisono_replication::command::SinkEntry;
use unisono_replication::rt::{self, Handle};

use super::publisher;
use super::sink::kafka::{self, KafkaSink};
use crate::agreement::reach_sink;
use crate::core::Core;
use crate::threads::{Role, Thread, lock, spawn};

/// Without news, the agreed sinks are looked at again after so long.
const LOOK: Duration = Duration::from_millis(500);

/// The threads of the sinks.
#[derive(Default)]
pub struct Publishers(Mutex<BTreeMap<String, Thread>>);

impl Publishers {
    /// All of them, to be waited for.
    pub fn take(&self) -> Vec<Thread> {
        std::mem::take(&mut *lock(&self.0)).into_values().collect()
    }
}

/// Starts threads for as long as the node runs.
pub async fn tend(core: Arc<Core>, publishers: Arc<Publishers>) {
    let mut news = core.news();
    while !core.is_stopping() {
        start_missing(&core, &publishers);
        tokio::select! {
            biased;
            _ = news.changed() => {}
            () = rt::sleep(LOOK) => {}
        }
    }
}

fn start_missing(core: &Arc<Core>, publishers: &Publishers) {
    let mut running = lock(&publishers.0);
    running.retain(|_, thread| !thread.is_finished());
    for name in core.agreed().machine.sinks().keys() {
        if running.contains_key(name) {
            continue;
        }
        let (own, handle, sink) = (Arc::clone(core), Handle::current(), name.clone());
        let started = spawn(Role::Sink, Some(name), move || run(&own, &sink, &handle));
        match started {
            Ok(thread) => {
                running.insert(name.clone(), thread);
            }
            Err(error) => return core.fail(format!("cannot start the thread of a sink: {error}")),
        }
    }
}

/// Publishes as the sink is agreed; connects anew when that changes.
fn run(core: &Arc<Core>, name: &str, runtime: &Handle) {
    while let Some((agreed, cluster)) = agreed(core, name).filter(|_| !core.is_stopping()) {
        let connect = || {
            let config = reach_sink(&core.config, name, &agreed)?;
            let sink = KafkaSink::connect(&kafka::settings(&config, cluster));
            sink.map_err(|error| error.to_string())
        };
        let is_current = || core.agreed().machine.sinks().get(name) == Some(&agreed);
        #[cfg(feature = "simulation")]
        if rt::simulated::is_active() {
            let connect = || Ok(super::sink::simulated::SimulatedSink::new(name));
            publisher::run(core, name, runtime, connect, is_current);
            continue;
        }
        publisher::run(core, name, runtime, connect, is_current);
    }
    core.sinks.forget(name);
}

fn agreed(core: &Core, name: &str) -> Option<(SinkEntry, u128)> {
    let agreed = core.agreed();
    let sink = agreed.machine.sinks().get(name)?.clone();
    Some((sink, agreed.machine.cluster()?))
}
