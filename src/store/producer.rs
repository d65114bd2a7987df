//! Appending within a time budget: [`append`](super::append) for hook calls and drains of the spool.
//!
//! A statement that outlives its deadline is cancelled, best effort: a backend that waits for a
//! session's append lock must not pile up behind every hook call. Its outcome stays unknown all the
//! same; the message id makes the second try harmless.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Client;

use super::append::{self, AppendError, Enqueued, NewEvent};
use super::{Database, StoreError};
use crate::remote::Remote;

/// How long a cancel request may take on top of the deadline that was missed: a connection of its
/// own, with a TLS handshake where the first had one.
const CANCEL_WAIT: Duration = Duration::from_millis(200);

/// Where events go.
#[derive(Clone, Debug)]
pub enum Way {
    Postgres(Box<Database>),
    /// A worker's HTTP API, where the database is out of reach.
    Remote(Remote),
}

/// A way whose calls each have a deadline.
pub struct Producer(Connected);

enum Connected {
    Postgres {
        client: Client,
        /// Where cancel requests go.
        database: Box<Database>,
    },
    Remote(Remote),
}

impl Producer {
    /// `client` is connected to `database`.
    pub fn new(client: Client, database: Database) -> Self {
        let database = Box::new(database);
        Self(Connected::Postgres { client, database })
    }

    /// Connects for a few statements, with no check of server or schema: a hook has no time for
    /// them. The connection ends with the producer.
    ///
    /// # Errors
    /// Nothing was sent.
    pub async fn connect(way: &Way, deadline: Instant) -> Result<Self, AppendError> {
        let database = match way {
            Way::Postgres(database) => database,
            Way::Remote(remote) => return Ok(Self(Connected::Remote(remote.clone()))),
        };
        let (client, connection) = timeout_at(deadline, database.connect())
            .await
            .map_err(|_| AppendError::TimedOut)?
            .map_err(StoreError::on("connecting to Postgres"))?;
        tokio::spawn(async move {
            // Every statement's own result tells of a broken connection.
            let _ = connection.await;
        });
        Ok(Self::new(client, Database::clone(database)))
    }

    /// Whether no call can succeed any more.
    pub fn is_closed(&self) -> bool {
        match &self.0 {
            Connected::Postgres { client, .. } => client.is_closed(),
            Connected::Remote(_) => false,
        }
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
        match &self.0 {
            Connected::Postgres { client, database } => {
                let call = append::enqueue(client, stream, event);
                within(client, database, deadline, call).await
            }
            Connected::Remote(remote) => remote.enqueue(stream, event, deadline).await,
        }
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
        match &self.0 {
            Connected::Postgres { client, database } => {
                let call = append::enqueue_array(client, stream, events);
                within(client, database, deadline, call).await
            }
            Connected::Remote(remote) => remote.enqueue_array(stream, events, deadline).await,
        }
    }
}

/// Awaits a call on a connection until its deadline, and has the server give it up then.
///
/// # Errors
/// The call's own, and [`AppendError::TimedOut`].
pub async fn within<T>(
    client: &Client,
    database: &Database,
    deadline: Instant,
    call: impl Future<Output = Result<T, AppendError>>,
) -> Result<T, AppendError> {
    match timeout_at(deadline, call).await {
        Ok(answer) => answer,
        Err(_) => {
            let cancel = client.cancel_token();
            let _ = timeout(CANCEL_WAIT, database.cancel(&cancel)).await;
            Err(AppendError::TimedOut)
        }
    }
}
