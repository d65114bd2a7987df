//! The statements of `apply` that write streams, subscriptions, their versions and their ready entries.

use std::collections::BTreeMap;

use lanekeeper_core::subscription::{ChangeKind, Definition, Retry, Step, StreamDefinition, limit};
use serde_json::{Value, json};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};

use crate::StoreError;

pub const STREAM_PUT: &str = include_str!("../sql/stream_put.sql");
pub const STREAM_SCHEMA_PUT: &str = include_str!("../sql/stream_schema_put.sql");
pub const STREAM_NEEDS_LANES: &str = include_str!("../sql/stream_needs_lanes.sql");
pub const CREATE: &str = include_str!("../sql/subscription_create.sql");
pub const CHANGE: &str = include_str!("../sql/subscription_change.sql");
pub const REMOVE: &str = include_str!("../sql/subscription_remove.sql");
pub const RECORD: &str = include_str!("../sql/subscription_record.sql");
pub const HOST_ROUTE_CREATE: &str = include_str!("../sql/host_route_create.sql");
pub const WAKE: &str = include_str!("../sql/subscription_wake.sql");
pub const STREAM_BOUNDED: &str = include_str!("../sql/stream_bounded.sql");
pub const STREAM_CHANGE: &str = include_str!("../sql/stream_change.sql");

/// Creates the stream or sets it to its definition; returns its id.
pub(super) async fn put_stream(
    transaction: &Transaction<'_>,
    step: &Step<StreamDefinition>,
) -> Result<i32, StoreError> {
    let operation = "writing a stream";
    let StreamDefinition {
        max_payload_bytes,
        fan_out,
        critical,
        retry,
        pending,
        delivery,
        acknowledge,
        keep_events,
        terminal,
        a2a,
        schemas,
    } = &step.definition;
    let judged: Vec<&str> = schemas.keys().map(String::as_str).collect();
    let row = transaction
        .query_one(
            STREAM_PUT,
            &[
                &step.name,
                &int(*max_payload_bytes),
                &fan_out.as_column(),
                &critical.as_column(),
                &schedule(retry),
                &int(retry.max_attempts),
                &retry.on_exhausted.as_str(),
                &pending.max_pending.map(int),
                &pending.on_full.as_str(),
                &acknowledge.as_str(),
                keep_events,
                &(!terminal.is_empty()).then_some(terminal),
                &a2a.as_ref().map(|agent| json!(agent)),
                &(!judged.is_empty()).then_some(&judged),
                &delivery.timeout.map(|timeout| int(timeout.as_millis())),
                &delivery.batch.map(int),
                &delivery.poll_floor.map(|floor| int(floor.as_millis())),
            ],
        )
        .await
        .map_err(StoreError::on(operation))?;
    let stream_id: i32 = row
        .try_get("stream_id")
        .map_err(StoreError::on(operation))?;
    let (declared, rules): (Vec<&Value>, Vec<&Value>) =
        schemas.values().map(|of| (&of.schema, &of.rules)).unzip();
    transaction
        .execute(STREAM_SCHEMA_PUT, &[&stream_id, &judged, &declared, &rules])
        .await
        .map_err(StoreError::on("writing the schemas of a stream"))?;
    set_bounded(transaction, Some(stream_id)).await?;
    Ok(stream_id)
}

/// Tells producers whether appends have more to look at than the log.
async fn set_bounded(
    transaction: &Transaction<'_>,
    stream_id: Option<i32>,
) -> Result<(), StoreError> {
    transaction
        .execute(STREAM_BOUNDED, &[&stream_id])
        .await
        .map(drop)
        .map_err(StoreError::on("announcing a bound to a stream's producers"))
}

/// Does what the plan says about one subscription.
pub(super) async fn execute(
    transaction: &Transaction<'_>,
    step: &Step<Definition>,
    stream_ids: &BTreeMap<String, i32>,
) -> Result<(), StoreError> {
    if step.kind == ChangeKind::Unchanged {
        return Ok(());
    }
    // The plan knows no stream without an id: it was loaded, or it is the file's and put above.
    let stream_id = stream_ids.get(&step.definition.stream);
    let written = match (step.kind, step.id) {
        (ChangeKind::Removed, id) => transaction.query_one(REMOVE, &[&id]).await,
        (_, Some(id)) => write(transaction, CHANGE, &[&id], step).await,
        (_, None) => write(transaction, CREATE, &[&stream_id], step).await,
    };
    let (id, version): (i32, i64) = written
        .and_then(|row| Ok((row.try_get("subscription_id")?, row.try_get("version")?)))
        .map_err(StoreError::on("writing a subscription"))?;
    if step.definition.host_bound {
        transaction
            .execute(HOST_ROUTE_CREATE, &[&id])
            .await
            .map_err(StoreError::on("opening a subscription's routes"))?;
    }
    transaction
        .execute(RECORD, &[&id, &version, &record(step)])
        .await
        .map_err(StoreError::on("recording a subscription's version"))?;
    set_bounded(transaction, stream_id.copied()).await?;
    if matches!(step.kind, ChangeKind::Created | ChangeKind::Revived) {
        transaction
            .execute(STREAM_NEEDS_LANES, &[&stream_id])
            .await
            .map_err(StoreError::on("announcing a subscription to its stream"))?;
    }
    let filter_changed = step.kind == ChangeKind::Changed && step.changes("events");
    if filter_changed || matches!(step.kind, ChangeKind::Created | ChangeKind::Revived) {
        transaction
            .execute(STREAM_CHANGE, &[&stream_id])
            .await
            .map_err(StoreError::on("announcing a change to maintenance"))?;
    }
    if step.kind == ChangeKind::Revived || filter_changed {
        transaction
            .execute(WAKE, &[&id])
            .await
            .map_err(StoreError::on("waking a subscription's lanes"))?;
    }
    Ok(())
}

/// Runs CREATE or CHANGE: what finds the row comes first, then the columns in one order.
async fn write(
    transaction: &Transaction<'_>,
    statement: &str,
    target: &[&(dyn ToSql + Sync)],
    Step {
        name,
        id,
        definition,
        ..
    }: &Step<Definition>,
) -> Result<Row, tokio_postgres::Error> {
    let Definition {
        adapter,
        events,
        start,
        retry,
        coalesce,
        concurrency,
        history,
        ack,
        ack_timeout,
        ack_window,
        host_bound,
        pending,
        max_age,
        lifecycle,
        limits,
        settings,
        ..
    } = definition;
    let settings = limit::join(limits, settings.clone());
    let mut parameters = target.to_vec();
    if id.is_none() {
        parameters.push(name);
    }
    let (events, start, on_exhausted) = (
        events.as_column(),
        start.as_str(),
        retry.on_exhausted.as_str(),
    );
    let (schedule, max_attempts) = (schedule(retry), int(retry.max_attempts));
    let concurrency = int(*concurrency);
    let (ack, ack_timeout, ack_window) =
        (ack.as_str(), int(ack_timeout.as_millis()), int(*ack_window));
    let (max_pending, on_full) = (pending.max_pending.map(int), pending.on_full.as_str());
    let max_age = max_age.map(|age| int(age.as_millis()));
    let stages: Vec<&str> = lifecycle.iter().map(|stage| stage.as_str()).collect();
    let lifecycle = (!stages.is_empty()).then_some(stages);
    let columns: [&(dyn ToSql + Sync); 17] = [
        adapter,
        &events,
        &start,
        &settings,
        &schedule,
        &max_attempts,
        &on_exhausted,
        coalesce,
        &concurrency,
        history,
        &ack,
        &ack_timeout,
        &ack_window,
        &max_pending,
        &on_full,
        &max_age,
        &lifecycle,
    ];
    parameters.extend(columns);
    // It never changes.
    if id.is_none() {
        parameters.push(host_bound);
    }
    transaction.query_one(statement, &parameters).await
}

/// What `subscription_version` keeps of a step.
fn record(step: &Step<Definition>) -> Value {
    let mut record = json!(step.definition);
    if step.kind == ChangeKind::Removed {
        record["removed"] = Value::Bool(true);
    }
    record
}

fn schedule(retry: &Retry) -> Vec<i32> {
    retry
        .schedule
        .iter()
        .map(|wait| int(wait.as_millis()))
        .collect()
}

/// For values that the file's bounds keep far below the limit.
fn int<T: TryInto<i32>>(value: T) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}
