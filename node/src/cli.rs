//! The command line.

pub mod apply;
pub mod check;
#[cfg(feature = "demo")]
pub mod demo;
pub mod error;
pub mod eval;
mod machine;
pub mod query;
pub mod remote;
pub mod rows;
pub mod serve;
pub mod status;
pub mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use error::{CliError, EXIT_USAGE};

/// Running statistics that never break: replicas that read the same streams, and one curve.
#[derive(Debug, Parser)]
#[command(name = "unisono", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    /// Check configs and pipeline files; says all that is wrong with them
    Check(check::CheckArgs),
    /// Show the cluster and its pipelines
    Status(status::StatusArgs),
    /// Show published rows of a pipeline
    Query(query::QueryArgs),
    Apply(apply::ApplyArgs),
    Pipelines(apply::PipelinesArgs),
    Feeds(apply::FeedsArgs),
    Members(apply::MembersArgs),
    Transfer(apply::TransferArgs),
    Drain(apply::DrainArgs),
    /// Compute the rows of files, without a cluster
    Eval(eval::EvalArgs),
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// (this program was built without it)
    #[cfg(not(feature = "demo"))]
    Demo,
}

/// Parses the arguments, runs the command, and gives the process's exit code: 0, 64 for wrong usage or config (the same
/// command fails again), 1 for a failure (restarting can help). `serve` may also end with 70, after a panic.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing can be done about a closed terminal.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(EXIT_USAGE),
            };
        }
    };
    match dispatch(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

fn dispatch(command: &Command) -> Result<(), CliError> {
    match command {
        Command::Serve(args) => serve::serve(args),
        Command::Check(args) => check::check(args),
        Command::Status(args) => status::status(args),
        Command::Query(args) => query::query(args),
        Command::Apply(args) => apply::apply(args),
        Command::Pipelines(args) => apply::pipelines(args),
        Command::Feeds(args) => apply::feeds(args),
        Command::Members(args) => apply::members(args),
        Command::Transfer(args) => apply::transfer(args),
        Command::Drain(args) => apply::drain(args),
        Command::Eval(args) => eval::eval(args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::demo(args),
        #[cfg(not(feature = "demo"))]
        Command::Demo => Err(CliError::usage(
            "this program was built without the demo: build it with the cargo feature demo, which is on by default",
        )),
    }
}
