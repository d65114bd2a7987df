//! Ends the wait for an agent that says nothing. The event waits in its lane until the deadline: the lane is the timer, it
//! survives every process, and Postgres' clock alone decides.

use std::time::Duration;

use async_trait::async_trait;
use lanekeeper::{Delivery, Handler, HandlerError};
use serde_json::{Value, json};
use tokio_postgres::Transaction;

use crate::run::{Phase, Step, TIMED_OUT};
use crate::steps::{append, load};

pub struct Deadlines;

#[async_trait]
impl Handler for Deadlines {
    async fn handle(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery<'_>,
    ) -> Result<(), HandlerError> {
        let event = delivery.event;
        let (run, _) = load(transaction, &event.session).await?;
        if run.phase != Phase::Forward || run.done == Step::ALL.len() {
            return Ok(());
        }
        let payload: Value = serde_json::from_str(&event.payload).unwrap_or_default();
        let deadline = payload["deadline_ms"].as_f64().unwrap_or(30_000.0);
        let waited =
            "SELECT extract(epoch FROM clock_timestamp() - $1::timestamptz)::float8 * 1000";
        let row = transaction.query_one(waited, &[&event.created_at]).await?;
        let left = deadline - row.get::<_, f64>(0);
        if left > 0.0 {
            // Not a failure: this is how an event is put off.
            return Err(HandlerError::Retry {
                error: "the agent has time left".to_owned(),
                after: Some(Duration::from_secs_f64(left / 1000.0)),
            });
        }
        let payload = json!({"waited_for": "ResultReported", "deadline_ms": deadline});
        append(transaction, &event.session, TIMED_OUT, &payload, None).await
    }
}
