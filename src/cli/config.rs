//! `lanekeeper config`: the settings that are in force, and the source of each.

use std::process::ExitCode;

use lanekeeper_config::{Config, Effective};
use serde::Serialize;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// Print the effective configuration with the source of each setting, secrets masked
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper config
  LANEKEEPER_WORKER__BATCH=50 lanekeeper config --output json")]
pub struct Args {
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Serialize)]
struct Line<'s> {
    key: &'s str,
    value: Option<&'s str>,
    source: String,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let settings = config.effective();
    match args.output.output {
        Output::Text => output::table(
            ["KEY", "VALUE", "SOURCE"],
            &settings.iter().map(row).collect::<Vec<_>>(),
        )?,
        Output::Json => {
            for Effective { key, value, origin } in &settings {
                let source = origin.to_string();
                output::json_line(&Line {
                    key,
                    value: value.as_deref(),
                    source,
                })?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(setting: &Effective) -> [String; 3] {
    let value = setting.value.clone().unwrap_or_else(|| "-".to_owned());
    [setting.key.clone(), value, setting.origin.to_string()]
}
