//! `Prefer: wait=30` (RFC 7240) on the append of one event: the request waits until another agent has answered it.
//!
//! A wait holds no place of a request and no connection. Where as many wait as requests are served at once, a further one
//! is answered like an append without the preference.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use lanekeeper_postgres::append::Enqueued;
use lanekeeper_postgres::log::LineView;
use lanekeeper_postgres::response::{expect_response, response};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;
use uuid::Uuid;

use super::{ANSWER_WITHIN, Desk, json, status};
use crate::problem::Problem;

/// The longest wait.
const MOST_S: u64 = 60;

/// How long the client prefers to wait, if it says so.
pub(super) fn wait(headers: &HeaderMap) -> Option<Duration> {
    let preferences = headers.get_all("prefer").iter();
    let mut preferences = preferences.filter_map(|value| value.to_str().ok());
    let seconds: u64 = preferences.find_map(|value| {
        value.split(',').find_map(|preference| {
            let (name, value) = preference.split_once('=')?;
            let is_wait = name.trim().eq_ignore_ascii_case("wait");
            is_wait.then(|| value.trim().parse().ok()).flatten()
        })
    })?;
    (seconds > 0).then(|| Duration::from_secs(seconds.min(MOST_S)))
}

/// Says that the answer to this event is waited for.
pub(super) async fn expect(desk: &Desk, stream: &str, request_id: Uuid) -> Result<(), Problem> {
    let client = desk.pool.get().await.map_err(|_| Problem::busy())?;
    match timeout(
        ANSWER_WITHIN,
        expect_response(&**client, stream, request_id),
    )
    .await
    {
        Ok(done) => done.map_err(|error| Problem::of_statement(&error)),
        Err(_) => {
            drop(deadpool_postgres::Object::take(client));
            Err(Problem::away())
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Appended")]
pub(super) struct Answer<'a> {
    #[serde(flatten)]
    enqueued: &'a Enqueued,
    /// Absent: the peer has not answered in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<LineView<'a>>,
}

/// Waits, and answers with the peer's answer where there is one.
pub(super) async fn answer_with_response(
    desk: &Desk,
    stream: &str,
    enqueued: &Enqueued,
    within: Duration,
) -> Response {
    let found = match desk.waiting.try_acquire() {
        Ok(_waiting) => response(&desk.pool, stream, enqueued.message_id, within)
            .await
            .unwrap_or_else(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the answer to a request could not be waited for");
                None
            }),
        Err(_) => None,
    };
    let answer = Answer {
        enqueued,
        response: found
            .as_ref()
            .map(|found| LineView::new(&found.stream, &found.session, &found.event)),
    };
    let body = serde_json::to_vec(&answer).expect("what came out of Postgres is JSON");
    let mut answer = json(status(std::slice::from_ref(enqueued)), body);
    if found.is_some() {
        let applied = format!("wait={}", within.as_secs());
        if let Ok(applied) = HeaderValue::from_str(&applied) {
            answer.headers_mut().insert("preference-applied", applied);
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_among_other_preferences_and_bounded() {
        for (given, expected) in [
            ("wait=30", Some(30)),
            ("respond-async, Wait = 5", Some(5)),
            ("wait=100000", Some(MOST_S)),
            ("wait=0", None),
            ("wait=-1", None),
            ("wait=1.5", None),
            ("wait", None),
            ("waits=3", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", HeaderValue::from_static(given));
            assert_eq!(wait(&headers), expected.map(Duration::from_secs), "{given}");
        }
        assert_eq!(wait(&HeaderMap::new()), None);
    }
}
