//! Appends of many callers, gathered: what arrives while transactions are under way goes with the next.
//!
//! A transaction costs the server more than an event does, so many callers at once are served several times as fast, and
//! one alone as fast as before: nobody is waited for. A call is all or none, and no other call's fate is its own: where a
//! group fails, or meets a session that somebody else holds open, each of its calls is tried by itself, and the one
//! that has to wait does so on a connection of its own.

mod flight;
mod gate;
mod group;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use thiserror::Error;
use tokio::sync::{OwnedMutexGuard, Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use self::flight::{Flown, Waiting};
use self::gate::Gates;
use super::Database;
use super::append::{self, AppendError, Enqueued, NewEvent};
use super::producer::within;

/// Transactions under way at once: while one waits for the disk, the next one runs. More of them only make the groups smaller.
const FLIGHTS: usize = 2;
/// Calls in one transaction.
const MOST_CALLS: usize = 64;
/// A call with more events, or more bytes of payload and headers, goes alone: it costs so much that its transaction
/// does not count, and would keep the others waiting.
const MOST_EVENTS: usize = 16;
const MOST_BYTES: usize = 64 * 1024;
/// For Postgres to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// How long a call waits for another of its session.
const SESSION_WITHIN: Duration = Duration::from_secs(5);

/// Appends, each in a transaction that it may share with others of this process.
pub struct Appender {
    calls: mpsc::Sender<Waiting>,
    inner: Arc<Inner>,
}

struct Inner {
    pool: Pool,
    /// Where cancel requests go.
    database: Database,
    /// Transactions that do not wait, each with the calls of one caller or of many.
    flights: Arc<Semaphore>,
    most_flights: usize,
    gates: Gates,
    /// So that calls that go alone, and wait for their sessions, leave a connection to all others.
    alone: Semaphore,
}

/// Why nothing was appended; or, as [`is_outcome_unknown`](Self::is_outcome_unknown) says, why that is not known.
#[derive(Clone, Debug, Error)]
pub enum AppenderError {
    #[error("no connection to Postgres was free in time: nothing was enqueued")]
    NoConnection,
    #[error("another transaction appends to this session and has not ended: nothing was enqueued")]
    SessionBusy,
    #[error(transparent)]
    Append(Arc<AppendError>),
    /// A defect of ours.
    #[error("the call was not answered: the events may or may not have been appended")]
    Failed,
}

impl AppenderError {
    /// Whether the events may be in the log all the same: a message id or a dedupe key makes it
    /// safe to repeat the call.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::NoConnection | Self::SessionBusy => false,
            Self::Append(error) => error.is_outcome_unknown(),
            Self::Failed => true,
        }
    }
}

impl From<AppendError> for AppenderError {
    fn from(error: AppendError) -> Self {
        Self::Append(Arc::new(error))
    }
}

impl Appender {
    /// `pool` has connections to `database`, not through a pooler that takes no prepared statements. Their `lock_timeout`
    /// bounds how long a call waits for a session, up to 15 seconds.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(pool: Pool, database: Database) -> Self {
        let size = pool.status().max_size;
        let flights = FLIGHTS.min(size / 2).max(1);
        let inner = Arc::new(Inner {
            pool,
            database,
            flights: Arc::new(Semaphore::new(flights)),
            most_flights: flights,
            gates: Gates::default(),
            alone: Semaphore::new(size.saturating_sub(1).max(1)),
        });
        let (calls, waiting) = mpsc::channel(MOST_CALLS * FLIGHTS);
        tokio::spawn(gather(Arc::clone(&inner), waiting));
        Self { calls, inner }
    }

    /// Appends events to one stream, in their order within each session: all of them or none.
    ///
    /// Where the returned future is dropped, they may be appended or not.
    ///
    /// # Errors
    /// Nothing was appended, except as [`AppenderError::is_outcome_unknown`] says.
    pub async fn append(
        &self,
        stream: &str,
        events: &[NewEvent<'_>],
    ) -> Result<Vec<Enqueued>, AppenderError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let inner = &self.inner;
        if is_large(events) || inner.is_shut(stream, events) {
            return inner.append_alone(stream, events).await;
        }
        // Where others fly, whoever comes after them had better go together.
        let flown = if inner.flights.available_permits() == inner.most_flights
            && let Ok(flight) = inner.flights.try_acquire()
        {
            let events: Vec<_> = events.iter().map(|event| (stream, *event)).collect();
            let flown = inner.fly(&events).await;
            drop(flight);
            flown
        } else {
            self.wait(stream, events).await
        };
        match flown {
            Flown::Enqueued(enqueued) => Ok(enqueued),
            Flown::Failed(error) => Err(error),
            Flown::Back => inner.append_alone(stream, events).await,
        }
    }

    /// Goes with the next flight.
    async fn wait(&self, stream: &str, events: &[NewEvent<'_>]) -> Flown {
        let (waiting, answered) = Waiting::new(stream, events);
        if self.calls.send(waiting).await.is_err() {
            return Flown::Failed(AppenderError::Failed);
        }
        let flown = answered.await;
        flown.unwrap_or(Flown::Failed(AppenderError::Failed))
    }
}

fn is_large(events: &[NewEvent<'_>]) -> bool {
    let bytes = |event: &NewEvent<'_>| event.payload.len() + event.headers.map_or(0, str::len);
    events.len() > MOST_EVENTS || events.iter().map(bytes).sum::<usize>() > MOST_BYTES
}

/// Lets the calls that came while all flights were under way go with the next, until the [`Appender`] is gone.
async fn gather(inner: Arc<Inner>, mut waiting: mpsc::Receiver<Waiting>) {
    while let Some(first) = waiting.recv().await {
        let flight = Arc::clone(&inner.flights).acquire_owned().await;
        let flight = flight.expect("nobody closes it");
        // Those that the last flight has just answered may have something new to say.
        tokio::task::yield_now().await;
        let mut calls = vec![first];
        while calls.len() < MOST_CALLS
            && let Ok(next) = waiting.try_recv()
        {
            calls.push(next);
        }
        let inner = Arc::clone(&inner);
        // A defect costs these calls their answers, and no later ones.
        tokio::spawn(async move {
            inner.fly_together(calls).await;
            drop(flight);
        });
    }
}

impl Inner {
    async fn append_alone(
        &self,
        stream: &str,
        events: &[NewEvent<'_>],
    ) -> Result<Vec<Enqueued>, AppenderError> {
        let _passed = timeout(SESSION_WITHIN, self.pass(stream, events))
            .await
            .map_err(|_| AppenderError::SessionBusy)?;
        let patience = self.pool.timeouts().wait.unwrap_or(SESSION_WITHIN);
        let Ok(Ok(_place)) = timeout(patience, self.alone.acquire()).await else {
            return Err(AppenderError::NoConnection);
        };
        let client = self.pool.get().await;
        let client = client.map_err(|_| AppenderError::NoConnection)?;
        let deadline = Instant::now() + ANSWER_WITHIN;
        let appending = async {
            match events {
                [event] => append::enqueue(&**client, stream, event)
                    .await
                    .map(|one| vec![one]),
                events => append::enqueue_many(&**client, stream, events).await,
            }
        };
        let enqueued = within(&client, &self.database, deadline, appending).await;
        if matches!(&enqueued, Err(error) if error.is_outcome_unknown()) {
            // What it still does is nobody else's to wait for.
            drop(deadpool_postgres::Object::take(client));
        }
        Ok(enqueued?)
    }

    /// Waits for this process's other calls that go alone to these sessions.
    async fn pass(&self, stream: &str, events: &[NewEvent<'_>]) -> Vec<OwnedMutexGuard<()>> {
        let mut sessions: Vec<&str> = events.iter().map(|event| event.session).collect();
        // In one order, so that two calls never wait for each other.
        sessions.sort_unstable();
        sessions.dedup();
        let mut passed = Vec::with_capacity(sessions.len());
        for session in sessions {
            passed.push(self.gates.pass(stream, session).await);
        }
        passed
    }

    fn is_shut(&self, stream: &str, events: &[NewEvent<'_>]) -> bool {
        let mut events = events.iter();
        events.any(|event| self.gates.is_shut(stream, event.session))
    }
}
