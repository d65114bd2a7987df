//! `lanekeeper breaker`: the destinations with failures or an open circuit, from the workers' reports, and from Redis
//! if there is one.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_http::operate::destination::{self, Row};
use lanekeeper_limit as limit;
use lanekeeper_limit::LinkError;
use lanekeeper_postgres::{inspect, subscription};
use serde::Serialize;

use super::Failure;
use super::delivery;
use super::output::{self, Output, OutputArgs};

/// List destinations that fail, and try one again at once
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Reset(ResetArgs),
}

/// List the destinations that failed of late, and those whose circuit is open
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Open circuits are those that running workers report, with the subscriptions and the reason. With
REDIS_URL there are also destinations that failed of late, and the time of the next probe.

Example:
  lanekeeper breaker list")]
struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Close a circuit: its events are delivered again at once
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs REDIS_URL, over which workers share their circuits; they know it within a second. It opens
again if the destination still fails.

Example:
  lanekeeper breaker reset 'webhook https://example.com 1f2e3d4c5b6a'")]
struct ResetArgs {
    /// The destination, as `breaker list` names it
    destination: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, thiserror::Error)]
#[error("breakers are shared over Redis, and redis.url is not set")]
struct NoRedis;

#[derive(Serialize)]
struct Reset<'a> {
    destination: &'a str,
    /// False where it was closed already.
    changed: bool,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    match args.command {
        Command::List(args) => list(args.output.output, config).await,
        Command::Reset(args) => reset(&args, config).await,
    }
}

async fn list(form: Output, config: &Config) -> Result<ExitCode, Failure> {
    let shared = match config.redis.settings() {
        Some(settings) => Some(limit::circuits(&settings).await.map_err(away)),
        None => None,
    };
    let reported = reported(config).await;
    let rows = match (shared, reported) {
        (Some(Ok(shared)), Ok(reported)) => destination::merge(&shared, reported),
        (None, reported) => reported?,
        // One of the two is better than nothing.
        (Some(Err(failure)), Ok(reported)) => {
            tell("what Redis knows is left out", &failure);
            reported
        }
        (Some(Ok(shared)), Err(failure)) => {
            tell("what workers report is left out", &failure);
            destination::merge(&shared, Vec::new())
        }
        (Some(Err(failure)), Err(_)) => return Err(failure),
    };
    match form {
        Output::Json => rows.iter().try_for_each(output::json_line)?,
        Output::Text if rows.is_empty() => output::note("no destination failed of late"),
        Output::Text => output::table(
            [
                "DESTINATION",
                "STATE",
                "OPEN FOR",
                "NEXT PROBE IN",
                "SUBSCRIPTIONS",
                "REASON",
            ],
            &rows.iter().map(cells).collect::<Vec<_>>(),
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(row: &Row) -> [String; 6] {
    [
        row.destination.clone(),
        row.state.to_owned(),
        output::or_dash(row.open_s.map(output::age)),
        output::or_dash(row.next_probe_s.map(output::age)),
        match row.subscriptions.is_empty() {
            true => "-".to_owned(),
            false => row.subscriptions.join(","),
        },
        output::or_dash(row.reason.as_ref().map(|it| output::short(it, 200))),
    ]
}

fn tell(what: &str, failure: &Failure) {
    if let Some(text) = failure.text() {
        output::note(format!("{what}: {text}"));
    }
}

/// The open circuits, as the workers that live report them.
async fn reported(config: &Config) -> Result<Vec<Row>, Failure> {
    let mut client = super::connect(config).await?;
    let reading = inspect::begin(&mut client).await?;
    let subscriptions = subscription::load(&reading).await?;
    let deliveries = inspect::deliveries(&reading, delivery::frozen_after(config)).await?;
    drop(reading);
    let in_force = subscriptions.iter().filter(|it| !it.removed);
    Ok(destination::of_reports(in_force.map(|it| {
        let delivery = deliveries.of(it.id, it.paused);
        (it.place(), &*it.name, delivery)
    })))
}

async fn reset(args: &ResetArgs, config: &Config) -> Result<ExitCode, Failure> {
    let settings = config.redis.settings().ok_or_else(|| {
        Failure::usage(NoRedis).advise(
            "set REDIS_URL; without it each worker probes its destinations every few seconds",
        )
    })?;
    let destination = &args.destination;
    let changed = limit::close(&settings, destination).await.map_err(away)?;
    match args.output.output {
        Output::Json => output::json_line(&Reset {
            destination,
            changed,
        })?,
        Output::Text if changed => output::line(format!("{destination} is tried again"))?,
        Output::Text => output::line(format!("{destination} was not open"))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn away(error: LinkError) -> Failure {
    Failure::later(error).advise("see whether Redis runs, with `lanekeeper doctor`")
}
