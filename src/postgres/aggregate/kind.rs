//! What a program says of a kind of aggregate.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::event::TypedEvent;

/// State that is folded from the events of a session.
pub trait Aggregate: Default + Serialize + DeserializeOwned + Send + Sync {
    /// Of its snapshots: 1 to 100 bytes.
    const NAME: &'static str;
    /// Of its snapshots too. Raise it when the fold or the state changes: snapshots of other versions are not used.
    const SCHEMA_VERSION: i32;
    /// How many events lie between two snapshots, at least 1. The state at any seq costs at most so many folded events.
    const SNAPSHOT_EVERY: u32 = 100;

    type Event: TypedEvent + Send + Sync;
    type Command: Sync;
    /// Why it says no.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Takes in what has happened. It cannot refuse: what is in the log has happened.
    fn apply(&mut self, event: &Self::Event);

    /// What a command makes happen, in order; nothing, where there is nothing to do.
    ///
    /// # Errors
    /// The command is refused, and nothing is appended.
    fn decide(&self, command: &Self::Command) -> Result<Vec<Self::Event>, Self::Error>;
}
