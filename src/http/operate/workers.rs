//! `/v1/workers`: the worker processes and their last signs of life.

use std::sync::Arc;

use axum::extract::FromRef;
use axum::response::Response;
use lanekeeper_postgres::inspect::{self, WorkerStatus};
use lanekeeper_postgres::token::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Operators;
use super::caller::{Reader, answer};
use super::page::{self, Asked, MOST};
use crate::openapi::operation::get;
use crate::problem::Problem;
use crate::routes::{Routes, Shared};

pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Operators>: FromRef<S>,
{
    Routes::new().on(
        get(
            "/v1/workers",
            "list_workers",
            "List the workers, those that were silent longest first",
        )
        .details("For a token of every stream: workers belong to none.")
        .scopes(&[Scope::Read])
        .query::<Which>()
        .answers::<Workers>(200, "The workers"),
        list,
    )
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WhichWorkers")]
#[serde(deny_unknown_fields)]
struct Which {
    /// The most that are listed; there is no next page.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WorkerPage")]
struct Workers {
    workers: Vec<WorkerStatus>,
}

async fn list(Reader(caller): Reader, Asked(which): Asked<Which>) -> Result<Response, Problem> {
    caller.require_everything()?;
    let limit = page::limit(which.limit, MOST)?;
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let workers = inspect::workers(&reading, limit).await?;
                Ok(answer(&Workers { workers }))
            }
            .await;
            lease.done();
            read
        })
        .await
}
