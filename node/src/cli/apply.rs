//! `unisono apply`, `unisono pipelines`, `unisono feeds`, `unisono members`, `unisono transfer`, `unisono drain`: what an operator
//! wants of the cluster.

use std::path::{Path, PathBuf};

use unisono_api::Order;
use unisono_api::client::{Client, ClientError};
use unisono_api::dto::{AppliedPipeline, AppliedSink, Apply, Done, EndTicks, LaneStart};

use super::error::CliError;
use super::remote::{DEFAULT_URL, node_error, print, runtime};
use crate::config::{FileKind, NodeConfig};
use crate::definition::PipelineDefinition;

/// Have the cluster agree on what a file says
///
/// The file is a pipeline's, or a node's config, whose sinks and pipelines are all applied. What is agreed otherwise is
/// replaced: a pipeline ends, with its rows, and begins anew as another incarnation. What the file lacks stays as it is.
#[derive(Clone, Debug, clap::Args)]
pub struct ApplyArgs {
    /// A pipeline file, or a node's config
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    node: NodeArgs,
}

/// Which node is asked.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeArgs {
    /// The HTTP address of any node
    #[arg(long, default_value = DEFAULT_URL)]
    url: String,
}

/// End a pipeline, or hold its publishing
#[derive(Clone, Debug, clap::Args)]
pub struct PipelinesArgs {
    #[command(subcommand)]
    command: PipelineCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum PipelineCommand {
    /// End a pipeline: its rows are no longer published or served, and files that name it do not bring it back
    Remove(PipelineArgs),
    /// Hold the publishing of its rows, which are computed all the same
    Pause(PipelineArgs),
    /// Publish the rows that were held, and go on
    Resume(PipelineArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct PipelineArgs {
    /// The pipeline's name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    node: NodeArgs,
}

/// Decide what becomes of a feed that is held, or have one held
#[derive(Clone, Debug, clap::Args)]
pub struct FeedsArgs {
    #[command(subcommand)]
    command: FeedCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum FeedCommand {
    /// What the log says counts: the feed goes on, and replicas that read something else take another one's state
    Accept(FeedArgs),
    /// The tick in dispute and all after it are as if they had never been: the feed goes on from before it. What was published
    /// stays, and rows go on behind it
    End(EndArgs),
    /// Hold a feed at a tick that replicas cannot read again
    Hold(FeedArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct FeedArgs {
    /// The feed's name as `unisono status` shows it, or its number alone
    #[arg(value_name = "FEED")]
    name: String,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct EndArgs {
    #[command(flatten)]
    feed: FeedArgs,
    /// A lane that goes on at this offset, not where it stood: what lies between is never taken in, and is shown; can be repeated
    #[arg(long = "start", value_name = "LANE=OFFSET", value_parser = lane_start)]
    starts: Vec<LaneStart>,
}

fn lane_start(text: &str) -> Result<LaneStart, String> {
    let (lane, offset) = text.rsplit_once('=').ok_or("give LANE=OFFSET")?;
    let offset = offset
        .parse()
        .map_err(|_| format!("{offset:?} is no offset"))?;
    let lane = lane.to_owned();
    Ok(LaneStart { lane, offset })
}

/// Take a node out of the members
#[derive(Clone, Debug, clap::Args)]
pub struct MembersArgs {
    #[command(subcommand)]
    command: MemberCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum MemberCommand {
    /// A node that no file names among the peers any more is no member from now on
    Remove(MemberArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct MemberArgs {
    /// The node's id
    #[arg(value_name = "ID")]
    id: u16,
    #[command(flatten)]
    node: NodeArgs,
}

/// Have another node lead
///
/// The leader finishes what it is publishing, gives the lead to a node that follows closely, and answers when that one leads.
#[derive(Clone, Debug, clap::Args)]
pub struct TransferArgs {
    /// The id of the node that is to lead; without it the fittest is chosen
    #[arg(long, value_name = "ID")]
    to: Option<u16>,
    #[command(flatten)]
    node: NodeArgs,
}

/// Have a node lead only while no other can
///
/// Before a restart or other work on it. It gives the lead away at once, if it has it, and goes on computing and answering
/// queries. It is so until it is restarted, or drained no more.
#[derive(Clone, Debug, clap::Args)]
pub struct DrainArgs {
    /// It may lead like any other again
    #[arg(long)]
    end: bool,
    /// The HTTP address of the node
    #[arg(long, default_value = DEFAULT_URL)]
    url: String,
}

/// Applies a file.
///
/// # Errors
/// Exit code 64 for a file that is not right, 1 where the cluster does not take it.
pub fn apply(args: &ApplyArgs) -> Result<(), CliError> {
    give(&args.node, &Order::Apply(read(&args.file)?))
}

/// Carries out a command on a pipeline.
///
/// # Errors
/// Exit code 64 for a pipeline that is not there, 1 where the cluster does not take it.
pub fn pipelines(args: &PipelinesArgs) -> Result<(), CliError> {
    match args.command.clone() {
        PipelineCommand::Remove(of) => give(&of.node, &Order::RemovePipeline(of.name)),
        PipelineCommand::Pause(of) => give(&of.node, &Order::PausePipeline(of.name)),
        PipelineCommand::Resume(of) => give(&of.node, &Order::ResumePipeline(of.name)),
    }
}

/// Carries out a command on a feed.
///
/// # Errors
/// Exit code 1 where the cluster does not take it.
pub fn feeds(args: &FeedsArgs) -> Result<(), CliError> {
    match args.command.clone() {
        FeedCommand::Accept(of) => give(&of.node, &Order::AcceptTicks(of.name)),
        FeedCommand::Hold(of) => give(&of.node, &Order::HoldFeed(of.name)),
        FeedCommand::End(EndArgs { feed, starts }) => {
            give(&feed.node, &Order::EndTicks(feed.name, EndTicks { starts }))
        }
    }
}

/// Carries out a command on the members.
///
/// # Errors
/// Exit code 1 where the cluster does not take it.
pub fn members(args: &MembersArgs) -> Result<(), CliError> {
    let MemberCommand::Remove(of) = &args.command;
    give(&of.node, &Order::RemoveMember(of.id))
}

/// Has another node lead.
///
/// # Errors
/// Exit code 1 where none can.
pub fn transfer(args: &TransferArgs) -> Result<(), CliError> {
    give(&args.node, &Order::Transfer(args.to))
}

/// Drains a node, or no more.
///
/// # Errors
/// Exit code 1 where it does not answer.
pub fn drain(args: &DrainArgs) -> Result<(), CliError> {
    let client = Client::new(&args.url).map_err(node_error)?;
    show(runtime()?.block_on(client.drain(!args.end)))
}

fn give(node: &NodeArgs, order: &Order) -> Result<(), CliError> {
    let client = Client::new(&node.url).map_err(node_error)?;
    show(runtime()?.block_on(client.order(order)))
}

fn show(done: Result<Done, ClientError>) -> Result<(), CliError> {
    let mut text = done.map_err(node_error)?.done.join("\n");
    text.push('\n');
    print(text.as_bytes())
}

fn read(file: &Path) -> Result<Apply, CliError> {
    let pipeline = |definition: PipelineDefinition| AppliedPipeline {
        name: definition.name,
        sink: definition.sink,
        definition: definition.canonical,
    };
    Ok(match FileKind::of(file)? {
        FileKind::Pipeline => Apply {
            sinks: Vec::new(),
            pipelines: vec![pipeline(PipelineDefinition::load(file)?)],
        },
        FileKind::Node => {
            let config = NodeConfig::load(file)?;
            let sinks = config.sinks.iter().map(|sink| AppliedSink {
                name: sink.name.clone(),
                definition: sink.canonical(),
            });
            Apply {
                sinks: sinks.collect(),
                pipelines: config.pipelines.into_iter().map(pipeline).collect(),
            }
        }
    })
}
