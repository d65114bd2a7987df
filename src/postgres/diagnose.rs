//! Reads what `lanekeeper doctor` needs from the server. The command judges it.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::StoreError;

/// Settings and state of the server, whether or not it is migrated.
#[derive(Clone, Debug)]
pub struct Server {
    pub version: String,
    /// As in `server_version_num`.
    pub version_num: i32,
    pub encoding: String,
    pub fsync: String,
    pub synchronous_commit: String,
    pub autovacuum: String,
    pub max_connections: i64,
    /// Those that only superusers and privileged roles get.
    pub reserved_connections: i64,
    pub max_locks_per_transaction: i64,
    pub max_prepared_transactions: i64,
    /// Client connections that are not Lanekeeper's.
    pub other_connections: i64,
    pub oldest_transaction_s: Option<f64>,
    /// Whose that is.
    pub oldest_transaction: Option<String>,
    pub prepared_transactions: i64,
    pub oldest_prepared_s: Option<f64>,
    /// Replication slots that nobody reads and that hold dead rows back.
    pub idle_slots: i64,
    /// Whether this role sees the transactions of others.
    pub sees_others: bool,
    /// The server's clock less this host's, give or take half of the round trip.
    pub clock_ahead: SignedDuration,
    pub round_trip: SignedDuration,
}

impl Server {
    /// Locks that all sessions of the server share.
    pub fn lock_table(&self) -> i64 {
        self.max_locks_per_transaction * (self.max_connections + self.max_prepared_transactions)
    }

    fn from_row(
        row: &Row,
        asked: Timestamp,
        told: Timestamp,
    ) -> Result<Self, tokio_postgres::Error> {
        let round_trip = told.duration_since(asked);
        let server_time: Timestamp = row.try_get("server_time")?;
        Ok(Self {
            version: row.try_get("version")?,
            version_num: row.try_get("version_num")?,
            encoding: row.try_get("encoding")?,
            fsync: row.try_get("fsync")?,
            synchronous_commit: row.try_get("synchronous_commit")?,
            autovacuum: row.try_get("autovacuum")?,
            max_connections: row.try_get("max_connections")?,
            reserved_connections: row.try_get("reserved_connections")?,
            max_locks_per_transaction: row.try_get("max_locks_per_transaction")?,
            max_prepared_transactions: row.try_get("max_prepared_transactions")?,
            other_connections: row.try_get("other_connections")?,
            oldest_transaction_s: row.try_get("oldest_transaction_s")?,
            oldest_transaction: row.try_get("oldest_transaction")?,
            prepared_transactions: row.try_get("prepared_transactions")?,
            oldest_prepared_s: row.try_get("oldest_prepared_s")?,
            idle_slots: row.try_get("idle_slots")?,
            sees_others: row.try_get("sees_others")?,
            clock_ahead: server_time.duration_since(asked) - round_trip / 2,
            round_trip,
        })
    }
}

/// Asks the server for its settings and state.
///
/// # Errors
/// Where it does not answer.
pub async fn server(client: &impl GenericClient) -> Result<Server, StoreError> {
    let asked = Timestamp::now();
    client
        .query_typed_one(include_str!("sql/diagnose_server.sql"), &[])
        .await
        .and_then(|row| Server::from_row(&row, asked, Timestamp::now()))
        .map_err(StoreError::on("asking for the server's settings"))
}

/// Whether the log has its partition of today; appends and workers make tomorrow's ahead.
///
/// # Errors
/// Where the server does not answer.
pub async fn has_today(client: &impl GenericClient) -> Result<bool, StoreError> {
    client
        .query_typed_one(include_str!("sql/diagnose_today.sql"), &[])
        .await
        .and_then(|row| row.try_get("today"))
        .map_err(StoreError::on("looking for the log's partitions"))
}

/// A native event of an agent CLI whose type this release does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownHook {
    pub cli: String,
    /// `None`: the call named no event.
    pub native_event: Option<String>,
    /// How often it was seen.
    pub events: i64,
}

/// The `limit` most frequent of them among the newest events of the newest agent sessions. `known`: the types that this
/// release knows.
///
/// # Errors
/// Where the server does not answer.
pub async fn unknown_hooks(
    client: &impl GenericClient,
    known: &[&str],
    limit: i64,
) -> Result<Vec<UnknownHook>, StoreError> {
    let statement = include_str!("sql/diagnose_hooks.sql");
    let of_row = |row: &Row| {
        Ok(UnknownHook {
            cli: row.try_get("cli")?,
            native_event: row.try_get("native_event")?,
            events: row.try_get("events")?,
        })
    };
    client
        .query_typed(
            statement,
            &[(&known, Type::TEXT_ARRAY), (&limit, Type::INT8)],
        )
        .await
        .and_then(|rows| rows.iter().map(of_row).collect())
        .map_err(StoreError::on("looking for hook events of unknown types"))
}

/// When agent CLIs last reported from a host, by their names; those without a session there are left out.
///
/// # Errors
/// Where the server does not answer.
pub async fn hook_last_calls(
    client: &impl GenericClient,
    clis: &[&str],
    host: &str,
) -> Result<HashMap<String, Timestamp>, StoreError> {
    let statement = include_str!("sql/hook_last_calls.sql");
    let of_row = |row: &Row| Ok((row.try_get("cli")?, row.try_get("last_activity_at")?));
    client
        .query_typed(statement, &[(&clis, Type::TEXT_ARRAY), (&host, Type::TEXT)])
        .await
        .and_then(|rows| rows.iter().map(of_row).collect())
        .map_err(StoreError::on("asking when agent CLIs last reported"))
}
