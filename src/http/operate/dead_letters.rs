//! `/v1/dead-letters`: dead letters, to be found, read, requeued and dropped.

use std::sync::Arc;

use axum::extract::FromRef;
use axum::response::Response;
use lanekeeper_postgres::inspect::{self, DeadLetter, DeadLetterPage, Letter};
use lanekeeper_postgres::operate::Requeued;
use lanekeeper_postgres::operate_many;
use lanekeeper_postgres::token::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;

use super::Operators;
use super::action::{Left, reason, some};
use super::caller::{Caller, Order, Reader, answer, unreadable};
use super::lanes::of_subscriptions;
use super::page::{self, Asked, MOST, Named};
use crate::openapi::operation::{Operation, get, post};
use crate::problem::Problem;
use crate::problem_type;
use crate::routes::{Routes, Shared};

/// Dead letters that one request acts on.
const MOST_AT_ONCE: usize = 1_000;
/// Characters to look for.
const LONGEST_TEXT: usize = 500;

pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Operators>: FromRef<S>,
{
    let act = |operation: Operation| {
        operation
            .scopes(&[Scope::Operate])
            .answers::<DeadLettersChanged>(200, "What came of each")
            .problems(&[problem_type::NOT_FOUND, problem_type::LANE_BUSY])
    };
    Routes::new()
        .on(
            get("/v1/dead-letters", "list_dead_letters", "List dead letters, the newest first")
                .details("Without payloads.")
                .scopes(&[Scope::Read])
                .query::<Which>()
                .answers::<DeadLetters>(200, "A page, which may be short although there are more")
                .problems(&[problem_type::NOT_FOUND]),
            list,
        )
        .on(
            get("/v1/dead-letters/{dead_id}", "get_dead_letter", "Read a dead letter with its payload and headers")
                .scopes(&[Scope::Read])
                .answers::<Letter>(200, "The dead letter"),
            show,
        )
        .on(
            act(post("/v1/dead-letters/requeue", "requeue_dead_letters", "Deliver dead letters again"))
                .body::<Requeue>()
                .details(
                    "They go out before everything that their lanes have not delivered yet, or with `at_end` behind what is \
                     enqueued by now. Those of one lane are requeued together or not at all.",
                ),
            requeue,
        )
        .on(
            act(post("/v1/dead-letters/drop", "drop_dead_letters", "Give dead letters up"))
                .body::<DropOrder>()
                .details("They stay on record as dropped, with their payloads."),
            drop_letters,
        )
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WhichDeadLetters")]
#[serde(deny_unknown_fields)]
struct Which {
    /// Only those of this subscription.
    subscription: Option<String>,
    /// Only those of a session of this stream; goes with `session`.
    stream: Option<String>,
    /// The session; goes with `stream`.
    session: Option<String>,
    /// Only those with this text in their error or type, in upper or lower case.
    #[schemars(length(max = 500))]
    text: Option<String>,
    /// Those that were dealt with too.
    #[serde(default)]
    resolved: bool,
    /// `next` of the page before.
    before: Option<String>,
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterPage")]
struct DeadLetters {
    dead_letters: Vec<DeadLetter>,
    /// `before` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "RequeueDeadLetters")]
#[serde(deny_unknown_fields)]
struct Requeue {
    #[schemars(length(min = 1, max = 1000), inner(range(min = 1)))]
    dead_ids: Vec<i64>,
    /// Behind what is enqueued by now.
    #[serde(default)]
    at_end: bool,
    /// For the record.
    #[schemars(length(max = 1000))]
    reason: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "DropDeadLetters")]
#[serde(deny_unknown_fields)]
struct DropOrder {
    #[schemars(length(min = 1, max = 1000), inner(range(min = 1)))]
    dead_ids: Vec<i64>,
    /// For the record.
    #[schemars(length(max = 1000))]
    reason: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct DeadLettersChanged {
    dead_letters: Vec<ChangedLetter>,
    #[serde(flatten)]
    left: Left,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChangedDeadLetter")]
struct ChangedLetter {
    dead_id: i64,
    result: Changed,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterChange")]
#[serde(rename_all = "snake_case")]
enum Changed {
    Requeued,
    /// It waits for its delivery already.
    RequeuedBefore,
    Dropped,
    /// It was dealt with already.
    ResolvedBefore,
}

async fn list(Reader(caller): Reader, Asked(which): Asked<Which>) -> Result<Response, Problem> {
    let limit = page::limit(which.limit, MOST)?;
    let before = page::id(which.before.as_deref())?;
    let text = which.text.as_deref().filter(|text| !text.is_empty());
    if text.is_some_and(|text| text.chars().count() > LONGEST_TEXT) {
        return Err(unreadable(&format!(
            "text has at most {LONGEST_TEXT} characters"
        )));
    }
    match (&which.stream, &which.session) {
        (Some(stream), Some(session)) => caller.require_session(stream, session)?,
        (None, None) => caller.require_all_sessions()?,
        _ => return Err(unreadable(&"stream and session go together")),
    }
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                let of = of_subscriptions(&caller, &reading, which.subscription.as_deref()).await?;
                let session_id = match (&which.stream, &which.session) {
                    (Some(stream), Some(session)) => {
                        Some(inspect::find_session(&reading, stream, session).await?)
                    }
                    _ => None,
                };
                let page = DeadLetterPage {
                    subscription_ids: of.as_deref(),
                    session_id,
                    resolved: which.resolved,
                    before,
                    text: which.text.as_deref().filter(|text| !text.is_empty()),
                };
                let found = inspect::dead_letter_page(&reading, page, limit).await?;
                let is_full = found.rows.len() as i64 == limit;
                let last = found.rows.last().filter(|_| is_full).map(|it| it.dead_id);
                let next = last.or(found.scanned_to).map(|id| id.to_string());
                Ok(answer(&DeadLetters {
                    dead_letters: found.rows,
                    next,
                }))
            }
            .await;
            lease.done();
            read
        })
        .await
}

async fn show(Reader(caller): Reader, Named(dead_id): Named<i64>) -> Result<Response, Problem> {
    caller
        .carry_out(async move |caller| {
            let mut lease = caller.lease().await?;
            let read = async {
                let reading = lease.begin().await?;
                // Not with its payload, before it is known to be the caller's.
                find(&caller, &reading, &[dead_id]).await?;
                let letter = inspect::letters(&reading, &[dead_id]).await?.pop();
                Ok(answer(&letter.ok_or_else(|| missing(&[dead_id]))?))
            }
            .await;
            lease.done();
            read
        })
        .await
}

/// All of them, or a problem that names those that there are not for the caller.
async fn find(
    caller: &Caller,
    client: &impl GenericClient,
    ids: &[i64],
) -> Result<Vec<DeadLetter>, Problem> {
    let mut letters = inspect::dead_letters_by_id(client, ids).await?;
    letters.retain(|letter| caller.reaches_session(&letter.stream, &letter.session));
    let is_known = |id: &i64| letters.iter().any(|letter| letter.dead_id == *id);
    let unknown: Vec<i64> = ids.iter().copied().filter(|id| !is_known(id)).collect();
    match unknown.is_empty() {
        true => Ok(letters),
        false => Err(missing(&unknown)),
    }
}

fn missing(ids: &[i64]) -> Problem {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    let ids = Problem::excerpt(&ids.join(", "));
    let detail = format!(
        "there is no dead letter {ids}, or the access token is not for it: nothing was changed"
    );
    Problem::new(problem_type::NOT_FOUND, detail)
}

fn some_ids(mut ids: Vec<i64>) -> Result<Vec<i64>, Problem> {
    if ids.is_empty() || ids.len() > MOST_AT_ONCE {
        return Err(unreadable(&format!(
            "dead_ids has from 1 to {MOST_AT_ONCE} ids"
        )));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

async fn requeue(Order(caller, order): Order<Requeue>) -> Result<Response, Problem> {
    let ids = some_ids(order.dead_ids)?;
    let reason = reason(&caller, order.reason.as_deref())?;
    caller
        .carry_out(async move |caller| {
            let lease = caller.lease().await?;
            let acted = async {
                let client = lease.client();
                let letters = find(&caller, client, &ids).await?;
                let many =
                    operate_many::requeue_by_lane(client, &letters, order.at_end, &reason).await;
                let (done, left) = some(many)?;
                let changed = |(dead_id, result)| ChangedLetter {
                    dead_id,
                    result: match result {
                        Requeued::Requeued => Changed::Requeued,
                        Requeued::Before => Changed::RequeuedBefore,
                        Requeued::Resolved => Changed::ResolvedBefore,
                    },
                };
                Ok(answer(&DeadLettersChanged {
                    dead_letters: done.into_iter().map(changed).collect(),
                    left,
                }))
            }
            .await;
            lease.done();
            acted
        })
        .await
}

async fn drop_letters(Order(caller, order): Order<DropOrder>) -> Result<Response, Problem> {
    let ids = some_ids(order.dead_ids)?;
    let reason = reason(&caller, order.reason.as_deref())?;
    caller
        .carry_out(async move |caller| {
            let lease = caller.lease().await?;
            let acted = async {
                let client = lease.client();
                let letters = find(&caller, client, &ids).await?;
                let many = operate_many::drop_each(client, &letters, &reason).await;
                let (done, left) = some(many)?;
                let changed = |(dead_id, dropped)| ChangedLetter {
                    dead_id,
                    result: match dropped {
                        true => Changed::Dropped,
                        false => Changed::ResolvedBefore,
                    },
                };
                Ok(answer(&DeadLettersChanged {
                    dead_letters: done.into_iter().map(changed).collect(),
                    left,
                }))
            }
            .await;
            lease.done();
            acted
        })
        .await
}
