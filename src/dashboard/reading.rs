//! Connections for pages. One whose statements did not all end does not go back to the pool.

use deadpool_postgres::Object;
use lanekeeper_http::problem::Problem;
use lanekeeper_postgres::inspect;
use tokio_postgres::{Client, Transaction};

use crate::state::Dashboard;
use crate::trouble::Trouble;

/// A connection for one request.
pub(crate) struct Lease(Option<Object>);

impl Lease {
    pub(crate) async fn take(dashboard: &Dashboard) -> Result<Self, Trouble> {
        let client = dashboard.pool.get().await;
        let client = client.map_err(|_| Trouble::from(Problem::away()))?;
        Ok(Self(Some(client)))
    }

    /// A read-only transaction.
    pub(crate) async fn begin(&mut self) -> Result<Transaction<'_>, Trouble> {
        let client = self.0.as_mut().ok_or(Trouble::PostgresAway)?;
        Ok(inspect::begin(client).await?)
    }

    pub(crate) fn client(&self) -> Result<&Client, Trouble> {
        let client = self.0.as_deref().ok_or(Trouble::PostgresAway)?;
        Ok(client)
    }

    /// Every statement has been answered.
    pub(crate) fn done(mut self) {
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
