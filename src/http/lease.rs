//! Connections for what people ask. One whose statements did not all end does not go back to the pool.

use deadpool_postgres::{Object, Pool};
use lanekeeper_postgres::{StoreError, inspect};
use tokio_postgres::{Client, Transaction};

use super::problem::Problem;

/// A connection for one request.
pub struct Lease(Option<Object>);

impl Lease {
    /// # Errors
    /// Postgres is away, or others use every connection.
    pub async fn take(pool: &Pool) -> Result<Self, Problem> {
        let client = pool.get().await.map_err(|_| Problem::away())?;
        Ok(Self(Some(client)))
    }

    /// A read-only transaction.
    ///
    /// # Errors
    /// Where the server does not answer.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, StoreError> {
        let client = self.0.as_mut().expect("it is taken away only at the end");
        inspect::begin(client).await
    }

    pub fn client(&self) -> &Client {
        self.0.as_deref().expect("it is taken away only at the end")
    }

    /// Every statement has been answered.
    pub fn done(mut self) {
        self.0.take();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}
