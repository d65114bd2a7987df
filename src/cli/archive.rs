//! `lanekeeper archive`: lists archived days, and restores them for replays.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lanekeeper_config::Config;
use lanekeeper_core::subscription::duration;
use lanekeeper_engine::{RestoreError, Restored, restore};
use lanekeeper_postgres::restore::{self as record, ArchivedDay};

use super::Failure;
use super::list::LimitArgs;
use super::output::{self, Output, OutputArgs, or_dash};

const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(90 * 86_400);

/// List the days that were written to archive files, and restore them for replays
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Restore(RestoreArgs),
}

/// List the archive files that count, the newest day first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
STATE is `in log` (the day was not dropped yet), `archived`, or until when what was restored is kept.
FILE is the path on the worker that wrote it.

Example:
  lanekeeper archive list --limit 100")]
struct ListArgs {
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Restore days from their archive files, so that `lanekeeper replay` can deliver them again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each file is checked whole before anything is written, and restored in one transaction. Only replays
read what was restored: nothing is delivered by itself. Run it where the files are.

Examples:
  lanekeeper archive restore /var/lib/lanekeeper/archive/events-2026-01-02.jsonl.gz
  lanekeeper archive restore --keep 7d events-2026-01-0*.jsonl.gz")]
struct RestoreArgs {
    /// Files of the archive
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// For how long, from 1m to 90d; longer where a replay needs it
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = keep)]
    keep: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

fn keep(text: &str) -> Result<Duration, String> {
    let keep = duration::parse_up_to(text, LONGEST)?;
    match keep < SHORTEST {
        true => Err(format!("must be at least {}", duration::written(SHORTEST))),
        false => Ok(keep),
    }
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    match args.command {
        Command::List(args) => list(args, config).await,
        Command::Restore(args) => restore_files(args, config).await,
    }
}

async fn list(args: ListArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = super::connect(config).await?;
    let mut days = record::list(&client, args.limit.to_ask_for()).await?;
    args.limit.cut(&mut days);
    match args.output.output {
        Output::Json => days.iter().try_for_each(output::json_line)?,
        Output::Text if days.is_empty() => {
            output::note("no day was archived: workers do it where retention.archive_dir is set");
        }
        Output::Text => output::table(
            ["DAY", "STATE", "EVENTS", "BYTES", "FILE"],
            &days.iter().map(row).collect::<Vec<_>>(),
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

fn row(day: &ArchivedDay) -> [String; 5] {
    let state = match (day.dropped_at, day.keep_until) {
        (None, _) => "in log".to_owned(),
        (Some(_), Some(until)) => format!("restored until {}", output::time(until)),
        (Some(_), None) => "archived".to_owned(),
    };
    [
        day.day.to_string(),
        state,
        day.events.to_string(),
        day.bytes.to_string(),
        or_dash(Some(output::plain(&day.location).into_owned())),
    ]
}

async fn restore_files(args: RestoreArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    for file in &args.files {
        let restored = restore(&mut client, file, args.keep).await?;
        match args.output.output {
            Output::Json => output::json_line(&restored)?,
            Output::Text => output::line(told(&restored, args.keep))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn told(restored: &Restored, keep: Duration) -> String {
    let Restored {
        file,
        day,
        events,
        sessions,
        ..
    } = restored;
    format!(
        "{day} is restored for {}: {events} events of {sessions} sessions, from {}",
        duration::written(keep),
        file.display()
    )
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        let advice = match error {
            RestoreError::Store(error) => return error.into(),
            RestoreError::CutOff { .. } | RestoreError::Altered { .. } => {
                "take the file from the worker's archive folder, or from its backup"
            }
            RestoreError::Unknown { .. } => {
                "list the files that count with `lanekeeper archive list`"
            }
            RestoreError::InLog { .. } => "replays read the log: start one",
            RestoreError::UnknownSession { .. } => {
                "restore the file in the database that wrote it; if it is this one, see whether the stream was renamed"
            }
            RestoreError::Changed { .. } | RestoreError::Count { .. } => {
                "see who else writes to the file, and try again with a copy"
            }
            RestoreError::Read(_) | RestoreError::Reader(_) => {
                "see whether this user may read the file, and whether it is whole"
            }
        };
        Self::failed(error).advise(advice)
    }
}
