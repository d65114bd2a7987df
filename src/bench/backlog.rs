//! Fills the scratch database through the public functions, and judges when it is drained.

use std::time::{Duration, Instant};

use lanekeeper_postgres::{maintenance, subscription};
use lanekeeper_subscription::SubscriptionFile;
use serde_json::value::RawValue;
use tokio_postgres::Client;
use tokio_postgres::types::Json;

use super::{Backlog, BenchError, Scratch};

pub const STREAM: &str = "messages";
pub const SUBSCRIPTION: &str = "bench";
/// Of every event, as JSON text.
pub const PAYLOAD_BYTES: usize = 300;
/// Events of one bulk call.
pub const BULK: usize = 1000;
const LOADERS: usize = 2;
const APPLY_LIMIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What deliveries write to.
pub const TABLES: &str = "lanekeeper.ready, lanekeeper.progress, lanekeeper.claim";

pub const ENQUEUE_MANY: &str = "SELECT count(*) FROM lanekeeper.enqueue_many($1, $2)";
/// No lane has a token, but for those that are blocked for the day: a held lane's may be a while off.
const AT_REST: &str = "
    SELECT NOT EXISTS (
        SELECT FROM lanekeeper.ready AS r WHERE r.due_at <= clock_timestamp() + interval '1 hour')";
/// Events after the cursors of the lanes that are not blocked.
const UNDELIVERED: &str = "
    SELECT coalesce(sum(n.seq - p.cursor), 0)::bigint
    FROM lanekeeper.lane AS l
    JOIN lanekeeper.session AS s ON s.session_id = l.session_id AND NOT starts_with(s.name, $1)
    CROSS JOIN LATERAL (
        SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
        ORDER BY p.version DESC LIMIT 1) AS p
    CROSS JOIN LATERAL (
        SELECT e.seq FROM lanekeeper.event AS e WHERE e.session_id = l.session_id
        ORDER BY e.seq DESC LIMIT 1) AS n
    WHERE n.seq > p.cursor";

/// A payload of [`PAYLOAD_BYTES`].
pub fn payload() -> Box<RawValue> {
    let (before, after) = (r#"{"role":"assistant","text":""#, r#""}"#);
    let text = "All is well in this lane. ".repeat(PAYLOAD_BYTES / 26 + 1);
    let text = &text[..PAYLOAD_BYTES - before.len() - after.len()];
    RawValue::from_string(format!("{before}{text}{after}")).expect("letters and spaces in quotes")
}

/// Subscribes one destination to [`STREAM`]. Nothing of its adapter is used but by a worker process.
pub async fn subscribe(scratch: &Scratch, concurrency: u32) -> Result<(), BenchError> {
    subscribe_with(scratch, concurrency, "adapter = \"stdout\"").await
}

/// The same with an adapter, and other lines of the subscription.
pub async fn subscribe_with(
    scratch: &Scratch,
    concurrency: u32,
    lines: &str,
) -> Result<(), BenchError> {
    let text = format!(
        "[subscription.{SUBSCRIPTION}]\nstream = \"{STREAM}\"\nconcurrency = {concurrency}\nmax_pending = 0\n{lines}\n"
    );
    let file = SubscriptionFile::parse(&text, "bench").map_err(subscription::ApplyError::File)?;
    let mut client = scratch.connect().await?;
    subscription::apply(&mut client, false, |current| file.plan(current, false)).await?;
    finish_changes(&client).await
}

/// What an apply leaves to do workers do within a second or two; here it would be done in the middle
/// of what is measured, over all sessions that were loaded since.
pub async fn finish_changes(client: &Client) -> Result<(), BenchError> {
    let deadline = Instant::now() + APPLY_LIMIT;
    loop {
        let turn = maintenance::finish_changes(client, 1000).await?;
        if turn.unfinished == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(BenchError::ApplyUnfinished(APPLY_LIMIT));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Appends the backlog round by round, one event of every session after the other: no session's
/// events lie side by side, as in production.
pub async fn load(scratch: &Scratch, prefix: &str, backlog: Backlog) -> Result<(), BenchError> {
    let per_loader = backlog.sessions.div_ceil(LOADERS);
    let mut loaders = tokio::task::JoinSet::new();
    for first in (0..backlog.sessions).step_by(per_loader.max(1)) {
        let client = scratch.connect().await?;
        let sessions = first..backlog.sessions.min(first + per_loader);
        let prefix = prefix.to_owned();
        loaders.spawn(async move {
            let statement = super::prepare(&client, ENQUEUE_MANY).await?;
            let payload = payload();
            let mut events = Vec::with_capacity(BULK);
            for _ in 0..backlog.events {
                for session in sessions.clone() {
                    events.push(event(&format!("{prefix}-{session}"), &payload));
                    if events.len() == BULK {
                        enqueue_many(&client, &statement, &events).await?;
                        events.clear();
                    }
                }
            }
            enqueue_many(&client, &statement, &events).await
        });
    }
    while let Some(loaded) = loaders.join_next().await {
        loaded??;
    }
    Ok(())
}

/// An element of the array that `enqueue_many` takes.
pub fn event(session: &str, payload: &RawValue) -> Box<RawValue> {
    RawValue::from_string(format!(
        r#"{{"session":"{session}","event_type":"message","payload":{payload}}}"#
    ))
    .expect("plain names and a payload that is JSON")
}

pub async fn enqueue_many(
    client: &Client,
    statement: &tokio_postgres::Statement,
    events: &[Box<RawValue>],
) -> Result<(), BenchError> {
    client
        .query_one(statement, &[&STREAM, &Json(events)])
        .await
        .map(drop)
        .map_err(BenchError::on("enqueuing in bulk"))
}

/// Clears away what is deleted in these tables, without counting what is in them.
pub async fn vacuum(client: &Client, tables: &str) -> Result<(), BenchError> {
    client
        .batch_execute(&format!("VACUUM {tables}"))
        .await
        .map_err(BenchError::on("vacuuming"))
}

/// Whether nothing is due.
pub async fn at_rest(client: &Client) -> Result<bool, BenchError> {
    let row = client
        .query_one(AT_REST, &[])
        .await
        .map_err(BenchError::on("looking for tokens"))?;
    Ok(row.get(0))
}

/// Events of lanes that are not blocked which the cursors have not passed.
pub async fn undelivered(client: &Client) -> Result<i64, BenchError> {
    client
        .query_one(UNDELIVERED, &[&super::sink::BLOCKED])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(BenchError::on("counting undelivered events"))
}

/// Proves that nothing is left of what is not blocked.
pub async fn check_drained(
    client: &Client,
    delivered: u64,
    expected: usize,
) -> Result<(), BenchError> {
    let undelivered = undelivered(client).await?;
    let expected = expected as u64;
    if undelivered == 0 && delivered == expected {
        Ok(())
    } else {
        Err(BenchError::Incomplete {
            undelivered,
            delivered,
            expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_the_size_that_is_reported() {
        assert_eq!(payload().get().len(), PAYLOAD_BYTES);
    }
}
