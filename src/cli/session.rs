//! `lanekeeper session`: sessions and all their lanes at once.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::inspect::{self, LaneStatus, RegistryFilter, SessionStatus, TurnState};
use lanekeeper_postgres::operate::LaneAction;
use lanekeeper_streams::hooks::shape::AgentCli;
use serde::Serialize;

mod attach;
mod bind;
mod close;
mod interrupt;
mod registry;
mod send;

use super::Failure;
use super::lane::{self, Change, ReasonArgs};
use super::list::LimitArgs;
use super::output::{self, Output, OutputArgs, or_dash};

/// Look at sessions; pause, resume, close, interrupt or bind one, or send it a message
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Show(ShowArgs),
    Pause(ChangeArgs),
    Resume(ResumeArgs),
    Close(close::CloseArgs),
    Reopen(close::ReopenArgs),
    Bind(bind::BindArgs),
    Attach(attach::AttachArgs),
    // By far the largest.
    Send(Box<send::SendArgs>),
    Interrupt(interrupt::InterruptArgs),
}

/// List sessions, the newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper session list
  lanekeeper session list --turn running
  lanekeeper session list --turn stale
  lanekeeper session list --cli codex --limit 10 --output json")]
struct ListArgs {
    /// Only sessions of this stream
    #[arg(long, value_name = "STREAM")]
    stream: Option<String>,
    /// Only sessions of this agent CLI: claude-code, codex, gemini, cursor, opencode or qwen
    #[arg(long, value_name = "CLI")]
    cli: Option<AgentCli>,
    /// Only agents' sessions whose turn is in this state
    #[arg(long, value_enum, value_name = "STATE")]
    turn: Option<TurnState>,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Show a session and all its lanes, those at rest too
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper session show hooks 7f3a")]
struct ShowArgs {
    #[command(flatten)]
    session: Name,
    #[command(flatten)]
    output: OutputArgs,
}

/// Park every lane of a session; its events go on being recorded
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A lane that is parked already stays as it is. A subscription that is added later delivers all the
same.

Example:
  lanekeeper session pause hooks 7f3a --reason 'investigating'")]
struct ChangeArgs {
    #[command(flatten)]
    session: Name,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Unpark every lane of a session, those that were parked for another reason too
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper session resume hooks 7f3a")]
struct ResumeArgs {
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Debug, clap::Args)]
struct Name {
    /// The session's stream
    #[arg(value_name = "STREAM")]
    stream: String,
    /// The session's name
    #[arg(value_name = "SESSION")]
    session: String,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    session: &'a SessionStatus,
    lane_status: &'a [LaneStatus],
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    match args.command {
        Command::List(args) => list(args, config).await,
        Command::Show(args) => show(args, config).await,
        Command::Pause(args) => change(args, LaneAction::Park, config).await,
        Command::Resume(args) => change(args.change, LaneAction::Unpark, config).await,
        Command::Close(args) => close::close(args, config).await,
        Command::Reopen(args) => close::reopen(args, config).await,
        Command::Bind(args) => bind::bind(args, config).await,
        Command::Attach(args) => attach::attach(args).await,
        Command::Send(args) => send::send(*args, config).await,
        Command::Interrupt(args) => interrupt::run(args, config).await,
    }
}

async fn list(args: ListArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let reading = inspect::begin(&mut client).await?;
    let stream_id = match &args.stream {
        Some(stream) => Some(inspect::find_stream(&reading, stream).await?),
        None => None,
    };
    let limit = args.limit.to_ask_for();
    let stale_after_s = config.hook.stale_after_s;
    let ids = if args.cli.is_some() || args.turn.is_some() {
        let filter = RegistryFilter {
            cli: args.cli.map(AgentCli::agent),
            turn: args.turn,
            stream_ids: stream_id.as_ref().map(std::slice::from_ref),
            before: None,
        };
        Some(inspect::registered(&reading, filter, stale_after_s, limit).await?)
    } else {
        None
    };
    let ids = ids.as_deref();
    let mut sessions = inspect::sessions(&reading, stream_id, ids, stale_after_s, limit).await?;
    drop(reading);
    args.limit.cut(&mut sessions);
    match args.output.output {
        Output::Json => sessions.iter().try_for_each(output::json_line)?,
        Output::Text if sessions.is_empty() => output::note("there is no session"),
        Output::Text => print(&sessions)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: ShowArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let reading = inspect::begin(&mut client).await?;
    let Name { stream, session } = &args.session;
    let session_id = inspect::find_session(&reading, stream, session).await?;
    let stale_after_s = config.hook.stale_after_s;
    let sessions = inspect::sessions(&reading, None, Some(&[session_id]), stale_after_s, 1).await?;
    let ids = inspect::lanes_of_session(&reading, session_id, None).await?;
    let lanes = inspect::lanes(&reading, &ids).await?;
    drop(reading);
    match args.output.output {
        Output::Json => {
            for session in &sessions {
                output::json_line(&Shown {
                    session,
                    lane_status: &lanes,
                })?;
            }
        }
        Output::Text => {
            print(&sessions)?;
            sessions.iter().try_for_each(close::print)?;
            output::line("")?;
            for entry in sessions
                .iter()
                .filter_map(|session| session.registry.as_ref())
            {
                registry::print(entry)?;
                output::line("")?;
            }
            lane::print_lanes(&lanes, Output::Text)?;
        }
    }
    if lanes.is_empty() {
        output::note("no subscription receives this session");
    }
    Ok(ExitCode::SUCCESS)
}

async fn change(
    args: ChangeArgs,
    action: LaneAction,
    config: &Config,
) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let reading = inspect::begin(&mut client).await?;
    let Name { stream, session } = &args.session;
    let session_id = inspect::find_session(&reading, stream, session).await?;
    let ids = inspect::lanes_of_session(&reading, session_id, None).await?;
    let mut lanes = inspect::lanes(&reading, &ids).await?;
    drop(reading);
    // Parking again would write this reason over the one that is on the lane.
    lanes.retain(|lane| (action == LaneAction::Park) != lane.parked_at.is_some());
    if lanes.is_empty() {
        output::note("nothing to change");
    }
    let reason = match action {
        LaneAction::Park => args
            .reason
            .reason
            .or(Some("the session was paused".to_owned())),
        _ => args.reason.reason,
    };
    lane::change(
        &client,
        &lanes,
        &Change::new(action, reason),
        args.output.output,
    )
    .await
}

fn print(sessions: &[SessionStatus]) -> Result<(), Failure> {
    let rows: Vec<_> = sessions
        .iter()
        .map(|session| {
            [
                session.stream.clone(),
                output::short(&session.session, 60),
                output::time(session.created_at),
                session.newest_seq.to_string(),
                or_dash(session.last_event_at.map(output::time)),
                session.lanes.to_string(),
                session.parked.to_string(),
                session.behind.to_string(),
                or_dash(
                    session
                        .registry
                        .as_ref()
                        .and_then(|entry| entry.cli.clone()),
                ),
                or_dash(session.registry.as_ref().map(registry::turn)),
            ]
        })
        .collect();
    output::table(
        [
            "STREAM",
            "SESSION",
            "CREATED",
            "EVENTS",
            "LAST EVENT",
            "LANES",
            "PARKED",
            "BEHIND",
            "CLI",
            "TURN",
        ],
        &rows,
    )
}
