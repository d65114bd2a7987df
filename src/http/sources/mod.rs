//! `/v1/sources/{name}`: signed requests of platforms, which become messages to agents (E2, E7), and Telegram's updates.
//!
//! The signature takes the place of an access token, so everybody may send a request here. Until its signature is
//! verified, a request costs one HMAC and its body, which counts against the strangers' share. It is answered after its
//! message is committed. What makes it a duplicate is covered by the signature unless the operator chose
//! otherwise: whoever repeats a request that he saw appends nothing, for `retention.dedupe_days`. GitHub's signatures have no
//! time, so after that it is a new message.

mod answer;
mod content;
mod loaded;
mod signature;
mod telegram;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRef, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use deadpool_postgres::{Object, PoolError};
use lanekeeper_adapters::Environment;
use lanekeeper_core::source::{Action, Missing, Template};
use lanekeeper_postgres::append::{AppendError, Enqueued};
use lanekeeper_postgres::inbound::{self, NewInbound};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use self::answer::{Ignored, Told};
use self::content::{Content, Kind, value_of};
use self::loaded::{ReadBy, Signed, Sources};
use self::signature::Refused;
use super::body::joined;
use super::events::{Desk, HeldBody, trace_of};
use super::openapi::operation::post;
use super::problem::Problem;
use super::problem_type;
use super::request_limits::{Payer, Stranger};
use super::routes::{Routes, Shared};

const PATH: &str = "/v1/sources/{name}";
/// Attachments at a time.
const MOST_FETCHED: usize = 4;

/// What requests are received with.
pub struct Receiving {
    desk: Arc<Desk>,
    sources: Sources,
    /// Places for attachments that are fetched.
    fetching: Semaphore,
}

impl Receiving {
    /// Secrets are looked up in `environment`.
    pub fn new(desk: Arc<Desk>, environment: Environment) -> Self {
        let sources = Sources::new(environment);
        let fetching = Semaphore::new(MOST_FETCHED);
        Self {
            desk,
            sources,
            fetching,
        }
    }
}

/// The route.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Receiving>: FromRef<S>,
{
    Routes::new().on(
        post(PATH, "receive_message", "Take a platform's request as a message to an agent")
            .details(
                "The source's templates say what of the request becomes the message. Answered after it is committed; a \
                 request that comes again is not appended again. What the source's `only` leaves out, and what no person \
                 wrote, is answered with 200 and not enqueued.",
            )
            .proof("Needs no access token, but the signature of the source's platform; of Telegram its secret token.")
            .header("webhook-id", "Standard Webhooks: the request's name, which its signature covers.")
            .header("webhook-timestamp", "Standard Webhooks: when it was signed.")
            .header("webhook-signature", "Standard Webhooks: the signature.")
            .header("x-hub-signature-256", "GitHub: the signature.")
            .header("x-slack-signature", "Slack: the signature.")
            .header("x-slack-request-timestamp", "Slack: when it was signed.")
            .header("x-signature-ed25519", "Discord: the signature.")
            .header("x-signature-timestamp", "Discord: when it was signed.")
            .header("x-telegram-bot-api-secret-token", "Telegram: the source's secret.")
            .header("traceparent", "W3C Trace Context.")
            .header("tracestate", "Beside `traceparent`.")
            .body::<Value>()
            .answers::<Enqueued>(201, "It was appended")
            .answers::<Enqueued>(200, "It was there before, it is no message, or the platform wants this answer")
            .answers::<Ignored>(200, "It is no message")
            .answers::<Told>(200, "The platform wants this answer")
            .problems(problem_type::OF_APPENDS)
            .problems(&[problem_type::FORBIDDEN]),
        receive,
    )
}

async fn receive(
    State(receiving): State<Arc<Receiving>>,
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response, Problem> {
    let came_at = Instant::now();
    let Path(name) = path.map_err(|rejection| Problem::unreadable(&rejection))?;
    let desk = &receiving.desk;
    let source = receiving.sources.find(&desk.pool, &name).await?;
    let most = source.most_bytes() as usize;
    let body = desk.body_of_stranger(Stranger::Source(source.id), most, body);
    let HeldBody { bytes, mut room } = body.await.map_err(|problem| {
        match problem.problem_type() == problem_type::PAYLOAD_TOO_LARGE {
            true => problem.hint("send less at once, or raise max_bytes of the source"),
            false => problem,
        }
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    let verified = source.key.verify(&headers, &bytes, now);
    let signed_id = verified.map_err(|refused| of_signature(&name, refused))?;
    room.prove(Payer::Source(source.id))?;
    let signature = source.signature();
    let trace = trace_of(&headers).and_then(|trace| joined(&trace, None));
    let place = desk.request()?;
    let receiving = Arc::clone(&receiving);
    // In a task of its own: a client that leaves must not leave its statement behind, waiting at the server.
    let answering = tokio::spawn(async move {
        let _held = (room, place);
        match &source.read_by {
            ReadBy::Templates(signed) => {
                let request = Verified {
                    came_at,
                    headers: &headers,
                    body: &bytes,
                    signed_id,
                    trace: trace.as_deref(),
                };
                take(&receiving, &name, signed, request).await
            }
            ReadBy::Telegram(source) => telegram::take(&receiving, &name, source, &bytes).await,
        }
    });
    let answered = answering.await.unwrap_or_else(|_| Err(Problem::failed()));
    Ok(answered.unwrap_or_else(|problem| answer::refused(signature, problem)))
}

/// A request whose signature is right.
struct Verified<'a> {
    came_at: Instant,
    headers: &'a HeaderMap,
    body: &'a [u8],
    signed_id: String,
    trace: Option<&'a str>,
}

async fn take(
    receiving: &Receiving,
    name: &str,
    source: &Signed,
    request: Verified<'_>,
) -> Result<Response, Problem> {
    let definition = &source.definition;
    let content = Content::read(definition.signature, request.body)?;
    let reader = match content.kind(definition.signature, &source.only, request.headers)? {
        Kind::Message(reader) => reader,
        Kind::Question(told) => return Ok(told.response()),
        Kind::Ignored(reader, reason) => {
            receiving.desk.ignored(name);
            return Ok(answer::ignored(reader, reason));
        }
    };
    let parts = Parts::read(source, request.headers, &content, request.signed_id)?;
    let producer = format!("source {name}");
    let message = NewInbound {
        payload: content.payload(),
        actor_id: parts.actor_id.as_deref(),
        actor_name: parts.actor_name.as_deref(),
        source_message_id: Some(&parts.message_id),
        source_channel_id: parts.channel_id.as_deref(),
        headers: request.trace,
        producer: Some(&producer),
        ..NewInbound::text(&parts.session, name, &parts.content)
    };
    let until = request.came_at + answer::within(definition.signature);
    let action = definition.commands.find(&parts.content, None);
    let enqueued = enqueue(&receiving.desk, &message, action, until).await?;
    let enqueued = enqueued.map_err(|error| Problem::of_append(&error))?;
    Ok(answer::enqueued(definition, reader, &enqueued))
}

/// What a request says, by the templates of its source.
struct Parts {
    session: String,
    content: String,
    message_id: String,
    channel_id: Option<String>,
    actor_id: Option<String>,
    actor_name: Option<String>,
}

impl Parts {
    fn read(
        source: &Signed,
        headers: &HeaderMap,
        content: &Content<'_>,
        signed_id: String,
    ) -> Result<Self, Problem> {
        let header = |name: &str| value_of(headers, name);
        let request = content.request(&header);
        let render = |template: &Template| template.render(&request).map_err(lacks);
        // People and channels may be missing: not every request has one.
        let optional = |template: &Option<Template>| {
            let text = template.as_ref()?.render(&request).ok()?;
            (!text.is_empty()).then_some(text)
        };
        let templates = &source.templates;
        Ok(Self {
            session: render(&templates.session)?,
            content: render(&templates.content)?,
            message_id: match &templates.message_id {
                Some(template) => render(template)?,
                None => signed_id,
            },
            channel_id: optional(&templates.channel_id),
            actor_id: optional(&templates.actor_id),
            actor_name: optional(&templates.actor_name),
        })
    }
}

fn lacks(Missing(placeholder): Missing) -> Problem {
    let detail = format!(
        "the request has nothing at {{{placeholder}}}, which its source takes the message from: nothing was enqueued"
    );
    Problem::new(problem_type::INVALID, detail)
        .hint("send only such requests here, as JSON, or change the source's templates")
}

fn of_signature(name: &str, refused: Refused) -> Problem {
    // Not louder: strangers send as many as they like. The metric of refused requests counts them.
    tracing::debug!(source = name, %refused, "a request was refused");
    Problem::new(
        problem_type::UNAUTHORIZED,
        format!("{refused}: nothing was enqueued"),
    )
    .hint("sign with the secret that the worker has for this source; check both clocks")
}

/// Asks Postgres, and returns what it refuses. A connection that does not answer in time does not go back to the pool.
async fn enqueue(
    desk: &Desk,
    message: &NewInbound<'_>,
    action: Option<Action>,
    until: Instant,
) -> Result<Result<Enqueued, AppendError>, Problem> {
    let client = match timeout_at(until, desk.pool.get()).await {
        Ok(Ok(client)) => client,
        Err(_) | Ok(Err(PoolError::Timeout(_))) => return Err(Problem::busy()),
        Ok(Err(_)) => return Err(Problem::away()),
    };
    let appending = inbound::append(&**client, message, action);
    let Ok(appended) = timeout_at(until, appending).await else {
        drop(Object::take(client));
        return Ok(Err(AppendError::TimedOut));
    };
    if let Ok(enqueued) = &appended {
        desk.appended(inbound::STREAM, 1, enqueued.duplicate);
    }
    Ok(appended)
}
