//! Transactions that do not wait, and the calls that they carry.

use std::collections::HashSet;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::group::{Kept, append_now};
use super::{ANSWER_WITHIN, AppenderError, Inner};
use crate::store::ErrorClass;
use crate::store::append::{AppendError, Enqueued, NewEvent};
use crate::store::producer::within;

/// One call's events, until it is answered.
pub struct Waiting {
    stream: String,
    events: Vec<Kept>,
    answer: oneshot::Sender<Flown>,
}

/// What became of a call, or of a flight.
pub enum Flown {
    Enqueued(Vec<Enqueued>),
    Failed(AppenderError),
    /// Nothing was appended: somebody else's transaction has a session, or another passing reason. To be tried alone.
    Back,
}

impl Waiting {
    pub fn new(stream: &str, events: &[NewEvent<'_>]) -> (Self, oneshot::Receiver<Flown>) {
        let (answer, answered) = oneshot::channel();
        let waiting = Self {
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

    /// Streams and names of its sessions.
    fn sessions(&self) -> impl Iterator<Item = (String, String)> {
        let session =
            |(stream, event): (&str, NewEvent<'_>)| (stream.to_owned(), event.session.to_owned());
        self.events().map(session)
    }

    fn answer(self, flown: Flown) {
        // A caller that went away wants none.
        let _ = self.answer.send(flown);
    }
}

impl Inner {
    /// Carries out several calls, and answers each.
    pub async fn fly_together(&self, calls: Vec<Waiting>) {
        let events: Vec<_> = calls.iter().flat_map(Waiting::events).collect();
        match self.fly(&events).await {
            Flown::Enqueued(enqueued) => {
                let mut enqueued = enqueued.into_iter();
                for call in calls {
                    let of_call = enqueued.by_ref().take(call.events.len()).collect();
                    call.answer(Flown::Enqueued(of_call));
                }
            }
            Flown::Failed(error) if calls.len() == 1 || !is_of_one_call(&error) => {
                for call in calls {
                    call.answer(Flown::Failed(error.clone()));
                }
            }
            Flown::Back | Flown::Failed(_) => self.fly_apart(calls).await,
        }
    }

    /// Carries out one call after another, since it is not known which of them is why they failed together.
    async fn fly_apart(&self, calls: Vec<Waiting>) {
        // Each such wait keeps the other calls waiting: once for a session is enough.
        let mut taken = HashSet::new();
        for call in calls {
            let events: Vec<_> = call.events().collect();
            let sessions: Vec<_> = call.sessions().collect();
            let flown = if sessions.iter().any(|session| taken.contains(session)) {
                Flown::Back
            } else {
                self.fly(&events).await
            };
            if matches!(flown, Flown::Back) {
                taken.extend(sessions);
            }
            call.answer(flown);
        }
    }

    /// Appends events in one transaction that waits for nothing for long.
    pub async fn fly(&self, events: &[(&str, NewEvent<'_>)]) -> Flown {
        let Ok(client) = self.pool.get().await else {
            return Flown::Failed(AppenderError::NoConnection);
        };
        let deadline = Instant::now() + ANSWER_WITHIN;
        let appending = append_now(&client, events);
        let error = match within(&client, &self.database, deadline, appending).await {
            Ok(enqueued) => return Flown::Enqueued(enqueued),
            Err(error) => error,
        };
        if error.is_outcome_unknown() {
            // What it still does is nobody else's to wait for.
            drop(deadpool_postgres::Object::take(client));
        }
        match error {
            AppendError::Store(error) if error.class() == ErrorClass::Retryable => Flown::Back,
            error => Flown::Failed(error.into()),
        }
    }
}

/// Whether another call might not have met it.
fn is_of_one_call(error: &AppenderError) -> bool {
    matches!(error, AppenderError::Append(error) if !error.is_outcome_unknown())
}
