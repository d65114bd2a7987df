//! What a lane leaves out at its front before it delivers on: events that are too old, and the oldest of too many.

use std::time::Duration;

use jiff::civil::Date;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::StoreError;
use super::fetch::Position;

pub const SURPLUS: &str = include_str!("sql/surplus.sql");

/// A range of seqs, both ends included.
pub type Range = (i64, i64);

/// What is to be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surplus {
    /// Older than `max_age`.
    pub expired: Option<Range>,
    /// Behind those: the oldest beyond `max_pending`.
    pub dropped: Option<Range>,
    /// The day of the last event of both.
    pub day: Option<Date>,
}

/// Asks what a lane is to leave out behind this position. Only its holder may act on the answer.
///
/// # Errors
/// Nothing was changed.
pub async fn surplus(
    client: &impl GenericClient,
    position: Position,
    events: Option<&[String]>,
    max_age: Option<Duration>,
    drops_beyond: Option<u32>,
) -> Result<Surplus, StoreError> {
    let operation = "asking what a lane leaves out";
    let max_age = max_age.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let drops_beyond = drops_beyond.map(|most| i32::try_from(most).unwrap_or(i32::MAX));
    let row = client
        .query_typed_one(
            SURPLUS,
            &[
                (&position.session_id, Type::INT8),
                (&position.cursor, Type::INT8),
                (&position.cursor_day, Type::DATE),
                (&events, Type::TEXT_ARRAY),
                (&max_age, Type::INT8),
                (&drops_beyond, Type::INT4),
            ],
        )
        .await
        .map_err(StoreError::on(operation))?;
    let range = |from: &str, to: &str| {
        let (from, to): (Option<i64>, Option<i64>) = (row.try_get(from)?, row.try_get(to)?);
        Ok(from.zip(to))
    };
    let read = || {
        Ok(Surplus {
            expired: range("expired_from", "expired_to")?,
            dropped: range("dropped_from", "dropped_to")?,
            day: row.try_get("day")?,
        })
    };
    read().map_err(StoreError::on(operation))
}
