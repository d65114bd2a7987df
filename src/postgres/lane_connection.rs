//! The dedicated, direct connections whose sessions hold lane locks.
//!
//! Their settings are in the start-up message: planner switches, so that a plan made on an empty table stays right on a
//! full one; keepalives, by which the server notices a vanished client within 15 s; and a nonce. A pooler refuses or
//! drops such settings, and the missing nonce shows it. Through a transaction pooler, a session lock would stay with
//! whichever server connection took it.

use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, GenericClient, Row};
use uuid::Uuid;

use super::attempt::is_silence;
use super::{Database, StoreError};

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("cannot connect to Postgres")]
    Connect(#[source] tokio_postgres::Error),
    #[error("Postgres did not answer within {} ms", within.as_millis())]
    TimedOut { within: Duration },
    #[error(
        "there is a connection pooler between this worker and Postgres. Workers hold session locks \
         and need a direct connection: set LANEKEEPER_DATABASE__URL to the server itself. \
         (Producers may go through the pooler.)"
    )]
    Pooler,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The server's process behind a connection. Pids are given anew; together with the start they are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    pub pid: i32,
    pub start: Timestamp,
}

/// A connection that was just opened.
pub struct Opened {
    pub client: Client,
    /// Ends when the connection does.
    pub task: JoinHandle<()>,
    pub backend: Backend,
}

/// Connects with the settings that lane locks need, and proves that the session is direct.
///
/// # Errors
/// [`OpenError::Pooler`] where the session is not the server's own.
pub async fn open(database: &Database, purpose: &str) -> Result<Opened, OpenError> {
    let nonce = Uuid::now_v7().simple().to_string();
    let database = database.with(|driver| {
        driver.application_name(format!("lanekeeper {purpose}"));
        bound_silence(driver);
        let options = options(driver.get_options(), &nonce);
        driver.options(options);
    });
    let within = database.patience();
    let (client, connection) = database
        .connect()
        .await
        .map_err(|error| refused(error, within))?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = &error as &dyn std::error::Error, "connection ended");
        }
    });
    let row = timeout(
        within,
        client.query_one(include_str!("sql/opened.sql"), &[]),
    )
    .await
    .map_err(|_| OpenError::TimedOut { within })?
    .map_err(StoreError::on("checking for a pooler"))?;
    if row.get::<_, Option<&str>>(0) != Some(nonce.as_str()) {
        return Err(OpenError::Pooler);
    }
    let backend = Backend {
        pid: row.get(1),
        start: row.get(2),
    };
    Ok(Opened {
        client,
        task,
        backend,
    })
}

/// Terminates backends without waiting for their end. Returns those that still existed. They keep their locks until
/// they have ended, which takes milliseconds, or never happens if the backend's process is stopped.
///
/// # Errors
/// It is unknown which backends got the signal.
pub async fn end(
    client: &impl GenericClient,
    backends: &[Backend],
) -> Result<Vec<Backend>, StoreError> {
    let (pids, starts) = columns(backends);
    let rows = client
        .query(include_str!("sql/end_backends.sql"), &[&pids, &starts])
        .await
        .map_err(StoreError::on("ending connections that were given up"))?;
    let backend = |row: &Row| Backend {
        pid: row.get(0),
        start: row.get(1),
    };
    Ok(rows.iter().map(backend).collect())
}

/// Whether the server still has it.
///
/// # Errors
/// It is not known.
pub async fn is_there(client: &impl GenericClient, backend: Backend) -> Result<bool, StoreError> {
    let row = client
        .query_one(
            include_str!("sql/backend_is_there.sql"),
            &[&backend.pid, &backend.start],
        )
        .await
        .map_err(StoreError::on("looking for a connection's backend"))?;
    Ok(row.get(0))
}

fn columns(backends: &[Backend]) -> (Vec<i32>, Vec<Timestamp>) {
    backends
        .iter()
        .map(|backend| (backend.pid, backend.start))
        .unzip()
}

/// For the worker's other connections: bounded silence, the isolation that the functions which they
/// call rely on, whatever the role or the database has as its default, and no compilation: plans of a few
/// rows whose number is not known look expensive enough for it, and take 200 ms instead of 2.
pub fn prepare_pooled(config: &mut Config) {
    bound_silence(config);
    let given = config.get_options().map(|given| format!("{given} "));
    config.options(format!(
        "{}-c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off -c jit=off",
        given.unwrap_or_default()
    ));
}

/// Gives up a server that fell silent about as soon as the server gives up a silent client.
pub fn bound_silence(config: &mut Config) {
    config.keepalives_idle(Duration::from_secs(5));
    config.keepalives_interval(Duration::from_secs(2));
    config.keepalives_retries(3);
    config.tcp_user_timeout(Duration::from_secs(11));
}

/// Protocol violation is what poolers answer to start-up options that they do not know.
fn refused(error: tokio_postgres::Error, within: Duration) -> OpenError {
    match error.code() {
        _ if is_silence(&error) => OpenError::TimedOut { within },
        Some(code) if code.code() == "08P01" => OpenError::Pooler,
        _ => OpenError::Connect(error),
    }
}

fn options(given: Option<&str>, nonce: &str) -> String {
    let settings = [
        // A settlement lost with the server is a redelivery, which at-least-once allows; what a
        // producer was promised is flushed by the producer's own commit.
        ("synchronous_commit", "off"),
        // "A statement of its own sees what was committed before the lock" holds here only.
        ("default_transaction_isolation", "read\\ committed"),
        ("default_transaction_read_only", "off"),
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_bitmapscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("jit", "off"),
        ("statement_timeout", "30s"),
        ("idle_in_transaction_session_timeout", "60s"),
        // 5 + 3 × 2 s, below the 20 s in which a vanished node must have lost its lanes.
        ("tcp_keepalives_idle", "5"),
        ("tcp_keepalives_interval", "2"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "11000"),
        ("lanekeeper.session", nonce),
    ];
    let mut options = given.map(|given| format!("{given} ")).unwrap_or_default();
    for (name, value) in settings {
        options.push_str(&format!("-c {name}={value} "));
    }
    options
}
