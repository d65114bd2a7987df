//! Takes the steps of a run, and takes them back: each in the transaction that settles the event that asked for it. In the
//! same transaction it appends the event that tells of it, which asks for the next. So a process that is killed anywhere
//! has taken a step and said so, or has done neither.

use async_trait::async_trait;
use lanekeeper::append::{NewEvent, enqueue};
use lanekeeper::{Delivery, Handler, HandlerError};
use serde_json::{Value, json};
use tokio_postgres::Transaction;

use crate::run::{Action, FAILED, Phase, REQUESTED, Run, Step};

pub const STREAM: &str = "sagas";

pub struct Steps;

#[async_trait]
impl Handler for Steps {
    async fn handle(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery<'_>,
    ) -> Result<(), HandlerError> {
        let event = delivery.event;
        let name = &*event.session;
        let payload: Value = serde_json::from_str(&event.payload).map_err(rejected)?;
        if &*event.event_type == REQUESTED {
            let new =
                "INSERT INTO saga.run (run, request, phase, done) VALUES ($1, $2, 'forward', 0)";
            transaction.execute(new, &[&name, &payload]).await?;
        }
        let (mut run, request) = load(transaction, name).await?;
        let told = match run.take(&event.event_type) {
            Action::Do(step) => Some(take(transaction, name, step, &request, &payload).await?),
            Action::Undo(step) => Some(take_back(transaction, name, step).await?),
            Action::Nothing => None,
        };
        let done = i32::try_from(run.done).map_err(rejected)?;
        let store = "UPDATE saga.run SET phase = $2, done = $3 WHERE run = $1";
        transaction
            .execute(store, &[&name, &run.phase.as_str(), &done])
            .await?;
        if let Some((event_type, payload)) = told {
            append(transaction, name, event_type, &payload, None).await?;
        }
        Ok(())
    }
}

/// What happened, and what is to be said of it.
type Told = (&'static str, Value);

async fn take(
    transaction: &Transaction<'_>,
    run: &str,
    step: Step,
    request: &Value,
    payload: &Value,
) -> Result<Told, HandlerError> {
    let text = |key: &str| request[key].as_str().unwrap_or_default().to_owned();
    let failed = |why: &str| (FAILED, json!({"step": format!("{step:?}"), "why": why}));
    let told = match step {
        Step::ReserveWorkspace => {
            let reserve = "UPDATE saga.workspace SET run = $1 WHERE workspace_id = (
                SELECT workspace_id FROM saga.workspace WHERE pool = $2 AND run IS NULL
                ORDER BY workspace_id LIMIT 1 FOR UPDATE) RETURNING workspace_id";
            match transaction
                .query_opt(reserve, &[&run, &text("pool")])
                .await?
            {
                Some(row) => json!({"workspace": row.get::<_, i32>(0)}),
                None => return Ok(failed("no workspace of this pool is free")),
            }
        }
        Step::StartAgent if text("agent").is_empty() => {
            return Ok(failed("no agent was asked for"));
        }
        Step::StartAgent => {
            let start = "INSERT INTO saga.agent (run) VALUES ($1)";
            transaction.execute(start, &[&run]).await?;
            json!({"agent": text("agent"), "deadline_ms": request["deadline_ms"]})
        }
        Step::VerifyResult if payload["tests"] != "pass" => {
            return Ok(failed("the tests do not pass"));
        }
        Step::VerifyResult => json!({"tests": "pass"}),
    };
    effect(transaction, run, step.done()).await?;
    Ok((step.done(), told))
}

async fn take_back(
    transaction: &Transaction<'_>,
    run: &str,
    step: Step,
) -> Result<Told, HandlerError> {
    let statement = match step {
        Step::ReserveWorkspace => "UPDATE saga.workspace SET run = NULL WHERE run = $1",
        Step::StartAgent => "UPDATE saga.agent SET stopped_at = now() WHERE run = $1",
        // Nothing fails behind it.
        Step::VerifyResult => return Err(rejected("the last step is never taken back")),
    };
    transaction.execute(statement, &[&run]).await?;
    effect(transaction, run, step.undone()).await?;
    Ok((step.undone(), json!({})))
}

/// Where a run stands, and what was asked for.
pub async fn load(transaction: &Transaction<'_>, run: &str) -> Result<(Run, Value), HandlerError> {
    let find = "SELECT phase, done, request FROM saga.run WHERE run = $1";
    let Some(row) = transaction.query_opt(find, &[&run]).await? else {
        return Err(rejected("nobody asked for this run"));
    };
    let phase = Phase::of(row.get("phase")).ok_or_else(|| rejected("unknown phase"))?;
    let done = usize::try_from(row.get::<_, i32>("done")).map_err(rejected)?;
    Ok((Run { phase, done }, row.get("request")))
}

async fn effect(transaction: &Transaction<'_>, run: &str, what: &str) -> Result<(), HandlerError> {
    let enter = "INSERT INTO saga.effect (run, what) VALUES ($1, $2)";
    transaction.execute(enter, &[&run, &what]).await?;
    Ok(())
}

/// Appends to the run's own session. Its lanes deliver it when this transaction has committed.
pub async fn append(
    transaction: &Transaction<'_>,
    run: &str,
    event_type: &str,
    payload: &Value,
    dedupe_key: Option<&str>,
) -> Result<(), HandlerError> {
    let payload = payload.to_string();
    let event = NewEvent {
        dedupe_key,
        ..NewEvent::new(run, event_type, &payload)
    };
    match enqueue(transaction, STREAM, &event).await {
        Ok(_) => Ok(()),
        Err(error) => Err(HandlerError::Retry {
            error: error.to_string(),
            after: None,
        }),
    }
}

/// The run waits for an operator: `on_exhausted = "park"`.
fn rejected(error: impl ToString) -> HandlerError {
    HandlerError::Reject {
        error: error.to_string(),
    }
}
