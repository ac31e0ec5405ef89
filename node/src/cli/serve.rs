//! `unisono serve`: one replica, until it is asked to stop.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::error::CliError;
use crate::config::NodeConfig;
use crate::handles;
use crate::serve::{ServeError, serve as run};
use crate::telemetry;
use crate::threads;

/// How often a replica looks whether the process that started it is still there.
const LOOK_FOR_PARENT: Duration = Duration::from_millis(200);

/// Run a replica
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// The node's config, unisono.toml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Which log lines are written: a level, or a filter such as info,unisono::publisher=debug
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// End when this process is gone: for programs that start replicas
    #[arg(long, value_name = "PID")]
    parent_pid: Option<i32>,
}

/// Runs a replica.
///
/// # Errors
/// Usage (64): the config, or the filter of log lines. Failure (1): it could not start, or had to end. A panic of any
/// thread ends the process with 70.
pub fn serve(args: &ServeArgs) -> Result<(), CliError> {
    telemetry::init(args.log.as_deref()).map_err(|error| CliError::usage(error.to_string()))?;
    threads::end_process_on_panic();
    let config = NodeConfig::load(&args.config)?;
    handles::take_all();
    run(config, asked_to_stop(args.parent_pid)).map_err(|error| report(&error))
}

/// Resolves on SIGTERM, on SIGINT, or when the parent is gone.
async fn asked_to_stop(parent: Option<i32>) {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(signal) => signal,
        Err(error) => {
            tracing::error!(%error, "SIGTERM cannot be caught: it will end the replica at once");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        () = parent_gone(parent) => {}
    }
}

async fn parent_gone(parent: Option<i32>) {
    let Some(parent) = parent.and_then(Pid::from_raw) else {
        return std::future::pending().await;
    };
    while test_kill_process(parent).is_ok() {
        tokio::time::sleep(LOOK_FOR_PARENT).await;
    }
}

fn report(error: &ServeError) -> CliError {
    let failure = CliError::failure(error.to_string());
    match error {
        ServeError::Secret { .. } => CliError::usage(error.to_string()).hint(
            "make one with `openssl rand -hex 32`, and give all nodes the same file, which their user alone can read",
        ),
        ServeError::Listen { .. } => failure.hint(
            "stop the program that has this port, or give the node another address in its config",
        ),
        ServeError::Data(_)
        | ServeError::Replica(_)
        | ServeError::System(_)
        | ServeError::Fatal(_) => failure,
    }
}
