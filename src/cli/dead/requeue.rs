//! `lanekeeper dead requeue`: delivers dead letters again, with one transaction for each lane.
//!
//! All dead letters of a lane are requeued in one call: the first of them wakes the lane, and a later call would find
//! it busy. Each lane has a call of its own, so a lane that cannot take any delays no other.

use std::collections::BTreeMap;
use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::inspect::{self, DeadLetter, Since};
use lanekeeper_postgres::operate::{self, Requeued};
use serde::Serialize;

use super::{OfArgs, find, id, print};
use crate::lane::ReasonArgs;
use crate::list::LimitArgs;
use crate::output::{self, Output, OutputArgs};
use crate::since::since;
use crate::{Failure, connect};

/// Deliver dead letters again; prints what would be requeued unless --yes is given
#[derive(Debug, clap::Args)]
#[command(after_help = "\
They go out before everything that their lanes have not delivered yet, in the order of their \
sessions, or with --at-end behind what is enqueued by now; with the same message id and seq, and \
marked as requeued. What fails again is a dead letter again.

Examples:
  lanekeeper dead requeue 17 18
  lanekeeper dead requeue 17 18 --yes --reason 'endpoint is back'
  lanekeeper dead requeue --subscription audit --since 2h --limit 1000 --yes")]
#[group(id = "which", required = true, multiple = true, args = ["ids", "subscription", "session", "since"])]
pub(super) struct RequeueArgs {
    /// Their ids, as `dead list` shows them
    #[arg(value_name = "ID", num_args = 1..=1000, value_parser = id(), conflicts_with_all = ["subscription", "session", "since"])]
    ids: Vec<i64>,
    #[command(flatten)]
    of: OfArgs,
    /// Those that died since then: an instant, or how long ago, such as 90m, 2h or 3d
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Since>,
    /// Behind what is enqueued by now
    #[arg(long)]
    at_end: bool,
    #[command(flatten)]
    limit: LimitArgs,
    /// Do it
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Line {
    dead_id: i64,
    /// False where it was requeued or dealt with already.
    requeued: bool,
}

pub(super) async fn run(args: RequeueArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = connect(config).await?;
    let letters = if args.ids.is_empty() {
        waiting(&args, &mut client).await?
    } else {
        let found = find(&args.ids, &mut client).await?;
        found.into_iter().map(|letter| letter.about).collect()
    };
    let form = args.output.output;
    if letters.is_empty() {
        output::note("there is no dead letter to requeue");
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes {
        print(letters.iter().filter(|it| it.waits()), form)?;
        let place = if args.at_end {
            "at the end"
        } else {
            "at their place"
        };
        output::note(format!(
            "dry run: these would be delivered again {place}; nothing was changed. --yes does it"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let mut lanes: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for letter in &letters {
        lanes
            .entry(letter.lane_id)
            .or_default()
            .push(letter.dead_id);
    }
    let reason = args.reason.reason.as_deref();
    let mut failed: Option<StoreError> = None;
    let mut done = 0;
    for ids in lanes.values() {
        match operate::requeue_dead_letters(&client, ids, args.at_end, reason).await {
            Ok(results) => {
                for (dead_id, result) in results {
                    done += usize::from(result == Requeued::Requeued);
                    say(dead_id, result, form)?;
                }
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let Some(error) = failed else {
        return Ok(ExitCode::SUCCESS);
    };
    output::note(format!(
        "{done} of {} dead letters were requeued",
        letters.len()
    ));
    Err(error.into())
}

async fn waiting(
    args: &RequeueArgs,
    client: &mut tokio_postgres::Client,
) -> Result<Vec<DeadLetter>, Failure> {
    let reading = inspect::begin(client).await?;
    let filter = args.of.filter(&reading).await?;
    let limit = args.limit.to_ask_for();
    let mut letters = inspect::waiting_dead_letters(&reading, filter, args.since, limit).await?;
    drop(reading);
    args.limit.cut(&mut letters);
    Ok(letters)
}

fn say(dead_id: i64, result: Requeued, form: Output) -> Result<(), Failure> {
    let what = match result {
        Requeued::Requeued => "is requeued",
        Requeued::Before => "was requeued already",
        Requeued::Resolved => "was dealt with already",
    };
    match form {
        Output::Json => output::json_line(&Line {
            dead_id,
            requeued: result == Requeued::Requeued,
        }),
        Output::Text => output::line(format!("dead letter {dead_id} {what}")),
    }
}
