//! A live read as an event stream: `data` with content, and `control` behind it with where the client stands.
//!
//! It ends after `durable_streams.sse_ms`, so that caches in between can gather new clients. A client that is sent away for
//! any other reason comes again with its offset and is told why.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::content::{self, Content, Event};
use super::offset::{Offset, cursor};
use super::read::{Reading, event};
use crate::connections::Following;
use crate::live::single::{Single, Step};
use crate::problem::Problem;

/// A comment, which clients pass over.
const HEARTBEAT: &[u8] = b":\n\n";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Control {
    stream_next_offset: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_cursor: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    up_to_date: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream_closed: bool,
}

/// What is written to a client, step by step.
struct Writer {
    reading: Reading,
    single: Single,
    until: Instant,
    /// Nothing was written yet.
    is_first: bool,
    is_over: bool,
    _following: Following,
}

/// Answers with what the stream has behind a seq, and with what comes.
pub async fn answer(
    reading: Reading,
    from: i64,
    following: Following,
) -> Result<Response, Problem> {
    let until = Instant::now() + reading.durable.config.sse();
    let single = reading.join(from + 1).await?;
    let is_binary = reading.content() == Content::Binary;
    let writer = Writer {
        reading,
        single,
        until,
        is_first: true,
        is_over: false,
        _following: following,
    };
    let chunks = stream::unfold(Box::new(writer), |mut writer| async move {
        let chunk = writer.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), writer))
    });
    let answer = Answer::new(StatusCode::OK)
        .with("content-type", "text/event-stream")
        .with("cache-control", "no-cache")
        // nginx would gather it.
        .with("x-accel-buffering", "no")
        .body(Body::from_stream(chunks));
    Ok(match is_binary {
        true => answer.with("stream-sse-data-encoding", "base64"),
        false => answer,
    }
    .done())
}

impl Writer {
    /// What is written next; `None`: nothing any more.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if self.is_over {
            return None;
        }
        let mut chunk = Vec::new();
        if std::mem::replace(&mut self.is_first, false) && self.single.is_at_end() {
            self.control(&mut chunk).await?;
            return Some(chunk);
        }
        match timeout_at(self.until, self.single.next()).await.ok()?? {
            Step::Events(events) => {
                let events: Vec<Event<'_>> = events.iter().map(|json| event(json)).collect();
                content::write_sse(self.reading.content(), &events, &mut chunk);
                self.control(&mut chunk).await?;
            }
            Step::Ended => self.control(&mut chunk).await?,
            Step::Idle => chunk.extend_from_slice(HEARTBEAT),
            Step::Disconnected => return None,
        }
        Some(chunk)
    }

    /// Where the client stands. `None`: the stream is not there any more, or it cannot be asked.
    async fn control(&mut self, to: &mut Vec<u8>) -> Option<()> {
        let mut stream_closed = false;
        if self.single.has_ended() {
            self.is_over = true;
            stream_closed = self.reading.is_closed().await.ok()?;
            if !stream_closed && to.is_empty() {
                return None;
            }
        }
        let given = self.reading.asked.cursor.as_deref();
        let control = Control {
            stream_next_offset: Offset(self.single.next_seq() - 1).to_string(),
            stream_cursor: (!stream_closed).then(|| cursor(given).to_string()),
            up_to_date: self.single.is_at_end(),
            stream_closed,
        };
        let json = serde_json::to_vec(&control).expect("strings and truth values serialise");
        to.extend_from_slice(b"event: control\ndata:");
        to.extend_from_slice(&json);
        to.extend_from_slice(b"\n\n");
        Some(())
    }
}
