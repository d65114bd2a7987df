//! The session registry (B3): what the events of an agent session say about it, one row per session.
//!
//! A built-in handler ([`lanekeeper_engine::Handler`]): its writes commit with the settlement of the event, so that each
//! event tells once and in the order of its session. It learns, it never answers: what agents are
//! told is the business of other subscriptions.
//!
//! | event | told |
//! |---|---|
//! | `session_start` | the session lives; a turn that was open when its agent went away is over. `compact` starts nothing |
//! | `user_prompt_submit` | the prompt; a turn begins |
//! | `tool_use`, `tool_done`, those of [`ACTIVITY`] | activity, nothing else. Coalesced like for any subscription |
//! | `agent_stop` | the turn is over; from CLIs that report nothing else, the prompt |
//! | `notification` | its text. Where the agent waits for a prompt (`idle_prompt`), a turn that is still open is over: an interrupted one has no `Stop` |
//! | `error` | its text and code; a turn ends by those that take a `Stop`'s place ([`observation`]) |
//! | `session_end` | the session and its turn are over: some CLIs send nothing else after an API error or an interrupt |
//! | `session_status` | OpenCode is idle: a turn that is still open is over |
//! | all | native id, CLI, host, folder, model, transcript, last activity, as far as they are there |
//!
//! An event that waited in a spool counts when it arrived; its headers say when it was emitted. What a subagent
//! reports under its parent's id is activity: it has a transcript, prompts and turns of its own. A payload that lacks
//! what its type must have ends with its error recorded, and the lane goes on.
//!
//! Decisions:
//!
//! - **A subscription like any other**, named `registry`, with an adapter of the same name that is reserved for it.
//!   Claims, retries, coalescing, takeover, pausing and all views work on it without special cases. `apply` refuses
//!   files that name it, and neither removes it nor counts it as unlisted. If a user already has a subscription of
//!   that name, it goes on, and the registry stays off and says so.
//! - **Workers install it** when they start, by the steps of a plan under the lock of `apply`, and not a migration: a
//!   subscription that nobody delivers would keep the log from being dropped, and a program that embeds the engine,
//!   or a worker of the last release during an upgrade, cannot deliver it. `worker.registry = false` removes it. The
//!   last start decides, so a fleet with one configuration ends up with it; a marker in the database would need a
//!   command of its own.
//! - **It starts at the earliest event**, and the worker that installed it adds the lanes of existing sessions.
//! - **It sees the types that are known**, so that a turn with a long compaction is not taken for a stale one, but not
//!   those that come with every chunk of an answer, and none that nobody knows. Of bursty events that wait together the
//!   newest of each type is entered; while the worker keeps up, each is.
//! - **Its transactions are not flushed one by one** (`synchronous_commit` off, set in the statement that enters): a
//!   crash of the server takes entry and settlement together, and the event comes again.
//! - **The row is updated in place.** It is not on the path of an append, a claim or a fetch, and has one writer at a
//!   time. A snapshot that is held long costs its busiest sessions dead versions and nothing else.
//! - **Exhausted events are dropped with their error**, not dead-lettered: a dead letter would be a copy of a prompt
//!   that outlives the log's retention. Only errors of the event itself (an unfit payload; SQLSTATE classes 22, 23,
//!   54) are final; all others are retried.
//! - **Instants are `created_at`**, Postgres' clock at the append (I6).
//! - **An event that is already entered changes nothing** (`agent_session.seq`). Redelivery cannot cause it; it makes
//!   a replay harmless. To rebuild the registry, delete its rows first.
//! - **No foreign key** to `session`: adding one would wait for the open transactions of all producers. The function
//!   that removes sessions removes their rows too.
//!
//! The turn: a prompt opens it; `agent_stop` closes it, also if its begin was not seen; events that stand in for a
//! `Stop` cut it, which ends only an open turn. An `error` that a native event became because its payload was
//! unreadable means to the turn what that event means. Codex names its turns: a prompt into the running turn begins
//! none, and a late end of the turn before (Codex does not wait for `notify`) does not end the next. Claude Code's
//! `prompt_id` and Cursor's `generation_id` are not used so: nothing says that they are the same at both ends of a
//! turn.

mod limits;
pub mod observation;
mod shape;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::Delivery;
use lanekeeper_core::subscription::{
    Acknowledge, Definition, Events, Exhaustion, PendingBound, Retry, Start, built_in,
};
use lanekeeper_engine::{Handler, HandlerError};
use lanekeeper_postgres::registry;
use lanekeeper_postgres::{ErrorClass, StoreError};
use tokio_postgres::Transaction;

use observation::Observation;

use super::event_type::{ACTIVITY, MAPPED};

/// Enters every event of its subscription into the registry.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionRegistry;

#[async_trait]
impl Handler for SessionRegistry {
    async fn handle(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery<'_>,
    ) -> Result<(), HandlerError> {
        let event = delivery.event;
        let observed = Observation::of(event).map_err(|unfit| HandlerError::Reject {
            error: format!("not entered into the session registry: {unfit}"),
        })?;
        let Some(observed) = observed else {
            return Ok(());
        };
        registry::observe(transaction, event, &observed)
            .await
            .map(drop)
            .map_err(judged)
    }
}

/// Only what is wrong with the event itself is final: a missing privilege, say, can be mended.
fn judged(error: StoreError) -> HandlerError {
    let of_the_event = matches!(
        error.sqlstate().and_then(|code| code.get(..2)),
        Some("22" | "23" | "54")
    );
    let text = match error.source.as_db_error() {
        Some(said) => said.to_string(),
        None => error.source.to_string(),
    };
    if of_the_event && error.class() == ErrorClass::Permanent {
        HandlerError::Reject { error: text }
    } else {
        HandlerError::Retry {
            error: text,
            after: None,
        }
    }
}

/// The subscription that feeds it. `retry` is that of its stream.
pub fn definition(retry: Retry) -> Definition {
    Definition {
        stream: super::STREAM.to_owned(),
        adapter: built_in::REGISTRY.to_owned(),
        events: Events::Only(
            MAPPED
                .into_iter()
                .chain(ACTIVITY)
                .map(str::to_owned)
                .collect(),
        ),
        // What the log still has of a session tells who it is.
        start: Start::Earliest,
        retry: Retry {
            max_attempts: 0,
            // The outcome says why; a copy of the payload would outlive the log's retention.
            on_exhausted: Exhaustion::Drop,
            ..retry
        },
        coalesce: true,
        concurrency: 64,
        history: false,
        ack: Acknowledge::None,
        ack_timeout: Duration::from_secs(30),
        ack_window: 1,
        host_bound: false,
        pending: PendingBound::default(),
        max_age: None,
        lifecycle: Vec::new(),
        limits: Vec::new(),
        settings: serde_json::json!({}),
    }
}
