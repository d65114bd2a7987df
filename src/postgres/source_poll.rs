//! Sources that workers ask: who does, and how far each is.
//!
//! The holder of a source's lock asks its platform. On the connection that has the lock it enqueues what came and moves the
//! offset in one transaction, so a holder that lost the lock can commit neither. A holder gives a sign of life every few
//! seconds; a worker that finds it silent ends its connection, and the server lets the lock go.
//!
//! ```text
//! watch ─► free? ─► hold ─► enter ─► bot ─► alive ─► (ask) ─► append + move ─► alive …
//!            └ no, silent ─► lane_connection::end
//! ```

use jiff::Timestamp;
use lanekeeper_core::source::{Definition, PolledSource};
use serde::Serialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Json;
use tokio_postgres::{Client, GenericClient, Row, Transaction};

use super::StoreError;
use super::lane_connection::Backend;

/// A source that workers ask, as one of them sees it.
#[derive(Clone, Debug)]
pub struct Watched {
    pub source_id: i32,
    pub name: String,
    pub version: i64,
    pub definition: PolledSource,
    /// Nobody asks.
    pub free: bool,
    /// The connection of a holder that gave no sign of life for long.
    pub silent: Option<Backend>,
}

/// How far a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The first update that is not taken yet.
    pub next_update: Option<i64>,
    /// Whether the platform still numbers by it.
    pub is_fresh: bool,
}

/// Whether a source has its bot for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bot {
    Entered,
    /// Another source asks for it.
    Taken {
        by: Option<String>,
    },
    /// The source is gone, or has another holder.
    Lost,
}

/// How a session of Discord's gateway is resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    pub session_id: String,
    pub address: String,
    /// Of the last dispatch that is not wanted again.
    pub seq: i64,
}

/// Who asks for a source, and how that goes.
#[derive(Clone, Debug, Serialize)]
pub struct PollStatus {
    #[serde(skip)]
    pub source_id: i32,
    /// The platform's name of the bot. `None`: it was not asked yet.
    pub bot: Option<String>,
    pub worker_id: i64,
    /// Why nothing is fetched.
    pub problem: Option<String>,
    /// When a message was last fetched.
    pub moved_at: Option<Timestamp>,
    /// Seconds since the worker gave a sign of life.
    pub silent_s: i64,
}

/// Who asks for each source that somebody has asked for.
///
/// # Errors
/// Where the rows cannot be read.
pub async fn list(client: &impl GenericClient) -> Result<Vec<PollStatus>, StoreError> {
    let failed = "reading who asks for the sources";
    let rows = client
        .query(include_str!("sql/source_poll_list.sql"), &[])
        .await
        .map_err(StoreError::on(failed))?;
    let read = |row: &Row| {
        Ok(PollStatus {
            source_id: row.try_get("source_id")?,
            bot: row.try_get("bot")?,
            worker_id: row.try_get("worker_id")?,
            problem: row.try_get("problem")?,
            moved_at: row.try_get("moved_at")?,
            silent_s: row.try_get("silent_s")?,
        })
    };
    let read: Result<_, _> = rows.iter().map(read).collect();
    read.map_err(StoreError::on(failed))
}

/// Every source that workers ask. A holder is silent after `silent_ms`.
///
/// # Errors
/// Where the rows cannot be read.
pub async fn watch(
    client: &impl GenericClient,
    silent_ms: i64,
) -> Result<Vec<Watched>, StoreError> {
    let failed = "looking at the sources that workers ask";
    let rows = client
        .query(include_str!("sql/source_watch.sql"), &[&silent_ms])
        .await
        .map_err(StoreError::on(failed))?;
    let read = |row: &Row| {
        let Json(definition): Json<Definition> = row.try_get("definition")?;
        let Definition::Polled(definition) = definition else {
            return Ok(None);
        };
        let silent = match (row.try_get("silent_pid")?, row.try_get("silent_start")?) {
            (Some(pid), Some(start)) => Some(Backend { pid, start }),
            _ => None,
        };
        Ok(Some(Watched {
            source_id: row.try_get("source_id")?,
            name: row.try_get("name")?,
            version: row.try_get("version")?,
            definition,
            free: row.try_get("free")?,
            silent,
        }))
    };
    let read = rows.iter().filter_map(|row| read(row).transpose());
    read.collect::<Result<_, _>>()
        .map_err(StoreError::on(failed))
}

/// Becomes the one who asks a source, for as long as this connection lives. `false`: somebody else does, or the source is
/// gone or changed.
///
/// # Errors
/// It is not known.
pub async fn hold(
    client: &Client,
    source: &Watched,
    worker_id: i64,
    backend: Backend,
) -> Result<bool, StoreError> {
    let failed = "taking a source";
    // A producer's transaction that stays open holds up one session, and not for long; a message that was enqueued is
    // flushed before its platform is told to forget it.
    client
        .batch_execute(
            "SET synchronous_commit = on; SET lock_timeout = '2s'; SET statement_timeout = '3s'; \
             SET plan_cache_mode = auto",
        )
        .await
        .map_err(StoreError::on(failed))?;
    let id = i64::from(source.source_id);
    let row = client
        .query_one(include_str!("sql/source_hold.sql"), &[&id])
        .await
        .map_err(StoreError::on(failed))?;
    if !row.get::<_, bool>(0) {
        return Ok(false);
    }
    let start: Timestamp = backend.start;
    let entered = client
        .query_opt(
            include_str!("sql/source_enter.sql"),
            &[&source.source_id, &source.version, &worker_id, &start],
        )
        .await
        .map_err(StoreError::on(failed))?;
    Ok(entered.is_some())
}

/// Enters which bot a source asks for.
///
/// # Errors
/// It is not known whether it was entered.
pub async fn enter_bot(client: &Client, source_id: i32, bot: &str) -> Result<Bot, StoreError> {
    let failed = "entering the bot of a source";
    // In a transaction of its own.
    client
        .execute(
            include_str!("sql/source_leave_bot.sql"),
            &[&source_id, &bot],
        )
        .await
        .map_err(StoreError::on(failed))?;
    let entered = client
        .execute(include_str!("sql/source_bot.sql"), &[&source_id, &bot])
        .await;
    match entered {
        Ok(0) => Ok(Bot::Lost),
        Ok(_) => Ok(Bot::Entered),
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            let row = client
                .query_opt(include_str!("sql/source_of_bot.sql"), &[&bot])
                .await
                .map_err(StoreError::on(failed))?;
            let by = row.map(|row| row.get(0));
            Ok(Bot::Taken { by })
        }
        Err(error) => Err(StoreError::on(failed)(error)),
    }
}

/// Gives a sign of life, and says what is wrong. `None`: the source is gone, or has another holder.
///
/// # Errors
/// It is not known.
pub async fn alive(
    client: &Client,
    source_id: i32,
    problem: Option<&str>,
) -> Result<Option<Offset>, StoreError> {
    let row = client
        .query_opt(
            include_str!("sql/source_alive.sql"),
            &[&source_id, &problem],
        )
        .await
        .map_err(StoreError::on("giving a sign of life for a source"))?;
    Ok(row.map(|row| Offset {
        next_update: row.get("next_update"),
        is_fresh: row.get("is_fresh"),
    }))
}

/// How the session that a source has at Discord's gateway is resumed. `None`: it has none, or the source has another holder.
///
/// # Errors
/// It is not known.
pub async fn resumption(client: &Client, source_id: i32) -> Result<Option<Resumption>, StoreError> {
    let row = client
        .query_opt(include_str!("sql/source_resumption.sql"), &[&source_id])
        .await
        .map_err(StoreError::on("reading the session of a source"))?;
    Ok(row.map(|row| Resumption {
        session_id: row.get("session_id"),
        address: row.get("address"),
        seq: row.get("seq"),
    }))
}

/// Keeps how it is resumed; `None`: it is not. `false`: the source is gone, or has another holder.
///
/// # Errors
/// It is not known whether it was kept.
pub async fn keep(
    client: &Client,
    source_id: i32,
    resumption: Option<&Resumption>,
) -> Result<bool, StoreError> {
    let session_id = resumption.map(|it| it.session_id.as_str());
    let address = resumption.map(|it| it.address.as_str());
    let seq = resumption.map(|it| it.seq);
    let kept = client
        .execute(
            include_str!("sql/source_keep.sql"),
            &[&source_id, &session_id, &address, &seq],
        )
        .await
        .map_err(StoreError::on("keeping the session of a source"))?;
    Ok(kept == 1)
}

/// Moves how far a source is, in the transaction that enqueues what was before. `false`: another holder has moved it, and
/// the transaction must not commit.
///
/// # Errors
/// Nothing was moved.
pub async fn advance(
    transaction: &Transaction<'_>,
    source_id: i32,
    bot: &str,
    to: i64,
    was: Option<i64>,
) -> Result<bool, StoreError> {
    let moved = transaction
        .execute(
            include_str!("sql/source_move.sql"),
            &[&source_id, &bot, &to, &was],
        )
        .await
        .map_err(StoreError::on("moving the offset of a source"))?;
    Ok(moved == 1)
}
