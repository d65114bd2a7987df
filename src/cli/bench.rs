//! `lanekeeper bench`: measures this release on the configured server.

use std::process::ExitCode;

use crate::bench::{self, Backlog, BenchError, Line, Options, Scratch, Workload};
use crate::config::Config;
use crate::engine::WorkerSettings;
use crate::limit::BreakerSettings;
use crate::store::connect;
use crate::telemetry::{Telemetry, Tracing};

use super::output::{self, Output, OutputArgs};
use super::{Failure, worker};

/// Measure drain, enqueue, latency and memory beside what they are compared with
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Works in a database of its own, lanekeeper_bench_<pid>, which it drops at the end. The worker's
settings are the configured ones.

Examples:
  lanekeeper dev --ephemeral -- lanekeeper bench
  lanekeeper bench drain --sessions 1000 --events 100 --runs 5 --output json")]
pub struct Args {
    /// What to measure [default: all]
    #[arg(value_enum, value_name = "WORKLOAD")]
    workload: Option<Workload>,
    /// Report the median of this many runs
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Drain this many sessions instead of the two usual cases
    #[arg(long, value_name = "N", requires = "events")]
    sessions: Option<usize>,
    /// Events of each of them
    #[arg(long, value_name = "N", requires = "sessions")]
    events: Option<usize>,
    /// Lanes that the subscription delivers at once
    #[arg(long, default_value_t = 512, value_name = "N")]
    concurrency: u32,
    /// Seconds of each run of an enqueue measurement
    #[arg(long, default_value_t = 2.0, value_name = "S")]
    seconds: f64,
    /// Events of the latency measurement
    #[arg(long, default_value_t = 400, value_name = "N")]
    samples: usize,
    /// Lanes that are blocked, with 100 events each
    #[arg(long, default_value_t = 1000, value_name = "N")]
    blocked: usize,
    /// Sessions that the memory measurement drains, with 100 events each
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    memory_sessions: usize,
    /// Measure although the configured database is in use: its users will feel it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: OutputArgs,
}

const DEEP: usize = 100;

impl Args {
    fn options(&self, config: &Config, telemetry: Option<&Telemetry>) -> Options {
        Options {
            runs: self.runs as usize,
            seconds: self.seconds,
            drain: self
                .sessions
                .zip(self.events)
                .map(|(sessions, events)| Backlog { sessions, events }),
            concurrency: self.concurrency,
            blocked: Backlog {
                sessions: self.blocked,
                events: DEEP,
            },
            memory: Backlog {
                sessions: self.memory_sessions,
                events: DEEP,
            },
            samples: self.samples,
            // The sink of the blocked lanes fails on purpose.
            worker: WorkerSettings {
                breaker: BreakerSettings {
                    lanes: 0,
                    ..BreakerSettings::default()
                },
                tracing: telemetry.map_or(Tracing::Off, Telemetry::tracing),
                ..worker::settings(config)
            },
        }
    }
}

pub async fn run(
    args: Args,
    config: &Config,
    telemetry: Option<&Telemetry>,
) -> Result<ExitCode, Failure> {
    let client = connect::open(&config.database).await?;
    if !args.force && bench::holds_events(&client).await? {
        return Err(
            Failure::usage("the configured database is in use: its log has events")
                .advise("point DATABASE_URL at another server, or pass --force"),
        );
    }
    drop(client);
    let server = connect::settings(&config.database)?;
    let url = config.database.url.as_ref().map(|url| url.expose());
    let scratch = Scratch::new(server, url.unwrap_or_default());
    let options = args.options(config, telemetry);
    let measured = tokio::select! {
        measured = measure(&args, &options, &scratch) => measured,
        _ = tokio::signal::ctrl_c() => Err(Failure::failed("interrupted")),
    };
    let removed = scratch.remove().await;
    measured?;
    removed?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(args: &Args, options: &Options, scratch: &Scratch) -> Result<(), Failure> {
    let form = args.output.output;
    print(form, &bench::environment(scratch, options).await?)?;
    let workloads = match args.workload {
        Some(workload) => vec![workload],
        None => Workload::ALL.into(),
    };
    for workload in workloads {
        bench::run(workload, scratch, options, |line| print(form, &line)).await?;
    }
    Ok(())
}

fn print(form: Output, line: &Line) -> Result<(), Failure> {
    match form {
        Output::Json => output::json_line(line),
        Output::Text => output::line(line.to_string()),
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        Self::failed(error)
    }
}
