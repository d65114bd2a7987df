//! SQLSTATEs of the schema's own functions: class LK.

macro_rules! sqlstates {
    ($($(#[doc = $meaning:literal])+ $name:ident = $code:literal;)*) => {
        $($(#[doc = $meaning])+ pub const $name: &str = $code;)*
        /// Each code with its meaning, for docs/reference/errors.md. Those that no function raises are reserved.
        pub const SQLSTATES: &[(&str, &str)] = &[$(($code, concat!($($meaning),+))),*];
    };
}

sqlstates! {
    /// The session has as many undelivered events as a subscription takes (`max_pending`).
    QUEUE_FULL = "LK001";
    /// The session is closed.
    SESSION_CLOSED = "LK002";
    /// There is no such stream.
    UNKNOWN_STREAM = "LK003";
    /// The document is not at the version that the caller expects.
    VERSION_CONFLICT = "LK004";
    /// The payload is larger than the stream's `max_payload_bytes`.
    PAYLOAD_TOO_LARGE = "LK005";
    /// An argument is invalid, or a payload does not match the [schema](../schemas.md) of its event type.
    INVALID = "LK006";
    /// The lane is being delivered, or the session is being appended to, and was not released within 5 s.
    LANE_BUSY = "LK007";
    /// The event that the operator named is no longer the lane's head.
    ANOTHER_HEAD = "LK008";
    /// The stream names the roles that may append to it, and the caller is none of them.
    NOT_A_PRODUCER = "LK009";
    /// There is no such session or document.
    NO_SESSION = "LK010";
    /// The lane is being replayed already.
    REPLAY_UNDER_WAY = "LK011";
    /// The event would have had another seq than the caller expects.
    SEQ_CONFLICT = "LK012";
}
