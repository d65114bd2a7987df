//! `lanekeeper cancel`: cancels messages that are not delivered yet.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::interrupt::{self, Cancel, Cancelled};
use serde::Serialize;
use uuid::Uuid;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// Cancel messages that are not delivered yet
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each is cancelled (it waited, and is not delivered), running (its delivery is cancelled, unless it
ends first; `session show` and the view lanekeeper.message say which), already_settled, or unknown.
None of these is an error.

An id that the producer did not choose is searched for in the log of its day, which takes seconds
where that has millions of events. Name the stream and the session to spare that.

Examples:
  lanekeeper cancel 019c0000-0000-7000-8000-000000000001
  lanekeeper cancel --in messages agent-7 019c0000-0000-7000-8000-000000000001")]
pub struct Args {
    /// The ids, as appends return them
    #[arg(value_name = "MESSAGE_ID", required = true)]
    message_ids: Vec<Uuid>,
    /// The stream and the session of the messages
    #[arg(long = "in", num_args = 2, value_names = ["STREAM", "SESSION"])]
    session: Option<Vec<String>>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Line {
    message_id: Uuid,
    result: Cancelled,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let client = super::connect(config).await?;
    let session = match args.session.as_deref() {
        Some([stream, session]) => Some((stream.as_str(), session.as_str())),
        _ => None,
    };
    for message_id in args.message_ids {
        let which = Cancel {
            message_id,
            session,
            streams: None,
            producer: None,
        };
        let result = interrupt::cancel(&client, which).await?;
        match args.output.output {
            Output::Json => output::json_line(&Line { message_id, result })?,
            Output::Text => output::line(format!("{message_id}: {}", result.as_str()))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
