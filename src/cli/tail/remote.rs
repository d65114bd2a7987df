//! `tail` through a worker's HTTP API, where there is `LANEKEEPER_URL` and no database.

use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use lanekeeper_producer::ProducerError;
use lanekeeper_producer::follow::{Said, is_temporary};
use lanekeeper_producer::remote::Remote;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::Args;
use crate::Failure;
use crate::output::{self, Output};

const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// What is printed of an event as text.
#[derive(Deserialize)]
struct Line<'a> {
    seq: i64,
    created_at: Timestamp,
    event_type: String,
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[derive(Debug, thiserror::Error)]
#[error("{0} needs a database: set DATABASE_URL")]
struct NeedsDatabase(&'static str);

fn failure(error: ProducerError) -> Failure {
    let advice = error.advice().map(str::to_owned);
    let failure = match is_temporary(&error) {
        true => Failure::later(error),
        false => Failure::failed(error),
    };
    match advice {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

pub(super) async fn tail(args: &Args, remote: &Remote) -> Result<ExitCode, Failure> {
    if !args.follow {
        return Err(Failure::usage(NeedsDatabase("tail without --follow")));
    }
    if args.last.is_some() {
        return Err(Failure::usage(NeedsDatabase("--last")));
    }
    let from = args.from.unwrap_or(1).to_string();
    let mut cursor = None;
    loop {
        let followed = follow(args, remote, &from, &mut cursor).await;
        match followed {
            Ok(true) => return Ok(ExitCode::SUCCESS),
            Ok(false) => {}
            // The first connection tells whether anything is wrong.
            Err(error) if cursor.is_some() && is_temporary(&error) => {}
            Err(error) => return Err(failure(error)),
        }
        output::note("the connection ended: going on from where it was");
        sleep(RECONNECT_DELAY).await;
    }
}

/// One connection. Whether there is nothing more to come.
async fn follow(
    args: &Args,
    remote: &Remote,
    from: &str,
    cursor: &mut Option<String>,
) -> Result<bool, ProducerError> {
    let opened = remote
        .follow(&args.stream, &args.session, from, cursor.as_deref())
        .await?;
    let Some(mut following) = opened else {
        return Ok(true);
    };
    loop {
        let said = following.next().await;
        cursor.clone_from(&following.cursor);
        match said? {
            None => return Ok(false),
            Some(Said::Event(event)) => {
                if print(args, &event).is_err() {
                    // Whoever read this has left.
                    return Ok(true);
                }
            }
            Some(Said::End) => {
                output::note("the session is closed");
                return Ok(true);
            }
            Some(Said::Resync {
                requested_seq,
                first_seq,
            }) => output::note(format!(
                "seq {requested_seq} to {} are gone: their retention is over",
                first_seq - 1
            )),
            Some(Said::Disconnect { reason }) => {
                output::note(format!(
                    "the worker ends the connection: {}",
                    output::plain(&reason)
                ));
            }
        }
    }
}

fn print(args: &Args, event: &RawValue) -> Result<(), Failure> {
    match args.output.output {
        Output::Json => output::json_line(&event),
        Output::Text => {
            let line: Line<'_> = serde_json::from_str(event.get()).map_err(Failure::failed)?;
            output::line(format!(
                "{:>6}  {:.3}  {}  {}",
                line.seq,
                line.created_at,
                output::plain(&line.event_type),
                output::plain(line.payload.get()),
            ))
        }
    }
}
