//! `lanekeeper session interrupt`.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::append::NewEvent;
use lanekeeper_postgres::interrupt::{self, Interrupt};
use uuid::Uuid;

use super::Name;
use crate::Failure;
use crate::output::{self, Output, OutputArgs};

/// Append an event that is the next one of its session: what waits is superseded
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The running delivery is cancelled. With --barrier it ends by itself first. With --keep-waiting,
what waited is appended again behind the event, 1,000 events at most.

Examples:
  lanekeeper session interrupt inbound 7f3a stop --payload '{\"why\":\"wrong branch\"}'
  lanekeeper session interrupt inbound 7f3a note --payload '\"read this first\"' --keep-waiting --barrier")]
pub(super) struct InterruptArgs {
    #[command(flatten)]
    session: Name,
    /// The event's type
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// The payload, JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    payload: String,
    /// Append what waits again behind the event
    #[arg(long)]
    keep_waiting: bool,
    /// Let the running delivery end by itself
    #[arg(long)]
    barrier: bool,
    /// The event's id, where it has one already: a repeated one does nothing twice
    #[arg(long, value_name = "UUID")]
    message_id: Option<Uuid>,
    /// The event's name with its producer: a repeated one does nothing twice
    #[arg(long, value_name = "KEY")]
    dedupe_key: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: InterruptArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = crate::connect(config).await?;
    let Name { stream, session } = &args.session;
    let event = NewEvent {
        message_id: args.message_id,
        dedupe_key: args.dedupe_key.as_deref(),
        ..NewEvent::new(session, &args.event_type, &args.payload)
    };
    let what = Interrupt {
        keep_waiting: args.keep_waiting,
        cancel_running: !args.barrier,
    };
    let done = interrupt::interrupt(&client, stream, &event, what).await?;
    match args.output.output {
        Output::Json => output::json_line(&done)?,
        Output::Text if done.duplicate => output::line(format!(
            "duplicate of seq {}, message {}: nothing was done",
            done.seq, done.message_id
        ))?,
        Output::Text => output::line(format!(
            "enqueued as seq {}, message {}: {} superseded, {} appended again",
            done.seq, done.message_id, done.superseded, done.appended_again
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}
