//! A database of the benchmark's own on the configured server.

use tokio_postgres::Client;

use super::BenchError;
use crate::store::{Database, migrate};

/// Names the database; it exists between [`Scratch::recreate`] and [`Scratch::remove`].
pub struct Scratch {
    server: Database,
    url: String,
    name: String,
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
        }
    }

    pub fn database(&self) -> Database {
        self.server.with(|driver| {
            driver.dbname(&self.name);
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
        self.remove().await?;
        let admin = self.connect_admin().await?;
        let name = &self.name;
        admin
            .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0"))
            .await
            .map_err(|source| BenchError::Create {
                name: name.clone(),
                source,
            })?;
        // Every run begins just after a checkpoint, so that none falls into some of them only. A
        // role that may not ask for one measures with that noise.
        let _ = admin.batch_execute("CHECKPOINT").await;
        let mut client = self.connect().await?;
        migrate::migrate(&mut client).await?;
        Ok(())
    }

    pub async fn remove(&self) -> Result<(), BenchError> {
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        self.connect_admin()
            .await?
            .batch_execute(&statement)
            .await
            .map_err(BenchError::on("dropping the scratch database"))
    }
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
