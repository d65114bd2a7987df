//! `lanekeeper tail`: shows a session's events from the log, whether or not they were delivered.
//!
//! It reads pages that are bounded in rows and bytes. The notifications that wake workers also wake followers; they are
//! hints (I8), and a poll finds events that came without one.

mod remote;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_config::Config;
use lanekeeper_postgres::connect::{self, ConnectError};
use lanekeeper_postgres::log::{self, LineView, LoggedEvent, Reader};
use lanekeeper_postgres::{ErrorClass, inspect};
use lanekeeper_producer::remote::Remote;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// How long a follower goes without looking.
const POLL: Duration = Duration::from_millis(500);
/// Between two looks: other sessions' notifications wake a follower too.
const REST: Duration = Duration::from_millis(10);
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Print a session's events in order, and go on as they come
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON lines have the fields that `enqueue --lines` reads. Ctrl-C ends --follow with exit code 0. Without a database,
--follow reads through the worker that LANEKEEPER_URL names, until the session is closed; LANEKEEPER_TOKEN needs the
scope read.

Examples:
  lanekeeper tail hooks 7f3a --follow
  lanekeeper tail hooks 7f3a --from 100 --output json | jq .payload")]
pub struct Args {
    /// The session's stream
    stream: String,
    /// The session
    session: String,
    /// Go on with events as they are enqueued
    #[arg(short, long)]
    follow: bool,
    /// The first event to print [default: the oldest that is kept]
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..))]
    from: Option<i64>,
    /// Start with the last N events
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "from", value_parser = clap::value_parser!(i64).range(0..))]
    last: Option<i64>,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    if !args.follow {
        return tail(&args, config).await;
    }
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    tokio::select! {
        ended = tail(&args, config) => ended,
        _ = interrupt.recv() => Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => Ok(ExitCode::SUCCESS),
    }
}

async fn tail(args: &Args, config: &Config) -> Result<ExitCode, Failure> {
    if config.database.url.is_none()
        && let Some(remote) = Remote::of_environment().map_err(Failure::usage)?
    {
        return remote::tail(args, &remote).await;
    }
    let (mut client, mut notified) = open(args, config).await?;
    let session_id = inspect::find_session(&client, &args.stream, &args.session).await?;
    let first = match (args.from, args.last) {
        (Some(from), _) => from,
        (None, Some(last)) => (log::newest_seq(&client, session_id).await? + 1)
            .saturating_sub(last)
            .max(1),
        (None, None) => 1,
    };
    let mut reader = Reader::new(session_id, first);
    let mut printed_any = false;
    loop {
        match reader.page(&client).await {
            Ok(events) if events.is_empty() && !args.follow => return Ok(ExitCode::SUCCESS),
            Ok(events) => {
                if let Some(oldest) = events.first().filter(|_| !printed_any)
                    && oldest.seq > first
                {
                    output::note(format!(
                        "seq {first} to {} are gone: their retention is over",
                        oldest.seq - 1
                    ));
                }
                printed_any |= !events.is_empty();
                for event in &events {
                    print(args, event)?;
                }
                if events.is_empty() {
                    // Whoever wakes it: the next page tells whether there is anything.
                    let _ = timeout(POLL, notified.notified()).await;
                    sleep(REST).await;
                }
            }
            Err(error) if args.follow && error.class() == ErrorClass::ConnectionLost => {
                output::note(format!(
                    "the connection broke: trying again from seq {}",
                    reader.next_seq
                ));
                (client, notified) = reopen(args, config).await?;
            }
            Err(error) => {
                return Err(
                    Failure::from(error).advise(format!("go on with --from {}", reader.next_seq))
                );
            }
        }
    }
}

async fn open(args: &Args, config: &Config) -> Result<(Client, Arc<Notify>), ConnectError> {
    if args.follow {
        connect::listen(&config.database).await
    } else {
        let client = connect::connect(&config.database).await?;
        Ok((client, Arc::default()))
    }
}

/// Tries until there is a connection, or none to be expected.
async fn reopen(args: &Args, config: &Config) -> Result<(Client, Arc<Notify>), ConnectError> {
    loop {
        sleep(RECONNECT_DELAY).await;
        match open(args, config).await {
            Err(error) if error.is_temporary() || matches!(error, ConnectError::Store(_)) => {}
            opened => return opened,
        }
    }
}

fn print(args: &Args, event: &LoggedEvent) -> Result<(), Failure> {
    match args.output.output {
        Output::Json => output::json_line(&LineView::new(&args.stream, &args.session, event)),
        Output::Text => output::line(format!(
            "{:>6}  {:.3}  {}  {}",
            event.seq,
            event.created_at,
            output::plain(&event.event_type),
            output::plain(event.payload.get()),
        )),
    }
}
