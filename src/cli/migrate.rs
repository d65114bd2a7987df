//! `lanekeeper migrate`: brings the schema to what this release needs.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::{connect, migrate};
use serde::Serialize;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// Create or update the schema; safe to run again and from several places at once
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  DATABASE_URL=postgres://owner@db/app lanekeeper migrate")]
pub struct Args {
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Serialize)]
struct Line<'r> {
    from: i32,
    to: i32,
    applied: &'r [&'static str],
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = connect::open(&config.database).await?;
    let report = migrate::migrate(&mut client)
        .await
        .map_err(Failure::failed)?;
    match args.output.output {
        Output::Json => {
            let (from, to) = (report.from, report.to);
            output::json_line(&Line {
                from,
                to,
                applied: &report.applied,
            })?;
        }
        Output::Text => {
            for name in &report.applied {
                output::line(format!("applied {name}"))?;
            }
            output::line(match report.applied.len() {
                0 => format!("the schema is at version {} already", report.to),
                _ => format!(
                    "the schema went from version {} to {}",
                    report.from, report.to
                ),
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
