//! `lanekeeper listen`: shows a stream's new events on the terminal and posts them to a URL, for developing a receiver.
//!
//! It follows the log and takes no part in delivery: it has no subscription and no lane. So it leaves nothing behind
//! however it ends, takes nothing from workers, and any number of listeners each get everything. It keeps its position
//! in each session in memory, so a restart begins with the events that are new then: **listen delivers while it runs; a
//! subscription delivers always.**
//!
//! ```text
//! pass over the sessions with recent events ─► newest seq above the cursor? ─► page of the log ─┬─► print
//!        ▲ notification, or the poll                       ▲                                     └─► POST, in order
//!        └─────────────────────────────────────────────────┴── later, if the answer was a failure ◄──┘
//! ```
//!
//! Within a session, each event is sent after the one before it was answered (2xx, or refused for good). A session that
//! waits for its next attempt delays no other. Cursors are seqs of sessions, which commit in their
//! order ([`log_follow`]), so a transaction that commits late is not skipped. Passes take a fifth of the time at most,
//! however many sessions there are.
//!
//! Notifications are hints (I8), and come only while a worker asks for them; the poll finds the rest.

mod forward;
mod print;
mod sessions;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use lanekeeper_config::Config;
use lanekeeper_postgres::connect::{self, ConnectError};
use lanekeeper_postgres::log::{LoggedEvent, Reader};
use lanekeeper_postgres::{ErrorClass, StoreError, inspect, log_follow};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::Client;

use super::Failure;
use super::output::{self, Output, OutputArgs};
use forward::{Batch, ForwardArgs, Forwarded, Forwarder};
use sessions::Sessions;

/// Between two passes over the sessions, at least.
const POLL: Duration = Duration::from_millis(200);
/// After a notification: others follow it.
const REST: Duration = Duration::from_millis(10);
/// How many times as long as the last pass took the next one waits.
const REST_PER_PASS: u32 = 4;
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// Sessions with a request under way, and the pages of events that are in memory.
const SESSIONS_AT_ONCE: usize = 32;

/// Print a stream's events as they come, and forward them to a URL
#[derive(Debug, clap::Args)]
#[command(after_help = "\
For developing a receiver. It begins with the events that come after its start, sends what a webhook subscription
sends (body, headers, signature), tries failures again, and leaves nothing behind: listen delivers while it runs, a
subscription delivers always. An answer of 4xx is printed and the session goes on. Ctrl-C ends it with exit code 0,
or with 1 where retention took events from the log before they were read.

Examples:
  lanekeeper listen hooks --forward-to localhost:3000/hooks
  lanekeeper listen runs --all --output json | jq .event_type")]
pub struct Args {
    /// The stream
    stream: String,
    #[command(flatten)]
    forward: ForwardArgs,
    /// Only events of these types, separated by commas [default: those that the stream fans out]
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    events: Vec<String>,
    /// Events of every type
    #[arg(long, conflicts_with = "events")]
    all: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    let forwarder = args.forward.forwarder(&args.stream, args.output.output)?;
    let mut listener = tokio::select! {
        listener = Listener::start(args, config, forwarder) => listener?,
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
    };
    // Requests that are under way end with the listener.
    tokio::select! {
        failure = listener.listen() => return Err(failure),
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    output::note(listener.sessions.summary());
    Ok(match listener.sessions.missing() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

struct Listener<'a> {
    config: &'a Config,
    stream: String,
    stream_id: i32,
    /// `None`: every type.
    types: Option<Vec<String>>,
    output: Output,
    client: Client,
    notified: Arc<Notify>,
    /// The first day that is read.
    since: Date,
    sessions: Sessions,
    forwarder: Option<Arc<Forwarder>>,
    under_way: JoinSet<Result<Forwarded, Failure>>,
}

impl<'a> Listener<'a> {
    /// Returns when every event that commits from now on will be found.
    async fn start(
        args: Args,
        config: &'a Config,
        forwarder: Option<Forwarder>,
    ) -> Result<Self, Failure> {
        let (client, notified) = connect::listen(&config.database).await?;
        let stream_id = inspect::find_stream(&client, &args.stream).await?;
        let types = match args.events {
            _ if args.all => None,
            types if types.is_empty() => log_follow::fan_out(&client, stream_id).await?,
            types => Some(types),
        };
        let since = log_follow::since(&client).await?;
        let mut listener = Self {
            config,
            stream: args.stream,
            stream_id,
            types,
            output: args.output.output,
            client,
            notified,
            since,
            sessions: Sessions::default(),
            forwarder: forwarder.map(Arc::new),
            under_way: JoinSet::new(),
        };
        listener.pass().await?;
        listener.sessions.begin_here();
        listener.announce();
        Ok(listener)
    }

    fn announce(&self) {
        let Self { stream, types, .. } = self;
        if let Some(forwarder) = &self.forwarder {
            for line in forwarder.announcement() {
                output::note(line);
            }
        }
        output::note(match types {
            Some(types) => format!("listening to {stream}: {}", types.join(", ")),
            None => format!("listening to {stream}: events of every type"),
        });
    }

    /// Goes on until something fails that trying again does not mend.
    async fn listen(&mut self) -> Failure {
        loop {
            match self.round().await {
                Ok(()) => {}
                Err(Ended::Disconnected) => {
                    output::note("the connection to the database broke: trying again");
                    match reopen(self.config).await {
                        Ok((client, notified)) => {
                            (self.client, self.notified) = (client, notified);
                        }
                        Err(error) => return error.into(),
                    }
                }
                Err(Ended::Failed(failure)) => return failure,
            }
        }
    }

    /// One pass, what it found, and a rest.
    async fn round(&mut self) -> Result<(), Ended> {
        let started = Instant::now();
        self.pass().await?;
        let ended = Instant::now();
        let rest = (ended - started) * REST_PER_PASS;
        let earliest = ended + rest.max(REST);
        let mut next_pass = ended + rest.max(POLL);
        loop {
            self.start_what_is_due().await?;
            // Without room for another request, the next one that ends makes some.
            let has_room = self.under_way.len() < SESSIONS_AT_ONCE;
            let next_attempt = self.sessions.next_attempt().filter(|_| has_room);
            let wake_at = next_attempt.map_or(next_pass, |at| at.min(next_pass));
            tokio::select! {
                Some(ended) = self.under_way.join_next() => {
                    let forwarded = ended.map_err(Failure::failed)??;
                    self.sessions.settle(forwarded);
                }
                () = self.notified.notified() => next_pass = earliest,
                () = sleep_until(wake_at) => {
                    if Instant::now() >= next_pass {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Looks at every session with recent events.
    async fn pass(&mut self) -> Result<(), StoreError> {
        // Not back, where the server's clock was: events of before the start would come.
        self.since = self.since.max(log_follow::since(&self.client).await?);
        self.sessions.begin_pass();
        let mut after = 0;
        loop {
            let page =
                log_follow::page(&mut self.client, self.stream_id, after, self.since).await?;
            for newest in page.sessions {
                self.sessions.saw(newest);
            }
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        self.sessions.end_pass();
        Ok(())
    }

    /// Reads the next page of each session that has one and may go on.
    async fn start_what_is_due(&mut self) -> Result<(), Ended> {
        while self.under_way.len() < SESSIONS_AT_ONCE {
            let Some(due) = self.sessions.next_due(Instant::now()) else {
                return Ok(());
            };
            let mut reader = Reader::since(due.session_id, due.cursor + 1, self.since);
            let page = match reader.page(&self.client).await {
                Ok(page) => page,
                Err(error) => {
                    self.sessions.put_back(&due);
                    return Err(error.into());
                }
            };
            let Some(last) = page.last() else {
                self.sessions.lost_to_retention(&due);
                continue;
            };
            let last_seq = last.seq;
            self.sessions.read(&due, page.iter().map(|event| event.seq));
            let wanted: Vec<LoggedEvent> = page
                .into_iter()
                .filter(|event| self.wants(&event.event_type))
                .collect();
            match &self.forwarder {
                Some(forwarder) if !wanted.is_empty() => {
                    let batch = Batch {
                        session_id: due.session_id,
                        session: due.session.clone(),
                        events: wanted,
                        last_seq,
                        attempts: due.attempts,
                    };
                    self.under_way.spawn(Arc::clone(forwarder).forward(batch));
                }
                _ => {
                    for event in &wanted {
                        print::event(&self.stream, &due.session, event, self.output)?;
                    }
                    self.sessions.settle(Forwarded {
                        session_id: due.session_id,
                        cursor: last_seq,
                        delivered: wanted.len(),
                        refused: 0,
                        again: None,
                    });
                }
            }
        }
        Ok(())
    }

    fn wants(&self, event_type: &str) -> bool {
        let types = self.types.as_ref();
        types.is_none_or(|types| types.iter().any(|wanted| wanted == event_type))
    }
}

/// Why a round did not come to its end.
enum Ended {
    Disconnected,
    Failed(Failure),
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Self {
        match error.class() {
            ErrorClass::ConnectionLost => Self::Disconnected,
            ErrorClass::Retryable | ErrorClass::Permanent => Self::Failed(error.into()),
        }
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Tries until there is a connection, or none to be expected.
async fn reopen(config: &Config) -> Result<(Client, Arc<Notify>), ConnectError> {
    loop {
        sleep(RECONNECT_DELAY).await;
        match connect::listen(&config.database).await {
            Err(error) if error.is_temporary() || matches!(error, ConnectError::Store(_)) => {}
            opened => return opened,
        }
    }
}
