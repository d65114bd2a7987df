//! `lanekeeper bench`: measures this release on the configured server.

use std::path::PathBuf;
use std::process::ExitCode;

use lanekeeper_bench as bench;
use lanekeeper_bench::{Backlog, BenchError, Line, Options, Scratch, Workload, results};
use lanekeeper_config::Config;
use lanekeeper_engine::WorkerSettings;
use lanekeeper_limit::BreakerSettings;
use lanekeeper_postgres::connect;
use lanekeeper_postgres::replay::Pace;
use lanekeeper_telemetry::{Telemetry, Tracing};

use super::output::{self, Output, OutputArgs};
use super::{Failure, worker};

/// Measure this machine, each figure beside what it is compared with
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Works in a database of its own, lanekeeper_bench_<pid>, and copies of it, which it drops at the end. The
worker's settings are the configured ones. All workloads together take more than half an hour.

Examples:
  lanekeeper dev --ephemeral -- lanekeeper bench
  lanekeeper bench drain --sessions 1000 --events 100 --runs 5 --output json
  lanekeeper bench replay --replayed 1000000
  lanekeeper bench held-snapshot --seconds 1800 --output json >snapshot.json
  lanekeeper bench table snapshot.json"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    measure: MeasureArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print results that were kept as JSON as a Markdown table, ratios first
    #[command(after_help = "Example:\n  lanekeeper bench table drain.json enqueue.json")]
    Table {
        /// What `bench --output json` printed
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct MeasureArgs {
    /// What to measure [default: all]
    #[arg(value_enum, value_name = "WORKLOAD")]
    workload: Option<Workload>,
    /// Report the median of this many runs [default: 3; held-snapshot: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Drain this many sessions instead of the usual cases
    #[arg(long, value_name = "N", requires = "events", value_parser = clap::value_parser!(u32).range(1..))]
    sessions: Option<u32>,
    /// Events of each of them
    #[arg(long, value_name = "N", requires = "sessions", value_parser = clap::value_parser!(u32).range(1..))]
    events: Option<u32>,
    /// Lanes that the subscription delivers at once
    #[arg(long, default_value_t = 2048, value_name = "N")]
    concurrency: u32,
    /// Seconds of each run of enqueue, documents and partitions [default: 2], steady [20], held-snapshot [100]; of the live
    /// traffic alone of replay [10]
    #[arg(long, value_name = "S", value_parser = positive)]
    seconds: Option<f64>,
    /// Live events per second of steady and replay [default: 1000], and of held-snapshot [2000]
    #[arg(long, value_name = "N", value_parser = positive)]
    rate: Option<f64>,
    /// Live sessions of steady, replay and held-snapshot; the latter has 50 hot ones besides
    #[arg(long, default_value_t = 5000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    paced_sessions: u32,
    /// Events of the latency measurement
    #[arg(long, default_value_t = 400, value_name = "N")]
    samples: usize,
    /// Lanes that are blocked, case by case
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000,10000",
        value_name = "N,…"
    )]
    blocked: Vec<u32>,
    /// Events of each of them
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    blocked_events: u32,
    /// Lanes with nothing to do
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    resting: usize,
    /// Daily partitions
    #[arg(long, default_value_t = 365, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// Events that each of them holds
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    events_per_day: u32,
    /// Past events that are replayed, 200 of each session; --sessions and --events give another shape
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    replayed: u32,
    /// Sessions that are replayed at once
    #[arg(long, default_value_t = Pace::CONCURRENCY, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=i64::from(Pace::MOST)))]
    replay_concurrency: i32,
    /// Sessions of each producer beside ten busy workers
    #[arg(long, default_value_t = 2500, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    busy_sessions: u32,
    /// Worker processes, case by case
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_name = "N,…", value_parser = clap::value_parser!(u8).range(1..))]
    replicas: Vec<u8>,
    /// Sessions of the workload `sessions`, case by case
    #[arg(long, value_delimiter = ',', default_value = "20,1000,5000,20000,100000", value_name = "N,…", value_parser = clap::value_parser!(u32).range(1..))]
    session_counts: Vec<u32>,
    /// Events that they hold together; of the workload `aggregates` in one session, of `projections` in 1,000
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    spread_events: usize,
    /// Events in all of the workload `backlog`, case by case
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000", value_name = "N,…", value_parser = clap::value_parser!(u32).range(1..))]
    backlogs: Vec<u32>,
    /// Sessions that the memory measurement drains, with 100 events each
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    memory_sessions: usize,
    /// Measure although the configured database is in use: its users will feel it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Events of each session while memory is watched.
const DEEP: usize = 100;

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("a number above 0 is needed".to_owned()),
    }
}

fn sizes(values: &[u32]) -> Vec<usize> {
    values.iter().map(|value| *value as usize).collect()
}

impl MeasureArgs {
    fn options(&self, config: &Config, telemetry: Option<&Telemetry>) -> Options {
        let backlog = |sessions: usize, events: usize| Backlog { sessions, events };
        Options {
            runs: self.runs.map(|runs| runs as usize),
            seconds: self.seconds,
            drain: self
                .sessions
                .zip(self.events)
                .map(|(sessions, events)| backlog(sessions as usize, events as usize)),
            concurrency: self.concurrency,
            blocked: sizes(&self.blocked)
                .into_iter()
                .map(|lanes| backlog(lanes, self.blocked_events as usize))
                .collect(),
            resting: self.resting,
            days: self.days.into(),
            events_per_day: self.events_per_day as usize,
            rate: self.rate,
            paced_sessions: self.paced_sessions as usize,
            busy_sessions: self.busy_sessions as usize,
            replayed: self.replayed as usize,
            replay_concurrency: self.replay_concurrency,
            replicas: self.replicas.iter().copied().map(usize::from).collect(),
            session_counts: sizes(&self.session_counts),
            spread_events: self.spread_events,
            backlogs: sizes(&self.backlogs),
            memory: backlog(self.memory_sessions, DEEP),
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
    let args = match args.command {
        Some(Command::Table { files }) => return table(&files),
        None => args.measure,
    };
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

async fn measure(args: &MeasureArgs, options: &Options, scratch: &Scratch) -> Result<(), Failure> {
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

fn read(files: &[PathBuf]) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    for file in files {
        lines.extend(results::read(file).map_err(Failure::failed)?);
    }
    Ok(lines)
}

fn table(files: &[PathBuf]) -> Result<ExitCode, Failure> {
    let markdown = bench::table::markdown(&read(files)?);
    output::line(markdown.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        Self::failed(error)
    }
}
