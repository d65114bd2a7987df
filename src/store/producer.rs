//! Appending within a time budget: [`append`](super::append) for hook calls and drains of the spool.
//!
//! A statement that outlives its deadline is cancelled, best effort: a backend that waits for a
//! session's append lock must not pile up behind every hook call. Its outcome stays unknown all the
//! same; the message id makes the second try harmless.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Client;

use super::append::{self, AppendError, Enqueued, NewEvent};
use super::{Database, StoreError};

/// How long a cancel request may take on top of the deadline that was missed: a connection of its
/// own, with a TLS handshake where the first had one.
const CANCEL_WAIT: Duration = Duration::from_millis(200);

/// A connection whose calls each have a deadline.
pub struct Producer {
    client: Client,
    /// Where cancel requests go.
    database: Database,
}

impl Producer {
    /// `client` is connected to `database`.
    pub fn new(client: Client, database: Database) -> Self {
        Self { client, database }
    }

    /// Connects for a few statements, with no check of server or schema: a hook has no time for
    /// them. The connection ends with the producer.
    ///
    /// # Errors
    /// Nothing was sent.
    pub async fn connect(database: &Database, deadline: Instant) -> Result<Self, AppendError> {
        let (client, connection) = timeout_at(deadline, database.connect())
            .await
            .map_err(|_| AppendError::TimedOut)?
            .map_err(StoreError::on("connecting to Postgres"))?;
        tokio::spawn(async move {
            // Every statement's own result tells of a broken connection.
            let _ = connection.await;
        });
        Ok(Self::new(client, database.clone()))
    }

    /// Whether no call can succeed any more.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// As [`append::enqueue`].
    ///
    /// # Errors
    /// As [`append::enqueue`], and [`AppendError::TimedOut`].
    pub async fn enqueue(
        &self,
        stream: &str,
        event: &NewEvent<'_>,
        deadline: Instant,
    ) -> Result<Enqueued, AppendError> {
        self.within(deadline, append::enqueue(&self.client, stream, event))
            .await
    }

    /// As [`append::enqueue_array`].
    ///
    /// # Errors
    /// As [`append::enqueue_array`], and [`AppendError::TimedOut`].
    pub async fn enqueue_array(
        &self,
        stream: &str,
        events: &str,
        deadline: Instant,
    ) -> Result<Vec<Enqueued>, AppendError> {
        let call = append::enqueue_array(&self.client, stream, events);
        self.within(deadline, call).await
    }

    async fn within<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T, AppendError>>,
    ) -> Result<T, AppendError> {
        match timeout_at(deadline, call).await {
            Ok(answer) => answer,
            Err(_) => {
                let cancel = self.client.cancel_token();
                let _ = timeout(CANCEL_WAIT, self.database.cancel(&cancel)).await;
                Err(AppendError::TimedOut)
            }
        }
    }
}
