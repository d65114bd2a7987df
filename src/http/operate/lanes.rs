//! `/v1/lanes`: the lanes that have something to do, and what operators do with one.

use std::sync::Arc;

use axum::extract::FromRef;
use axum::response::Response;
use lanekeeper_postgres::inspect::{self, LaneFilter, LanePlace, LaneStatus};
use lanekeeper_postgres::operate::{self, LaneAction};
use lanekeeper_postgres::subscription::{self, Subscription};
use lanekeeper_postgres::token::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;

use super::Operators;
use super::action::{reason, refused};
use super::caller::{Caller, Order, Reader, answer, unreadable};
use super::page::{self, Asked, MOST, Named};
use crate::openapi::operation::{Operation, get, post};
use crate::problem::Problem;
use crate::problem_type;
use crate::routes::{Routes, Shared};

pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Operators>: FromRef<S>,
{
    let act = |operation: Operation| {
        operation
            .scopes(&[Scope::Operate])
            .optional_body::<OnLane>()
            .answers::<LaneChanged>(200, "It is done")
            .problems(&[
                problem_type::NOT_FOUND,
                problem_type::ANOTHER_HEAD,
                problem_type::LANE_BUSY,
            ])
    };
    Routes::new()
        .on(
            get("/v1/lanes", "list_lanes", "List the lanes that have something to do")
                .details("Parked ones first, then those that are due next. A lane may come once more on a later page.")
                .scopes(&[Scope::Read])
                .query::<Which>()
                .answers::<Lanes>(200, "A page")
                .problems(&[problem_type::NOT_FOUND]),
            list,
        )
        .on(
            get("/v1/lanes/{lane_id}", "get_lane", "Read a lane")
                .scopes(&[Scope::Read])
                .answers::<LaneStatus>(200, "The lane"),
            show,
        )
        .on(
            act(post("/v1/lanes/{lane_id}/retry", "retry_lane", "Try a lane's head now"))
                .details("Its attempts are forgotten. A parked lane is unparked."),
            |named: Named<i64>, order: Order<OnLane>| change(named, order, LaneAction::Retry),
        )
        .on(
            act(post("/v1/lanes/{lane_id}/skip", "skip_head", "Pass a lane's head without delivering it"))
                .details("`head` is required. The event keeps its place in the log, with the outcome `skipped`."),
            |named: Named<i64>, order: Order<OnLane>| change(named, order, LaneAction::Skip),
        )
        .on(
            act(post("/v1/lanes/{lane_id}/park", "park_lane", "Hold a lane until it is unparked")),
            |named: Named<i64>, order: Order<OnLane>| change(named, order, LaneAction::Park),
        )
        .on(
            act(post("/v1/lanes/{lane_id}/unpark", "unpark_lane", "Let a parked lane go on"))
                .details("The attempts on its head are forgotten."),
            |named: Named<i64>, order: Order<OnLane>| change(named, order, LaneAction::Unpark),
        )
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WhichLanes")]
#[serde(deny_unknown_fields)]
struct Which {
    /// Only lanes of this subscription.
    subscription: Option<String>,
    /// Only what is held up: in back-off, or parked.
    #[serde(default)]
    held_up: bool,
    /// `next` of the page before.
    after: Option<String>,
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LanePage")]
struct Lanes {
    lanes: Vec<LaneStatus>,
    /// `after` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What is done to a lane.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct OnLane {
    /// Only if this seq is still the lane's head: what was seen may have been delivered since.
    #[schemars(range(min = 1))]
    head: Option<i64>,
    /// For the record.
    #[schemars(length(max = 1000))]
    reason: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct LaneChanged {
    lane_id: i64,
    /// The lane's new state.
    state: String,
}

async fn list(Reader(caller): Reader, Asked(which): Asked<Which>) -> Result<Response, Problem> {
    caller.require_all_sessions()?;
    let limit = page::limit(which.limit, MOST)?;
    let after: Option<LanePlace> = (which.after.as_deref())
        .map(|after| after.parse().map_err(|_| page::no_cursor()))
        .transpose()?;
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let of = of_subscriptions(&caller, &reading, which.subscription.as_deref()).await?;
                let filter = LaneFilter {
                    subscription_ids: of.as_deref(),
                    held_up: which.held_up,
                    after,
                };
                let mut found = inspect::active_lanes(&reading, filter, limit + 1).await?;
                let has_more = page::cut(&mut found, limit);
                let last = found.last().filter(|_| has_more);
                let next = last.map(|(_, place)| place.to_string());
                let ids: Vec<i64> = found.into_iter().map(|(lane_id, _)| lane_id).collect();
                let lanes = inspect::lanes(&reading, &ids).await?;
                Ok(answer(&Lanes { lanes, next }))
            }
            .await;
            lease.done();
            read
        })
        .await
}

async fn show(Reader(caller): Reader, Named(lane_id): Named<i64>) -> Result<Response, Problem> {
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let lane = find(&caller, &reading, lane_id).await?;
                Ok(answer(&lane))
            }
            .await;
            lease.done();
            read
        })
        .await
}

async fn change(
    Named(lane_id): Named<i64>,
    Order(caller, on): Order<OnLane>,
    action: LaneAction,
) -> Result<Response, Problem> {
    if action == LaneAction::Skip && on.head.is_none() {
        let hint = "send {\"head\":…}: GET /v1/lanes/{lane_id} has it as head_seq";
        return Err(unreadable(&"a skip names the head that was seen").hint(hint));
    }
    let reason = reason(&caller, on.reason.as_deref())?;
    caller
        .carry_out(async move |caller| {
            let lease = caller.lease().await?;
            let acted = async {
                let client = lease.client();
                find(&caller, client, lane_id).await?;
                let changing =
                    operate::change_lane(client, lane_id, action, Some(&reason), on.head);
                let state = changing.await.map_err(|error| refused(&error))?;
                Ok(answer(&LaneChanged { lane_id, state }))
            }
            .await;
            lease.done();
            acted
        })
        .await
}

/// A lane that the caller may know of.
async fn find(
    caller: &Caller,
    client: &impl GenericClient,
    lane_id: i64,
) -> Result<LaneStatus, Problem> {
    let lane = inspect::lanes(client, &[lane_id]).await?.pop();
    lane.filter(|lane| caller.reaches_session(&lane.stream, &lane.session))
        .ok_or_else(|| {
            let detail = format!("there is no lane {lane_id}, or the access token is not for it");
            Problem::new(problem_type::NOT_FOUND, detail)
        })
}

/// The ids of the subscriptions that the caller may see, or of the one of this name; `None`: all.
pub(super) async fn of_subscriptions(
    caller: &Caller,
    client: &impl GenericClient,
    name: Option<&str>,
) -> Result<Option<Vec<i32>>, Problem> {
    if name.is_none() && caller.require_everything().is_ok() {
        return Ok(None);
    }
    let fits = |it: &Subscription| {
        !it.removed && caller.reaches(&it.stream) && name.is_none_or(|name| *it.name == *name)
    };
    let all = subscription::load(client).await?;
    let ids: Vec<i32> = all.iter().filter(|it| fits(it)).map(|it| it.id).collect();
    match name {
        Some(name) if ids.is_empty() => Err(no_subscription(name)),
        _ => Ok(Some(ids)),
    }
}

pub(super) fn no_subscription(name: &str) -> Problem {
    let name = Problem::excerpt(name);
    let detail =
        format!("there is no subscription {name:?}, or the access token is not for its stream");
    Problem::new(problem_type::NOT_FOUND, detail)
}
