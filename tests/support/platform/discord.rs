//! As discord.com/developers/docs has it: a channel's messages and typing for a bot, a webhook's messages, and
//! the headers and answers of its rate limits.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use serde_json::{Value, json};

use super::gateway::{self, Gateway};
use super::{Desk, Fault, Kind, Platform, Refusal, TOKEN, Window};

/// The webhook's token; its id is 7.
pub const WEBHOOK_TOKEN: &str = "aBcD3fGh1jKlMn0pQrStUvWxYz";

pub struct Discord {
    platform: Platform,
    pub gateway: Arc<Gateway>,
}

impl std::ops::Deref for Discord {
    type Target = Platform;

    fn deref(&self) -> &Platform {
        &self.platform
    }
}

impl Discord {
    pub async fn start(windows: &[Window]) -> Self {
        let desk = Desk::new(windows);
        let app = Router::new()
            .route("/channels/{channel}/messages", post(bot_send))
            .route(
                "/channels/{channel}/messages/{id}",
                patch(bot_edit).delete(bot_delete),
            )
            .route("/channels/{channel}/typing", post(bot_types))
            .route("/webhooks/7/{token}", post(webhook_send))
            .route(
                "/webhooks/7/{token}/messages/{id}",
                patch(webhook_edit).delete(webhook_delete),
            )
            .route("/users/@me", get(me))
            .with_state(Arc::clone(&desk));
        let gateway = Arc::new(Gateway::default());
        let listened = Router::new()
            .route("/gateway/bot", get(gateway::find))
            .route("/ws", get(gateway::upgrade))
            .with_state(Arc::clone(&gateway));
        let platform = Platform::serve(desk, app.merge(listened)).await;
        gateway.is_at(platform.url());
        Self { platform, gateway }
    }

    pub fn webhook_url(&self) -> String {
        format!("{}/webhooks/7/{WEBHOOK_TOKEN}", self.url())
    }
}

#[derive(Default)]
struct Asked {
    wait: bool,
    thread_id: Option<String>,
}

impl Asked {
    fn read(query: Option<String>) -> Self {
        let mut asked = Self::default();
        let query = query.unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "wait" => asked.wait = value == "true",
                "thread_id" => asked.thread_id = Some(value.into_owned()),
                _ => {}
            }
        }
        asked
    }
}

type Body = Option<Json<Value>>;

/// What the channel of a webhook is called here.
fn webhook_channel(asked: &Asked) -> String {
    let thread = asked.thread_id.as_deref().unwrap_or_default();
    format!("webhook{thread}")
}

fn is_bot(headers: &HeaderMap) -> bool {
    headers
        .get("authorization")
        .is_some_and(|given| given == &format!("Bot {TOKEN}"))
}

async fn me(headers: HeaderMap) -> Response {
    match is_bot(&headers) {
        true => Json(json!({"id": "4000", "username": "fake_bot", "bot": true})).into_response(),
        false => unauthorized(),
    }
}

async fn bot_send(
    State(desk): State<Arc<Desk>>,
    Path(channel): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if !is_bot(&headers) {
        return unauthorized();
    }
    send(&desk, &channel, None, true, body).await
}

async fn bot_edit(
    State(desk): State<Arc<Desk>>,
    Path((channel, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if !is_bot(&headers) {
        return unauthorized();
    }
    edit(&desk, &channel, &id, body).await
}

async fn bot_delete(
    State(desk): State<Arc<Desk>>,
    Path((channel, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    if !is_bot(&headers) {
        return unauthorized();
    }
    delete(&desk, &channel, &id).await
}

async fn bot_types(
    State(desk): State<Arc<Desk>>,
    Path(channel): Path<String>,
    headers: HeaderMap,
) -> Response {
    if !is_bot(&headers) {
        return unauthorized();
    }
    match desk.admit(Kind::Typing, &channel).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refused) => because(refused),
    }
}

async fn webhook_send(
    State(desk): State<Arc<Desk>>,
    Path(token): Path<String>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Response {
    let asked = Asked::read(query);
    if token != WEBHOOK_TOKEN {
        return refusal(404, 10_015, "Unknown Webhook");
    }
    let thread = asked.thread_id.clone();
    send(&desk, &webhook_channel(&asked), thread, asked.wait, body).await
}

async fn webhook_edit(
    State(desk): State<Arc<Desk>>,
    Path((token, id)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Response {
    let asked = Asked::read(query);
    if token != WEBHOOK_TOKEN {
        return refusal(404, 10_015, "Unknown Webhook");
    }
    edit(&desk, &webhook_channel(&asked), &id, body).await
}

async fn webhook_delete(
    State(desk): State<Arc<Desk>>,
    Path((token, id)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let asked = Asked::read(query);
    if token != WEBHOOK_TOKEN {
        return refusal(404, 10_015, "Unknown Webhook");
    }
    delete(&desk, &webhook_channel(&asked), &id).await
}

async fn send(
    desk: &Desk,
    channel: &str,
    thread: Option<String>,
    wait: bool,
    body: Body,
) -> Response {
    if let Err(refused) = desk.admit(Kind::Send, channel).await {
        return because(refused);
    }
    let text = match readable(body.as_ref()) {
        Ok(text) => text,
        Err(refused) => return *refused,
    };
    let body = body.map_or(Value::Null, |Json(body)| body);
    let reply_to = body["message_reference"]["message_id"]
        .as_str()
        .map(str::to_owned);
    let id = desk.show(channel, thread, reply_to, &text);
    match wait {
        true => limits(
            desk,
            channel,
            Json(json!({"id": id.to_string(), "content": text})).into_response(),
        ),
        false => StatusCode::NO_CONTENT.into_response(),
    }
}

async fn edit(desk: &Desk, channel: &str, id: &str, body: Body) -> Response {
    if let Err(refused) = desk.admit(Kind::Edit, channel).await {
        return because(refused);
    }
    let text = match readable(body.as_ref()) {
        Ok(text) => text,
        Err(refused) => return *refused,
    };
    let now = tokio::time::Instant::now();
    match desk.change(channel, id, |shown| shown.versions.push((now, text))) {
        Some(()) => limits(desk, channel, Json(json!({"id": id})).into_response()),
        None => refusal(404, 10_008, "Unknown Message"),
    }
}

async fn delete(desk: &Desk, channel: &str, id: &str) -> Response {
    if let Err(refused) = desk.admit(Kind::Delete, channel).await {
        return because(refused);
    }
    match desk.change(channel, id, |shown| shown.deleted = true) {
        Some(()) => StatusCode::NO_CONTENT.into_response(),
        None => refusal(404, 10_008, "Unknown Message"),
    }
}

fn readable(body: Option<&Json<Value>>) -> Result<String, Box<Response>> {
    let body = body.map_or(&Value::Null, |Json(body)| body);
    let text = body["content"].as_str().unwrap_or_default();
    if text.trim().is_empty() {
        return Err(Box::new(refusal(
            400,
            50_006,
            "Cannot send an empty message",
        )));
    }
    if text.chars().count() > 2000 {
        return Err(Box::new(refusal(400, 50_035, "Invalid Form Body")));
    }
    // What would be a ping for everyone is refused here, so that a test sees it.
    let pings = body["allowed_mentions"]["parse"] != json!([]);
    if pings {
        return Err(Box::new(refusal(400, 50_035, "the fake wants no mentions")));
    }
    Ok(text.to_owned())
}

/// Tells what is left of the channel's limit.
fn limits(desk: &Desk, channel: &str, mut response: Response) -> Response {
    if let Some((window, left, resets)) = desk.left(channel) {
        let mut set = |name: &'static str, value: String| {
            response.headers_mut().insert(name, value.parse().unwrap());
        };
        set("x-ratelimit-limit", window.most.to_string());
        set("x-ratelimit-remaining", left.to_string());
        set(
            "x-ratelimit-reset-after",
            format!("{:.3}", resets.as_secs_f64()),
        );
        set("x-ratelimit-bucket", "abcd1234".to_owned());
    }
    response
}

fn unauthorized() -> Response {
    refusal(401, 0, "401: Unauthorized")
}

fn refusal(status: u16, code: i64, message: &str) -> Response {
    let body = Json(json!({"message": message, "code": code}));
    (StatusCode::from_u16(status).unwrap(), body).into_response()
}

fn slower(after: Duration, global: bool) -> Response {
    let seconds = after.as_secs_f64();
    let body =
        json!({"message": "You are being rate limited.", "retry_after": seconds, "global": global});
    let scope = if global { "global" } else { "user" };
    let headers = [
        ("retry-after", format!("{:.0}", seconds.ceil())),
        ("x-ratelimit-scope", scope.to_owned()),
    ];
    (StatusCode::TOO_MANY_REQUESTS, headers, Json(body)).into_response()
}

fn because(refused: Refusal) -> Response {
    match refused {
        Refusal::TooFast { after, per_chat } => slower(after, !per_chat),
        Refusal::Fault(fault) => match fault {
            Fault::Broken => StatusCode::BAD_GATEWAY.into_response(),
            Fault::Forbidden => refusal(403, 50_013, "Missing Permissions"),
            Fault::Unauthorized => unauthorized(),
            Fault::Pause { seconds } => slower(Duration::from_secs(seconds.into()), false),
            Fault::GlobalPause { seconds } => slower(Duration::from_secs(seconds.into()), true),
            Fault::Silent => unreachable!("it gets no answer"),
        },
    }
}
