//! `lanekeeper session send`: a person's message to an agent.

use std::io::{self, IsTerminal as _, Read as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use lanekeeper_config::Config;
use lanekeeper_postgres::inbound::{MessageType, NewInbound, enqueue_inbound};
use lanekeeper_producer::Way;
use tokio::time::Instant;

use crate::Failure;
use crate::enqueue::print;
use crate::output::{self, OutputArgs};

/// For an answer of a worker's HTTP API.
const REMOTE_WITHIN: Duration = Duration::from_secs(30);
/// One byte more than a content may have: a longer text is not read on.
const MOST_BYTES: u64 = (1 << 20) + 1;

/// Send a message to an agent's session, over the stream `inbound`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The text may come on standard input. With --source-message-id, a repeated call sends nothing.

Examples:
  lanekeeper session send 7f3a 'and now the tests, please'
  git diff | lanekeeper session send 7f3a
  lanekeeper session send 7f3a --type file --payload '{\"path\":\"/srv/in/plan.pdf\"}'
  lanekeeper session send 7f3a 'stop' --origin telegram --source-message-id 8812 --actor-name Ada")]
pub(super) struct SendArgs {
    /// The session's name
    #[arg(value_name = "SESSION")]
    session: String,
    /// What to say [default: standard input]
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<String>,
    /// text, voice or file; of the last two the payload says where it is
    #[arg(long = "type", value_name = "TYPE", default_value = MessageType::Text.as_str(),
          value_parser = PossibleValuesParser::new(MessageType::ALL.map(MessageType::as_str)))]
    message_type: String,
    /// Where the message comes from
    #[arg(long, value_name = "NAME", default_value = "terminal")]
    origin: String,
    /// More about the message, as a JSON object
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Who wrote it, as the origin calls them
    #[arg(long, value_name = "ID")]
    actor_id: Option<String>,
    /// Who wrote it, for people
    #[arg(long, value_name = "NAME")]
    actor_name: Option<String>,
    /// A picture of who wrote it
    #[arg(long, value_name = "URL")]
    actor_avatar_url: Option<String>,
    /// The origin's own name of the message
    #[arg(long, value_name = "ID")]
    source_message_id: Option<String>,
    /// The origin's own name of the chat
    #[arg(long, value_name = "ID")]
    source_channel_id: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn send(args: SendArgs, config: &Config) -> Result<ExitCode, Failure> {
    let content = match args.text {
        Some(text) => text,
        // Of a recording or a file there need not be any.
        None if args.message_type != MessageType::Text.as_str() => String::new(),
        None => from_stdin()?,
    };
    let message = NewInbound {
        message_type: &args.message_type,
        payload: args.payload.as_deref(),
        actor_id: args.actor_id.as_deref(),
        actor_name: args.actor_name.as_deref(),
        actor_avatar_url: args.actor_avatar_url.as_deref(),
        source_message_id: args.source_message_id.as_deref(),
        source_channel_id: args.source_channel_id.as_deref(),
        ..NewInbound::text(&args.session, &args.origin, &content)
    };
    let enqueued = match crate::way(config).map_err(Failure::usage)? {
        Some(Way::Remote(remote)) => {
            let deadline = Instant::now() + REMOTE_WITHIN;
            remote.enqueue_inbound(&message, deadline).await?
        }
        _ => {
            let client = crate::connect(config).await?;
            enqueue_inbound(&client, &message).await?
        }
    };
    print(&enqueued, args.output.output)?;
    Ok(ExitCode::SUCCESS)
}

fn from_stdin() -> Result<String, Failure> {
    if io::stdin().is_terminal() {
        output::note("reading the message; end it with Ctrl-D");
    }
    let mut text = String::new();
    let read = io::stdin()
        .lock()
        .take(MOST_BYTES)
        .read_to_string(&mut text);
    read.map_err(|error| {
        let said = format!("standard input cannot be read: {error}");
        Failure::usage(said).advise("nothing was sent")
    })?;
    // The end of the last line is the shell's.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}
