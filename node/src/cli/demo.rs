//! `unisono demo`: three replicas, a stream of orders, and leaders that die or are unfit while the curve goes on.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use unisono_chaos::fault::Fault;
use unisono_chaos::folder::DrillFolder;
use unisono_chaos::generator::GeneratorOptions;
use unisono_chaos::report::Report;
use unisono_chaos::run::{RunOptions, SharedProgress, run};
use unisono_chaos::stage::StageOptions;

use crate::cli::error::CliError;

mod curve;
mod plain;
mod screen;
mod view;

/// Watch three replicas publish one unbroken curve while their leaders are killed or made unfit.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// How long orders flow, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Deal the leader a fault every so many seconds; 0: none
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    fault_every: u64,
    /// Which faults, by turns
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "kill,slow-disk,hung-disk,blind,wrong-record,drift"
    )]
    faults: Vec<Fault>,
    /// No view: end with one line of JSON
    #[arg(long)]
    json: bool,
    /// Use this Kafka broker for input and output, instead of files and the built-in sink
    #[arg(long, value_name = "HOST:PORT")]
    kafka: Option<String>,
    /// Seed of the orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Orders in a second, on average
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    rate: u32,
}

/// The demo on its way, and the means to end it.
struct Course {
    runtime: Runtime,
    task: JoinHandle<anyhow::Result<Report>>,
    progress: SharedProgress,
    stop: watch::Sender<bool>,
}

/// Runs the demo and prints its verdict.
///
/// # Errors
/// Usage (64): a broker's address without a port. Failure (1): it could not run, was broken off, or the published curve
/// has a gap, a duplicate or a wrong row; then the folder with all evidence is kept and named.
pub fn demo(args: &DemoArgs) -> Result<(), CliError> {
    let folder = DrillFolder::create().map_err(failure)?;
    let options = run_options(args, &folder)?;
    let outcome = watch_course(args, options);
    let report = match outcome {
        Ok(Some(report)) => report,
        Ok(None) => {
            return Err(CliError::failure(
                "the demo was broken off before its verdict",
            ));
        }
        Err(error) => return Err(keep_evidence(error, folder)),
    };
    let text = if args.json {
        report.json_line()
    } else {
        report.text()
    };
    // A reader that has gone away is no reason to fail.
    let _ = writeln!(std::io::stdout(), "{text}");
    if report.verdict.is_clean() {
        return Ok(());
    }
    let mut error = CliError::failure("the published curve is broken");
    if args.json {
        error = report
            .verdict
            .notes
            .iter()
            .fold(error, |error, note| error.detail(note));
    }
    Err(keep_evidence(error, folder))
}

fn failure(error: anyhow::Error) -> CliError {
    let mut causes = error.chain().map(ToString::to_string);
    let primary = causes.next().unwrap_or_else(|| "the demo failed".into());
    causes.fold(CliError::failure(primary), CliError::detail)
}

fn keep_evidence(error: CliError, folder: DrillFolder) -> CliError {
    let replicas_ran = folder.path().join("data-1").exists();
    if !replicas_ran {
        return error;
    }
    let kept = folder.keep();
    error.hint(format!(
        "configs, data, logs and input are kept in {}",
        kept.display()
    ))
}

/// Starts the course and shows it; `None`: it was broken off.
fn watch_course(args: &DemoArgs, options: RunOptions) -> Result<Option<Report>, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CliError::failure(format!("cannot start the demo: {error}")))?;
    let progress = SharedProgress::default();
    let (stop, stopped) = watch::channel(false);
    let shown = Arc::clone(&progress);
    let task = runtime.spawn(async move { run(&options, &shown, stopped).await });
    let abort = task.abort_handle();
    runtime.spawn(end_on_signals(stop.clone(), abort));
    let course = Course {
        runtime,
        task,
        progress,
        stop,
    };
    let showing = match (args.json, std::io::stdout().is_terminal()) {
        (true, _) => Ok(()),
        (false, true) => screen::show(&course),
        (false, false) => plain::show(&course),
    };
    if let Err(error) = showing {
        course.task.abort();
        return Err(
            CliError::failure(format!("cannot draw on the terminal: {error}"))
                .hint("try --json, or send the output to a file"),
        );
    }
    match course.runtime.block_on(course.task) {
        Ok(report) => report.map(Some).map_err(failure),
        Err(error) if error.is_cancelled() => Ok(None),
        Err(error) => Err(CliError::failure(format!("the demo broke down: {error}"))),
    }
}

fn run_options(args: &DemoArgs, folder: &DrillFolder) -> Result<RunOptions, CliError> {
    let has_port = |brokers: &str| {
        let port = |broker: &str| {
            broker
                .rsplit_once(':')
                .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        };
        brokers.split(',').all(port)
    };
    if let Some(brokers) = args.kafka.as_deref().filter(|brokers| !has_port(brokers)) {
        return Err(CliError::usage(format!("--kafka {brokers}: not HOST:PORT"))
            .hint("for a broker on this machine: --kafka 127.0.0.1:9092"));
    }
    let binary: PathBuf = std::env::current_exe()
        .map_err(|error| CliError::failure(format!("cannot find this program's file: {error}")))?;
    let generator = GeneratorOptions {
        rate: args.rate,
        seed: args.seed,
        late_share: 0.0,
    };
    let stage = StageOptions {
        round_trip: None,
        binary,
        dir: folder.path().to_owned(),
        kafka: args.kafka.clone(),
        gates: Vec::new(),
        generator,
        checkpoint_interval: None,
    };
    let fault_every = (args.fault_every > 0).then(|| Duration::from_secs(args.fault_every));
    Ok(RunOptions {
        stage,
        duration: Duration::from_secs(args.seconds),
        faults: args.faults.clone(),
        fault_every,
    })
}

/// The first signal ends the orders early, and the verdict follows; the second breaks off.
async fn end_on_signals(stop: watch::Sender<bool>, abort: tokio::task::AbortHandle) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    for _ in 0..2 {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if *stop.borrow() {
            break;
        }
        stop.send_replace(true);
    }
    abort.abort();
}
