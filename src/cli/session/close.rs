//! `lanekeeper session close` and `session reopen`.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::closing;
use lanekeeper_postgres::inspect::SessionStatus;
use serde::Serialize;

use super::Name;
use crate::Failure;
use crate::lane::ReasonArgs;
use crate::output::{self, Output, OutputArgs};

/// Close a session: appends are refused, and what is not delivered expires
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A running delivery is cancelled. Dead letters stay. With --drain, what is there is delivered first;
a second call without it expires what is left then.

Examples:
  lanekeeper session close inbound 7f3a --reason 'the agent has ended'
  lanekeeper session close inbound 7f3a --drain")]
pub(super) struct CloseArgs {
    #[command(flatten)]
    session: Name,
    /// Deliver what is there first
    #[arg(long)]
    drain: bool,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Have a closed session take events again; what has expired stays expired
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper session reopen inbound 7f3a")]
pub(super) struct ReopenArgs {
    #[command(flatten)]
    session: Name,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Closed<'a> {
    stream: &'a str,
    session: &'a str,
    drain: bool,
    expired: i64,
}

#[derive(Serialize)]
struct Reopened<'a> {
    stream: &'a str,
    session: &'a str,
    reopened: bool,
}

pub(super) async fn close(args: CloseArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = crate::connect(config).await?;
    let Name { stream, session } = &args.session;
    let reason = args.reason.reason.as_deref();
    let expired = closing::close_session(&client, stream, session, reason, args.drain).await?;
    match args.output.output {
        Output::Json => output::json_line(&Closed {
            stream,
            session,
            drain: args.drain,
            expired,
        })?,
        Output::Text if args.drain => output::line(format!(
            "{stream}/{}: closed; what is there is delivered first",
            output::plain(session)
        ))?,
        Output::Text => output::line(format!(
            "{stream}/{}: closed, {expired} {} expired",
            output::plain(session),
            if expired == 1 { "event" } else { "events" }
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn reopen(args: ReopenArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = crate::connect(config).await?;
    let Name { stream, session } = &args.session;
    let reopened = closing::reopen_session(&client, stream, session).await?;
    let said = if reopened {
        "open again"
    } else {
        "it was not closed"
    };
    match args.output.output {
        Output::Json => output::json_line(&Reopened {
            stream,
            session,
            reopened,
        })?,
        Output::Text => output::line(format!("{stream}/{}: {said}", output::plain(session)))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// When and why a session was closed, where it was.
pub(super) fn print(session: &SessionStatus) -> Result<(), Failure> {
    let Some(closed_at) = session.closed_at else {
        return Ok(());
    };
    let state = if session.draining {
        "draining since"
    } else {
        "closed since"
    };
    let reason = session.close_reason.as_deref().map(output::plain);
    let reason = reason.map(|reason| format!(": {reason}"));
    output::line(format!(
        "{state} {}{}",
        output::time(closed_at),
        reason.unwrap_or_default()
    ))
}
