//! What was sent and may be edited: how a destination calls the messages that it was sent.
//!
//! It must outlive the worker, for whoever has the lane next is to edit the message and send no second one.
//! Workers keep it in Postgres; [`ProcessMemory`] is for tests and for programs that need no more.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use thiserror::Error;

/// Which message of which lane, and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct MessageName<'a> {
    pub subscription: &'a str,
    pub session: &'a str,
    /// Chat and thread.
    pub place: &'a str,
    pub key: &'a str,
}

/// Keeps what destinations call the parts of messages.
#[async_trait]
pub trait Memory: Send + Sync + 'static {
    /// The parts of this message that were sent, in their order.
    ///
    /// # Errors
    /// Nothing is known then: the adapter sends nothing.
    async fn recall(&self, name: MessageName<'_>) -> Result<Vec<(i32, String)>, MemoryError>;

    /// A part was sent, or sent again because its message is gone. Can be repeated.
    ///
    /// # Errors
    /// Whether it is remembered is not known.
    async fn remember(
        &self,
        name: MessageName<'_>,
        part: i32,
        reference: &str,
    ) -> Result<(), MemoryError>;

    /// A part is gone at the destination. Can be repeated.
    ///
    /// # Errors
    /// Whether it is forgotten is not known.
    async fn forget(&self, name: MessageName<'_>, part: i32) -> Result<(), MemoryError>;

    /// Which of these events of a session a subscription has given up: it passed them without an acknowledgement.
    ///
    /// # Errors
    /// Nothing is known then: the adapter sends nothing.
    async fn given_up(
        &self,
        subscription: &str,
        session: &str,
        seqs: &[i64],
    ) -> Result<Vec<i64>, MemoryError>;
}

/// The memory cannot be reached. Time may mend it.
#[derive(Debug, Error)]
#[error("what was sent before is not known: {source}")]
pub struct MemoryError {
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

type Name = [String; 4];

/// Remembers as long as the process lives.
#[derive(Debug, Default)]
pub struct ProcessMemory {
    sent: Mutex<HashMap<Name, BTreeMap<i32, String>>>,
}

impl ProcessMemory {
    fn with<T>(
        &self,
        name: MessageName<'_>,
        change: impl FnOnce(&mut BTreeMap<i32, String>) -> T,
    ) -> T {
        let name = [name.subscription, name.session, name.place, name.key].map(str::to_owned);
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        change(sent.entry(name).or_default())
    }
}

#[async_trait]
impl Memory for ProcessMemory {
    async fn recall(&self, name: MessageName<'_>) -> Result<Vec<(i32, String)>, MemoryError> {
        Ok(self.with(name, |parts| {
            parts
                .iter()
                .map(|(part, reference)| (*part, reference.clone()))
                .collect()
        }))
    }

    async fn remember(
        &self,
        name: MessageName<'_>,
        part: i32,
        reference: &str,
    ) -> Result<(), MemoryError> {
        self.with(name, |parts| parts.insert(part, reference.to_owned()));
        Ok(())
    }

    async fn forget(&self, name: MessageName<'_>, part: i32) -> Result<(), MemoryError> {
        self.with(name, |parts| parts.remove(&part));
        Ok(())
    }

    async fn given_up(&self, _: &str, _: &str, _: &[i64]) -> Result<Vec<i64>, MemoryError> {
        // It knows of no outcomes: what it was told to remember counts as wanted.
        Ok(Vec::new())
    }
}
