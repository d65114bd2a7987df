//! `lanekeeper migrate`: brings the schema to the version of this release.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::connect;
use lanekeeper_postgres::migrate::difference::Difference;
use lanekeeper_postgres::migrate::{self, Report};
use serde::Serialize;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// Create or update the schema; safe to run again and from several places at once
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  DATABASE_URL=postgres://owner@db/app lanekeeper migrate
  lanekeeper migrate --check || echo 'the schema is not the one of this release'")]
pub struct Args {
    /// Change nothing: list what differs from this release, and exit with 1 where something does
    #[arg(long)]
    pub check: bool,
    /// Replace a newer release's functions by this older release's, on the way back to it; tables stay as they are
    #[arg(long, conflicts_with = "check")]
    pub put_back: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Serialize)]
struct Line<'r> {
    from: i32,
    to: i32,
    applied: &'r [String],
    replaced: &'r [String],
    dropped: &'r [String],
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = connect::open(&config.database).await?;
    if args.check {
        let differences = migrate::check(&mut client).await.map_err(Failure::failed)?;
        return list(&differences, args.output.output);
    }
    let migrated = match args.put_back {
        true => migrate::put_back(&mut client).await,
        false => migrate::migrate(&mut client).await,
    };
    let report = migrated.map_err(Failure::failed)?;
    match args.output.output {
        Output::Json => output::json_line(&Line {
            from: report.from,
            to: report.to,
            applied: &report.applied,
            replaced: &report.replaced,
            dropped: &report.dropped,
        })?,
        Output::Text => tell(&report)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(differences: &[Difference], output: Output) -> Result<ExitCode, Failure> {
    match output {
        Output::Json => differences.iter().try_for_each(output::json_line)?,
        Output::Text if differences.is_empty() => {
            output::line("the schema is the one of this release")?;
        }
        Output::Text => differences
            .iter()
            .try_for_each(|difference| output::line(difference.to_string()))?,
    }
    Ok(ExitCode::from(u8::from(!differences.is_empty())))
}

fn tell(report: &Report) -> Result<(), Failure> {
    for name in &report.applied {
        output::line(format!("applied {name}"))?;
    }
    match report.from {
        0 => output::line(format!(
            "created {} functions and views",
            report.replaced.len()
        ))?,
        _ => report
            .replaced
            .iter()
            .try_for_each(|name| output::line(format!("replaced {name}")))?,
    }
    for name in &report.dropped {
        output::line(format!("dropped {name}"))?;
    }
    output::line(match report {
        report if report.changed_nothing() => {
            format!("the schema is at version {} already", report.to)
        }
        Report { from, to, .. } if from == to => {
            format!("the schema stays at version {to}")
        }
        Report { from, to, .. } => format!("the schema went from version {from} to {to}"),
    })?;
    Ok(())
}
