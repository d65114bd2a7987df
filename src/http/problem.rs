//! Errors as RFC 9457 problem documents.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::append::AppendError;
use lanekeeper_postgres::appender::AppenderError;
use serde::Serialize;

/// Seconds after which a refused request may be tried again, where nothing better is known.
const RETRY_AFTER_S: u64 = 1;
/// What a problem repeats of a request: its beginning, and its end, where errors have their place.
const EXCERPT_CHARS: (usize, usize) = (200, 60);

/// What went wrong, what was not lost, what to do.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    /// The last part of the problem's type.
    code: &'static str,
    detail: String,
    hint: Option<String>,
    told: Told,
}

/// What a header says of it.
#[derive(Debug)]
enum Told {
    Nothing,
    /// That a token is wanted.
    Challenge,
    RetryAfter {
        seconds: u64,
    },
}

/// Why a request was refused, in its answer's extensions.
#[derive(Clone, Copy)]
pub(super) struct Code(pub(super) &'static str);

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            hint: None,
            told: Told::Nothing,
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The request is not what is expected.
    pub fn unreadable(error: &dyn std::fmt::Display) -> Self {
        let error = Self::excerpt(&error.to_string());
        let detail = format!("the request is not what is expected ({error}): nothing was done");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
            .hint("send {\"event_type\":…,\"payload\":…}, or an array of such objects")
    }

    /// Text that repeats what was sent, without its middle where it is long.
    pub fn excerpt(text: &str) -> String {
        let (begin, end) = EXCERPT_CHARS;
        let count = text.chars().count();
        if count <= begin + end {
            return text.to_owned();
        }
        let begin: String = text.chars().take(begin).collect();
        let end: String = text.chars().skip(count - end).collect();
        format!("{begin}…{end}")
    }

    /// Without a token, or with one that is good for nothing.
    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self {
            told: Told::Challenge,
            ..Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
        }
    }

    /// Refused for now.
    pub fn later(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<String>,
        after_s: u64,
    ) -> Self {
        Self {
            told: Told::RetryAfter {
                seconds: after_s.max(RETRY_AFTER_S),
            },
            ..Self::new(status, code, detail)
        }
    }

    /// The server has as much to do as it takes.
    pub fn busy() -> Self {
        let detail = "as many requests as this server takes are under way: nothing was done";
        Self::later(StatusCode::TOO_MANY_REQUESTS, "busy", detail, RETRY_AFTER_S)
    }

    /// A defect of ours.
    pub fn failed() -> Self {
        let detail =
            "the worker failed at this request: the events may or may not have been appended";
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "outcome_unknown", detail)
            .hint("repeat it with the same message ids, and see the worker's log")
    }

    /// Somebody else appends to the session for longer than a request waits.
    pub fn session_busy() -> Self {
        let detail =
            "another transaction appends to this session and has not ended: nothing was enqueued";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::later(status, "session_busy", detail, RETRY_AFTER_S)
    }

    pub fn too_large(limit: usize) -> Self {
        let detail = format!("the body has more than {limit} bytes: nothing was enqueued");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", detail)
            .hint("send fewer events at once, or raise http.max_body_bytes")
    }

    /// What a statement's failure means for a request.
    pub fn of_statement(error: &StoreError) -> Self {
        match error.sqlstate() {
            // lock_not_available
            Some("55P03") => return Self::session_busy(),
            // Data exceptions: a NUL in a name, say.
            Some(code) if code.starts_with("22") => {
                let detail =
                    "Postgres does not take a name or a text of this request: nothing was done";
                return Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail);
            }
            _ => {}
        }
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "a request could not be carried out"
        );
        Self::away()
    }

    /// Postgres is away or too slow, before anything was asked of it.
    pub fn away() -> Self {
        let detail = "Postgres cannot be reached from here: nothing was done";
        Self::later(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            detail,
            RETRY_AFTER_S,
        )
    }
}

impl From<AppenderError> for Problem {
    fn from(error: AppenderError) -> Self {
        match error {
            AppenderError::NoConnection => Self::busy(),
            AppenderError::SessionBusy => Self::session_busy(),
            AppenderError::Append(error) => Self::of_append(&error),
            AppenderError::Failed => Self::failed(),
        }
    }
}

impl Problem {
    fn of_append(error: &AppendError) -> Self {
        let advice = error.advice().map(str::to_owned);
        let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
        let (status, code) = match error {
            AppendError::UnknownStream(_) => (StatusCode::NOT_FOUND, "unknown_stream"),
            AppendError::PayloadTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large"),
            AppendError::Invalid(_) => (unprocessable, "invalid"),
            AppendError::NumberOutOfRange(_) => (unprocessable, "number_out_of_range"),
            AppendError::NotJson(_) => (unprocessable, "not_json"),
            AppendError::TooDeep(_) => (unprocessable, "too_deep"),
            AppendError::NulCharacter(_) => (unprocessable, "nul_character"),
            AppendError::Store(statement) if !error.is_outcome_unknown() => {
                return Self::of_statement(statement);
            }
            AppendError::TimedOut | AppendError::Store(_) => {
                return Self::outcome_unknown(error);
            }
        };
        Self {
            hint: advice,
            ..Self::new(status, code, error.to_string())
        }
    }

    fn outcome_unknown(error: &AppendError) -> Self {
        // Details of the server are for the worker's log.
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "it is not known whether a request was carried out"
        );
        let detail = "Postgres did not answer: the events may or may not have been appended";
        let hint = "repeat the request with the same message ids or dedupe keys: what is there is not appended again";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::later(status, "outcome_unknown", detail, RETRY_AFTER_S).hint(hint)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
            r#type: format!("urn:lanekeeper:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            code: self.code,
            hint: self.hint.as_deref(),
        };
        let body = serde_json::to_vec(&document).expect("strings and a number always serialise");
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status, kind, body).into_response();
        response.extensions_mut().insert(Code(self.code));
        let headers = response.headers_mut();
        match self.told {
            Told::Nothing => {}
            Told::Challenge => {
                let challenge = HeaderValue::from_static("Bearer realm=\"lanekeeper\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            Told::RetryAfter { seconds } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
        }
        response
    }
}
