//! `lanekeeper lane`: lists the lanes that are blocked or parked, and lets an operator act on them.

mod action;
mod print;
mod select;

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::inspect::{self, LaneFilter};
use lanekeeper_postgres::operate::LaneAction;

use super::Failure;
use super::list::LimitArgs;
use super::output::{self, Output, OutputArgs};

pub(super) use action::{Change, change};
pub(super) use print::print_lanes;
use select::Selector;

/// Look at lanes, and retry, skip, park or unpark them
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Show(ShowArgs),
    Retry(RetryArgs),
    Skip(SkipArgs),
    Park(ParkArgs),
    Unpark(UnparkArgs),
}

/// List the lanes that have something to do; those at rest are in `session show`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper lane list --blocked
  lanekeeper lane list --subscription audit --output json")]
struct ListArgs {
    /// Only what is held up: in back-off, or parked
    #[arg(long)]
    blocked: bool,
    /// Only lanes of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Show lanes in full
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper lane show 42
  lanekeeper lane show --stream hooks --session 7f3a --subscription audit")]
struct ShowArgs {
    #[command(flatten)]
    lanes: Selector,
    #[command(flatten)]
    output: OutputArgs,
}

/// Try the head now, with its attempts forgotten; a parked lane is unparked
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper lane retry 42
  lanekeeper lane retry --stream hooks --session 7f3a --reason 'endpoint is back'")]
struct RetryArgs {
    #[command(flatten)]
    lanes: Selector,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Pass the head without delivering it; prints what would be skipped unless --yes is given
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The event keeps its place in the log with the outcome `skipped`.

Examples:
  lanekeeper lane skip 42
  lanekeeper lane skip 42 --seq 17 --yes --reason 'known bad payload'")]
struct SkipArgs {
    #[command(flatten)]
    lanes: Selector,
    /// Only if this is still the head: what was seen may have been delivered since
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..))]
    seq: Option<i64>,
    /// Do it
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Hold lanes until they are unparked
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper lane park 42 --reason 'waiting for the customer'")]
struct ParkArgs {
    #[command(flatten)]
    lanes: Selector,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Let parked lanes go on, with the attempts on their heads forgotten
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper lane unpark --stream hooks --session 7f3a")]
struct UnparkArgs {
    #[command(flatten)]
    lanes: Selector,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Why an operator does something: on record with who and when.
#[derive(Debug, clap::Args)]
pub(super) struct ReasonArgs {
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let (lanes, output, change) = match args.command {
        Command::List(args) => return list(args, config).await,
        Command::Show(args) => return show(args, config).await,
        Command::Skip(args) => return skip(args, config).await,
        Command::Retry(args) => {
            let change = Change::new(LaneAction::Retry, args.reason.reason);
            (args.lanes, args.output, change)
        }
        Command::Park(args) => {
            let change = Change::new(LaneAction::Park, args.reason.reason);
            (args.lanes, args.output, change)
        }
        Command::Unpark(args) => {
            let change = Change::new(LaneAction::Unpark, args.reason.reason);
            (args.lanes, args.output, change)
        }
    };
    let mut client = super::connect(config).await?;
    let lanes = lanes.find(&mut client).await?;
    action::change(&client, &lanes, &change, output.output).await
}

async fn list(args: ListArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let reading = inspect::begin(&mut client).await?;
    let subscription_id = match &args.subscription {
        Some(name) => Some([inspect::find_subscription(&reading, name).await?]),
        None => None,
    };
    let filter = LaneFilter {
        subscription_ids: subscription_id.as_ref().map(<[i32; 1]>::as_slice),
        held_up: args.blocked,
        after: None,
    };
    let found = inspect::active_lanes(&reading, filter, args.limit.to_ask_for()).await?;
    let mut ids: Vec<i64> = found.into_iter().map(|(lane_id, _)| lane_id).collect();
    args.limit.cut(&mut ids);
    let lanes = inspect::lanes(&reading, &ids).await?;
    drop(reading);
    print_lanes(&lanes, args.output.output)?;
    if lanes.is_empty() {
        output::note(format!(
            "no lane {}",
            if args.blocked {
                "is held up"
            } else {
                "has anything to do"
            }
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: ShowArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let lanes = args.lanes.find(&mut client).await?;
    match args.output.output {
        Output::Json => lanes.iter().try_for_each(output::json_line)?,
        Output::Text => lanes.iter().try_for_each(print::print_in_full)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn skip(args: SkipArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let mut lanes = args.lanes.find(&mut client).await?;
    if !args.yes {
        lanes.retain(|lane| lane.head_seq.is_some());
        print_lanes(&lanes, args.output.output)?;
        match &*lanes {
            [] => output::note("nothing to skip"),
            [lane] => output::note(format!(
                "dry run: would skip seq {} of lane {}; nothing was changed. To do it: \
                 lanekeeper lane skip {1} --seq {0} --yes",
                lane.head_seq.unwrap_or_default(),
                lane.lane_id
            )),
            _ => output::note(
                "dry run: would skip the head of each of these; nothing was changed. --yes does it",
            ),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.seq.is_some() && lanes.len() != 1 {
        return Err(Failure::usage(format!(
            "--seq is for one lane, and these are {}: nothing was changed",
            lanes.len()
        )));
    }
    let change = Change {
        head: args.seq,
        ..Change::new(LaneAction::Skip, args.reason.reason)
    };
    action::change(&client, &lanes, &change, args.output.output).await
}
