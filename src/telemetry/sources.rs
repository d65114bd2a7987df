//! What is counted of the updates of chats.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Meter};

use super::instruments::counter;
use super::names::{self, key};

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    Enqueued,
    /// It was enqueued before.
    Duplicate,
    /// An interrupt or a barrier.
    Interrupted,
    /// The chat was told how its session is.
    Status,
    /// Its author and its chat are not named in `allow_from`.
    NotAllowed,
    /// It is nothing that an agent could be sent.
    Unsupported,
    /// Postgres refuses it: too long, a closed session, a full one.
    Refused,
}

impl Became {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enqueued => "enqueued",
            Self::Duplicate => "duplicate",
            Self::Interrupted => "interrupted",
            Self::Status => "status",
            Self::NotAllowed => "not_allowed",
            Self::Unsupported => "unsupported",
            Self::Refused => "refused",
        }
    }
}

/// The updates of all sources that this worker asks, or is sent updates of.
#[derive(Clone, Debug)]
pub struct SourceUpdates(Counter<u64>);

impl SourceUpdates {
    pub fn new(meter: &Meter) -> Self {
        Self(counter(meter, names::SOURCE_UPDATES))
    }

    /// One update of this source.
    pub fn count(&self, source: &str, became: Became) {
        let source = KeyValue::new(key::SOURCE, source.to_owned());
        self.0
            .add(1, &[source, KeyValue::new(key::OUTCOME, became.as_str())]);
    }
}
