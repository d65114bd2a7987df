//! `lanekeeper replay start`: counts what would be delivered again, or begins with it.

use std::process::ExitCode;

use jiff::Timestamp;
use lanekeeper_config::Config;
use lanekeeper_core::bucket::Rate;
use lanekeeper_postgres::inspect::Since;
use lanekeeper_postgres::replay::{self, By, Pace, Plan, Range};
use lanekeeper_postgres::worker;

use super::{find, print};
use crate::lane::ReasonArgs;
use crate::output::{self, Output, OutputArgs};
use crate::since::since;
use crate::{Failure, connect};

/// Have past events delivered again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What was settled when the replay starts is delivered again: in each session in its order, before what
the session has not delivered yet, marked as replayed, with the same message ids and seqs. Other
subscriptions get nothing. Receivers that recognise repeats by the message id must let replayed ones
through: docs/replay.md.

Examples:
  lanekeeper replay start audit --session run-42 --dry-run
  lanekeeper replay start audit --session run-42 --from-seq 100
  lanekeeper replay start audit --session 'run-2026-*' --since 2h --rate 100/s
  lanekeeper replay start audit --all --since 2026-01-02T00:00:00Z --until 2026-01-03T00:00:00Z")]
#[group(id = "which", required = true, multiple = false, args = ["session", "all"])]
pub(super) struct StartArgs {
    /// The subscription
    subscription: String,
    /// A session, or a pattern in which * stands for any characters
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// All sessions of its stream
    #[arg(long)]
    all: bool,
    /// From this seq on, of one session
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..), conflicts_with = "all")]
    from_seq: Option<i64>,
    /// Up to this seq, of one session
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..), conflicts_with = "all")]
    to_seq: Option<i64>,
    /// Appended since then: an instant, or how long ago, such as 90m, 2h or 3d
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Since>,
    /// Appended before then
    #[arg(long, value_name = "WHEN", value_parser = since)]
    until: Option<Since>,
    /// The most events by all workers together, such as 100/s or 20/min [default: as fast as they are taken]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Sessions that are replayed at once
    #[arg(long, value_name = "N", default_value_t = Pace::CONCURRENCY, value_parser = clap::value_parser!(i32).range(1..=i64::from(Pace::MOST)))]
    concurrency: i32,
    /// Only count what would be delivered again
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: StartArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = connect(config).await?;
    // By Postgres' clock, which events were appended by.
    let now = worker::clock(&client).await?;
    let range = Range {
        subscription: args.subscription,
        sessions: args.session,
        from_seq: args.from_seq,
        to_seq: args.to_seq,
        from_at: args.since.map(|since| instant(since, now)).transpose()?,
        to_at: args.until.map(|until| instant(until, now)).transpose()?,
    };
    let form = args.output.output;
    if args.dry_run {
        print_plan(&replay::plan(&client, &range).await?, form)?;
        return Ok(ExitCode::SUCCESS);
    }
    let pace = Pace {
        rate: args.rate,
        concurrency: args.concurrency,
    };
    let by = By {
        name: None,
        reason: args.reason.reason.as_deref(),
    };
    let id = replay::start(&client, &range, &pace, by).await?;
    print::one(&find(&client, id).await?, form)?;
    Ok(ExitCode::SUCCESS)
}

fn instant(when: Since, now: Timestamp) -> Result<Timestamp, Failure> {
    match when {
        Since::At(at) => Ok(at),
        Since::Ago(ago) => now.checked_sub(ago).map_err(Failure::usage),
    }
}

fn print_plan(plan: &Plan, form: Output) -> Result<(), Failure> {
    match form {
        Output::Json => output::json_line(plan),
        Output::Text => output::line(format!(
            "{} events of {} sessions, {} bytes, would be delivered again; the longest session has {}",
            plan.events, plan.sessions, plan.bytes, plan.longest
        )),
    }
}
