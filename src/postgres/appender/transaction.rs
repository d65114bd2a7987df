//! Runs appends: several calls in one transaction with a short lock time-out, or one call that waits for its sessions.

use std::collections::{HashSet, VecDeque};
use std::ops::Deref;

use deadpool_postgres::{Object, PoolError};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::group::{self, Kept};
use super::{ANSWER_WITHIN, AppenderError, Inner};
use crate::ErrorClass;
use crate::append::{AppendError, Enqueued, NewEvent};
use crate::deadline::within;

/// A call that has no answer yet, with its events.
pub struct Waiting {
    since: Instant,
    stream: String,
    events: Vec<Kept>,
    answer: oneshot::Sender<Attempt>,
}

/// The result of a call, or of one transaction for several calls.
pub enum Attempt {
    Enqueued(Vec<Enqueued>),
    Failed(AppenderError),
    /// Nothing was appended, for a reason that passes: for example, another transaction holds a session's append lock.
    Postponed,
}

impl Waiting {
    pub fn new(stream: &str, events: &[NewEvent<'_>]) -> (Self, oneshot::Receiver<Attempt>) {
        let (answer, answered) = oneshot::channel();
        let waiting = Self {
            since: Instant::now(),
            stream: stream.to_owned(),
            events: events.iter().map(Kept::new).collect(),
            answer,
        };
        (waiting, answered)
    }

    fn events(&self) -> impl Iterator<Item = (&str, NewEvent<'_>)> {
        let stream = self.stream.as_str();
        self.events.iter().map(move |kept| (stream, kept.event()))
    }

    fn answer(self, attempt: Attempt) {
        // The caller may be gone.
        let _ = self.answer.send(attempt);
    }
}

/// A connection that returns to the pool only if its statement is known to have ended. Otherwise it is closed, so that
/// no other call waits for an abandoned statement.
struct Borrowed(Option<Object>);

impl Borrowed {
    fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Deref for Borrowed {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.0.as_ref().expect("it is not given back yet")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

impl Inner {
    /// Appends the events of several calls, and answers each call.
    pub async fn append_together(&self, calls: Vec<Waiting>) {
        let mut parts = vec![calls];
        // Once Postgres does not answer, the remaining calls fail at once: each further attempt would wait as long
        // again.
        let mut is_away = false;
        while let Some(calls) = parts.pop() {
            let is_late = |call: &Waiting| is_away || call.since.elapsed() > ANSWER_WITHIN;
            let (late, mut calls): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_late);
            answer_all(late, || Attempt::Failed(AppenderError::NoConnection));
            if calls.is_empty() {
                continue;
            }
            let events: Vec<_> = calls.iter().flat_map(Waiting::events).collect();
            match self.try_append(&events).await {
                Attempt::Enqueued(enqueued) => {
                    let mut enqueued = enqueued.into_iter();
                    for call in calls {
                        let of_call = enqueued.by_ref().take(call.events.len()).collect();
                        call.answer(Attempt::Enqueued(of_call));
                    }
                }
                Attempt::Failed(error) if !is_of_one_call(&error) => {
                    is_away = true;
                    answer_all(calls, || Attempt::Failed(error.clone()));
                }
                Attempt::Failed(error) if calls.len() == 1 => {
                    answer_all(calls, || Attempt::Failed(error.clone()));
                }
                // One of the calls was refused. Halving finds it with few extra transactions.
                Attempt::Failed(_) => {
                    let rest = calls.split_off(calls.len() / 2);
                    parts.extend([rest, calls]);
                }
                Attempt::Postponed if calls.len() == 1 => answer_all(calls, || Attempt::Postponed),
                Attempt::Postponed => {
                    let (held, free) = self.part_held(calls).await;
                    if held.is_empty() {
                        // The lock is free by now, or the reason was another one. Append each call alone.
                        parts.extend(free.into_iter().map(|call| vec![call]));
                    } else {
                        answer_all(held, || Attempt::Postponed);
                        parts.push(free);
                    }
                }
            }
        }
    }

    /// Separates the calls that may have to wait for their sessions from the others.
    async fn part_held(&self, calls: Vec<Waiting>) -> (Vec<Waiting>, Vec<Waiting>) {
        let sessions: HashSet<(&str, &str)> = calls
            .iter()
            .flat_map(Waiting::events)
            .map(|(stream, event)| (stream, event.session))
            .collect();
        let sessions: Vec<_> = sessions.into_iter().collect();
        let held = self.held(&sessions).await.unwrap_or_else(|error| {
            // Treat no session as held: each call then finds out alone.
            tracing::debug!(
                error = &*error,
                "it is not known for which sessions a group of appends waited"
            );
            Vec::new()
        });
        let held: HashSet<(&str, &str)> = held.into_iter().collect();
        let is_held =
            |(stream, event): (&str, NewEvent<'_>)| held.contains(&(stream, event.session));
        let mut waits: VecDeque<bool> = calls
            .iter()
            .map(|call| call.events().any(is_held))
            .collect();
        calls
            .into_iter()
            .partition(|_| waits.pop_front().unwrap_or(false))
    }

    async fn held<'a>(
        &self,
        sessions: &[(&'a str, &'a str)],
    ) -> Result<Vec<(&'a str, &'a str)>, Box<dyn std::error::Error + Send + Sync>> {
        let client = self.borrow().await?;
        let held = timeout(ANSWER_WITHIN, group::held_sessions(&client, sessions)).await??;
        client.give_back();
        Ok(held)
    }

    /// Appends events in one transaction with a short lock time-out.
    pub async fn try_append(&self, events: &[(&str, NewEvent<'_>)]) -> Attempt {
        let Ok(client) = self.borrow().await else {
            return Attempt::Failed(AppenderError::NoConnection);
        };
        let deadline = Instant::now() + ANSWER_WITHIN;
        let appending = group::append(&client, events, Some(group::LOCK_TIMEOUT));
        let error = match within(&client, &self.database, deadline, appending).await {
            Ok(enqueued) => {
                client.give_back();
                return Attempt::Enqueued(enqueued);
            }
            Err(error) => error,
        };
        if !error.is_outcome_unknown() {
            client.give_back();
        }
        match error {
            AppendError::Store(error) if error.class() == ErrorClass::Retryable => {
                Attempt::Postponed
            }
            error => Attempt::Failed(error.into()),
        }
    }

    /// Appends one call's events in a transaction that waits for its sessions until the call's deadline.
    pub async fn append_and_wait(
        &self,
        stream: &str,
        events: &[NewEvent<'_>],
    ) -> Result<Vec<Enqueued>, AppenderError> {
        let client = self.borrow().await;
        let client = client.map_err(|_| AppenderError::NoConnection)?;
        let deadline = Instant::now() + ANSWER_WITHIN;
        let events: Vec<_> = events.iter().map(|event| (stream, *event)).collect();
        let appending = group::append(&client, &events, None);
        let enqueued = within(&client, &self.database, deadline, appending).await;
        if !matches!(&enqueued, Err(error) if error.is_outcome_unknown()) {
            client.give_back();
        }
        Ok(enqueued?)
    }

    async fn borrow(&self) -> Result<Borrowed, PoolError> {
        let client = self.pool.get().await.inspect_err(|error| {
            tracing::debug!(
                error = error as &dyn std::error::Error,
                "no connection for an append"
            );
        })?;
        Ok(Borrowed(Some(client)))
    }
}

fn answer_all(calls: Vec<Waiting>, attempt: impl Fn() -> Attempt) {
    for call in calls {
        call.answer(attempt());
    }
}

/// Whether the error comes from one call's events, so that other calls may succeed.
fn is_of_one_call(error: &AppenderError) -> bool {
    matches!(error, AppenderError::Append(error) if !error.is_outcome_unknown())
}
