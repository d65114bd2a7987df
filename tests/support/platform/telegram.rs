//! As core.telegram.org/bots/api has it: `sendMessage`, `editMessageText`, `deleteMessage`, `sendChatAction`, and for
//! programs that fetch what people write and send `getMe`, `getUpdates`, `getFile` and the download.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, response};
use serde_json::{Value, json};

use super::files::Files;
use super::updates::Updates;
use super::{Desk, Fault, Kind, Platform, Refusal, TOKEN, Window};

pub struct Telegram {
    platform: Platform,
    pub updates: Arc<Updates>,
    pub files: Arc<Files>,
}

type Parts = (Arc<Desk>, Arc<Updates>, Arc<Files>);

impl std::ops::Deref for Telegram {
    type Target = Platform;

    fn deref(&self) -> &Platform {
        &self.platform
    }
}

impl Telegram {
    pub async fn start(windows: &[Window]) -> Self {
        let desk = Desk::new(windows);
        let updates = Arc::new(Updates::default());
        let files = Arc::new(Files::default());
        let app = Router::new()
            .route("/{bot}/{method}", post(call))
            .route("/file/{bot}/{*path}", get(download))
            .with_state((Arc::clone(&desk), Arc::clone(&updates), Arc::clone(&files)));
        let platform = Platform::serve(desk, app).await;
        Self {
            platform,
            updates,
            files,
        }
    }
}

type Said = Result<Value, (u16, String, Value)>;

async fn call(
    State((desk, updates, files)): State<Parts>,
    Path((bot, method)): Path<(String, String)>,
    Json(body): Json<Value>,
) -> Response {
    if bot != format!("bot{TOKEN}") {
        return told(Err(refusal(401, "Unauthorized")));
    }
    match method.as_str() {
        "getMe" => {
            return told(Ok(
                json!({"id": 110_201_543, "is_bot": true, "username": "fake_bot"}),
            ));
        }
        "getFile" => {
            let found = files.describe(&body);
            return told(found.ok_or_else(|| refusal(400, "Bad Request: wrong file_id")));
        }
        "getUpdates" => return updates.answer(&body).await,
        _ => {}
    }
    let chat = text(&body["chat_id"]).unwrap_or_default();
    let kind = match method.as_str() {
        "sendMessage" => Kind::Send,
        "editMessageText" => Kind::Edit,
        "deleteMessage" => Kind::Delete,
        "sendChatAction" => Kind::Typing,
        _ => return told(Err(refusal(404, "Not Found"))),
    };
    if let Err(refused) = desk.admit(kind, &chat).await {
        return told(Err(because(refused)));
    }
    told(match kind {
        Kind::Send => send(&desk, &chat, &body),
        Kind::Edit => edit(&desk, &chat, &body),
        Kind::Delete => delete(&desk, &chat, &body),
        Kind::Typing => Ok(json!(true)),
    })
}

async fn download(
    State((_, _, files)): State<Parts>,
    Path((bot, path)): Path<(String, String)>,
) -> Response {
    match bot == format!("bot{TOKEN}") {
        true => files.download(&path).await,
        false => StatusCode::NOT_FOUND.into_response(),
    }
}

fn send(desk: &Desk, chat: &str, body: &Value) -> Said {
    let shown = readable(body)?;
    let reply_to = text(&body["reply_parameters"]["message_id"]);
    let id = desk.show(chat, text(&body["message_thread_id"]), reply_to, &shown);
    Ok(message(id, chat, &shown))
}

fn edit(desk: &Desk, chat: &str, body: &Value) -> Said {
    let new = readable(body)?;
    let id = text(&body["message_id"]).unwrap_or_default();
    let changed = desk.change(chat, &id, |shown| {
        if shown.text() == new {
            return false;
        }
        shown
            .versions
            .push((tokio::time::Instant::now(), new.clone()));
        true
    });
    match changed {
        None => Err(refusal(400, "Bad Request: message to edit not found")),
        Some(false) => Err(refusal(
            400,
            "Bad Request: message is not modified: specified new message content and reply markup are exactly \
             the same as a current content and reply markup of the message",
        )),
        Some(true) => Ok(message(id.parse().unwrap(), chat, &new)),
    }
}

fn delete(desk: &Desk, chat: &str, body: &Value) -> Said {
    let id = text(&body["message_id"]).unwrap_or_default();
    desk.change(chat, &id, |shown| shown.deleted = true)
        .map(|()| json!(true))
        .ok_or_else(|| refusal(400, "Bad Request: message to delete not found"))
}

/// The text as it is shown.
fn readable(body: &Value) -> Result<String, (u16, String, Value)> {
    let given = body["text"].as_str().unwrap_or_default();
    let shown = match body["parse_mode"].as_str() {
        Some("MarkdownV2") => marked(given)?,
        _ => given.to_owned(),
    };
    let trimmed = shown.trim();
    if trimmed.is_empty() {
        return Err(refusal(400, "Bad Request: message text is empty"));
    }
    if trimmed.encode_utf16().count() > 4096 {
        return Err(refusal(400, "Bad Request: message is too long"));
    }
    Ok(trimmed.to_owned())
}

/// Reads code, bold and escapes, and refuses what is reserved and stands alone.
fn marked(given: &str) -> Result<String, (u16, String, Value)> {
    let (mut shown, mut rest) = (String::new(), given);
    let mut open: Vec<&str> = Vec::new();
    while let Some(c) = rest.chars().next() {
        let mark = ["```", "`", "*"]
            .into_iter()
            .find(|mark| rest.starts_with(mark));
        let in_code = open.last().is_some_and(|mark| mark.starts_with('`'));
        match (c, mark) {
            ('\\', _) => {
                let escaped = rest[1..].chars().next().unwrap_or('\\');
                shown.push(escaped);
                rest = &rest[1 + escaped.len_utf8()..];
            }
            (_, Some(mark)) if open.last() == Some(&mark) => {
                open.pop();
                rest = &rest[mark.len()..];
            }
            (_, Some(mark)) if !in_code => {
                open.push(mark);
                rest = &rest[mark.len()..];
            }
            _ if !in_code && "_*[]()~`>#+-=|{}.!".contains(c) => {
                return Err(unparsable(&format!(
                    "character '{c}' is reserved and must be escaped"
                )));
            }
            _ => {
                shown.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    match open.is_empty() {
        true => Ok(shown),
        false => Err(unparsable("can't find end of the entity")),
    }
}

fn unparsable(reason: &str) -> (u16, String, Value) {
    refusal(400, &format!("Bad Request: can't parse entities: {reason}"))
}

fn message(id: u64, chat: &str, text: &str) -> Value {
    json!({"message_id": id, "date": 1_767_323_045, "chat": {"id": chat}, "text": text})
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn refusal(status: u16, description: &str) -> (u16, String, Value) {
    (status, description.to_owned(), Value::Null)
}

fn because(refused: Refusal) -> (u16, String, Value) {
    let slower = |seconds: u64| {
        let description = format!("Too Many Requests: retry after {seconds}");
        (429, description, json!({"retry_after": seconds}))
    };
    match refused {
        Refusal::TooFast { after, .. } => slower(after.as_secs() + 1),
        Refusal::Fault(fault) => match fault {
            Fault::Broken => refusal(502, "Bad Gateway"),
            Fault::Forbidden => refusal(403, "Forbidden: bot was blocked by the user"),
            Fault::Unauthorized => refusal(401, "Unauthorized"),
            Fault::Pause { seconds } | Fault::GlobalPause { seconds } => slower(seconds.into()),
            Fault::Silent => unreachable!("it gets no answer"),
        },
    }
}

fn told(said: Said) -> Response {
    match said {
        Ok(result) => response::Json(json!({"ok": true, "result": result})).into_response(),
        Err((status, description, parameters)) => {
            let mut body = json!({"ok": false, "error_code": status, "description": description});
            if !parameters.is_null() {
                body["parameters"] = parameters;
            }
            (StatusCode::from_u16(status).unwrap(), response::Json(body)).into_response()
        }
    }
}
