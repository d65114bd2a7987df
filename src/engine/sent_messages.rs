//! What chat adapters must remember, in Postgres, over the worker's pool (I7: no connection is held while
//! anything is sent).

use std::sync::OnceLock;

use async_trait::async_trait;
use deadpool_postgres::{Object, Pool};
use lanekeeper_core::memory::{Memory, MemoryError, MessageName};
use lanekeeper_postgres::sent_message;
use thiserror::Error;

/// The memory of a worker's adapters. Until the worker has told it its pool nothing is known.
#[derive(Debug, Default)]
pub struct SentMessages {
    pool: OnceLock<Pool>,
}

#[derive(Debug, Error)]
#[error("no worker has started with this memory")]
struct NotConnected;

impl SentMessages {
    /// For [`DestinationSource::connected`](super::DestinationSource::connected). The first pool stays.
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
}
