//! Reads columns into the program's types. A value that the schema allows and this release does not know is an error of
//! the column.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use lanekeeper_core::subscription::agent::AgentDefinition;
use lanekeeper_core::subscription::{
    Acknowledge, DeliveryDefaults, EventSchema, Exhaustion, FrameAcknowledge, Limit, MessageStage,
    OnFull, PendingBound, Start, limit,
};
use serde::Deserialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Json, Type, accepts};

use crate::report::ReportedState;

type Unreadable = Box<dyn Error + Sync + Send>;

fn from_word<T: Copy>(raw: &[u8], all: &[T], word: fn(T) -> &'static str) -> Result<T, Unreadable> {
    let given = std::str::from_utf8(raw)?;
    let found = all.iter().copied().find(|value| word(*value) == given);
    found.ok_or_else(|| format!("{given:?} is not known to this release").into())
}

/// A word of the database in the type of the program.
struct Word<T>(T);

impl FromSql<'_> for Word<Exhaustion> {
    accepts!(TEXT);

    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Unreadable> {
        from_word(raw, &Exhaustion::ALL, Exhaustion::as_str).map(Self)
    }
}

impl FromSql<'_> for Word<Acknowledge> {
    accepts!(TEXT);

    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Unreadable> {
        from_word(raw, &Acknowledge::ALL, Acknowledge::as_str).map(Self)
    }
}

impl FromSql<'_> for Word<OnFull> {
    accepts!(TEXT);

    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Unreadable> {
        from_word(raw, &OnFull::ALL, OnFull::as_str).map(Self)
    }
}

impl FromSql<'_> for Word<MessageStage> {
    accepts!(TEXT);

    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Unreadable> {
        from_word(raw, &MessageStage::ALL, MessageStage::as_str).map(Self)
    }
}

impl FromSql<'_> for Word<FrameAcknowledge> {
    accepts!(TEXT);

    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Unreadable> {
        from_word(raw, &FrameAcknowledge::ALL, FrameAcknowledge::as_str).map(Self)
    }
}

impl FromSql<'_> for Word<Start> {
    accepts!(TEXT);

    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Unreadable> {
        from_word(raw, &Start::ALL, Start::as_str).map(Self)
    }
}

impl FromSql<'_> for Word<ReportedState> {
    accepts!(TEXT);

    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Unreadable> {
        from_word(raw, &ReportedState::ALL, ReportedState::as_str).map(Self)
    }
}

/// The column `state` of a worker's report.
pub(crate) fn reported_state(row: &Row) -> Result<ReportedState, tokio_postgres::Error> {
    let Word(word) = row.try_get("state")?;
    Ok(word)
}

/// The column `on_exhausted`.
pub(super) fn on_exhausted(row: &Row) -> Result<Exhaustion, tokio_postgres::Error> {
    let Word(word) = row.try_get("on_exhausted")?;
    Ok(word)
}

/// The column `ack`.
pub(super) fn ack(row: &Row) -> Result<Acknowledge, tokio_postgres::Error> {
    let Word(word) = row.try_get("ack")?;
    Ok(word)
}

/// The columns `max_pending` and `on_full`.
pub(super) fn pending(row: &Row) -> Result<PendingBound, tokio_postgres::Error> {
    let Word(on_full) = row.try_get("on_full")?;
    Ok(PendingBound {
        max_pending: optional_count(row, "max_pending")?,
        on_full,
    })
}

/// The columns `timeout_ms`, `batch` and `poll_floor_ms` of a stream.
pub(super) fn delivery(row: &Row) -> Result<DeliveryDefaults, tokio_postgres::Error> {
    Ok(DeliveryDefaults {
        timeout: optional_millis(row, "timeout_ms")?,
        batch: optional_count(row, "batch")?,
        poll_floor: optional_millis(row, "poll_floor_ms")?,
    })
}

/// A column of milliseconds.
pub(super) fn optional_millis(
    row: &Row,
    column: &str,
) -> Result<Option<Duration>, tokio_postgres::Error> {
    let millis = optional_count(row, column)?;
    Ok(millis.map(|millis| Duration::from_millis(millis.into())))
}

/// The column `lifecycle`.
pub(super) fn lifecycle(row: &Row) -> Result<Vec<MessageStage>, tokio_postgres::Error> {
    let stages: Option<Vec<Word<MessageStage>>> = row.try_get("lifecycle")?;
    Ok(stages
        .into_iter()
        .flatten()
        .map(|Word(stage)| stage)
        .collect())
}

/// The column `acknowledge` of a stream.
pub(crate) fn acknowledge(row: &Row) -> Result<FrameAcknowledge, tokio_postgres::Error> {
    let Word(word) = row.try_get("acknowledge")?;
    Ok(word)
}

/// The column `a2a` of a stream.
pub(crate) fn a2a(row: &Row) -> Result<Option<AgentDefinition>, tokio_postgres::Error> {
    let agent: Option<Json<AgentDefinition>> = row.try_get("a2a")?;
    Ok(agent.map(|Json(agent)| agent))
}

/// The column `schemas` of a stream: an object of those that are in force, by event type.
pub(super) fn schemas(row: &Row) -> Result<BTreeMap<String, EventSchema>, tokio_postgres::Error> {
    #[derive(Deserialize)]
    struct Column {
        schema: Value,
        rules: Value,
    }
    let schemas: Option<Json<BTreeMap<String, Column>>> = row.try_get("schemas")?;
    let schemas = schemas.map(|Json(schemas)| schemas).unwrap_or_default();
    let read = |(event_type, Column { schema, rules })| (event_type, EventSchema { schema, rules });
    Ok(schemas.into_iter().map(read).collect())
}

/// The column `start_from`.
pub(super) fn start_from(row: &Row) -> Result<Start, tokio_postgres::Error> {
    let Word(word) = row.try_get("start_from")?;
    Ok(word)
}

/// An `int` that a CHECK keeps from being negative.
struct Count(u32);

impl<'a> FromSql<'a> for Count {
    accepts!(INT4);

    fn from_sql(sql_type: &Type, raw: &'a [u8]) -> Result<Self, Unreadable> {
        Ok(Self(u32::try_from(i32::from_sql(sql_type, raw)?)?))
    }
}

pub(super) fn count(row: &Row, column: &str) -> Result<u32, tokio_postgres::Error> {
    Ok(row.try_get::<_, Count>(column)?.0)
}

pub(super) fn optional_count(
    row: &Row,
    column: &str,
) -> Result<Option<u32>, tokio_postgres::Error> {
    let count: Option<Count> = row.try_get(column)?;
    Ok(count.map(|Count(count)| count))
}

/// The column `settings`: the limits, and what is the adapter's own.
struct Settings(Vec<Limit>, Value);

impl<'a> FromSql<'a> for Settings {
    accepts!(JSONB);

    fn from_sql(sql_type: &Type, raw: &'a [u8]) -> Result<Self, Unreadable> {
        let (limits, settings) = limit::split(Value::from_sql(sql_type, raw)?)?;
        Ok(Self(limits, settings))
    }
}

pub(super) fn settings(row: &Row) -> Result<(Vec<Limit>, Value), tokio_postgres::Error> {
    let Settings(limits, settings) = row.try_get("settings")?;
    Ok((limits, settings))
}

/// The column `retry_schedule_ms`.
pub(super) fn schedule(row: &Row) -> Result<Vec<Duration>, tokio_postgres::Error> {
    let waits: Vec<Count> = row.try_get("retry_schedule_ms")?;
    Ok(waits
        .into_iter()
        .map(|millis| Duration::from_millis(millis.0.into()))
        .collect())
}
