//! `/v1/destinations`: where subscriptions deliver to, with limits and circuits, and closing a circuit.

use std::sync::Arc;

use std::collections::BTreeMap;

use axum::extract::FromRef;
use axum::response::Response;
use lanekeeper_limit::{self as limit, LinkError};
use lanekeeper_postgres::inspect;
use lanekeeper_postgres::subscription::{self, Subscription};
use lanekeeper_postgres::token::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Operators;
use super::caller::{Caller, Order, Reader, answer};
use super::destination::{self, Row};
use super::page::{self, Asked, MOST};
use crate::openapi::operation::{get, post};
use crate::problem::Problem;
use crate::problem_type;
use crate::routes::{Routes, Shared};

pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Operators>: FromRef<S>,
{
    Routes::new()
        .on(
            get("/v1/destinations", "list_destinations", "List destinations with their limits and circuits")
                .scopes(&[Scope::Read])
                .query::<Which>()
                .answers::<Destinations>(200, "A page"),
            list,
        )
        .on(
            post("/v1/destinations/reset", "reset_destination", "Close a destination's circuit")
                .details(
                    "Its events are delivered again at once. Workers share their circuits over Redis, and know it within a \
                     second; the circuit opens again if the destination still fails.",
                )
                .scopes(&[Scope::Operate])
                .body::<Reset>()
                .answers::<WasReset>(200, "It is closed")
                .problems(&[problem_type::NOT_FOUND, problem_type::NO_REDIS]),
            reset,
        )
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WhichDestinations")]
#[serde(deny_unknown_fields)]
struct Which {
    /// `next` of the page before.
    after: Option<String>,
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DestinationPage")]
struct Destinations {
    destinations: Vec<Destination>,
    circuits: CircuitsOf,
    /// `after` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Where the circuits are from.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CircuitsOf {
    /// What Redis knows, and what workers report.
    RedisAndWorkers,
    /// What workers report: there is no Redis.
    Workers,
    /// What workers report: Redis does not answer.
    WorkersWithoutRedis,
}

#[derive(Serialize, JsonSchema)]
struct Destination {
    destination: String,
    /// Those of the token's streams that deliver to it.
    subscriptions: Vec<String>,
    limits: Vec<RateLimit>,
    circuit: Circuit,
}

#[derive(PartialEq, Eq, Serialize, JsonSchema)]
struct RateLimit {
    /// As in the file for `apply`: `30/s`.
    rate: String,
    burst: u32,
    /// Subscriptions with the same key share the limit; `null`: those of this destination do.
    key: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Circuit {
    state: CircuitState,
    open_s: Option<f64>,
    /// Known where workers share their circuits over Redis.
    next_probe_s: Option<f64>,
    reason: Option<String>,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CircuitState {
    /// Nothing failed of late.
    Closed,
    /// Something failed of late; deliveries go on.
    Failing,
    /// Nothing is sent but probes.
    Open,
}

#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "ResetDestination")]
#[serde(deny_unknown_fields)]
struct Reset {
    /// As the list of destinations names it.
    destination: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DestinationReset")]
struct WasReset {
    destination: String,
    /// False where it was closed already.
    changed: bool,
}

async fn list(Reader(caller): Reader, Asked(which): Asked<Which>) -> Result<Response, Problem> {
    caller.require_all_sessions()?;
    let limit = page::limit(which.limit, MOST)?;
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let subscriptions = reached(&caller, &reading).await?;
                let frozen_after = caller.operators.fleet.frozen_after;
                let deliveries = inspect::deliveries(&reading, frozen_after).await?;
                let reports = subscriptions
                    .iter()
                    .map(|it| (it.place(), &*it.name, deliveries.of(it.id, it.paused)));
                let failing = destination::of_reports(reports);
                Ok::<_, Problem>((subscriptions, failing))
            }
            .await;
            lease.done();
            let (subscriptions, failing) = read?;
            let (circuits, failing) = with_redis(&caller, failing).await;
            let mut all = by_name(&subscriptions, &failing);
            let after = which.after.as_deref().unwrap_or_default();
            all.retain(|it| it.destination.as_str() > after);
            let has_more = page::cut(&mut all, limit);
            let next = all
                .last()
                .filter(|_| has_more)
                .map(|it| it.destination.clone());
            Ok(answer(&Destinations {
                destinations: all,
                circuits,
                next,
            }))
        })
        .await
}

/// The subscriptions in force that the caller may see.
async fn reached(
    caller: &Caller,
    client: &impl tokio_postgres::GenericClient,
) -> Result<Vec<Subscription>, Problem> {
    let mut all = subscription::load(client).await?;
    all.retain(|it| !it.removed && caller.reaches(&it.stream));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// What workers report, with what Redis knows.
async fn with_redis(caller: &Caller, reported: Vec<Row>) -> (CircuitsOf, Vec<Row>) {
    let Some(settings) = &caller.operators.redis else {
        return (CircuitsOf::Workers, reported);
    };
    match limit::circuits(settings).await {
        Ok(shared) => (
            CircuitsOf::RedisAndWorkers,
            destination::merge(&shared, reported),
        ),
        Err(error) => {
            warn(&error);
            (CircuitsOf::WorkersWithoutRedis, reported)
        }
    }
}

fn by_name(subscriptions: &[Subscription], failing: &[Row]) -> Vec<Destination> {
    let mut all: BTreeMap<String, Destination> = BTreeMap::new();
    for one in subscriptions {
        let name = one.place();
        let row = failing.iter().find(|row| row.destination == name);
        let it = all.entry(name.clone()).or_insert_with(|| Destination {
            destination: name,
            subscriptions: Vec::new(),
            limits: Vec::new(),
            circuit: circuit(row),
        });
        it.subscriptions.push(one.name.as_ref().to_owned());
        for limit in &one.limits {
            let limit = RateLimit {
                rate: limit.rate.to_string(),
                burst: limit.burst,
                key: limit.key.clone(),
            };
            if !it.limits.contains(&limit) {
                it.limits.push(limit);
            }
        }
    }
    all.into_values().collect()
}

fn circuit(row: Option<&Row>) -> Circuit {
    Circuit {
        state: match row.map(|row| row.state) {
            None => CircuitState::Closed,
            Some("open") => CircuitState::Open,
            Some(_) => CircuitState::Failing,
        },
        open_s: row.and_then(|row| row.open_s),
        next_probe_s: row.and_then(|row| row.next_probe_s),
        reason: row.and_then(|row| row.reason.clone()),
    }
}

async fn reset(Order(caller, order): Order<Reset>) -> Result<Response, Problem> {
    caller.require_all_sessions()?;
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                Ok::<_, Problem>(subscription::load(&reading).await?)
            }
            .await;
            lease.done();
            let mut there = read?;
            there.retain(|it| !it.removed && it.place() == order.destination);
            if !there.iter().any(|it| caller.reaches(&it.stream)) {
                let name = Problem::excerpt(&order.destination);
                let detail = format!(
                    "no subscription delivers to {name:?}, or the access token is for none that does: nothing was done"
                );
                return Err(Problem::new(problem_type::NOT_FOUND, detail));
            }
            // Which streams the others are is not for the token to know.
            if !there.iter().all(|it| caller.reaches(&it.stream)) {
                return Err(caller.refused("every stream that delivers there"));
            }
            let Some(settings) = &caller.operators.redis else {
                let detail = "circuits are shared over Redis, and redis.url is not set: nothing was done";
                return Err(Problem::new(problem_type::NO_REDIS, detail)
                    .hint("without it each worker probes its destinations every few seconds"));
            };
            let changed = limit::close(settings, &order.destination).await;
            let changed = changed.map_err(|error| {
                warn(&error);
                let detail = "Redis cannot be reached from here: nothing was done";
                Problem::later(problem_type::UNAVAILABLE, detail, 1)
            })?;
            Ok(answer(&WasReset {
                destination: order.destination,
                changed,
            }))
        })
        .await
}

fn warn(error: &LinkError) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(error, "Redis does not answer an operator's request");
}
