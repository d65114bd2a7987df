//! Reads a session's entry in the agent registry.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::{StoreError, read};

/// Whether an agent is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TurnState {
    /// No turn is open
    Idle,
    /// A turn is open
    Running,
    /// A turn is open, and nothing has come of its session for `hook.stale_after_s`
    Stale,
}

impl TurnState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Stale => "stale",
        }
    }
}

/// A session's entry. Instants are those of the log.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct RegistryEntry {
    pub cli: Option<String>,
    pub native_session_id: String,
    /// Where the agent runs.
    pub host: Option<String>,
    pub cwd: Option<String>,
    pub model: Option<String>,
    pub transcript_path: Option<String>,
    /// cli | lookup
    pub transcript_from: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// The type of the newest event that was entered.
    pub last_activity: String,
    pub last_activity_at: Timestamp,
    pub last_prompt: Option<String>,
    pub last_prompt_at: Option<Timestamp>,
    pub last_notification: Option<String>,
    pub last_notification_at: Option<Timestamp>,
    pub last_error: Option<String>,
    pub last_error_code: Option<String>,
    pub last_error_at: Option<Timestamp>,
    /// idle | running | stale
    pub turn_state: String,
    /// Turns that began, as far as they were seen.
    pub turn: i64,
    pub turn_id: Option<String>,
    pub turn_started_at: Option<Timestamp>,
    pub turn_ended_at: Option<Timestamp>,
    /// The agent's name of the event that ended it.
    pub turn_ended_by: Option<String>,
}

impl RegistryEntry {
    pub(super) fn from_row(row: &Row) -> Result<Option<Self>, tokio_postgres::Error> {
        if !row.try_get::<_, bool>("registered")? {
            return Ok(None);
        }
        Ok(Some(Self {
            cli: row.try_get("cli")?,
            native_session_id: row.try_get("native_session_id")?,
            host: row.try_get("host")?,
            cwd: row.try_get("cwd")?,
            model: row.try_get("model")?,
            transcript_path: row.try_get("transcript_path")?,
            transcript_from: row.try_get("transcript_from")?,
            started_at: row.try_get("started_at")?,
            ended_at: row.try_get("ended_at")?,
            last_activity: row.try_get("last_activity")?,
            last_activity_at: row.try_get("last_activity_at")?,
            last_prompt: row.try_get("last_prompt")?,
            last_prompt_at: row.try_get("last_prompt_at")?,
            last_notification: row.try_get("last_notification")?,
            last_notification_at: row.try_get("last_notification_at")?,
            last_error: row.try_get("last_error")?,
            last_error_code: row.try_get("last_error_code")?,
            last_error_at: row.try_get("last_error_at")?,
            turn_state: row.try_get("turn_state")?,
            turn: row.try_get("turn")?,
            turn_id: row.try_get("turn_id")?,
            turn_started_at: row.try_get("turn_started_at")?,
            turn_ended_at: row.try_get("turn_ended_at")?,
            turn_ended_by: row.try_get("turn_ended_by")?,
        }))
    }
}

/// Which sessions of the registry; all where nothing is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegistryFilter<'a> {
    pub cli: Option<&'a str>,
    pub turn: Option<TurnState>,
    /// Of these streams; `None`: of all.
    pub stream_ids: Option<&'a [i32]>,
    /// With a lower id: where the page before ended.
    pub before: Option<i64>,
}

/// The ids of the newest `limit` sessions that the filter lets through. `stale_after_s`: for how many seconds nothing
/// has come of a running turn that is stale.
///
/// # Errors
/// Where they cannot be read.
pub async fn registered(
    client: &impl GenericClient,
    filter: RegistryFilter<'_>,
    stale_after_s: u32,
    limit: i64,
) -> Result<Vec<i64>, StoreError> {
    read(
        client,
        "looking into the session registry",
        include_str!("../sql/registry_pick.sql"),
        &[
            (&filter.cli, Type::TEXT),
            (&filter.turn.map(TurnState::as_str), Type::TEXT),
            (&limit, Type::INT8),
            (&filter.stream_ids, Type::INT4_ARRAY),
            (&seconds(stale_after_s), Type::INT4),
            (&filter.before, Type::INT8),
        ],
        |row| row.try_get("session_id"),
    )
    .await
}

/// As Postgres takes them.
pub(super) fn seconds(seconds: u32) -> i32 {
    i32::try_from(seconds).unwrap_or(i32::MAX)
}
