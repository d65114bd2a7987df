//! `/v1/subscriptions`: how each stands and whether it is delivered, and pausing one.

use std::sync::Arc;

use std::collections::HashMap;

use axum::extract::FromRef;
use axum::response::Response;
use lanekeeper_postgres::inspect::{self, Deliveries, Delivery, SubscriptionStatus};
use lanekeeper_postgres::operate;
use lanekeeper_postgres::token::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;

use super::Operators;
use super::action::{Why, reason, refused};
use super::caller::{Caller, Order, Reader, answer};
use super::lanes::{no_subscription, of_subscriptions};
use super::page::{self, Asked, Named};
use crate::openapi::operation::{Operation, get, post};
use crate::problem::Problem;
use crate::routes::{Routes, Shared};

/// Subscriptions of a page: the lanes of each are counted.
const MOST: i64 = 200;

pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Operators>: FromRef<S>,
{
    let act = |operation: Operation| {
        operation
            .scopes(&[Scope::Operate])
            .optional_body::<Why>()
            .answers::<SubscriptionChanged>(200, "It is so now")
    };
    Routes::new()
        .on(
            get(
                "/v1/subscriptions",
                "list_subscriptions",
                "List subscriptions by name, with how they stand",
            )
            .scopes(&[Scope::Read])
            .query::<Which>()
            .answers::<Subscriptions>(200, "A page"),
            list,
        )
        .on(
            get(
                "/v1/subscriptions/{subscription}",
                "get_subscription",
                "Read how a subscription stands",
            )
            .scopes(&[Scope::Read])
            .answers::<Subscription>(200, "The subscription"),
            show,
        )
        .on(
            act(post(
                "/v1/subscriptions/{subscription}/pause",
                "pause_subscription",
                "Stop delivering a subscription",
            ))
            .details("Its events wait, in their order. Deliveries under way are finished."),
            pause,
        )
        .on(
            act(post(
                "/v1/subscriptions/{subscription}/resume",
                "resume_subscription",
                "Go on delivering a subscription",
            ))
            .details("What is given as `reason` is not kept."),
            resume,
        )
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WhichSubscriptions")]
#[serde(deny_unknown_fields)]
struct Which {
    /// `next` of the page before.
    after: Option<String>,
    #[schemars(range(min = 1, max = 200))]
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SubscriptionPage")]
struct Subscriptions {
    subscriptions: Vec<Subscription>,
    /// `after` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Subscription {
    #[serde(flatten)]
    status: SubscriptionStatus,
    /// Grows with every change of its definition.
    version: i64,
    /// Event types that it receives; `null`: every one.
    events: Option<Vec<String>>,
    delivery: Delivery,
}

#[derive(Serialize, JsonSchema)]
struct SubscriptionChanged {
    subscription: String,
    state: RunState,
    /// False where it was so already.
    changed: bool,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RunState {
    Running,
    Paused,
}

async fn list(Reader(caller): Reader, Asked(which): Asked<Which>) -> Result<Response, Problem> {
    caller.require_all_sessions()?;
    let limit = page::limit(which.limit, MOST)?;
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let stream_ids = caller.stream_ids(&reading).await?;
                let after = which.after.as_deref();
                let found =
                    inspect::subscription_page(&reading, stream_ids.as_deref(), after, limit + 1);
                let mut found = found.await?;
                let has_more = page::cut(&mut found, limit);
                let last = found.last().filter(|_| has_more);
                let next = last.map(|last| last.subscription.clone());
                let ids: Vec<i32> = found.iter().map(|it| it.subscription_id).collect();
                let subscriptions = standing(&caller, &reading, &ids).await?;
                Ok(answer(&Subscriptions {
                    subscriptions,
                    next,
                }))
            }
            .await;
            lease.done();
            read
        })
        .await
}

async fn show(Reader(caller): Reader, Named(name): Named<String>) -> Result<Response, Problem> {
    caller.require_all_sessions()?;
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let ids = of_subscriptions(&caller, &reading, Some(&name)).await?;
                let found = standing(&caller, &reading, &ids.unwrap_or_default()).await?;
                let found = found.first().ok_or_else(|| no_subscription(&name))?;
                Ok(answer(found))
            }
            .await;
            lease.done();
            read
        })
        .await
}

/// How some subscriptions stand, by name.
async fn standing(
    caller: &Caller,
    client: &impl GenericClient,
    ids: &[i32],
) -> Result<Vec<Subscription>, Problem> {
    let frozen_after = caller.operators.fleet.frozen_after;
    let deliveries: Deliveries = inspect::deliveries(client, frozen_after).await?;
    let statuses = inspect::glance_at(client, ids).await?;
    let all = lanekeeper_postgres::subscription::load(client).await?;
    let mut known: HashMap<i32, _> = all.into_iter().map(|it| (it.id, it)).collect();
    let whole = |status: SubscriptionStatus| {
        let of = known.remove(&status.subscription_id)?;
        Some(Subscription {
            delivery: deliveries.of(status.subscription_id, status.paused_at.is_some()),
            version: of.version,
            events: of.events,
            status,
        })
    };
    Ok(statuses.into_iter().filter_map(whole).collect())
}

async fn pause(
    Named(name): Named<String>,
    Order(caller, why): Order<Why>,
) -> Result<Response, Problem> {
    let reason = reason(&caller, why.reason.as_deref())?;
    change(caller, name, Some(reason)).await
}

async fn resume(
    Named(name): Named<String>,
    Order(caller, why): Order<Why>,
) -> Result<Response, Problem> {
    reason(&caller, why.reason.as_deref())?;
    change(caller, name, None).await
}

/// With a reason it is paused.
async fn change(caller: Caller, name: String, reason: Option<String>) -> Result<Response, Problem> {
    // It concerns every session of its stream.
    caller.require_all_sessions()?;
    caller
        .carry_out(async move |caller| {
            let lease = caller.lease().await?;
            let acted = async {
                let client = lease.client();
                of_subscriptions(&caller, client, Some(&name)).await?;
                let (changed, state) = match &reason {
                    Some(reason) => (
                        operate::pause_subscription(client, &name, reason).await,
                        RunState::Paused,
                    ),
                    None => (
                        operate::resume_subscription(client, &name).await,
                        RunState::Running,
                    ),
                };
                let changed = changed.map_err(|error| refused(&error))?;
                Ok(answer(&SubscriptionChanged {
                    subscription: name,
                    state,
                    changed,
                }))
            }
            .await;
            lease.done();
            acted
        })
        .await
}
