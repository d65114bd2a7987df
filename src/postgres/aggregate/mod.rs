//! Aggregates: state that is kept nowhere but in the log (F5). A session's events are folded by a type of the program's own,
//! and its commands append to them.
//!
//! An aggregate's version is the seq of its newest event. A command is decided on the state at some version, and its events
//! are appended only if that is still the newest (`lanekeeper.enqueue_at`, LK012): two that run at once cannot both be
//! decided on the same state.
//!
//! A snapshot is the state at some seq, written every [`SNAPSHOT_EVERY`](Aggregate::SNAPSHOT_EVERY) events with the command
//! that got there. It saves time and nothing else: it is found by name and schema version, so a program whose fold changed
//! finds none of the older ones and folds the events. That they are all still there is what the stream's `keep_events` is
//! for.
//!
//! ```no_run
//! use lanekeeper_postgres::aggregate::{self, Aggregate};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Deposited { cents: u64 }
//! #[derive(Serialize, Deserialize)]
//! struct Withdrawn { cents: u64 }
//! lanekeeper_postgres::events! {
//!     enum Movement {
//!         Deposited(Deposited) = "Deposited";
//!         Withdrawn(Withdrawn) = "Withdrawn";
//!     }
//! }
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Account { cents: u64 }
//! enum Order { Deposit(u64), Withdraw(u64) }
//! #[derive(Debug, thiserror::Error)]
//! #[error("there are only {0} cents")]
//! struct TooLittle(u64);
//!
//! impl Aggregate for Account {
//!     const NAME: &'static str = "account";
//!     const SCHEMA_VERSION: i32 = 1;
//!     type Event = Movement;
//!     type Command = Order;
//!     type Error = TooLittle;
//!
//!     fn apply(&mut self, event: &Movement) {
//!         match event {
//!             Movement::Deposited(Deposited { cents }) => self.cents += cents,
//!             Movement::Withdrawn(Withdrawn { cents }) => self.cents -= cents,
//!         }
//!     }
//!
//!     fn decide(&self, order: &Order) -> Result<Vec<Movement>, TooLittle> {
//!         match *order {
//!             Order::Deposit(cents) => Ok(vec![Movement::Deposited(Deposited { cents })]),
//!             Order::Withdraw(cents) if cents > self.cents => Err(TooLittle(self.cents)),
//!             Order::Withdraw(cents) => Ok(vec![Movement::Withdrawn(Withdrawn { cents })]),
//!         }
//!     }
//! }
//!
//! # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! aggregate::run::<Account>(client, "accounts", "account-7", &Order::Deposit(500), 5).await?;
//! let account = aggregate::load::<Account>(client, "accounts", "account-7").await?;
//! println!("{} cents at version {}", account.state.cents, account.version);
//! # Ok(())
//! # }
//! ```

mod error;
mod event;
mod fold;
mod kind;
mod snapshot;

use tokio_postgres::{Client, GenericClient, Transaction};

use crate::StoreError;
use crate::append::{AppendError, Enqueued, NewEvent, enqueue};

pub use error::{AggregateError, CommandError};
pub use event::{ReadError, TypedEvent};
#[doc(hidden)]
pub use event::{from_payload, to_payload};
pub use kind::Aggregate;
/// For [`events!`](crate::events).
#[doc(hidden)]
pub use serde_json::Error as PayloadError;

/// A state, and the version at which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded<A> {
    pub state: A,
    /// The seq of the last event that is in it; 0: none is.
    pub version: i64,
}

/// What a command did, once its transaction has committed.
#[derive(Clone, Debug)]
pub struct Executed<A> {
    /// With the command's events in it.
    pub state: A,
    pub version: i64,
    pub events: Vec<Enqueued>,
}

/// The state as it is. A session without events has the default one, at version 0.
///
/// # Errors
/// [`AggregateError`]; nothing was changed.
pub async fn load<A: Aggregate>(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
) -> Result<Loaded<A>, AggregateError> {
    let folded = fold::fold(client, fold::key::<A>(stream, session), None).await?;
    Ok(Loaded {
        state: folded.state,
        version: folded.seq,
    })
}

/// The state behind the event with this seq; 0: before the first one.
///
/// # Errors
/// [`AggregateError`]; nothing was changed.
pub async fn load_at<A: Aggregate>(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
    seq: i64,
) -> Result<Loaded<A>, AggregateError> {
    let folded = fold::fold(client, fold::key::<A>(stream, session), Some(seq)).await?;
    Ok(Loaded {
        state: folded.state,
        version: folded.seq,
    })
}

/// Decides a command and appends its events, in the caller's transaction. `expected_version`: what the caller has seen; 0:
/// nothing yet; `None`: whatever there is.
///
/// # Errors
/// The command did not happen: roll the transaction back. After [`CommandError::Conflict`] the caller may decide anew.
pub async fn execute<A: Aggregate>(
    transaction: &Transaction<'_>,
    stream: &str,
    session: &str,
    command: &A::Command,
    expected_version: Option<i64>,
) -> Result<Executed<A>, CommandError<A::Error>> {
    let key = fold::key::<A>(stream, session);
    let mut folded = fold::fold::<A>(transaction, key, None).await?;
    if expected_version.is_some_and(|expected| expected != folded.seq) {
        let version = folded.seq;
        return Err(CommandError::Conflict { version });
    }
    let before = folded.seq;
    let decided = folded.decide(key, command)?;
    let events = decided.map_err(CommandError::Refused)?;
    // What cannot be folded or written is not appended.
    let mut payloads = Vec::with_capacity(events.len());
    for event in &events {
        folded.apply(key, event)?;
        let payload = event.payload();
        payloads.push(payload.map_err(|source| AggregateError::Unwritable {
            aggregate: A::NAME,
            source,
        })?);
    }
    let every = i64::from(A::SNAPSHOT_EVERY.max(1));
    let is_due = folded.seq / every > folded.snapshot / every;
    let state = is_due.then(|| folded.written()).transpose()?;
    let mut appended = Vec::with_capacity(events.len());
    for ((event, payload), expected) in events.iter().zip(&payloads).zip(before + 1..) {
        let event = NewEvent {
            expected_seq: Some(expected),
            ..NewEvent::new(session, event.event_type(), payload)
        };
        appended.push(match enqueue(transaction, stream, &event).await {
            Err(AppendError::SeqConflict(conflict)) => {
                let version = conflict.seq.unwrap_or(before);
                return Err(CommandError::Conflict { version });
            }
            appended => appended?,
        });
    }
    if let Some(state) = state {
        let taking = snapshot::take(transaction, key, folded.seq, &state).await;
        taking.map_err(AggregateError::Store)?;
    }
    Ok(Executed {
        state: folded.state,
        version: folded.seq,
        events: appended,
    })
}

/// [`execute`] in a transaction of its own, decided anew where somebody else was faster: `attempts` times in all.
///
/// # Errors
/// Nothing was changed, unless the connection broke during the commit: then [`load`] tells.
pub async fn run<A: Aggregate>(
    client: &mut Client,
    stream: &str,
    session: &str,
    command: &A::Command,
    attempts: u32,
) -> Result<Executed<A>, CommandError<A::Error>> {
    let mut left = attempts.max(1);
    loop {
        left -= 1;
        let failed = |source| AggregateError::Store(StoreError::on("executing a command")(source));
        let transaction = client.transaction().await.map_err(failed)?;
        match execute::<A>(&transaction, stream, session, command, None).await {
            Err(CommandError::Conflict { .. }) if left > 0 => {
                transaction.rollback().await.map_err(failed)?;
            }
            Err(error) => return Err(error),
            Ok(executed) => {
                transaction.commit().await.map_err(failed)?;
                return Ok(executed);
            }
        }
    }
}

/// Takes the snapshots of a session that commands would have taken: after its events were appended otherwise, or for a new
/// schema version. Returns how many. They are taken one by one outside of a transaction, so a call that ended early is gone
/// on with by the next.
///
/// # Errors
/// [`AggregateError`]; those that were taken before stay.
pub async fn take_snapshots<A: Aggregate>(
    client: &impl GenericClient,
    stream: &str,
    session: &str,
) -> Result<u64, AggregateError> {
    let key = fold::key::<A>(stream, session);
    let newest = snapshot::find(client, key, None).await?.newest;
    let mut folded = fold::fold::<A>(client, key, Some(0)).await?;
    let every = i64::from(A::SNAPSHOT_EVERY.max(1));
    folded.go_on(client, key, newest, Some(every)).await
}
