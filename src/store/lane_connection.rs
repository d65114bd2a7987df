//! The dedicated, direct connections whose sessions hold lane locks.
//!
//! Their settings travel in the start-up message: planner switches that keep a plan made on an
//! empty table from ruining a full one, keepalives with which the server notices a vanished node
//! within 15 s, and a nonce. A pooler refuses or swallows such a message, and the nonce shows it:
//! session locks through a transaction pooler would belong to nobody.

use std::time::Duration;

use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};
use uuid::Uuid;

use super::{Database, StoreError};

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("cannot connect to Postgres")]
    Connect(#[source] tokio_postgres::Error),
    #[error("Postgres did not answer within {} s", CONNECT_TIMEOUT.as_secs())]
    TimedOut,
    #[error(
        "there is a connection pooler between this worker and Postgres. Workers hold session locks \
         and need a direct connection: set LANEKEEPER_DATABASE__URL to the server itself. \
         (Producers may go through the pooler.)"
    )]
    Pooler,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Connects with the settings that lane locks need, and proves that the session is direct.
///
/// The returned task ends when the connection does.
///
/// # Errors
/// [`OpenError::Pooler`] where the session is not the server's own.
pub async fn open(
    database: &Database,
    purpose: &str,
) -> Result<(Client, JoinHandle<()>), OpenError> {
    let nonce = Uuid::now_v7().simple().to_string();
    let database = database.with(|driver| {
        driver.application_name(format!("lanekeeper {purpose}"));
        bound_silence(driver);
        let options = options(driver.get_options(), &nonce);
        driver.options(options);
    });
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, database.connect());
    let (client, connection) = connecting
        .await
        .map_err(|_| OpenError::TimedOut)?
        .map_err(refused)?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = &error as &dyn std::error::Error, "connection ended");
        }
    });
    let arrived: Option<String> = client
        .query_one("SELECT current_setting('lanekeeper.session', true)", &[])
        .await
        .map_err(StoreError::on("checking for a pooler"))?
        .get(0);
    if arrived.as_deref() != Some(nonce.as_str()) {
        return Err(OpenError::Pooler);
    }
    Ok((client, task))
}

/// For the worker's other connections: bounded silence, and the isolation that the functions which they
/// call rely on, whatever the role or the database has as its default.
pub fn prepare_pooled(config: &mut Config) {
    bound_silence(config);
    let given = config.get_options().map(|given| format!("{given} "));
    config.options(format!(
        "{}-c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off",
        given.unwrap_or_default()
    ));
}

/// Gives up a server that fell silent about as soon as the server gives up a silent client.
pub fn bound_silence(config: &mut Config) {
    config.connect_timeout(CONNECT_TIMEOUT);
    config.keepalives_idle(Duration::from_secs(5));
    config.keepalives_interval(Duration::from_secs(2));
    config.keepalives_retries(3);
    config.tcp_user_timeout(Duration::from_secs(11));
}

/// Protocol violation is what poolers answer to start-up options that they do not know.
fn refused(error: tokio_postgres::Error) -> OpenError {
    match error.code() {
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
