//! Keeps the tables small, and finishes what `apply` leaves for later.
//!
//! Each call does one short piece of work under an advisory lock. If another process holds the lock, it does nothing.
//! The caller calls again while there is more to do.

use tokio_postgres::Client;

use super::StoreError;

pub const CHANGE_PENDING: &str = include_str!("sql/change_pending.sql");
pub const FINISH_CHANGES: &str = include_str!("sql/finish_changes.sql");
pub const EXPIRE_SESSIONS: &str = include_str!("sql/expire_sessions.sql");
pub const FORGET_RECORDS: &str = include_str!("sql/forget_records.sql");
pub const FORGET_SENT_MESSAGES: &str = include_str!("sql/forget_sent_messages.sql");

/// Keys of each kind that one turn forgets.
const KEYS_AT_ONCE: i64 = 10_000;

/// The result of one step of maintenance on the log and the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub partitions_created: i64,
    pub partitions_dropped: i64,
    /// Days past retention that are still there: a lane has undelivered events of them, another worker processes them,
    /// they wait for the archive, or they are about to be dropped.
    pub partitions_kept: i64,
    pub keys_forgotten: i64,
    /// Events of the oldest day that are kept are copied, and there are more.
    pub is_copying: bool,
}

impl Report {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether another call would find more to do.
    pub fn more(&self) -> bool {
        self.partitions_dropped > 0 || self.keys_forgotten >= KEYS_AT_ONCE || self.is_copying
    }
}

/// Does one step of maintenance on the log and the keys. If `archived`, it drops only days that were archived.
///
/// # Errors
/// Nothing of this step was done.
pub async fn run(
    client: &Client,
    retention_days: i32,
    dedupe_days: i32,
    archived: bool,
) -> Result<Report, StoreError> {
    let row = client
        .query_one(
            "SELECT partitions_created, partitions_dropped, partitions_kept, keys_forgotten, is_copying
             FROM lanekeeper.maintain_log($1, $2, $3)",
            &[&retention_days, &dedupe_days, &archived],
        )
        .await
        .map_err(StoreError::on("maintaining the log"))?;
    Ok(Report {
        partitions_created: row.get(0),
        partitions_dropped: row.get(1),
        partitions_kept: row.get(2),
        keys_forgotten: row.get(3),
        is_copying: row.get(4),
    })
}

/// Makes the recent partitions begin with yesterday. Returns false if they do already, or if another transaction blocks
/// the change.
///
/// # Errors
/// Nothing was changed.
pub async fn move_recent(client: &Client) -> Result<bool, StoreError> {
    client
        .query_one("SELECT lanekeeper.move_recent()", &[])
        .await
        .map(|row| row.get(0))
        .map_err(StoreError::on("moving the recent part of the log"))
}

/// How long records are kept, in days.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Outcomes: why events were not simply delivered. They are kept at least as long as their event.
    pub outcome_days: i32,
    /// The history of settlements.
    pub history_days: i32,
    /// Resolved dead letters, counted from when they were resolved.
    pub dead_letter_days: i32,
    /// What operators did.
    pub operation_days: i32,
}

/// The number of rows that a step deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub outcomes: i64,
    pub histories: i64,
    pub dead_letters: i64,
    pub operations: i64,
}

impl Forgotten {
    /// Whether a step with this limit left rows of some kind for another one.
    pub fn reached(&self, limit: i32) -> bool {
        let kinds = [
            self.outcomes,
            self.histories,
            self.dead_letters,
            self.operations,
        ];
        kinds.contains(&i64::from(limit))
    }
}

impl std::ops::AddAssign for Forgotten {
    fn add_assign(&mut self, other: Self) {
        self.outcomes += other.outcomes;
        self.histories += other.histories;
        self.dead_letters += other.dead_letters;
        self.operations += other.operations;
    }
}

/// Forgets up to `limit` records of each kind.
///
/// # Errors
/// Nothing of this turn was done.
pub async fn forget_records(
    client: &Client,
    keep: Keep,
    limit: i32,
) -> Result<Forgotten, StoreError> {
    let operation = "forgetting old records";
    let row = client
        .query_one(
            FORGET_RECORDS,
            &[
                &keep.outcome_days,
                &keep.history_days,
                &keep.dead_letter_days,
                &keep.operation_days,
                &limit,
            ],
        )
        .await
        .map_err(StoreError::on(operation))?;
    Ok(Forgotten {
        outcomes: row.get("outcomes"),
        histories: row.get("histories"),
        dead_letters: row.get("dead_letters"),
        operations: row.get("operations"),
    })
}

/// Forgets up to `limit` messages that were sent to chats more than `days` days ago; returns how many.
///
/// # Errors
/// Nothing of this turn was done.
pub async fn forget_sent_messages(
    client: &Client,
    days: i32,
    limit: i32,
) -> Result<i64, StoreError> {
    client
        .query_one(FORGET_SENT_MESSAGES, &[&days, &limit])
        .await
        .and_then(|row| row.try_get("forgotten"))
        .map_err(StoreError::on("forgetting messages that were sent"))
}

/// Forgets versions of documents that were superseded more than `days` days ago; looks at up to `limit` versions, and
/// returns at how many.
///
/// # Errors
/// Nothing of this turn was done.
pub async fn forget_document_versions(
    client: &Client,
    days: i32,
    limit: i32,
) -> Result<i64, StoreError> {
    client
        .query_one(
            include_str!("sql/forget_document_versions.sql"),
            &[&days, &limit],
        )
        .await
        .and_then(|row| row.try_get("looked_at"))
        .map_err(StoreError::on("forgetting versions of documents"))
}

/// Forgets up to `limit` messages that were acknowledged more than a day ago; returns how many.
///
/// # Errors
/// Nothing of this turn was done.
pub async fn forget_acked(client: &Client, limit: i32) -> Result<i64, StoreError> {
    client
        .query_one(include_str!("sql/forget_acked.sql"), &[&limit])
        .await
        .and_then(|row| row.try_get("forgotten"))
        .map_err(StoreError::on("forgetting acknowledged messages"))
}

/// What one turn over the sessions did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Sessions whose lanes are about to go.
    pub marked: i64,
    /// Sessions whose lanes are gone; an append brings them back.
    pub rested: i64,
    /// Call again at once.
    pub more: bool,
}

/// One turn over up to `sessions` sessions: removes the lanes of those that had nothing to do for
/// `days` days and of which nothing is left.
///
/// # Errors
/// Nothing of this turn was done.
pub async fn expire_sessions(
    client: &Client,
    days: i32,
    sessions: i32,
) -> Result<Rest, StoreError> {
    let row = client
        .query_one(EXPIRE_SESSIONS, &[&days, &sessions])
        .await
        .map_err(StoreError::on("putting sessions to rest"))?;
    Ok(Rest {
        marked: row.get("expiring"),
        rested: row.get("dormant"),
        more: row.get("more"),
    })
}

/// What one turn with the changes did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Changes that are not finished yet: look again at the poll floor.
    pub unfinished: i64,
    /// A scan is under way: call again at once.
    pub more: bool,
    pub sessions_walked: i64,
    pub lanes_woken: i64,
}

/// What is left to finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// By an apply.
    pub changes: bool,
    /// By the close or interrupt of a session.
    pub closes: bool,
    /// Sessions whose host may have changed.
    pub moves: bool,
    /// Replays that have not ended.
    pub replays: bool,
    /// What holders are to let go of, as notifications say it: for workers that heard none.
    pub interruptions: Vec<String>,
}

/// Whether an apply, or the close of a session, left something to finish.
///
/// # Errors
/// Where it cannot be read.
pub async fn change_pending(client: &Client) -> Result<Pending, StoreError> {
    let row = client
        .query_one(CHANGE_PENDING, &[])
        .await
        .map_err(StoreError::on("looking for unfinished changes"))?;
    Ok(Pending {
        changes: row.get("changes"),
        closes: row.get("closes"),
        moves: row.get("moves"),
        replays: row.get("replays"),
        interruptions: row.get("interruptions"),
    })
}

/// One turn over up to `sessions` sessions.
///
/// # Errors
/// Nothing of this turn was done.
pub async fn finish_changes(client: &Client, sessions: i32) -> Result<Turn, StoreError> {
    let row = client
        .query_one(FINISH_CHANGES, &[&sessions])
        .await
        .map_err(StoreError::on("finishing a change of subscriptions"))?;
    Ok(Turn {
        unfinished: row.get("unfinished"),
        more: row.get("more"),
        sessions_walked: row.get("sessions_scanned"),
        lanes_woken: row.get("lanes_woken"),
    })
}
