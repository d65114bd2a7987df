//! Errors as RFC 9457 problem documents.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use lanekeeper_postgres::append::AppendError;
use lanekeeper_postgres::appender::AppenderError;
use lanekeeper_postgres::document::DocumentError;
use lanekeeper_postgres::inspect::FindError;
use lanekeeper_postgres::{ErrorClass, StoreError, sqlstate};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::problem_type::{self as of, ProblemType};

/// Seconds after which a refused request may be tried again, where nothing better is known.
const RETRY_AFTER_S: u64 = 1;
/// The parts of a long text that a problem quotes: its beginning, and its end, where errors give their position.
const EXCERPT_CHARS: (usize, usize) = (200, 60);

/// What went wrong, what was not lost, what to do.
#[derive(Debug)]
pub struct Problem {
    of: ProblemType,
    detail: String,
    hint: Option<String>,
    header: ExtraHeader,
    taken: Option<Box<Taken>>,
}

/// What was done all the same: the first frames of a batch.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TakenFrames")]
struct Taken {
    accepted: usize,
    ack: Vec<Uuid>,
}

/// Where a payload does not match the schema of its event type.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "SchemaViolation")]
struct Violation {
    /// A JSON pointer into the payload.
    pointer: String,
    /// The keyword that is not met; `limit`: the payload cannot be checked within the bounds.
    keyword: String,
    /// The number of the event among several, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<u64>,
}

/// The header, or what else goes with a problem of one type.
#[derive(Debug)]
enum ExtraHeader {
    None,
    /// `WWW-Authenticate`: the request needs a token.
    Challenge,
    RetryAfter {
        seconds: u64,
    },
    /// The member `seq`: which seq there is.
    Seq(Option<i64>),
    /// The members of a payload that its type's schema does not take.
    Violation(Box<Violation>),
    /// `ETag`, and the member `version`: which version of a document there is; 0: none.
    Version(i64),
}

/// Why a request was refused, in its answer's extensions.
#[derive(Clone, Copy)]
pub(super) struct Code(pub(super) &'static str);

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<i64>,
    #[serde(flatten)]
    violation: Option<&'a Violation>,
    #[serde(flatten)]
    taken: Option<&'a Taken>,
}

impl Problem {
    pub fn new(of: ProblemType, detail: impl Into<String>) -> Self {
        Self {
            of,
            detail: detail.into(),
            hint: None,
            header: ExtraHeader::None,
            taken: None,
        }
    }

    /// So many frames before the refused one were accepted, and these of them are acknowledged.
    #[must_use]
    pub fn behind(mut self, accepted: usize, ack: Vec<Uuid>) -> Self {
        self.taken = Some(Box::new(Taken { accepted, ack }));
        self
    }

    pub fn problem_type(&self) -> ProblemType {
        self.of
    }

    /// What went wrong, and what was not lost.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// What to do about it.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The request cannot be read as the endpoint expects it.
    pub fn unreadable(error: &dyn std::fmt::Display) -> Self {
        let error = Self::excerpt(&error.to_string());
        let detail = format!("the request is not what is expected ({error}): nothing was done");
        Self::new(of::INVALID, detail)
            .hint("send {\"event_type\":…,\"payload\":…}, or an array of such objects")
    }

    /// Text that quotes the request, without its middle if it is long.
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

    /// The request has no token, or one that is not valid.
    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self {
            header: ExtraHeader::Challenge,
            ..Self::new(of::UNAUTHORIZED, detail)
        }
    }

    /// Refused for now.
    pub fn later(of: ProblemType, detail: impl Into<String>, after_s: u64) -> Self {
        Self {
            header: ExtraHeader::RetryAfter {
                seconds: after_s.max(RETRY_AFTER_S),
            },
            ..Self::new(of, detail)
        }
    }

    /// The server has reached its limit of requests.
    pub fn busy() -> Self {
        let detail = "as many requests as this server takes are under way: nothing was done";
        Self::later(of::BUSY, detail, RETRY_AFTER_S)
    }

    /// The bodies of this token have reached their share of memory or connections.
    pub fn token_busy() -> Self {
        let detail =
            "as many bodies as this access token may send at once are under way: nothing was done";
        Self::later(of::BUSY, detail, RETRY_AFTER_S)
    }

    /// The server has reached its limit of live followers.
    pub fn too_many_followers() -> Self {
        let detail = "as many clients follow as this worker takes: nothing was done";
        Self::later(of::BUSY, detail, 5).hint("raise live.max_followers, or add workers")
    }

    /// A defect of ours.
    pub fn failed() -> Self {
        let detail =
            "the worker failed at this request: the events may or may not have been appended";
        Self::new(of::FAILED, detail)
            .hint("repeat it with the same message ids, and see the worker's log")
    }

    /// Somebody else appends to the session for longer than a request waits.
    pub fn session_busy() -> Self {
        let detail =
            "another transaction appends to this session and has not ended: nothing was enqueued";
        Self::later(of::SESSION_BUSY, detail, RETRY_AFTER_S)
    }

    pub fn too_large(limit: usize) -> Self {
        let detail = format!("the body has more than {limit} bytes: nothing was enqueued");
        Self::new(of::PAYLOAD_TOO_LARGE, detail)
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
                return Self::new(of::INVALID, detail);
            }
            _ => {}
        }
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "a request could not be carried out"
        );
        Self::away()
    }

    /// Why an operator's action was refused. `busy`: what it waited for in vain.
    pub fn of_operation(error: &StoreError, busy: ProblemType) -> Self {
        let Some(refusal) = error.refusal() else {
            return match error.class() {
                ErrorClass::ConnectionLost => Self::unknown_action(),
                _ => Self::of_statement(error),
            };
        };
        let problem = match error.sqlstate() {
            Some(sqlstate::LANE_BUSY) => Self::later(busy, refusal.message, RETRY_AFTER_S),
            Some(sqlstate::ANOTHER_HEAD) => Self::new(of::ANOTHER_HEAD, refusal.message),
            Some(sqlstate::NO_SESSION) => Self::new(of::NOT_FOUND, refusal.message),
            Some(sqlstate::UNKNOWN_STREAM) => Self::new(of::UNKNOWN_STREAM, refusal.message),
            _ => Self::new(of::INVALID, refusal.message),
        };
        Self {
            hint: refusal.hint,
            ..problem
        }
    }

    /// Postgres went away before it answered an operator's action.
    pub fn unknown_action() -> Self {
        let detail = "Postgres did not answer: it may or may not have been done";
        let hint = "repeat the request: it does nothing twice";
        Self::later(of::OUTCOME_UNKNOWN, detail, RETRY_AFTER_S).hint(hint)
    }

    /// What is wrong with a change of a document.
    pub fn of_document(error: &DocumentError) -> Self {
        let of = match error {
            DocumentError::Conflict { version, refusal } => {
                let detail = refusal.message.clone();
                return Self {
                    hint: refusal.hint.clone(),
                    header: ExtraHeader::Version(*version),
                    ..Self::new(of::VERSION_CONFLICT, detail)
                };
            }
            DocumentError::NotThere(_) => of::NOT_FOUND,
            DocumentError::Body(_) => of::NOT_JSON,
            DocumentError::Append(error) => return Self::of_append(error),
        };
        Self {
            hint: error.advice().map(str::to_owned),
            ..Self::new(of, error.to_string())
        }
    }

    /// Postgres is away or too slow, before anything was asked of it.
    pub fn away() -> Self {
        let detail = "Postgres cannot be reached from here: nothing was done";
        Self::later(of::UNAVAILABLE, detail, RETRY_AFTER_S)
    }
}

/// Of a statement that reads.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::of_statement(&error)
    }
}

impl From<FindError> for Problem {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Store(error) => error.into(),
            missing => Self::new(of::NOT_FOUND, Self::excerpt(&missing.to_string())),
        }
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
    pub fn of_append(error: &AppendError) -> Self {
        let advice = error.advice().map(str::to_owned);
        let of = match error {
            AppendError::UnknownStream(_) => of::UNKNOWN_STREAM,
            AppendError::NotAProducer(_) => of::FORBIDDEN,
            AppendError::SessionClosed(_) => of::SESSION_CLOSED,
            AppendError::QueueFull(full) => {
                let problem = match full.retry_after {
                    // Rounded up, so that it is not too early.
                    Some(after) => Self::later(
                        of::QUEUE_FULL,
                        error.to_string(),
                        after.as_millis().div_ceil(1000) as u64,
                    ),
                    None => Self::new(of::QUEUE_FULL, error.to_string()),
                };
                return Self {
                    hint: advice,
                    ..problem
                };
            }
            AppendError::SeqConflict(conflict) => {
                return Self {
                    hint: advice,
                    header: ExtraHeader::Seq(conflict.seq),
                    ..Self::new(of::SEQ_CONFLICT, error.to_string())
                };
            }
            AppendError::Schema(violation) => {
                let members = Violation {
                    pointer: violation.pointer.clone(),
                    keyword: violation.keyword.clone(),
                    event: violation.event,
                };
                return Self {
                    hint: advice,
                    header: ExtraHeader::Violation(Box::new(members)),
                    ..Self::new(of::SCHEMA_VIOLATION, error.to_string())
                };
            }
            AppendError::PayloadTooLarge(_) => of::PAYLOAD_TOO_LARGE,
            AppendError::Invalid(_) => of::INVALID,
            AppendError::NumberOutOfRange(_) => of::NUMBER_OUT_OF_RANGE,
            AppendError::NotJson(_) => of::NOT_JSON,
            AppendError::TooDeep(_) => of::TOO_DEEP,
            AppendError::NulCharacter(_) => of::NUL_CHARACTER,
            AppendError::Store(statement) if !error.is_outcome_unknown() => {
                return Self::of_statement(statement);
            }
            AppendError::TimedOut | AppendError::Store(_) => {
                return Self::outcome_unknown(error);
            }
        };
        Self {
            hint: advice,
            ..Self::new(of, error.to_string())
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
        Self::later(of::OUTCOME_UNKNOWN, detail, RETRY_AFTER_S).hint(hint)
    }
}

/// The entity tag of a version of a document.
pub(super) fn etag(version: i64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("digits between quotes")
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let ProblemType { code, status, .. } = self.of;
        let document = Document {
            r#type: format!("urn:lanekeeper:problem:{code}"),
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: &self.detail,
            code,
            hint: self.hint.as_deref(),
            version: match self.header {
                ExtraHeader::Version(version) => Some(version),
                _ => None,
            },
            seq: match self.header {
                ExtraHeader::Seq(seq) => seq,
                _ => None,
            },
            violation: match &self.header {
                ExtraHeader::Violation(violation) => Some(violation),
                _ => None,
            },
            taken: self.taken.as_deref(),
        };
        let body = serde_json::to_vec(&document).expect("strings and a number always serialise");
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, kind, body).into_response();
        response.extensions_mut().insert(Code(code));
        let headers = response.headers_mut();
        match self.header {
            ExtraHeader::None | ExtraHeader::Seq(_) | ExtraHeader::Violation(_) => {}
            ExtraHeader::Challenge => {
                let challenge = HeaderValue::from_static("Bearer realm=\"lanekeeper\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            ExtraHeader::Version(0) => {}
            ExtraHeader::Version(version) => {
                headers.insert(header::ETAG, etag(version));
            }
            ExtraHeader::RetryAfter { seconds } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
        }
        response
    }
}
