//! As docs.slack.dev has it: `chat.postMessage`, `chat.update`, `chat.delete`, `assistant.threads.setStatus`.
//! Refusals are answered with 200.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

use super::{Desk, Fault, Kind, Platform, Refusal, TOKEN, Window};

pub struct Slack(Platform);

impl std::ops::Deref for Slack {
    type Target = Platform;

    fn deref(&self) -> &Platform {
        &self.0
    }
}

impl Slack {
    pub async fn start(windows: &[Window]) -> Self {
        let desk = Desk::new(windows);
        let app = Router::new()
            .route("/api/{method}", post(call))
            .with_state(Arc::clone(&desk));
        Self(Platform::serve(desk, app).await)
    }
}

async fn call(
    State(desk): State<Arc<Desk>>,
    Path(method): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let given = headers.get("authorization");
    if given.is_none_or(|given| given != &format!("Bearer {TOKEN}")) {
        return refusal("invalid_auth");
    }
    let (kind, channel) = match method.as_str() {
        "chat.postMessage" => (Kind::Send, &body["channel"]),
        "chat.update" => (Kind::Edit, &body["channel"]),
        "chat.delete" => (Kind::Delete, &body["channel"]),
        "assistant.threads.setStatus" => (Kind::Typing, &body["channel_id"]),
        _ => return refusal("unknown_method"),
    };
    // Messages may go to a channel by its name; everything else wants its id.
    let named = channel.as_str().unwrap_or_default();
    let channel = match (named.strip_prefix('#'), kind) {
        (Some(name), Kind::Send) => format!("C{}", name.to_uppercase()),
        (Some(_), _) => return refusal("channel_not_found"),
        (None, _) => named.to_owned(),
    };
    if let Err(refused) = desk.admit(kind, &channel).await {
        return because(refused);
    }
    match kind {
        Kind::Send => send(&desk, &channel, &body),
        Kind::Edit => edit(&desk, &channel, &body),
        Kind::Delete => delete(&desk, &channel, &body),
        Kind::Typing => Json(json!({"ok": true})).into_response(),
    }
}

fn send(desk: &Desk, channel: &str, body: &Value) -> Response {
    let text = match readable(body) {
        Ok(text) => text,
        Err(refused) => return *refused,
    };
    let thread = body["thread_ts"].as_str().map(str::to_owned);
    let id = desk.show(channel, thread.clone(), thread, &text);
    Json(json!({"ok": true, "channel": channel, "ts": ts(id)})).into_response()
}

fn edit(desk: &Desk, channel: &str, body: &Value) -> Response {
    let text = match readable(body) {
        Ok(text) => text,
        Err(refused) => return *refused,
    };
    let now = tokio::time::Instant::now();
    let ts = body["ts"].as_str().unwrap_or_default();
    match desk.change(channel, &id(ts), |shown| shown.versions.push((now, text))) {
        Some(()) => Json(json!({"ok": true, "channel": channel, "ts": ts})).into_response(),
        None => refusal("message_not_found"),
    }
}

fn delete(desk: &Desk, channel: &str, body: &Value) -> Response {
    let ts = body["ts"].as_str().unwrap_or_default();
    match desk.change(channel, &id(ts), |shown| shown.deleted = true) {
        Some(()) => Json(json!({"ok": true, "channel": channel, "ts": ts})).into_response(),
        None => refusal("message_not_found"),
    }
}

fn ts(id: u64) -> String {
    format!("1767323045.{id:06}")
}

fn id(ts: &str) -> String {
    let (_, number) = ts.split_once('.').unwrap_or_default();
    number.trim_start_matches('0').to_owned()
}

/// The text as it is shown.
fn readable(body: &Value) -> Result<String, Box<Response>> {
    let text = body["text"].as_str().unwrap_or_default();
    if text.trim().is_empty() {
        return Err(Box::new(refusal("no_text")));
    }
    if text.chars().count() > 40_000 {
        return Err(Box::new(refusal("msg_too_long")));
    }
    // What is not escaped is a link or a mention: an error here, so that a test sees it.
    if text.contains(['<', '>']) {
        return Err(Box::new(refusal("the_fake_wants_no_links")));
    }
    Ok(text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&"))
}

fn refusal(error: &str) -> Response {
    Json(json!({"ok": false, "error": error})).into_response()
}

fn slower(seconds: u64) -> Response {
    let headers = [("retry-after", seconds.to_string())];
    let body = Json(json!({"ok": false, "error": "ratelimited"}));
    (StatusCode::TOO_MANY_REQUESTS, headers, body).into_response()
}

fn because(refused: Refusal) -> Response {
    match refused {
        Refusal::TooFast { after, .. } => slower(after.as_secs() + 1),
        Refusal::Fault(fault) => match fault {
            Fault::Broken => refusal("internal_error"),
            Fault::Forbidden => refusal("not_in_channel"),
            Fault::Unauthorized => refusal("token_revoked"),
            Fault::Pause { seconds } | Fault::GlobalPause { seconds } => slower(seconds.into()),
            Fault::Silent => unreachable!("it gets no answer"),
        },
    }
}
