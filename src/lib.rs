//! Lanekeeper delivers the events of AI-agent sessions: durably, at least once, strictly in order
//! inside a session, from any number of worker replicas over one PostgreSQL.
//!
//! What a program needs that has it as a library. Each name comes from the crate that owns it; what is not named
//! here is no promise.
//!
//! | to | take |
//! |---|---|
//! | append events, in a transaction of one's own | [`append`] |
//! | append from many tasks at once | [`append::Appender`] |
//! | write a document and its event, in a transaction of one's own | [`document`] |
//! | keep state in the log alone, folded from events of types of one's own | [`aggregate`] |
//! | append what a person wrote to an agent | [`inbound`] |
//! | ask another agent, and wait for its answer | [`agent`] |
//! | receive what a webhook subscription sends | [`receiver`] |
//! | close or interrupt a session, or cancel a message, in a transaction of one's own | [`session`] |
//! | append over a worker's HTTP API, within a deadline | [`producer`] |
//! | deliver | [`Worker`], with a [`DestinationSource`] |
//! | deliver to something new | [`Adapter`] |
//! | handle events in their settlement's transaction | [`Handler`] |
//! | say what is delivered where | [`subscription`] |

/// Appending events to Postgres.
pub mod append {
    pub use lanekeeper_postgres::append::{
        AppendError, Enqueued, Fate, NewEvent, enqueue, enqueue_array, enqueue_many,
    };
    pub use lanekeeper_postgres::appender::{Appender, AppenderError};
    pub use lanekeeper_postgres::queue_full::QueueFull;
    pub use lanekeeper_postgres::seq_conflict::SeqConflict;
}

/// What people write to agents: appending it to the stream `inbound`.
pub mod inbound {
    pub use lanekeeper_postgres::inbound::{MessageType, NewInbound, enqueue_inbound};
}

/// Acknowledging messages, in a transaction of the consumer's own.
pub mod ack {
    pub use lanekeeper_postgres::sent::{Acked, ack_many};
}

/// Receiving webhooks: signature, dedupe in the handler's transaction, acknowledgement.
pub mod receiver {
    pub use lanekeeper_receiver::{Answer, Message, Messages, Receiver, Refused};
}

/// Requests to other agents: waiting for their answers.
pub mod agent {
    pub use lanekeeper_postgres::response::{Response, ResponseError, expect_response, response};
}

/// Documents, each written together with its event.
pub mod document {
    pub use lanekeeper_postgres::document::{
        At, Change, Document, DocumentError, Expect, Listed, MOST, Operation, PastVersion, Written,
        change, delete, get, get_at, history, list, patch, put, put_many,
    };
}

/// State that is folded from a session's events, and typed events.
pub mod aggregate {
    pub use lanekeeper_postgres::aggregate::{
        Aggregate, AggregateError, CommandError, Executed, Loaded, ReadError, TypedEvent, execute,
        load, load_at, run, take_snapshots,
    };
    pub use lanekeeper_postgres::events;
}

/// Closing sessions, and reopening them; interrupting them, and cancelling messages; saying on which host they live.
pub mod session {
    pub use lanekeeper_postgres::closing::{close_session, reopen_session};
    pub use lanekeeper_postgres::host_route::bind_session;
    pub use lanekeeper_postgres::interrupt::{
        Cancel, Cancelled, Interrupt, Interrupted, cancel, interrupt,
    };
}

/// Appending events to Postgres or over a worker's HTTP API, within a deadline.
pub mod producer {
    pub use lanekeeper_producer::remote::{Remote, SettingsError};
    pub use lanekeeper_producer::{Producer, ProducerError, RemoteError, Way};
}

/// The database: where it is, its schema, its connections.
pub mod postgres {
    pub use lanekeeper_postgres::connection::{ConnectionStringError, SslMode, SslParameters};
    pub use lanekeeper_postgres::migrate::{MigrateError, migrate};
    pub use lanekeeper_postgres::{Database, ErrorClass, Refusal, StoreError};
}

/// Subscriptions: the model, their file, and what a worker loads of them.
pub mod subscription {
    pub use lanekeeper_core::subscription::{
        Acknowledge, Change, ChangeKind, Current, Definition, DeliveryDefaults, Events, Exhaustion,
        FileError, Limit, MessageStage, OnFull, PendingBound, Plan, Problem, Retry, Start,
        StreamDefinition,
    };
    pub use lanekeeper_postgres::subscription::{
        Applied, ApplyError, Backfill, BuiltInError, Done, Subscription, add_lanes, apply, install,
        load, remove,
    };
    pub use lanekeeper_subscription::SubscriptionFile;
}

/// The adapters that Lanekeeper brings.
pub mod adapters {
    pub use lanekeeper_adapters::{
        Environment, KINDS, SecretError, SettingsError, Signer, build, check,
    };
}

/// The session registry: a handler that follows the stream `hooks`.
pub mod hooks {
    pub use lanekeeper_streams::hooks::registry::{SessionRegistry, definition};
}

/// Limits of rates, and when a destination is left alone.
pub mod limit {
    pub use lanekeeper_core::bucket::{Bucket, Rate, RateError};
    pub use lanekeeper_limit::{BreakerSettings, RedisSettings};
}

pub use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Preview, Role, Verdict};
pub use lanekeeper_core::event::Event;
pub use lanekeeper_core::memory::{Memory, MemoryError, MessageName, ProcessMemory};
pub use lanekeeper_core::trace::TraceContext;
pub use lanekeeper_engine::{
    Destination, DestinationSource, Handler, HandlerError, NotReady, Probe, SentMessages,
    StartError, Stopped, Worker, WorkerSettings,
};
pub use lanekeeper_secret::Secret;
pub use lanekeeper_telemetry::Tracing;
