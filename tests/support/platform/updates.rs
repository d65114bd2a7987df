//! `getUpdates` as core.telegram.org/bots/api has it: updates are kept until a question names a later one as its offset, a
//! question waits for them for as long as it says, and a newer question ends an older one.

use std::collections::VecDeque;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

/// What a question meets instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// 502.
    Broken,
    /// 429.
    TooFast { seconds: u32 },
    /// The connection ends without an answer.
    Cut,
    /// Half of an answer.
    Truncated,
    /// A page of a proxy.
    Nonsense,
}

#[derive(Default)]
struct State {
    kept: VecDeque<Value>,
    last_id: i64,
    last_message: i64,
    /// Questions so far. A newer one ends those before.
    asked: u64,
    /// Questions that updates or nothing were answered to.
    answered: u64,
    conflicts: u64,
    offsets: Vec<Option<i64>>,
    troubles: VecDeque<Trouble>,
    /// Offsets mean nothing: the same updates come for ever.
    forgets_nothing: bool,
    has_webhook: bool,
}

#[derive(Default)]
pub struct Updates(watch::Sender<State>);

impl Updates {
    /// Somebody writes. `message`: beside `message_id`, `date` and the chat.
    pub fn write(&self, chat: i64, actor: i64, message: Value) -> i64 {
        self.push("message", chat, actor, message)
    }

    pub fn text(&self, chat: i64, text: &str) -> i64 {
        self.write(chat, 77, json!({"text": text}))
    }

    /// An update of this kind about a message.
    pub fn push(&self, kind: &str, chat: i64, actor: i64, more: Value) -> i64 {
        let mut message = json!({
            "date": 1_767_323_045,
            "chat": {"id": chat, "type": if chat < 0 { "supergroup" } else { "private" }},
            "from": {"id": actor, "is_bot": false, "first_name": "Ada"},
        });
        let mut id = 0;
        self.0.send_modify(|state| {
            state.last_id += 1;
            state.last_message += 1;
            id = state.last_id;
            message["message_id"] = state.last_message.into();
            for (key, value) in more.as_object().unwrap() {
                message[key] = value.clone();
            }
            let update = json!({"update_id": id, kind: message});
            state.kept.push_back(update);
        });
        id
    }

    /// The next update has this id.
    pub fn number_from(&self, id: i64) {
        self.0.send_modify(|state| state.last_id = id - 1);
    }

    pub fn trouble(&self, trouble: Trouble) {
        self.0
            .send_modify(|state| state.troubles.push_back(trouble));
    }

    pub fn forget_nothing(&self, forgets_nothing: bool) {
        self.0
            .send_modify(|state| state.forgets_nothing = forgets_nothing);
    }

    pub fn set_webhook(&self, is_set: bool) {
        self.0.send_modify(|state| {
            state.has_webhook = is_set;
            state.asked += 1;
        });
    }

    /// Another program asks.
    pub fn ask_as_another(&self) {
        self.0.send_modify(|state| state.asked += 1);
    }

    /// Updates that were not confirmed.
    pub fn kept(&self) -> usize {
        self.0.borrow().kept.len()
    }

    pub fn asked(&self) -> u64 {
        self.0.borrow().asked
    }

    pub fn conflicts(&self) -> u64 {
        self.0.borrow().conflicts
    }

    /// The offsets of all questions, in their order.
    pub fn offsets(&self) -> Vec<Option<i64>> {
        self.0.borrow().offsets.clone()
    }

    /// Waits until every update is confirmed.
    pub async fn confirmed(&self, limit: Duration) {
        let mut state = self.0.subscribe();
        let confirmed = state.wait_for(|state| state.kept.is_empty());
        let reached = timeout(limit, confirmed).await.is_ok();
        assert!(reached, "not confirmed within {limit:?}: {}", self.kept());
    }

    pub(super) async fn answer(&self, question: &Value) -> Response {
        let offset = question["offset"].as_i64();
        let wait = Duration::from_secs(question["timeout"].as_u64().unwrap_or(0));
        let limit = question["limit"].as_u64().unwrap_or(100).clamp(1, 100);
        let (mut mine, mut trouble) = (0, None);
        self.0.send_modify(|state| {
            state.asked += 1;
            mine = state.asked;
            state.offsets.push(offset);
            trouble = state.troubles.pop_front();
            let is_kept = |update: &Value| offset.is_none_or(|it| id(update) >= it);
            if !state.forgets_nothing && trouble.is_none() && !state.has_webhook {
                state.kept.retain(is_kept);
            }
        });
        if let Some(trouble) = trouble {
            return troubled(trouble);
        }
        if self.0.borrow().has_webhook {
            return conflict(
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the \
                 webhook first",
            );
        }
        let mut state = self.0.subscribe();
        let until = Instant::now() + wait;
        let changed = state.wait_for(|state| !state.kept.is_empty() || state.asked != mine);
        let _ = timeout_at(until, changed).await;
        let (mut updates, mut is_newest) = (Vec::new(), true);
        self.0.send_modify(|state| {
            is_newest = state.asked == mine;
            match is_newest {
                true => {
                    state.answered += 1;
                    let kept = state.kept.iter().take(limit as usize);
                    updates = kept.cloned().collect();
                }
                false => state.conflicts += 1,
            }
        });
        match is_newest {
            true => Json(json!({"ok": true, "result": updates})).into_response(),
            false => conflict(
                "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
            ),
        }
    }
}

fn id(update: &Value) -> i64 {
    update["update_id"].as_i64().unwrap()
}

fn refused(status: u16, mut body: Value) -> Response {
    body["ok"] = false.into();
    body["error_code"] = status.into();
    (StatusCode::from_u16(status).unwrap(), Json(body)).into_response()
}

fn conflict(description: &str) -> Response {
    refused(409, json!({"description": description}))
}

fn troubled(trouble: Trouble) -> Response {
    match trouble {
        Trouble::Broken => refused(502, json!({"description": "Bad Gateway"})),
        Trouble::TooFast { seconds } => refused(
            429,
            json!({"description": "Too Many Requests", "parameters": {"retry_after": seconds}}),
        ),
        Trouble::Cut => {
            let broken = futures_util::stream::once(async {
                Err::<Vec<u8>, _>(std::io::Error::other("cut"))
            });
            axum::body::Body::from_stream(broken).into_response()
        }
        Trouble::Truncated => r#"{"ok":true,"result":[{"update_id":1,"mess"#.into_response(),
        Trouble::Nonsense => "<html>Please log in</html>".into_response(),
    }
}
