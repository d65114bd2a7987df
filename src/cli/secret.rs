//! `lanekeeper secret`: signing secrets for webhooks.

use std::process::ExitCode;

use lanekeeper_adapters::Signer;
use serde::Serialize;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// Make signing secrets for webhooks
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    New(NewArgs),
}

/// Print a new Standard Webhooks secret: whsec_ and 32 random bytes in base64
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Nothing is stored. Give the secret to the receiver, and to the workers in the environment variable that the
subscription names in `secret_env`.

Examples:
  export AUDIT_SECRET=$(lanekeeper secret new)
  lanekeeper secret new --output json | jq -r .secret")]
struct NewArgs {
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct New {
    secret: String,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let Command::New(NewArgs {
        output: OutputArgs { output },
    }) = args.command;
    let secret = Signer::new_secret().map_err(Failure::failed)?;
    match output {
        Output::Text => output::line(secret)?,
        Output::Json => output::json_line(&New { secret })?,
    }
    Ok(ExitCode::SUCCESS)
}
