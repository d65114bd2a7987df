//! `lanekeeper enqueue`: one event from the command line, or many from standard input.
//!
//! Payloads are passed through as JSON text. All statements are unnamed, so that a transaction
//! pooler may stand in between.

mod input;
mod lines;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use lanekeeper_config::Config;
use lanekeeper_postgres::ErrorClass;
use lanekeeper_postgres::append::{self, AppendError, Enqueued, NewEvent};
use lanekeeper_producer::{ProducerError, Way};
use tokio::time::Instant;
use uuid::Uuid;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// No jsonb is larger than this: input beyond it is not read.
const MAX_BYTES: u64 = 256 << 20;

/// For an answer of a worker's HTTP API.
const REMOTE_WITHIN: Duration = Duration::from_secs(30);

/// Append an event to a session's log, or many with --lines
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --lines, standard input has a JSON object per line: session, event_type, payload, and where
wanted message_id, dedupe_key, priority, headers. They are enqueued in order, in batches; the first
line that is refused ends it, with everything before it enqueued.

Examples:
  lanekeeper enqueue runs run-7 step_done --payload '{\"step\":3}'
  git log -1 --format='{\"head\":\"%H\"}' | lanekeeper enqueue runs run-7 pushed --dedupe-key run-7-push
  lanekeeper enqueue runs --lines < events.jsonl")]
pub struct Args {
    /// The stream
    stream: String,
    /// The ordering key: a new name makes a new session
    #[arg(required_unless_present = "lines", conflicts_with = "lines")]
    session: Option<String>,
    /// The event's type
    #[arg(
        value_name = "TYPE",
        required_unless_present = "lines",
        conflicts_with = "lines"
    )]
    event_type: Option<String>,
    /// The payload, JSON [default: read from standard input]
    #[arg(long, value_name = "JSON", conflicts_with_all = ["payload_file", "lines"])]
    payload: Option<String>,
    /// A file with the payload
    #[arg(long, value_name = "FILE", conflicts_with = "lines")]
    payload_file: Option<PathBuf>,
    /// The event's id, where it has one already: a repeated one is not enqueued again
    #[arg(long, value_name = "UUID", conflicts_with = "lines")]
    message_id: Option<Uuid>,
    /// The event's name with its producer: a repeated one is not enqueued again
    #[arg(long, value_name = "KEY", conflicts_with = "lines")]
    dedupe_key: Option<String>,
    /// The seq that the event is to have, the session's newest plus one: any other is refused
    #[arg(long, value_name = "N", conflicts_with = "lines", value_parser = clap::value_parser!(i64).range(1..))]
    expected_seq: Option<i64>,
    /// -100 to 100: a higher one pulls its session forward
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, conflicts_with = "lines",
          value_parser = clap::value_parser!(i16).range(-100..=100))]
    priority: i16,
    /// A header that travels with the event; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header, conflicts_with = "lines")]
    headers: Vec<(String, String)>,
    /// Read events from standard input, a JSON object per line
    #[arg(long)]
    lines: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let (Some(session), Some(event_type)) = (&args.session, &args.event_type) else {
        return lines::run(&args.stream, args.output.output, config).await;
    };
    let payload = match (&args.payload, &args.payload_file) {
        (Some(payload), _) => payload.clone(),
        (None, Some(path)) => from_file(path)?,
        (None, None) => from_stdin("the payload")?,
    };
    if payload.trim().is_empty() {
        return Err(Failure::usage("no payload was given: nothing was enqueued").advise(
            "give JSON, such as --payload '{\"step\":3}', --payload-file FILE, or on standard input",
        ));
    }
    let headers = headers_json(&args.headers)?;
    let event = NewEvent {
        message_id: args.message_id,
        dedupe_key: args.dedupe_key.as_deref(),
        priority: args.priority,
        headers: headers.as_deref(),
        expected_seq: args.expected_seq,
        ..NewEvent::new(session, event_type, &payload)
    };
    let enqueued = match super::way(config).map_err(Failure::usage)? {
        Some(Way::Remote(remote)) => {
            let deadline = Instant::now() + REMOTE_WITHIN;
            remote.enqueue(&args.stream, &event, deadline).await?
        }
        _ => {
            let client = super::connect(config).await?;
            append::enqueue(&client, &args.stream, &event).await?
        }
    };
    print(&enqueued, args.output.output)?;
    Ok(ExitCode::SUCCESS)
}

/// What became of an event.
pub(crate) fn print(enqueued: &Enqueued, output: Output) -> Result<(), Failure> {
    match output {
        Output::Json => output::json_line(enqueued),
        Output::Text if enqueued.duplicate => output::line(format!(
            "duplicate of seq {}, message {}: nothing was enqueued",
            enqueued.seq, enqueued.message_id
        )),
        Output::Text => output::line(format!(
            "enqueued as seq {}, message {}",
            enqueued.seq, enqueued.message_id
        )),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

fn headers_json(headers: &[(String, String)]) -> Result<Option<String>, Failure> {
    let mut object = BTreeMap::new();
    for (name, value) in headers {
        if object.insert(name, value).is_some() {
            return Err(Failure::usage(format!(
                "header {name} is given twice: nothing was enqueued"
            )));
        }
    }
    if object.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(&object)
        .map(Some)
        .map_err(Failure::failed)
}

fn from_file(path: &Path) -> Result<String, Failure> {
    let origin = path.display().to_string();
    let file = std::fs::File::open(path);
    read(file.map_err(|error| unreadable(&origin, &error))?, &origin)
}

/// Reads all of standard input, which is to be `what`.
pub(crate) fn from_stdin(what: &str) -> Result<String, Failure> {
    if io::stdin().is_terminal() {
        output::note(format!("reading {what}; end it with Ctrl-D"));
    }
    read(io::stdin().lock(), "standard input")
}

fn read(input: impl Read, origin: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = input.take(MAX_BYTES).read_to_string(&mut text);
    read.map_err(|error| unreadable(origin, &error))?;
    Ok(text)
}

fn unreadable(origin: &str, error: &io::Error) -> Failure {
    Failure::usage(format!("{origin} cannot be read: {error}")).advise("nothing was enqueued")
}

const OUTCOME_UNKNOWN: &str =
    "whether it was enqueued is not known: a message id or a dedupe key makes it safe to repeat";

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        let advice = error.advice().map(str::to_owned);
        let failure = match error {
            unknown if unknown.is_outcome_unknown() => Self::later(unknown).advise(OUTCOME_UNKNOWN),
            AppendError::Store(error) => match error.class() {
                ErrorClass::Permanent => Self::failed(error).advise("nothing was enqueued"),
                ErrorClass::Retryable | ErrorClass::ConnectionLost => {
                    Self::later(error).advise("nothing was enqueued: try again")
                }
            },
            full @ AppendError::QueueFull(_) => Self::later(full),
            refused => Self::failed(refused),
        };
        match advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}

impl From<ProducerError> for Failure {
    fn from(error: ProducerError) -> Self {
        let error = match error {
            ProducerError::Append(error) => return error.into(),
            ProducerError::Remote(error) => error,
        };
        let advice = error.advice().map(str::to_owned);
        let failure = match error.is_outcome_unknown() {
            true => Self::later(error).advise(OUTCOME_UNKNOWN),
            false => Self::later(error).advise("nothing was enqueued: try again"),
        };
        match advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}
