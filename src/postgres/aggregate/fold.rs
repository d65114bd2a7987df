//! Folding: from the newest snapshot that is not behind the seq that is asked for, event by event. The program's code is
//! called behind a boundary that a panic does not cross.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::civil::Date;
use tokio_postgres::GenericClient;

use super::error::AggregateError;
use super::event::{ReadError, TypedEvent};
use super::kind::Aggregate;
use super::snapshot::{self, Key, StoredEvent};

/// A state, and how it was come by.
pub(super) struct Folded<A> {
    pub state: A,
    /// Of the last event that is in it; 0: none is.
    pub seq: i64,
    /// The newest snapshot that is known to be there; 0: none.
    pub snapshot: i64,
    since: Option<Date>,
}

pub(super) fn key<'a, A: Aggregate>(stream: &'a str, session: &'a str) -> Key<'a> {
    Key {
        stream,
        session,
        aggregate: A::NAME,
        schema_version: A::SCHEMA_VERSION,
    }
}

/// Folds up to `at`, or to what is newest when it begins.
pub(super) async fn fold<A: Aggregate>(
    client: &impl GenericClient,
    key: Key<'_>,
    at: Option<i64>,
) -> Result<Folded<A>, AggregateError> {
    let beginning = snapshot::find(client, key, at).await?;
    let newest = beginning.newest;
    if let Some(asked) = at.filter(|asked| *asked > newest) {
        return Err(AggregateError::NotYet {
            session: key.session.to_owned(),
            asked,
            newest,
        });
    }
    let mut folded = Folded {
        state: A::default(),
        seq: 0,
        snapshot: 0,
        since: None,
    };
    if let Some(found) = beginning.snapshot {
        match serde_json::from_str(&found.state) {
            Ok(state) => {
                folded = Folded {
                    state,
                    seq: found.seq,
                    snapshot: found.seq,
                    since: Some(found.day),
                };
            }
            // It only saves time.
            Err(error) => tracing::warn!(
                aggregate = A::NAME, schema_version = A::SCHEMA_VERSION, session = key.session, seq = found.seq,
                error = %error, "a snapshot cannot be read, and all events are folded: raise SCHEMA_VERSION when the state changes"
            ),
        }
    }
    folded
        .go_on(client, key, at.unwrap_or(newest), None)
        .await?;
    Ok(folded)
}

impl<A: Aggregate> Folded<A> {
    /// Folds up to `last`. With `every`, it takes a snapshot behind each so many events; returns how many.
    pub async fn go_on(
        &mut self,
        client: &impl GenericClient,
        key: Key<'_>,
        last: i64,
        every: Option<i64>,
    ) -> Result<u64, AggregateError> {
        let mut taken = 0;
        while self.seq < last {
            let page = snapshot::events(client, key, self.seq, last, self.since).await?;
            if page.is_empty() {
                return Err(self.incomplete(key));
            }
            for event in page {
                if event.seq != self.seq + 1 {
                    return Err(self.incomplete(key));
                }
                self.take(key, &event)?;
                if every.is_some_and(|every| self.seq % every == 0) {
                    let state = self.written()?;
                    taken += u64::from(snapshot::take(client, key, self.seq, &state).await?);
                    self.snapshot = self.seq;
                }
            }
        }
        Ok(taken)
    }

    fn take(&mut self, key: Key<'_>, event: &StoredEvent) -> Result<(), AggregateError> {
        let (seq, event_type) = (event.seq, &event.event_type);
        let session = || key.session.to_owned();
        let typed = match A::Event::read(event_type, &event.payload) {
            Ok(typed) => typed,
            Err(ReadError::Unknown) => {
                return Err(AggregateError::UnknownEvent {
                    session: session(),
                    seq,
                    event_type: event_type.clone(),
                    known: A::Event::TYPES,
                });
            }
            Err(ReadError::Unreadable(source)) => {
                return Err(AggregateError::UnreadableEvent {
                    session: session(),
                    seq,
                    event_type: event_type.clone(),
                    source,
                });
            }
        };
        self.apply(key, &typed)
    }

    /// Takes in the event with the next seq.
    pub fn apply(&mut self, key: Key<'_>, event: &A::Event) -> Result<(), AggregateError> {
        let seq = self.seq + 1;
        let applying = catch_unwind(AssertUnwindSafe(|| self.state.apply(event)));
        applying.map_err(|panic| {
            let doing = format!("folded {}", event.event_type());
            panicked::<A>(key, doing, seq, &*panic)
        })?;
        self.seq = seq;
        Ok(())
    }

    pub fn decide(
        &self,
        key: Key<'_>,
        command: &A::Command,
    ) -> Result<Result<Vec<A::Event>, A::Error>, AggregateError> {
        catch_unwind(AssertUnwindSafe(|| self.state.decide(command)))
            .map_err(|panic| panicked::<A>(key, "decided".to_owned(), self.seq, &*panic))
    }

    /// As a snapshot has it.
    pub fn written(&self) -> Result<String, AggregateError> {
        serde_json::to_string(&self.state).map_err(|source| AggregateError::Unwritable {
            aggregate: A::NAME,
            source,
        })
    }

    fn incomplete(&self, key: Key<'_>) -> AggregateError {
        AggregateError::Incomplete {
            session: key.session.to_owned(),
            needed: self.seq + 1,
        }
    }
}

fn panicked<A: Aggregate>(
    key: Key<'_>,
    doing: String,
    seq: i64,
    panic: &(dyn Any + Send),
) -> AggregateError {
    let said = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    AggregateError::Panicked {
        aggregate: A::NAME,
        doing,
        session: key.session.to_owned(),
        seq,
        message: said.unwrap_or_else(|| "it gave no reason".to_owned()),
    }
}
