//! `lanekeeper ack`: acknowledges messages that a subscription sent.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::sent::{self, Acked};
use serde::Serialize;
use uuid::Uuid;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// Acknowledge messages that were sent, so that their sessions go on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each is acked, already_acked, or unknown: never sent to a subscription that requires
acknowledgements, or failed, expired or forgotten meanwhile. None of these is an error.

Example:
  lanekeeper ack 019c0000-0000-7000-8000-000000000001")]
pub struct Args {
    /// The ids, as deliveries carry them (`webhook-id`)
    #[arg(value_name = "MESSAGE_ID", required = true)]
    message_ids: Vec<Uuid>,
    /// Only for this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Line {
    message_id: Uuid,
    result: Acked,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let client = super::connect(config).await?;
    let subscription = args.subscription.as_deref();
    let acked = sent::ack_many(&client, &args.message_ids, subscription, None).await?;
    for (message_id, result) in acked {
        match args.output.output {
            Output::Json => output::json_line(&Line { message_id, result })?,
            Output::Text => output::line(format!("{message_id}: {}", result.as_str()))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
