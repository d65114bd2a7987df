//! A follower as an event stream (`text/event-stream`), which browsers' EventSource reads as it is.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;

use super::follower::Follower;
use crate::connections::Following;

/// How long a browser waits before it comes back, in milliseconds.
const RETRY: &[u8] = b"retry: 1000\n";

/// Answers with what the follower gets, until it ends or its client leaves.
pub fn answer(follower: Follower, following: Following) -> Response {
    let state = (Box::new(follower), following, Some(RETRY));
    let chunks = stream::unfold(state, |(mut follower, following, retry)| async move {
        let messages = follower.next().await?;
        let bytes: usize = messages.iter().map(super::message::Message::bytes).sum();
        let mut chunk = Vec::with_capacity(bytes);
        chunk.extend_from_slice(retry.unwrap_or_default());
        for message in &messages {
            message.write_sse(&mut chunk);
        }
        let chunk = Ok::<_, std::convert::Infallible>(Bytes::from(chunk));
        Some((chunk, (follower, following, None)))
    });
    let mut response = Body::from_stream(chunks).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would gather it.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
