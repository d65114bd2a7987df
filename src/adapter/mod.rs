//! What speaks to destinations.
//!
//! An adapter is handed one delivery at a time per lane and answers with a [`Verdict`]; it knows
//! nothing of lanes, tokens, retries or Postgres. The engine knows adapters only by [`Adapter`].
//! An adapter's future may be dropped at any await point (the worker lost its claim, or shuts
//! down); whatever it had sent by then may be sent again, and nothing of it goes on running.
//!
//! [`build`] makes the adapter that a subscription names; [`check`] judges its settings without
//! reading a secret. Every adapter sends the same body (`envelope.rs`) and passes the same
//! conformance suite (`tests/it/conformance`).

mod envelope;
mod environment;
mod excerpt;
mod exec;
pub mod fake;
mod registry;
mod retry_after;
mod settings;
mod signature;
mod stdout;
mod target;
mod webhook;

use std::time::Duration;

use async_trait::async_trait;

use crate::event::Event;
use crate::limit::Bucket;
use crate::telemetry::span::TraceContext;

pub use environment::{Environment, SecretError};
pub use exec::Exec;
pub use registry::{KINDS, build, check};
pub use settings::SettingsError;
pub use signature::{KeyError, Signer};
pub use stdout::{LineWriter, Stdout};
pub use webhook::Webhook;

/// One attempt to deliver one event to one destination.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    pub event: &'a Event,
    /// The subscription's name.
    pub subscription: &'a str,
    /// From 1. Throttled attempts and crashes are not counted.
    pub attempt: u32,
    /// It was a dead letter, and an operator has it delivered again: later events of its session may have
    /// been delivered before it.
    pub requeued: bool,
    /// The trace context of this attempt. None: nothing is traced here, and what the producer stored with the
    /// event goes out as it is.
    pub trace: Option<&'a TraceContext>,
}

/// What the destination made of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The destination has it: the cursor may pass the event.
    Accepted,
    /// Failed in a way that time may mend. Burns an attempt; `after` overrides the schedule.
    Retry {
        error: String,
        after: Option<Duration>,
    },
    /// The destination asked for a pause (429 or 503 with Retry-After). Burns no attempt.
    Throttled { reason: String, after: Duration },
    /// Will never be accepted: the event is exhausted at once.
    Rejected { error: String },
    /// The destination wants nothing more (410): the event stays, the subscription is paused.
    Gone { error: String },
}

impl Verdict {
    /// A failure that follows the subscription's own retry schedule.
    fn retry(error: impl Into<String>) -> Self {
        Self::Retry {
            error: error.into(),
            after: None,
        }
    }
}

/// Speaks to one destination on behalf of one subscription.
#[async_trait]
pub trait Adapter: Send + Sync + 'static {
    /// Delivers one event. Must bound its own time; the engine adds no time-out of its own.
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict;

    /// What the delivery of this event draws on beside the subscription's own limits: where a
    /// destination has limits per channel or chat, that of the event's. None by default.
    fn buckets(&self, _event: &Event) -> Vec<Bucket> {
        Vec::new()
    }
}
