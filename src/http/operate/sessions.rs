//! `/v1/sessions`: sessions with their lanes and timelines, and pausing one.

use std::sync::Arc;

use std::collections::HashMap;

use axum::extract::FromRef;
use axum::response::Response;
use lanekeeper_postgres::inspect::{
    self, Fate, LaneStatus, RegistryFilter, SessionStatus, TimelineEvent, TurnState,
};
use lanekeeper_postgres::operate::LaneAction;
use lanekeeper_postgres::operate_many;
use lanekeeper_postgres::token::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Operators;
use super::action::{Left, Why, reason, some};
use super::caller::{Order, Reader, answer};
use super::page::{self, Asked, MOST, Named};
use crate::openapi::operation::{Operation, get, post};
use crate::problem::Problem;
use crate::problem_type;
use crate::routes::{Routes, Shared};

const ONE: &str = "/v1/sessions/{stream}/{session}";
/// Events of a page of a timeline: each is looked up at every lane.
const MOST_EVENTS: i64 = 200;

pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Operators>: FromRef<S>,
{
    let act = |operation: Operation| {
        operation
            .scopes(&[Scope::Operate])
            .optional_body::<Why>()
            .answers::<SessionChanged>(200, "What came of its lanes")
            .problems(&[problem_type::LANE_BUSY])
    };
    Routes::new()
        .on(
            get("/v1/sessions", "list_sessions", "List sessions, the newest first")
                .scopes(&[Scope::Read])
                .query::<Which>()
                .answers::<Sessions>(200, "A page, which may be short although there are more")
                .problems(&[problem_type::NOT_FOUND]),
            list,
        )
        .on(
            get(ONE, "get_session", "Read a session and all its lanes")
                .scopes(&[Scope::Read])
                .answers::<Shown>(200, "The session"),
            show,
        )
        .on(
            get(
                "/v1/sessions/{stream}/{session}/timeline",
                "session_timeline",
                "List a session's events, the newest first, with what became of each at every destination",
            )
            .details("Without payloads: those are in the log.")
            .scopes(&[Scope::Read])
            .query::<Before>()
            .answers::<Timeline>(200, "A page"),
            timeline,
        )
        .on(
            act(post(
                "/v1/sessions/{stream}/{session}/pause",
                "pause_session",
                "Park every lane of a session",
            ))
            .details("Its events go on being recorded. A lane that is parked already stays as it is."),
            |named: Named<(String, String)>, order: Order<Why>| change(named, order, LaneAction::Park),
        )
        .on(
            act(post(
                "/v1/sessions/{stream}/{session}/resume",
                "resume_session",
                "Unpark every lane of a session",
            ))
            .details("Those that were parked for another reason too."),
            |named: Named<(String, String)>, order: Order<Why>| change(named, order, LaneAction::Unpark),
        )
}

/// Whether an agent is at work.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Turn {
    Idle,
    Running,
    Stale,
}

impl From<Turn> for TurnState {
    fn from(turn: Turn) -> Self {
        match turn {
            Turn::Idle => Self::Idle,
            Turn::Running => Self::Running,
            Turn::Stale => Self::Stale,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WhichSessions")]
#[serde(deny_unknown_fields)]
struct Which {
    /// Only sessions of this stream.
    stream: Option<String>,
    /// Only sessions of this agent CLI.
    cli: Option<String>,
    /// Only agents' sessions whose turn is in this state.
    turn: Option<Turn>,
    /// `next` of the page before.
    before: Option<String>,
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionPage")]
struct Sessions {
    sessions: Vec<SessionStatus>,
    /// `before` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionWithLanes")]
struct Shown {
    #[serde(flatten)]
    session: SessionStatus,
    lane_status: Vec<LaneStatus>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WhichEvents")]
#[serde(deny_unknown_fields)]
struct Before {
    /// Events before this seq: `next` of the page before.
    before: Option<i64>,
    #[schemars(range(min = 1, max = 200))]
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
struct Timeline {
    events: Vec<WithFates>,
    /// `before` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EventWithFates")]
struct WithFates {
    #[serde(flatten)]
    event: TimelineEvent,
    fates: Vec<AtSubscription>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FateAtSubscription")]
struct AtSubscription {
    subscription: String,
    #[serde(flatten)]
    fate: Fate,
}

/// What came of a session's lanes. Those that were so already are not among them.
#[derive(Serialize, JsonSchema)]
struct SessionChanged {
    changed: Vec<ChangedLane>,
    #[serde(flatten)]
    left: Left,
}

#[derive(Serialize, JsonSchema)]
struct ChangedLane {
    lane_id: i64,
    subscription: String,
    /// The lane's new state.
    state: String,
}

async fn list(Reader(caller): Reader, Asked(which): Asked<Which>) -> Result<Response, Problem> {
    caller.require_all_sessions()?;
    let limit = page::limit(which.limit, MOST)?;
    let before = page::id(which.before.as_deref())?;
    if let Some(stream) = &which.stream {
        caller.require_stream(stream)?;
    }
    caller
        .carry_out(async move |caller| {
            let stale_after_s = caller.operators.fleet.stale_after_s;
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let stream_ids = match &which.stream {
                    Some(stream) => Some(vec![inspect::find_stream(&reading, stream).await?]),
                    None => caller.stream_ids(&reading).await?,
                };
                let stream_ids = stream_ids.as_deref();
                let (ids, scanned_to) = if which.cli.is_some() || which.turn.is_some() {
                    let filter = RegistryFilter {
                        cli: which.cli.as_deref(),
                        turn: which.turn.map(Into::into),
                        stream_ids,
                        before,
                    };
                    let ids = inspect::registered(&reading, filter, stale_after_s, limit).await?;
                    (ids, None)
                } else {
                    let found = inspect::session_page(&reading, stream_ids, before, limit).await?;
                    (found.rows, found.scanned_to)
                };
                let is_full = ids.len() as i64 == limit;
                let next = ids.last().copied().filter(|_| is_full).or(scanned_to);
                let sessions =
                    inspect::sessions(&reading, None, Some(&ids), stale_after_s, limit).await?;
                Ok(answer(&Sessions {
                    sessions,
                    next: next.map(|id| id.to_string()),
                }))
            }
            .await;
            lease.done();
            read
        })
        .await
}

async fn show(
    Reader(caller): Reader,
    Named((stream, session)): Named<(String, String)>,
) -> Result<Response, Problem> {
    caller.require_session(&stream, &session)?;
    caller
        .carry_out(async move |caller| {
            let stale_after_s = caller.operators.fleet.stale_after_s;
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let id = inspect::find_session(&reading, &stream, &session).await?;
                let found =
                    inspect::sessions(&reading, None, Some(&[id]), stale_after_s, 1).await?;
                let found = found.into_iter().next().ok_or_else(gone)?;
                let lane_ids = inspect::lanes_of_session(&reading, id, None).await?;
                let lane_status = inspect::lanes(&reading, &lane_ids).await?;
                Ok(answer(&Shown {
                    session: found,
                    lane_status,
                }))
            }
            .await;
            lease.done();
            read
        })
        .await
}

fn gone() -> Problem {
    Problem::new(problem_type::NOT_FOUND, "the session has expired meanwhile")
}

async fn timeline(
    Reader(caller): Reader,
    Named((stream, session)): Named<(String, String)>,
    Asked(Before { before, limit }): Asked<Before>,
) -> Result<Response, Problem> {
    caller.require_session(&stream, &session)?;
    let limit = page::limit(limit, MOST_EVENTS)?;
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let id = inspect::find_session(&reading, &stream, &session).await?;
                let before = before.unwrap_or(i64::MAX);
                let mut events = inspect::timeline(&reading, id, before, limit + 1).await?;
                let has_more = page::cut(&mut events, limit);
                let next = events.last().filter(|_| has_more).map(|last| last.seq);
                let lane_ids = inspect::lanes_of_session(&reading, id, None).await?;
                let lanes = inspect::lanes(&reading, &lane_ids).await?;
                let fates = match (events.last(), events.first()) {
                    (Some(first), Some(last)) => {
                        let range = (first.seq, last.seq);
                        inspect::fates(&reading, (&*stream, &*session), range, &lane_ids).await?
                    }
                    _ => Vec::new(),
                };
                let events = with_fates(events, fates, &lanes);
                Ok(answer(&Timeline { events, next }))
            }
            .await;
            lease.done();
            read
        })
        .await
}

fn with_fates(
    events: Vec<TimelineEvent>,
    fates: Vec<Fate>,
    lanes: &[LaneStatus],
) -> Vec<WithFates> {
    let names: HashMap<i64, &str> = lanes
        .iter()
        .map(|lane| (lane.lane_id, lane.subscription.as_str()))
        .collect();
    let mut of: HashMap<i64, Vec<AtSubscription>> = HashMap::new();
    for fate in fates {
        // A lane that was removed meanwhile.
        if let Some(name) = names.get(&fate.lane_id) {
            of.entry(fate.seq).or_default().push(AtSubscription {
                subscription: (*name).to_owned(),
                fate,
            });
        }
    }
    events
        .into_iter()
        .map(|event| WithFates {
            fates: of.remove(&event.seq).unwrap_or_default(),
            event,
        })
        .collect()
}

async fn change(
    Named((stream, session)): Named<(String, String)>,
    Order(caller, why): Order<Why>,
    action: LaneAction,
) -> Result<Response, Problem> {
    caller.require_session(&stream, &session)?;
    let reason = reason(&caller, why.reason.as_deref())?;
    caller
        .carry_out(async move |caller| {
            let lease = caller.lease().await?;
            let acted = async {
                let client = lease.client();
                let id = inspect::find_session(client, &stream, &session).await?;
                let lane_ids = inspect::lanes_of_session(client, id, None).await?;
                let mut lanes = inspect::lanes(client, &lane_ids).await?;
                // Parking again would write this reason over the one that is on the lane.
                lanes.retain(|lane| (action == LaneAction::Park) != lane.parked_at.is_some());
                let many = operate_many::change_lanes(client, &lanes, action, &reason).await;
                let (done, left) = some(many)?;
                let name = |lane_id: i64| {
                    let lane = lanes.iter().find(|lane| lane.lane_id == lane_id);
                    lane.map(|lane| lane.subscription.clone())
                        .unwrap_or_default()
                };
                let changed = |(lane_id, state)| ChangedLane {
                    lane_id,
                    subscription: name(lane_id),
                    state,
                };
                Ok(answer(&SessionChanged {
                    changed: done.into_iter().map(changed).collect(),
                    left,
                }))
            }
            .await;
            lease.done();
            acted
        })
        .await
}
