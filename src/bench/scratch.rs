//! A database of the benchmark's own on the configured server, and copies to begin several runs from.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use lanekeeper_postgres::{Database, migrate};
use tokio_postgres::Client;

use super::BenchError;

/// From this release on a copy goes through the log unless it is told not to.
const COPIES_THROUGH_LOG: &str = "SELECT current_setting('server_version_num')::int >= 150000";
const END_CLIENTS: &str = "
    SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity AS a
    WHERE a.datname = $1 AND a.backend_type = 'client backend'";

/// Names the database; it exists between [`Scratch::recreate`] and [`Scratch::remove`].
pub struct Scratch {
    server: Database,
    url: String,
    name: String,
    /// What was frozen.
    bases: Mutex<BTreeSet<String>>,
}

impl Scratch {
    /// `url` is the configured database's, in either of the forms that PostgreSQL knows, and
    /// `server` the same parsed.
    pub fn new(server: Database, url: &str) -> Self {
        let name = format!("lanekeeper_bench_{}", std::process::id());
        Self {
            server,
            url: with_database(url, &name),
            name,
            bases: Mutex::default(),
        }
    }

    pub fn database(&self) -> Database {
        self.server.with(|driver| {
            driver.dbname(&self.name);
        })
    }

    /// For somebody else.
    pub fn database_for(&self, role: &str, password: &str) -> Database {
        self.database().with(|driver| {
            driver.user(role).password(password);
        })
    }

    /// For a process that is to work on it.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn connect(&self) -> Result<Client, BenchError> {
        connect(&self.database()).await
    }

    /// A connection to the configured database itself.
    pub async fn connect_admin(&self) -> Result<Client, BenchError> {
        connect(&self.server).await
    }

    /// Makes it anew, migrated and empty.
    pub async fn recreate(&self) -> Result<(), BenchError> {
        let admin = self.connect_admin().await?;
        self.create(&admin, "template0", "").await?;
        let mut client = self.connect().await?;
        migrate::migrate(&mut client).await?;
        Ok(())
    }

    /// Keeps it as it is, vacuumed as what has rested for a while, for [`Scratch::restore`]. Nobody may
    /// be at work on it any more; it is gone until it is restored or made anew.
    pub async fn freeze(&self, base: &str) -> Result<(), BenchError> {
        let operation = "keeping what was loaded";
        let client = self.connect().await?;
        client
            .batch_execute("VACUUM")
            .await
            .map_err(BenchError::on("vacuuming what was loaded"))?;
        drop(client);
        let admin = self.connect_admin().await?;
        let base = self.base(base);
        drop_database(&admin, &base).await?;
        admin
            .query_one(END_CLIENTS, &[&self.name])
            .await
            .map_err(BenchError::on(operation))?;
        // It waits a few seconds for those that have just been told to go.
        let rename = format!("ALTER DATABASE {} RENAME TO {base}", self.name);
        admin
            .batch_execute(&rename)
            .await
            .map_err(BenchError::on(operation))?;
        self.bases().insert(base);
        Ok(())
    }

    /// Makes it anew as it was frozen.
    pub async fn restore(&self, base: &str) -> Result<(), BenchError> {
        let admin = self.connect_admin().await?;
        let through_log: bool = admin
            .query_one(COPIES_THROUGH_LOG, &[])
            .await
            .map_err(BenchError::on("asking for the server's version"))?
            .get(0);
        let strategy = if through_log {
            "STRATEGY FILE_COPY"
        } else {
            ""
        };
        self.create(&admin, &self.base(base), strategy).await
    }

    async fn create(
        &self,
        admin: &Client,
        template: &str,
        strategy: &str,
    ) -> Result<(), BenchError> {
        let name = &self.name;
        drop_database(admin, name).await?;
        admin
            .batch_execute(&format!(
                "CREATE DATABASE {name} TEMPLATE {template} {strategy}"
            ))
            .await
            .map_err(|source| BenchError::Create {
                name: name.clone(),
                source,
            })?;
        // Every run begins just after a checkpoint, so that none falls into some of them only. A
        // role that may not ask for one measures with that noise.
        let _ = admin.batch_execute("CHECKPOINT").await;
        Ok(())
    }

    pub async fn remove(&self) -> Result<(), BenchError> {
        let admin = self.connect_admin().await?;
        let bases = std::mem::take(&mut *self.bases());
        for name in bases.iter().chain([&self.name]) {
            drop_database(&admin, name).await?;
        }
        Ok(())
    }

    fn base(&self, base: &str) -> String {
        format!("{}_{base}", self.name)
    }

    fn bases(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn drop_database(admin: &Client, name: &str) -> Result<(), BenchError> {
    admin
        .batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
        .await
        .map_err(BenchError::on("dropping the scratch database"))
}

/// Connects; the connection's task ends with the client.
pub(super) async fn connect(database: &Database) -> Result<Client, BenchError> {
    let (client, connection) = database.connect().await.map_err(BenchError::Connect)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "a connection of the benchmark ended"
            );
        }
    });
    Ok(client)
}

/// Whether a database is in use: it has a log with events in it.
///
/// # Errors
/// Where it cannot be read.
pub async fn holds_events(client: &Client) -> Result<bool, BenchError> {
    let operation = "looking for events in the configured database";
    let migrated = client
        .query_one("SELECT to_regclass('lanekeeper.event') IS NOT NULL", &[])
        .await
        .map_err(BenchError::on(operation))?;
    if !migrated.get::<_, bool>(0) {
        return Ok(false);
    }
    let row = client
        .query_one("SELECT EXISTS (SELECT FROM lanekeeper.event)", &[])
        .await
        .map_err(BenchError::on(operation))?;
    Ok(row.get(0))
}

fn with_database(url: &str, name: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut url) => {
            url.set_path(name);
            url.into()
        }
        // A key-value string: the last value of a key counts.
        Err(_) => format!("{url} dbname={name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_database_url_take_another_database() {
        for url in [
            "postgres://me:secret@db:5433/app?connect_timeout=3",
            "postgres://me@%2Ftmp%2Fsocket:5433/app",
            "host=db port=5433 user=me dbname=app",
        ] {
            let database: Database = with_database(url, "scratch").parse().unwrap();
            let config = database.driver();
            assert_eq!(config.get_dbname(), Some("scratch"), "{url}");
            assert_eq!(config.get_user(), Some("me"), "{url}");
            assert_eq!(config.get_ports(), [5433], "{url}");
        }
    }
}
