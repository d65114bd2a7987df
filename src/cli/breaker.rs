//! `lanekeeper breaker`: the destinations that are left alone because they fail, as Redis has them.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_limit as limit;
use lanekeeper_limit::{CircuitView, LinkError, RedisSettings};
use serde::Serialize;

use super::Failure;
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
Needs REDIS_URL: without Redis each worker has breakers of its own, and says in its log what they do.

Example:
  lanekeeper breaker list")]
struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Close a circuit: its events are delivered again at once
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The workers know it within a second. It opens again if the destination still fails.

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
struct Row<'a> {
    destination: &'a str,
    /// open | failing
    state: &'static str,
    open_s: Option<f64>,
    next_probe_s: Option<f64>,
}

impl<'a> From<&'a CircuitView> for Row<'a> {
    fn from(view: &'a CircuitView) -> Self {
        Self {
            destination: &view.destination,
            state: if view.open.is_some() {
                "open"
            } else {
                "failing"
            },
            open_s: view.open.map(|_| view.since.as_secs_f64()),
            next_probe_s: view.open.map(|open| open.as_secs_f64()),
        }
    }
}

#[derive(Serialize)]
struct Reset<'a> {
    destination: &'a str,
    /// False where it was closed already.
    changed: bool,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let settings = config.redis.settings().ok_or_else(|| {
        Failure::usage(NoRedis).advise("set REDIS_URL; without it see the workers' logs")
    })?;
    match args.command {
        Command::List(args) => list(args.output.output, &settings).await,
        Command::Reset(args) => reset(&args, &settings).await,
    }
}

async fn list(form: Output, settings: &RedisSettings) -> Result<ExitCode, Failure> {
    let circuits = limit::circuits(settings).await.map_err(away)?;
    let rows: Vec<Row> = circuits.iter().map(Row::from).collect();
    match form {
        Output::Json => rows.iter().try_for_each(output::json_line)?,
        Output::Text if rows.is_empty() => output::note("no destination failed of late"),
        Output::Text => output::table(
            ["DESTINATION", "STATE", "OPEN FOR", "NEXT PROBE IN"],
            &rows.iter().map(cells).collect::<Vec<_>>(),
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(row: &Row) -> [String; 4] {
    [
        row.destination.to_owned(),
        row.state.to_owned(),
        output::or_dash(row.open_s.map(output::age)),
        output::or_dash(row.next_probe_s.map(output::age)),
    ]
}

async fn reset(args: &ResetArgs, settings: &RedisSettings) -> Result<ExitCode, Failure> {
    let destination = &args.destination;
    let changed = limit::close(settings, destination).await.map_err(away)?;
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
