//! The body of an answer, handed to the connection in pieces as the client takes them.
//!
//! So a connection counts as busy until all but the last piece is written, however large the answer is.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use lanekeeper_telemetry::serving::UnderWay;

use super::connections::Busy;

/// Bytes handed over at once.
const PIECE: usize = 16 * 1024;

pub struct Answer {
    body: Body,
    /// What was read of the body and not handed over.
    rest: Bytes,
    /// Both end with the answer.
    _busy: Busy,
    _measured: UnderWay,
}

impl Answer {
    pub fn new(body: Body, busy: Busy, measured: UnderWay) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            _busy: busy,
            _measured: measured,
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end_or_error => return Poll::Ready(end_or_error),
            }
        }
        let piece = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let known = self.rest.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + known);
        }
        hint.set_lower(body.lower() + known);
        hint
    }
}
