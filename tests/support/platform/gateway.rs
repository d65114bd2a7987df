//! The gateway as docs.discord.com/developers/events/gateway has it: HELLO, heartbeats, IDENTIFY, RESUME with what was missed,
//! RECONNECT, INVALID_SESSION and close codes. A session lives until a test ends it; a newer connection ends an older one.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::TOKEN;

/// What a connection does beside what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It breaks off.
    Cut,
    Close(u16),
    Reconnect,
    Invalid {
        resumable: bool,
    },
}

#[derive(Default)]
struct Inner {
    url: String,
    session: Option<String>,
    sessions: u64,
    /// Of the session, in their order; the first has the seq 1.
    dispatches: Vec<Value>,
    last_message: u64,
    /// Connections so far. A newer one ends those before.
    connection: u64,
    identified: u64,
    resumed: u64,
    /// For one connection.
    turns: Vec<(u64, Turn)>,
    /// Heartbeats are not acknowledged.
    is_deaf: bool,
    /// What is told whoever connects, instead of a session.
    refuses: Option<u16>,
    starts_left: u64,
}

pub struct Gateway(watch::Sender<Inner>);

impl Default for Gateway {
    fn default() -> Self {
        Self(watch::Sender::new(Inner {
            starts_left: 1_000,
            ..Inner::default()
        }))
    }
}

impl Gateway {
    pub(super) fn is_at(&self, url: &str) {
        let url = url.replacen("http://", "ws://", 1) + "/ws";
        self.0.send_modify(|inner| inner.url = url);
    }

    /// Somebody writes in a channel. Without a session nobody hears of it.
    pub fn text(&self, channel: u64, author: u64, text: &str) {
        self.write(channel, author, json!({"content": text}));
    }

    pub fn write(&self, channel: u64, author: u64, more: Value) {
        self.0.send_modify(|inner| {
            inner.last_message += 1;
            let mut data = json!({
                "id": (1_000 + inner.last_message).to_string(), "channel_id": channel.to_string(),
                "type": 0, "timestamp": "2026-01-02T03:04:05Z",
                "author": {"id": author.to_string(), "username": "ada", "global_name": "Ada"},
            });
            for (key, value) in more.as_object().unwrap() {
                data[key] = value.clone();
            }
            inner.dispatch("MESSAGE_CREATE", data);
        });
    }

    /// The connection that there is does this.
    pub fn turn(&self, turn: Turn) {
        self.0.send_modify(|inner| {
            let now = inner.connection;
            inner.turns.push((now, turn));
        });
    }

    /// The session is over, and so is its connection.
    pub fn forget(&self) {
        self.0.send_modify(|inner| {
            inner.session = None;
            let now = inner.connection;
            inner.turns.push((now, Turn::Cut));
        });
    }

    pub fn deafen(&self, is_deaf: bool) {
        self.0.send_modify(|inner| inner.is_deaf = is_deaf);
    }

    pub fn refuse(&self, code: Option<u16>) {
        self.0.send_modify(|inner| inner.refuses = code);
    }

    pub fn leave_starts(&self, starts: u64) {
        self.0.send_modify(|inner| inner.starts_left = starts);
    }

    pub fn connections(&self) -> u64 {
        self.0.borrow().connection
    }

    pub fn identified(&self) -> u64 {
        self.0.borrow().identified
    }

    pub fn resumed(&self) -> u64 {
        self.0.borrow().resumed
    }

    /// Waits until there were so many sessions and resumptions together.
    pub async fn began(&self, times: u64, limit: Duration) {
        let mut inner = self.0.subscribe();
        let began = inner.wait_for(|inner| inner.identified + inner.resumed >= times);
        let reached = timeout(limit, began).await.is_ok();
        let (identified, resumed) = (self.identified(), self.resumed());
        assert!(
            reached,
            "not within {limit:?}: {identified} + {resumed} of {times}"
        );
    }
}

impl Inner {
    fn dispatch(&mut self, event: &str, data: Value) {
        if self.session.is_some() {
            let seq = self.dispatches.len() + 1;
            let dispatch = json!({"op": 0, "s": seq, "t": event, "d": data});
            self.dispatches.push(dispatch);
        }
    }
}

/// `/gateway/bot`
pub(super) async fn find(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    let is_bot = headers
        .get("authorization")
        .is_some_and(|given| given == &format!("Bot {TOKEN}"));
    if !is_bot {
        return axum::http::StatusCode::UNAUTHORIZED.into_response();
    }
    let inner = gateway.0.borrow();
    Json(json!({"url": inner.url, "shards": 1, "session_start_limit": {
        "total": 1_000, "remaining": inner.starts_left, "reset_after": 2_000, "max_concurrency": 1,
    }}))
    .into_response()
}

pub(super) async fn upgrade(
    State(gateway): State<Arc<Gateway>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(move |socket| async move {
        // Whoever is gone is told nothing.
        let _ = serve(socket, &gateway).await;
    })
}

fn text(value: Value) -> Message {
    Message::Text(value.to_string().into())
}

async fn close(socket: &mut WebSocket, code: u16) -> Option<()> {
    let reason = "as the test wants".into();
    let frame = CloseFrame { code, reason };
    socket.send(Message::Close(Some(frame))).await.ok()
}

async fn asked(socket: &mut WebSocket) -> Option<Value> {
    loop {
        if let Message::Text(text) = socket.recv().await?.ok()? {
            return serde_json::from_str(&text).ok();
        }
    }
}

async fn serve(mut socket: WebSocket, gateway: &Gateway) -> Option<()> {
    let mut mine = 0;
    gateway.0.send_modify(|inner| {
        inner.connection += 1;
        mine = inner.connection;
    });
    let hello = json!({"op": 10, "d": {"heartbeat_interval": 300}});
    socket.send(text(hello)).await.ok()?;
    let first = asked(&mut socket).await?;
    if first["d"]["token"] != TOKEN {
        return close(&mut socket, 4004).await;
    }
    let refuses = gateway.0.borrow().refuses;
    if let Some(code) = refuses {
        return close(&mut socket, code).await;
    }
    // How many dispatches this connection was sent.
    let mut sent = match first["op"].as_u64()? {
        2 => {
            gateway.0.send_modify(|inner| {
                inner.identified += 1;
                inner.sessions += 1;
                let session = format!("session-{}", inner.sessions);
                let url = inner.url.clone();
                inner.session = Some(session.clone());
                inner.dispatches.clear();
                inner.dispatch(
                    "READY",
                    json!({"v": 10, "session_id": session, "resume_gateway_url": url}),
                );
            });
            0
        }
        6 => {
            let seq = usize::try_from(first["d"]["seq"].as_u64()?).ok()?;
            let mut is_known = false;
            gateway.0.send_modify(|inner| {
                is_known = inner.session.as_deref() == first["d"]["session_id"].as_str()
                    && seq <= inner.dispatches.len();
                if is_known {
                    inner.resumed += 1;
                    inner.dispatch("RESUMED", json!({}));
                }
            });
            if !is_known {
                socket.send(text(json!({"op": 9, "d": false}))).await.ok()?;
                std::future::pending::<()>().await;
            }
            seq
        }
        _ => return close(&mut socket, 4003).await,
    };
    let mut state = gateway.0.subscribe();
    loop {
        let (mut new, mut turn, mut is_newest) = (Vec::new(), None, true);
        gateway.0.send_if_modified(|inner| {
            is_newest = inner.connection == mine;
            new = inner.dispatches.get(sent..).unwrap_or_default().to_vec();
            let at = inner.turns.iter().position(|(of, _)| *of == mine);
            turn = at.map(|at| inner.turns.remove(at).1);
            false
        });
        if !is_newest {
            return close(&mut socket, 4000).await;
        }
        sent += new.len();
        for dispatch in new {
            socket.send(text(dispatch)).await.ok()?;
        }
        match turn {
            None => {}
            Some(Turn::Cut) => return None,
            Some(Turn::Close(code)) => return close(&mut socket, code).await,
            Some(Turn::Reconnect) => socket.send(text(json!({"op": 7, "d": null}))).await.ok()?,
            Some(Turn::Invalid { resumable }) => {
                if !resumable {
                    gateway.0.send_modify(|inner| inner.session = None);
                }
                socket
                    .send(text(json!({"op": 9, "d": resumable})))
                    .await
                    .ok()?;
            }
        }
        tokio::select! {
            changed = state.changed() => changed.ok()?,
            asked = asked(&mut socket) => {
                let is_beat = asked?["op"] == 1;
                let is_deaf = gateway.0.borrow().is_deaf;
                if is_beat && !is_deaf {
                    socket.send(text(json!({"op": 11}))).await.ok()?;
                }
            }
        }
    }
}
