//! A task that is followed: server-sent events, each an answer of JSON-RPC, from the task as it is to its end.
//!
//! The follower counts among the live followers of the worker. It is sent away when the worker stops, when its token is revoked,
//! when the log does not have the task any more, and after a while; it comes again with `SubscribeToTask`. While Postgres does
//! not say how the task is, the follower stays, and is told nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use lanekeeper_postgres::a2a_agent::Located;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::caller::{Caller, Refused};
use super::rpc;
use super::task::Task;
use crate::connections::{ConnectionPermit, Following};
use crate::problem::Problem;

/// How long a task is followed by one answer.
const FOLLOWED_FOR: Duration = Duration::from_secs(600);
/// Between two looks at a task; it doubles, and begins anew after a change.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// Clients made with the SDK of Python leave after 5 s without a byte.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(2);
/// A comment, which clients pass over.
const HEARTBEAT: &[u8] = b":\n\n";

/// Makes the connection that of a follower.
pub(super) fn follow(permit: &Arc<ConnectionPermit>) -> Result<Following, Problem> {
    permit.follow().ok_or_else(Problem::too_many_followers)
}

/// What a look at a task finds.
enum Looked {
    /// What has changed, as events.
    Changes(Vec<u8>),
    /// Postgres does not say at present.
    Unknown,
    /// The client may not follow any more, or the log does not have the task.
    Gone,
}

/// What is written to a client, step by step.
struct Writer {
    caller: Arc<Caller>,
    id: Box<RawValue>,
    task: Task,
    /// `None`: the task is not remembered.
    message: Option<Located>,
    is_first: bool,
    until: Instant,
    pause: Duration,
    written_at: Instant,
    _following: Following,
}

/// Answers with the task, and with what becomes of it.
pub(super) fn answer(
    caller: Arc<Caller>,
    id: &RawValue,
    task: Task,
    message: Option<Located>,
    following: Following,
) -> Response {
    let now = Instant::now();
    let writer = Writer {
        caller,
        id: id.to_owned(),
        task,
        message,
        is_first: true,
        until: now + FOLLOWED_FOR,
        pause: LOOK_EVERY[0],
        written_at: now,
        _following: following,
    };
    let chunks = stream::unfold(Box::new(writer), |mut writer| async move {
        let chunk = writer.next().await?;
        writer.written_at = Instant::now();
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), writer))
    });
    let mut answer = Response::new(Body::from_stream(chunks));
    let headers = answer.headers_mut();
    let text = HeaderValue::from_static;
    headers.insert(header::CONTENT_TYPE, text("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, text("no-cache"));
    // nginx would gather it.
    headers.insert("x-accel-buffering", text("no"));
    answer
}

impl Writer {
    /// What is written next; `None`: nothing any more.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if std::mem::replace(&mut self.is_first, false) {
            return Some(self.event(json!({"task": self.task})));
        }
        let stopping = self.caller.agents.live.stopping.clone();
        loop {
            if self.task.state().is_terminal() || Instant::now() >= self.until {
                return None;
            }
            tokio::select! {
                () = stopping.cancelled() => return None,
                () = sleep(self.pause) => {}
            }
            match self.look().await {
                Looked::Changes(changes) if !changes.is_empty() => {
                    self.pause = LOOK_EVERY[0];
                    return Some(changes);
                }
                Looked::Changes(_) => self.pause = (self.pause * 2).min(LOOK_EVERY[1]),
                Looked::Unknown => self.pause = LOOK_EVERY[1],
                Looked::Gone => return None,
            }
            if self.written_at.elapsed() >= HEARTBEAT_EVERY {
                return Some(HEARTBEAT.to_vec());
            }
        }
    }

    async fn look(&mut self) -> Looked {
        let Some(message) = &self.message else {
            return Looked::Gone;
        };
        if let Some(grant) = &self.caller.grant {
            let access = &self.caller.agents.desk.access;
            match access.signed_in(grant.token_id).await {
                Ok(Some(_)) => {}
                Ok(None) => return Looked::Gone,
                Err(_) => return Looked::Unknown,
            }
        }
        let task_id = self.task.id().to_owned();
        let task = match self.caller.look(&task_id, message).await {
            Ok(task) => task,
            Err(Refused::Problem(_)) => return Looked::Unknown,
            Err(Refused::Fault(_)) => return Looked::Gone,
        };
        let changes = task.changes(&self.task);
        self.task = task;
        Looked::Changes(
            changes
                .into_iter()
                .flat_map(|change| self.event(change))
                .collect(),
        )
    }

    fn event(&self, result: Value) -> Vec<u8> {
        let mut event = b"data: ".to_vec();
        event.extend_from_slice(&rpc::result(&self.id, result));
        event.extend_from_slice(b"\n\n");
        event
    }
}
