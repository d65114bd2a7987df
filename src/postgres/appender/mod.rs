//! Appends of many callers share transactions: calls that arrive while a transaction is under way go with the next.
//!
//! A transaction costs the server more than an event does, so many concurrent callers are served several times as
//! fast, and a single caller as fast as before.
//!
//! At most two transactions are under way; what arrives meanwhile goes with the next. A transaction waits for no
//! further call, and each call stays all or nothing: if one of a group is refused, the halves are tried. A
//! transaction waits 50 ms for a session at most. It takes its sessions in one order; if it meets a bulk call over
//! sessions that both create, those 50 ms end the circle. Calls to a session that another transaction keeps open are
//! separated: one of them waits for it, on a connection that the others can spare, and the rest are batched when that
//! one is done.

mod gate;
mod group;
mod transaction;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use self::gate::Gates;
use self::transaction::{Attempt, Waiting};
use super::Database;
use super::append::{AppendError, Enqueued, NewEvent};

/// Transactions under way at once: while one waits for the disk, the next one runs. With more of them groups are smaller.
const MAX_TRANSACTIONS: usize = 2;
/// Calls in one transaction.
const MOST_CALLS: usize = 64;
/// A call with more events, or more bytes, has a transaction to itself: it costs so much that this does not count, and
/// would keep the others waiting.
const MOST_EVENTS: usize = 16;
const MOST_BYTES: usize = 64 * 1024;
/// For Postgres to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// How long a call waits for another that waits for its session, before its own wait.
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
    transactions: Arc<Semaphore>,
    max_transactions: usize,
    gates: Gates,
    /// So that calls that wait for their sessions leave a connection to all others, where there is more than one.
    waiting: Semaphore,
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
    /// A defect in this program.
    #[error("the call was not answered: the events may or may not have been appended")]
    Failed,
}

impl AppenderError {
    /// Whether the events may be in the log in spite of the error. With a message id or a dedupe key, the call can
    /// safely be repeated.
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
        let transactions = MAX_TRANSACTIONS.min(size / 2).max(1);
        let inner = Arc::new(Inner {
            pool,
            database,
            transactions: Arc::new(Semaphore::new(transactions)),
            max_transactions: transactions,
            gates: Gates::default(),
            waiting: Semaphore::new(size.saturating_sub(1).max(1)),
        });
        let (calls, waiting) = mpsc::channel(MOST_CALLS * MAX_TRANSACTIONS);
        tokio::spawn(gather(Arc::clone(&inner), waiting));
        Self { calls, inner }
    }

    /// Appends events to one stream, in their order within each session: all of them or none.
    ///
    /// If the returned future is dropped, they may or may not be appended.
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
        match events {
            // Alone: what else is appended with it would decide what its seq is.
            [event] if event.expected_seq.is_some() => {
                return inner.wait_alone(stream, events).await;
            }
            _ if events.iter().any(|event| event.expected_seq.is_some()) => {
                return Err(AppendError::expected_of_many().into());
            }
            _ => {}
        }
        let sessions = sessions(events);
        let until = Instant::now() + SESSION_WITHIN;
        loop {
            if !inner.gates.opened(stream, &sessions, until).await || Instant::now() >= until {
                return Err(AppenderError::SessionBusy);
            }
            match self.try_append(stream, events).await {
                Attempt::Enqueued(enqueued) => return Ok(enqueued),
                Attempt::Failed(error) => return Err(error),
                Attempt::Postponed => {}
            }
            // If another call waits for one of these sessions already, this call is batched with others when that is
            // done.
            if let Some(_passed) = inner.gates.try_pass(stream, &sessions) {
                return inner.wait_alone(stream, events).await;
            }
        }
    }

    async fn try_append(&self, stream: &str, events: &[NewEvent<'_>]) -> Attempt {
        let transactions = &self.inner.transactions;
        let alone = if is_large(events) {
            transactions.acquire().await.ok()
        } else if transactions.available_permits() == self.inner.max_transactions {
            transactions.try_acquire().ok()
        } else {
            // While transactions run, calls that arrive are better batched.
            None
        };
        let Some(_transaction) = alone else {
            return self.wait(stream, events).await;
        };
        let events: Vec<_> = events.iter().map(|event| (stream, *event)).collect();
        self.inner.try_append(&events).await
    }

    /// Waits for the next batch's transaction.
    async fn wait(&self, stream: &str, events: &[NewEvent<'_>]) -> Attempt {
        let (waiting, answered) = Waiting::new(stream, events);
        if self.calls.send(waiting).await.is_err() {
            return Attempt::Failed(AppenderError::Failed);
        }
        let attempt = answered.await;
        attempt.unwrap_or(Attempt::Failed(AppenderError::Failed))
    }
}

/// The events' sessions, each once, in a fixed order.
fn sessions<'a>(events: &[NewEvent<'a>]) -> Vec<&'a str> {
    let mut sessions: Vec<&str> = events.iter().map(|event| event.session).collect();
    sessions.sort_unstable();
    sessions.dedup();
    sessions
}

fn is_large(events: &[NewEvent<'_>]) -> bool {
    let bytes = |event: &NewEvent<'_>| {
        let optional = [event.dedupe_key, event.headers];
        let optional = optional.iter().flatten().map(|text| text.len());
        event.session.len() + event.event_type.len() + event.payload.len() + optional.sum::<usize>()
    };
    events.len() > MOST_EVENTS || events.iter().map(bytes).sum::<usize>() > MOST_BYTES
}

/// Batches the calls that arrive while all transactions run, until the [`Appender`] is dropped.
async fn gather(inner: Arc<Inner>, mut waiting: mpsc::Receiver<Waiting>) {
    while let Some(first) = waiting.recv().await {
        let permit = Arc::clone(&inner.transactions).acquire_owned().await;
        let permit = permit.expect("nobody closes it");
        // The callers of the last batch may have new calls by now.
        tokio::task::yield_now().await;
        let mut calls = vec![first];
        while calls.len() < MOST_CALLS
            && let Ok(next) = waiting.try_recv()
        {
            calls.push(next);
        }
        let inner = Arc::clone(&inner);
        // After a panic, only these calls get no answer; later ones do.
        tokio::spawn(async move {
            inner.append_together(calls).await;
            drop(permit);
        });
    }
}

impl Inner {
    /// Appends a call alone, after another transaction was found to hold one of its sessions.
    async fn wait_alone(
        &self,
        stream: &str,
        events: &[NewEvent<'_>],
    ) -> Result<Vec<Enqueued>, AppenderError> {
        let patience = self.pool.timeouts().wait.unwrap_or(SESSION_WITHIN);
        // The connections that may wait are all in use.
        let Ok(Ok(_place)) = timeout(patience, self.waiting.acquire()).await else {
            return Err(AppenderError::SessionBusy);
        };
        self.append_and_wait(stream, events).await
    }
}
