//! `lanekeeper projection`: read models that functions in SQL keep, how far they are behind, and their rebuild.

mod list;
mod rebuild;

use std::process::ExitCode;

use lanekeeper_config::Config;

use super::Failure;

/// List projections, and rebuild one from the log
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::ListArgs),
    Show(list::ShowArgs),
    Rebuild(rebuild::RebuildArgs),
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    match args.command {
        Command::List(args) => list::list(args, config).await,
        Command::Show(args) => list::show(args, config).await,
        Command::Rebuild(args) => rebuild::run(args, config).await,
    }
}

/// No projection has this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no projection {0:?}")]
struct Unknown(String);

impl From<Unknown> for Failure {
    fn from(error: Unknown) -> Self {
        Self::failed(error).advise("list them with `lanekeeper projection list`")
    }
}
