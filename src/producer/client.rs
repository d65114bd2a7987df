//! Appending within a time budget, to the database or to a worker: [`append`] for hook calls and drains of the spool.

use lanekeeper_postgres::append::{self, AppendError, Enqueued, NewEvent};
use lanekeeper_postgres::deadline::within;
use lanekeeper_postgres::{Database, StoreError};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;

use crate::error::ProducerError;
use crate::remote::Remote;

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
    pub async fn connect(way: &Way, deadline: Instant) -> Result<Self, ProducerError> {
        let database = match way {
            Way::Postgres(database) => database,
            Way::Remote(remote) => return Ok(Self(Connected::Remote(remote.clone()))),
        };
        // Every host of the database gets its part of what is left.
        let within = deadline.saturating_duration_since(Instant::now());
        let (client, connection) = timeout_at(deadline, database.within(within).connect())
            .await
            .map_err(|_| AppendError::TimedOut)?
            .map_err(|error| match Instant::now() < deadline {
                true => StoreError::on("connecting to Postgres")(error).into(),
                false => AppendError::TimedOut,
            })?;
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
    ) -> Result<Enqueued, ProducerError> {
        match &self.0 {
            Connected::Postgres { client, database } => {
                let call = append::enqueue(client, stream, event);
                Ok(within(client, database, deadline, call).await?)
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
    ) -> Result<Vec<Enqueued>, ProducerError> {
        match &self.0 {
            Connected::Postgres { client, database } => {
                let call = append::enqueue_array(client, stream, events);
                Ok(within(client, database, deadline, call).await?)
            }
            Connected::Remote(remote) => remote.enqueue_array(stream, events, deadline).await,
        }
    }
}
