//! Every name under which something is measured or traced, and what each stands for.
//!
//! Names from the OpenTelemetry semantic conventions for messaging and HTTP are taken where there is one; a test
//! compares them. The rest begins with `lanekeeper.`. docs/reference/metrics.md is
//! made from this file. No session, message or lane is ever an attribute of an instrument: each
//! would be a time series of its own.

/// The meter's and the tracer's name.
pub const SCOPE: &str = "lanekeeper";
/// `messaging.system`.
pub const SYSTEM: &str = "lanekeeper";
/// What an attempt is called as an operation.
pub const DELIVER: &str = "deliver";
/// The kind of operation that it is to the conventions: a consumer processes a message.
pub const PROCESS: &str = "process";
/// A lane connection takes lanes with their next events: to the conventions a receive.
pub const CLAIM: &str = "claim";
pub const RECEIVE: &str = "receive";
/// It writes what became of deliveries: a settle, in their words too.
pub const SETTLE: &str = "settle";
/// A request appends events: to the conventions a send.
pub const ENQUEUE: &str = "enqueue";
pub const SEND: &str = "send";

/// The name of an attempt's span.
pub fn delivery_span(stream: &str) -> String {
    format!("{DELIVER} {stream}")
}

/// Keys of attributes.
pub mod key {
    macro_rules! keys {
        ($($(#[doc = $says:literal])+ $id:ident = $name:literal;)*) => {
            $($(#[doc = $says])+ pub const $id: &str = $name;)*
            /// Each with its meaning, in the order of the documentation.
            pub const KEYS: &[(&str, &str)] = &[$(($id, concat!($($says),+))),*];
        };
    }

    keys! {
        /// Always `lanekeeper`.
        MESSAGING_SYSTEM = "messaging.system";
        /// `deliver`; of spans also `claim`, `settle`, `enqueue`.
        OPERATION_NAME = "messaging.operation.name";
        /// What that is to the conventions: `process`, `receive`, `settle`, `send`.
        OPERATION_TYPE = "messaging.operation.type";
        /// The stream.
        DESTINATION = "messaging.destination.name";
        /// The subscription.
        CONSUMER_GROUP = "messaging.consumer.group.name";
        /// The message id. Of spans only.
        MESSAGE_ID = "messaging.message.id";
        /// The session. Of spans only.
        CONVERSATION_ID = "messaging.message.conversation_id";
        /// Why an attempt was not accepted: the HTTP status of the answer, or `timeout`, `connection_refused`,
        /// `connection_reset`, `name_resolution`, `tls`, `unreachable`, `private_address`, `exit_status`, `panic`; where
        /// none of these is known, the verdict. Of a request: the status, if it is 500 or more, or `client_left`,
        /// where its client left before the answer.
        ERROR_TYPE = "error.type";
        /// What an attempt that was not accepted means for the event: `retry`, `throttled`, `not_sent`, `rejected`, `gone`.
        VERDICT = "lanekeeper.verdict";
        /// The host that a delivery went to. Of spans only.
        SERVER_ADDRESS = "server.address";
        /// The port there. Of spans only.
        SERVER_PORT = "server.port";
        /// Lanes that a claim took or a settlement is about, events of a request. Of spans only.
        BATCH_COUNT = "messaging.batch.message_count";
        /// The event's type. Of spans only.
        EVENT_TYPE = "lanekeeper.event.type";
        /// The event's number in its session. Of spans only.
        SEQ = "lanekeeper.seq";
        /// The number of the attempt, from 1. Of spans only.
        ATTEMPT = "lanekeeper.attempt";
        /// How an event ended: `delivered`, `filtered`, `coalesced`, `dead_lettered`, `dropped`, …
        OUTCOME = "lanekeeper.outcome";
        /// A lane's state: `idle`, `ready`, `held`, `blocked`, `sent`, `parked`.
        STATE = "lanekeeper.lane.state";
        /// The method of a request.
        HTTP_METHOD = "http.request.method";
        /// The pattern of a path, without names in it.
        HTTP_ROUTE = "http.route";
        /// The status of an answer; of a delivery's span, of the destination's answer.
        HTTP_STATUS = "http.response.status_code";
        /// The scheme of a request: `http`.
        URL_SCHEME = "url.scheme";
        /// Whether an appended event was there before.
        DUPLICATE = "lanekeeper.duplicate";
        /// Why a request was refused (the `code` of its answer), or a connection closed.
        REASON = "lanekeeper.reason";
        /// Of a client's connection: waiting for a request, or busy with one.
        CONNECTION_STATE = "lanekeeper.connection.state";
        /// The source.
        SOURCE = "lanekeeper.source";
        /// The number of a replay.
        REPLAY = "lanekeeper.replay.id";
        /// What woke a lane connection: `notification`, `timer`.
        CAUSE = "lanekeeper.cause";
    }
}

/// An instrument: its name, its unit as UCUM writes it, and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub name: &'static str,
    pub unit: &'static str,
    pub says: &'static str,
}

macro_rules! instruments {
    ($($id:ident = $name:literal, $unit:literal, $says:literal;)*) => {
        $(pub const $id: Name = Name { name: $name, unit: $unit, says: $says };)*
        /// All of them, in the order of the documentation.
        pub const INSTRUMENTS: &[Name] = &[$($id),*];
    };
}

instruments! {
    PROCESS_DURATION = "messaging.process.duration", "s",
        "How long attempts to deliver took, by subscription, error.type and verdict; its count is the number of attempts";
    DELIVERY_LATENCY = "lanekeeper.delivery.latency", "s",
        "From an event's append to its acceptance by the destination, by subscription and by Postgres' clock; without requeued dead letters";
    SETTLED = "lanekeeper.events.settled", "{event}",
        "Events that cursors passed, by subscription and outcome";
    CLAIM_DURATION = "lanekeeper.claim.duration", "s",
        "How long Postgres took to answer a claim";
    CLAIM_LANES = "lanekeeper.claim.lanes", "{lane}",
        "Lanes that a claim took";
    CLAIMS_EMPTY = "lanekeeper.claim.empty", "{claim}",
        "Claims that took no lane";
    FETCH_DURATION = "lanekeeper.fetch.duration", "s",
        "How long Postgres took to return the next events of claimed lanes";
    SETTLE_DURATION = "lanekeeper.settle.duration", "s",
        "How long Postgres took to answer a settlement";
    SETTLE_LANES = "lanekeeper.settle.lanes", "{lane}",
        "Lanes in one settlement";
    WAKE_UPS = "lanekeeper.wakeups", "{wakeup}",
        "What made a lane connection look for lanes, by cause";
    TAKEN_OVER = "lanekeeper.takeover.lanes", "{lane}",
        "Lanes that this worker took over from lane connections that are gone";
    CHARGED = "lanekeeper.takeover.charged", "{event}",
        "Events that a crash was charged to, because their worker died while it held them";
    ARCHIVED = "lanekeeper.archive.events", "{event}",
        "Events that this worker wrote to the archive, by days that are on record as archived";
    ARCHIVED_SIZE = "lanekeeper.archive.size", "By",
        "Bytes of the files that they are in";
    ARCHIVE_FAILURES = "lanekeeper.archive.failures", "{failure}",
        "Attempts to archive a day that failed: the day stays in Postgres";
    LIMIT_WAIT = "lanekeeper.limit.wait", "s",
        "How long a held lane waited for its turn under a rate limit, by subscription";
    LIMIT_POSTPONED = "lanekeeper.limit.postponed", "{lane}",
        "Lanes that were let go until their turn under a rate limit, by subscription";
    LIMIT_SHARED = "lanekeeper.limit.shared", "{worker}",
        "1 while limits are decided in Redis over all workers, 0 while this worker keeps to its share";
    BREAKER_OPEN = "lanekeeper.breaker.open", "{circuit}",
        "1 while the destination's circuit is open or half open, by subscription";
    HELD = "lanekeeper.worker.held", "{lane}",
        "Lanes that this worker holds, without those that wait for a limit";
    MAX_HELD = "lanekeeper.worker.max_held", "{lane}",
        "Lanes that this worker may hold: worker.max_lanes, or its part of the server's lock table";
    PREFETCHED = "lanekeeper.worker.prefetched", "By",
        "Bytes of events that this worker has read and not delivered yet";
    SILENT = "lanekeeper.worker.postgres.silence", "s",
        "Since Postgres last answered on a lane connection of this worker";
    SPOOL_DEPTH = "lanekeeper.spool.depth", "{file}",
        "Files of hook calls on this host that are not in Postgres yet";
    LAG_EVENTS = "lanekeeper.lag.events", "{event}",
        "Events behind the cursors, by subscription. Of one worker only: the one that started first";
    MESSAGES = "lanekeeper.messages", "{message}",
        "Messages by subscription and state: pending and sending now; sent, acked, retried, failed, expired and dropped so far. Of one worker only";
    REPLAY_LEFT = "lanekeeper.replay.left", "{event}",
        "Events that a replay which has not ended is still to deliver again, by subscription and replay. What was delivered is lanekeeper.events.settled with the outcome replayed. Of one worker only";
    LAG_AGE = "lanekeeper.lag.age", "s",
        "Age of the oldest undelivered event, by subscription. Of one worker only";
    LANES = "lanekeeper.lanes", "{lane}",
        "Lanes by subscription and state. Of one worker only";
    DEAD_LETTERS = "lanekeeper.dead_letters", "{event}",
        "Dead letters that wait for an operator, by subscription. Of one worker only";
    PAUSED = "lanekeeper.subscription.paused", "{subscription}",
        "1 while the subscription is paused. Of one worker only";
    STALLED = "lanekeeper.subscription.stalled", "{subscription}",
        "1 while the subscription has work that is due and made no progress for worker.stalled_after_ms. Of one worker only";
    STANDING = "lanekeeper.worker.stalled", "{worker}",
        "1 while a claim loop of this worker stands still";
    WORKERS = "lanekeeper.workers", "{worker}",
        "Workers with a recent heartbeat, as this worker counts them";
    HTTP_DURATION = "http.server.request.duration", "s",
        "How long requests took to the end of their answer, by method, route and status; its count is their number";
    HTTP_ACTIVE = "http.server.active_requests", "{request}",
        "Requests under way, by method";
    HTTP_EVENTS = "lanekeeper.http.events", "{event}",
        "Events that requests appended, by stream, and whether they had been there before";
    HTTP_REFUSED = "lanekeeper.http.refused", "{request}",
        "Requests that were refused, by the code in their answer";
    SOURCE_IGNORED = "lanekeeper.source.ignored", "{request}",
        "Requests of sources that were answered and became no message, by source: its only leaves them out, or no person wrote them";
    HTTP_CONNECTIONS = "lanekeeper.http.connections", "{connection}",
        "Clients' connections, by state: waiting for a request, busy with one";
    SOURCE_UPDATES = "lanekeeper.source.updates", "{update}",
        "What this worker fetched from the platforms of sources, or was sent by their webhooks, by source and outcome: enqueued, duplicate, interrupted, status, not_allowed, unsupported, refused";
    LIVE_FOLLOWERS = "lanekeeper.live.followers", "{client}",
        "Clients that follow sessions live";
    LIVE_LAG = "lanekeeper.live.lag", "s",
        "How long the follower that is furthest behind has had something to take. A client that takes nothing is disconnected after http.read_timeout_ms";
    LIVE_DISCONNECTS = "lanekeeper.live.disconnects", "{client}",
        "Followers that left or were disconnected, by reason: client_left, end, too_slow, client_sent, access_ended, access_expired, stopping";
    LIVE_PUBLISH = "lanekeeper.live.publish.duration", "s",
        "From an event's append to its handing over to a follower that is at the end, by the clocks of Postgres and of the worker";
    HTTP_CLOSED = "lanekeeper.http.connections.closed", "{connection}",
        "Connections that were not taken or closed on the client, by reason: gave_way, no_place, timed_out";
}

/// Boundaries of durations in seconds, those of the semantic conventions, two below and seven above: an idle
/// wake-up takes less than a millisecond here, and a program may have an hour.
pub const SECONDS: [f64; 23] = [
    0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];
/// Boundaries of latencies in seconds: a backlog may be a day old, and retries take as long.
pub const LATENCIES: [f64; 18] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
    3600.0, 14_400.0, 86_400.0,
];
/// Boundaries of batch sizes.
pub const SIZES: [f64; 12] = [
    0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];
