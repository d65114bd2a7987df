//! Every problem type of the API. docs/reference/errors.md is generated from this table.

use axum::http::StatusCode;

/// A type of problem: its code, its status and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemType {
    /// The last part of the problem's `type`.
    pub code: &'static str,
    pub status: StatusCode,
    pub says: &'static str,
}

macro_rules! problem_types {
    ($($(#[doc = $says:literal])+ $name:ident = $code:literal, $status:ident;)*) => {
        $($(#[doc = $says])+ pub const $name: ProblemType = ProblemType {
            code: $code,
            status: StatusCode::$status,
            says: concat!($($says),+),
        };)*
        /// All of them, by status.
        pub const PROBLEM_TYPES: &[ProblemType] = &[$($name),*];
    };
}

problem_types! {
    /// The body did not arrive whole. Nothing was enqueued.
    INCOMPLETE = "incomplete", BAD_REQUEST;
    /// A request of the Durable Streams protocol that is not of the expected form. Nothing was done.
    BAD_REQUEST = "bad_request", BAD_REQUEST;
    /// The request has no access token, or one that is not valid; a source's signature is missing, wrong or too old.
    UNAUTHORIZED = "unauthorized", UNAUTHORIZED;
    /// The access token does not allow this on this stream.
    FORBIDDEN = "forbidden", FORBIDDEN;
    /// A later epoch of this producer of a durable stream has written; `Producer-Epoch` is that one. Nothing was appended.
    PRODUCER_FENCED = "producer_fenced", FORBIDDEN;
    /// There is nothing at this path, or no such stream, session, document, replay or source.
    NOT_FOUND = "not_found", NOT_FOUND;
    /// The stream to append to does not exist.
    UNKNOWN_STREAM = "unknown_stream", NOT_FOUND;
    /// The path does not take this method.
    METHOD_NOT_ALLOWED = "method_not_allowed", METHOD_NOT_ALLOWED;
    /// The body did not arrive within `http.read_timeout_ms`. Nothing was enqueued.
    TIMED_OUT = "incomplete", REQUEST_TIMEOUT;
    /// The session is closed. Nothing was enqueued.
    SESSION_CLOSED = "session_closed", CONFLICT;
    /// A session is being replayed to this subscription already. Nothing was started.
    REPLAY_UNDER_WAY = "replay_under_way", CONFLICT;
    /// The event would have had another seq than `expected_seq`; `seq` is the one that there is. Nothing was enqueued.
    SEQ_CONFLICT = "seq_conflict", CONFLICT;
    /// The cursor of a live follower is ahead of what the log has. Nothing was done.
    CURSOR_AHEAD = "cursor_ahead", CONFLICT;
    /// The cursor of a live follower is one of another session, or of another kind. Nothing was done.
    FOREIGN_CURSOR = "foreign_cursor", CONFLICT;
    /// A durable stream is there with another content type, expiry or closure, or a writer's numbers do not follow on those
    /// that it has. Nothing was changed.
    STREAM_CONFLICT = "stream_conflict", CONFLICT;
    /// The event that the request names is not the head of its lane any more. Nothing was changed; look at the lane again.
    ANOTHER_HEAD = "another_head", CONFLICT;
    /// Circuits are shared over Redis, and `redis.url` is not set. Nothing was done.
    NO_REDIS = "no_redis", CONFLICT;
    /// What a durable stream had at this offset is gone, with its days or with the stream that was there before.
    GONE = "gone", GONE;
    /// The document is not at the version that `If-Match` names, or is there although `If-None-Match: *` says that it must
    /// not be. Nothing was changed; `version` is the one that there is, 0 where there is none.
    VERSION_CONFLICT = "version_conflict", PRECONDITION_FAILED;
    /// A patch of a document that is no `application/merge-patch+json`, or CloudEvents in another format than JSON. Nothing
    /// was changed.
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE;
    /// The body is larger than `http.max_body_bytes`, or a payload larger than its stream's `max_payload_bytes`.
    PAYLOAD_TOO_LARGE = "payload_too_large", PAYLOAD_TOO_LARGE;
    /// The request is not of the expected form, or an argument is invalid.
    INVALID = "invalid", UNPROCESSABLE_ENTITY;
    /// The payload does not match the schema of its event type: `pointer` is the place in it, `keyword` what is not met, and
    /// `event` the number of the event among several. Nothing was enqueued.
    SCHEMA_VIOLATION = "schema_violation", UNPROCESSABLE_ENTITY;
    /// The JSON has a number that Postgres cannot hold.
    NUMBER_OUT_OF_RANGE = "number_out_of_range", UNPROCESSABLE_ENTITY;
    /// The payload or the headers are not JSON.
    NOT_JSON = "not_json", UNPROCESSABLE_ENTITY;
    /// The JSON is nested deeper than Postgres can read.
    TOO_DEEP = "too_deep", UNPROCESSABLE_ENTITY;
    /// The JSON contains `\u0000`, which Postgres cannot store.
    NUL_CHARACTER = "nul_character", UNPROCESSABLE_ENTITY;
    /// The worker serves as many requests as it can, or as many bodies of one access token as it takes at once.
    /// Nothing was done; repeat after `Retry-After`.
    BUSY = "busy", TOO_MANY_REQUESTS;
    /// The session has as many undelivered events as a subscription takes (`max_pending`). Nothing was enqueued; repeat
    /// after `Retry-After`, which is missing where nothing is delivered before an operator acts.
    QUEUE_FULL = "queue_full", TOO_MANY_REQUESTS;
    /// The access token has sent more than its rate. Nothing was done; repeat after `Retry-After`.
    RATE_LIMITED = "rate_limited", TOO_MANY_REQUESTS;
    /// The worker failed at the request: the events may or may not have been appended. Repeat with the same message
    /// ids or dedupe keys.
    FAILED = "outcome_unknown", INTERNAL_SERVER_ERROR;
    /// A part of the Durable Streams protocol that this server leaves out. Nothing was done.
    NOT_IMPLEMENTED = "not_implemented", NOT_IMPLEMENTED;
    /// Postgres did not answer: the events may or may not have been appended. Repeat with the same message ids or
    /// dedupe keys after `Retry-After`.
    OUTCOME_UNKNOWN = "outcome_unknown", SERVICE_UNAVAILABLE;
    /// The lane is being delivered, and did not stop within five seconds. Nothing was changed; repeat after `Retry-After`.
    LANE_BUSY = "lane_busy", SERVICE_UNAVAILABLE;
    /// Another transaction has held the session for longer than five seconds. Nothing was enqueued; repeat after
    /// `Retry-After`.
    SESSION_BUSY = "session_busy", SERVICE_UNAVAILABLE;
    /// The worker cannot reach Postgres, or Redis where it needs it. Nothing was done; repeat after `Retry-After`.
    UNAVAILABLE = "unavailable", SERVICE_UNAVAILABLE;
}

/// What an append may be refused for, beside what every request may.
pub const OF_APPENDS: &[ProblemType] = &[
    UNKNOWN_STREAM,
    SESSION_CLOSED,
    SCHEMA_VIOLATION,
    NUMBER_OUT_OF_RANGE,
    NOT_JSON,
    TOO_DEEP,
    NUL_CHARACTER,
    PAYLOAD_TOO_LARGE,
    QUEUE_FULL,
];
