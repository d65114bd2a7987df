//! What adapters that type into terminals keep on record, in Postgres, over the worker's pool. No connection is held
//! while anything is typed (I7).

use std::sync::OnceLock;

use async_trait::async_trait;
use deadpool_postgres::{Object, Pool};
use lanekeeper_core::terminal::{Input, Known, Stage, Terminals, TerminalsError};
use lanekeeper_postgres::terminal;
use thiserror::Error;

/// The record of a worker's adapters. It cannot be reached until the worker has passed its pool.
#[derive(Debug, Default)]
pub struct TerminalInputs {
    pool: OnceLock<Pool>,
}

#[derive(Debug, Error)]
#[error("no worker has started with this record")]
struct NotConnected;

impl TerminalInputs {
    /// For [`DestinationSource::connected`](crate::DestinationSource::connected). The first pool is kept.
    pub fn connect(&self, pool: &Pool) {
        self.pool.get_or_init(|| pool.clone());
    }

    async fn client(&self) -> Result<Object, TerminalsError> {
        let pool = self.pool.get().ok_or_else(|| failed(NotConnected))?;
        pool.get().await.map_err(failed)
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> TerminalsError {
    TerminalsError {
        source: Box::new(error),
    }
}

#[async_trait]
impl Terminals for TerminalInputs {
    async fn look(&self, input: Input<'_>) -> Result<Known, TerminalsError> {
        let client = self.client().await?;
        terminal::look(&**client, input).await.map_err(failed)
    }

    async fn mark(&self, input: Input<'_>, stage: Option<Stage>) -> Result<(), TerminalsError> {
        let client = self.client().await?;
        terminal::mark(&**client, input, stage)
            .await
            .map_err(failed)?;
        if stage == Some(Stage::Entered)
            && let Err(error) = terminal::announce(&**client, input).await
        {
            tracing::warn!(
                session = input.session,
                error = &error as &dyn std::error::Error,
                "a message was typed, and the session's other destinations could not be told"
            );
        }
        Ok(())
    }
}
