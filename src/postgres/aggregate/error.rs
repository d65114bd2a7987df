//! Why a state cannot be folded, and why a command changed nothing.

use thiserror::Error;

use crate::StoreError;
use crate::append::AppendError;

/// Why the state of a session cannot be folded. Nothing was changed, and the log is as it was.
#[derive(Debug, Error)]
pub enum AggregateError {
    /// A newer program wrote it, or another one.
    #[error(
        "event {seq} of session {session:?} has the type {event_type:?}, which this program does not know; it knows {}. \
         Nothing was changed and the event stays as it is: run a release that knows it",
        known.join(", ")
    )]
    UnknownEvent {
        session: String,
        seq: i64,
        event_type: String,
        known: &'static [&'static str],
    },
    #[error(
        "event {seq} of session {session:?} is not what this program takes {event_type:?} for: {source}. Nothing was \
         changed and the event stays as it is"
    )]
    UnreadableEvent {
        session: String,
        seq: i64,
        event_type: String,
        source: serde_json::Error,
    },
    /// Retention dropped what the fold needs. It cannot happen while the stream has `keep_events`.
    #[error(
        "session {session:?} has no event {needed} any more, and no snapshot that goes so far: its stream lacks keep_events, \
         or had it too late. Nothing was changed"
    )]
    Incomplete { session: String, needed: i64 },
    #[error("session {session:?} is at event {newest}, and has no event {asked} yet")]
    NotYet {
        session: String,
        asked: i64,
        newest: i64,
    },
    /// The program's own code.
    #[error(
        "{aggregate} panicked while it {doing} (session {session:?}, event {seq}): {message}. Nothing was changed"
    )]
    Panicked {
        aggregate: &'static str,
        /// `folded ItemAdded.v2` or `decided`.
        doing: String,
        session: String,
        /// The event that was folded, or the last one before the decision.
        seq: i64,
        message: String,
    },
    /// The program's own type.
    #[error(
        "an event or the state of {aggregate} cannot be written as JSON: {source}. Nothing was changed"
    )]
    Unwritable {
        aggregate: &'static str,
        source: serde_json::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a command changed nothing. Commit nothing after it: the transaction may hold a part of its events.
#[derive(Debug, Error)]
pub enum CommandError<E: std::error::Error> {
    /// The aggregate says no.
    #[error(transparent)]
    Refused(E),
    /// Somebody else was faster, or the caller expected another version: read anew, and decide anew. `LK012` where the
    /// append found it.
    #[error("the session is at version {version}, and another was expected: nothing was changed")]
    Conflict {
        /// The seq of its newest event; 0: it has none.
        version: i64,
    },
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    #[error(transparent)]
    Append(#[from] AppendError),
}
