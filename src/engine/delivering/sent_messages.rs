//! What chat adapters remember of the messages that they sent, in Postgres, over the worker's pool. No connection
//! is held while anything is sent (I7).
//!
//! An adapter makes one request per delivery, because each request draws on the platform's limits. An event that
//! takes several requests (a long text, a typing indicator, an edit that grew) answers `Partial`: the head stays,
//! its lane yields, and gets its next turn like any other. What was sent is remembered in Postgres part by part, so
//! the next holder continues there, and can edit messages that another worker sent. A message that is sent but not
//! yet remembered is the remaining gap: at least once.
//!
//! A 429 names the bucket that it is about (`Verdict::Throttled { of }`), so that the pause of one chat does not
//! pause the bot. Information that a platform gives with any answer (Discord's headers) comes out of
//! `Adapter::learned` after each delivery and is reported to all processes as a pause.

use std::sync::OnceLock;

use async_trait::async_trait;
use deadpool_postgres::{Object, Pool};
use lanekeeper_core::memory::{Memory, MemoryError, MessageName};
use lanekeeper_postgres::sent_message;
use thiserror::Error;

/// The memory of a worker's adapters. It is empty until the worker has passed its pool.
#[derive(Debug, Default)]
pub struct SentMessages {
    pool: OnceLock<Pool>,
}

#[derive(Debug, Error)]
#[error("no worker has started with this memory")]
struct NotConnected;

impl SentMessages {
    /// For [`DestinationSource::connected`](crate::DestinationSource::connected). The first pool is kept.
    pub fn connect(&self, pool: &Pool) {
        self.pool.get_or_init(|| pool.clone());
    }

    async fn client(&self) -> Result<Object, MemoryError> {
        let pool = self.pool.get().ok_or_else(|| failed(NotConnected))?;
        pool.get().await.map_err(failed)
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> MemoryError {
    MemoryError {
        source: Box::new(error),
    }
}

#[async_trait]
impl Memory for SentMessages {
    async fn recall(&self, name: MessageName<'_>) -> Result<Vec<(i32, String)>, MemoryError> {
        let client = self.client().await?;
        sent_message::recall(&**client, name).await.map_err(failed)
    }

    async fn remember(
        &self,
        name: MessageName<'_>,
        part: i32,
        reference: &str,
    ) -> Result<(), MemoryError> {
        let client = self.client().await?;
        let remembered = sent_message::remember(&**client, name, part, reference);
        remembered.await.map_err(failed)
    }

    async fn forget(&self, name: MessageName<'_>, part: i32) -> Result<(), MemoryError> {
        let client = self.client().await?;
        sent_message::forget(&**client, name, part)
            .await
            .map_err(failed)
    }
    async fn given_up(
        &self,
        subscription: &str,
        session: &str,
        seqs: &[i64],
    ) -> Result<Vec<i64>, MemoryError> {
        let client = self.client().await?;
        sent_message::given_up(&**client, subscription, session, seqs)
            .await
            .map_err(failed)
    }
}
