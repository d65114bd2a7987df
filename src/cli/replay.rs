//! `lanekeeper replay`: has past events of one subscription delivered again, and looks after that.

mod print;
mod start;

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::replay::{self, Change, Replay};

use super::Failure;
use super::lane::ReasonArgs;
use super::list::LimitArgs;
use super::output::{self, Output, OutputArgs};

pub(super) use print::rows;
use start::StartArgs;

/// Deliver past events of a subscription again, before what its sessions have not delivered yet
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Start(StartArgs),
    List(ListArgs),
    Show(ShowArgs),
    Pause(ChangeArgs),
    Resume(ResumeArgs),
    Cancel(CancelArgs),
}

/// List the replays that have not ended, the newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper replay list --all")]
struct ListArgs {
    /// Those that have ended too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Show how far a replay is
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper replay show 7")]
struct ShowArgs {
    #[command(flatten)]
    id: IdArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Stop a replay for now; its sessions go on with what they have not delivered yet
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is being delivered in this moment is finished.

Example:
  lanekeeper replay pause 7 --reason 'the endpoint is slow today'")]
struct ChangeArgs {
    #[command(flatten)]
    id: IdArgs,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Go on with a paused replay, each session where it was
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper replay resume 7")]
struct ResumeArgs {
    #[command(flatten)]
    id: IdArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// End a replay; what was delivered stays delivered
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is being delivered in this moment is finished.

Example:
  lanekeeper replay cancel 7 --reason 'wrong subscription'")]
struct CancelArgs {
    #[command(flatten)]
    id: IdArgs,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct IdArgs {
    /// Its number, as `replay list` shows it
    #[arg(value_name = "ID", value_parser = clap::value_parser!(i64).range(1..))]
    id: i64,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let (id, what, reason, output) = match args.command {
        Command::Start(args) => return start::run(args, config).await,
        Command::List(args) => return list(args, config).await,
        Command::Show(args) => {
            let client = super::connect(config).await?;
            let found = find(&client, args.id.id).await?;
            print::one(&found, args.output.output)?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Pause(args) => (args.id.id, Change::Pause, args.reason.reason, args.output),
        Command::Resume(args) => (args.id.id, Change::Resume, None, args.output),
        Command::Cancel(args) => (args.id.id, Change::Cancel, args.reason.reason, args.output),
    };
    let client = super::connect(config).await?;
    replay::change(&client, id, what, reason.as_deref()).await?;
    print::one(&find(&client, id).await?, output.output)?;
    Ok(ExitCode::SUCCESS)
}

async fn find(client: &tokio_postgres::Client, id: i64) -> Result<Replay, Failure> {
    let found = replay::find(client, id).await?;
    found.ok_or_else(|| {
        Failure::failed(format!("there is no replay {id}"))
            .advise("list them with `lanekeeper replay list --all`")
    })
}

async fn list(args: ListArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = super::connect(config).await?;
    let mut replays = replay::list(&client, args.all, args.limit.to_ask_for(), None).await?;
    args.limit.cut(&mut replays);
    match args.output.output {
        Output::Json => replays.iter().try_for_each(output::json_line)?,
        Output::Text if replays.is_empty() && args.all => output::note("there was no replay yet"),
        Output::Text if replays.is_empty() => {
            output::note("no replay is under way; --all lists those that have ended");
        }
        Output::Text => rows(&replays)?,
    }
    Ok(ExitCode::SUCCESS)
}
