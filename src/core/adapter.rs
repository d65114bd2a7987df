//! What the engine hands to a destination, and what it gets back.
//!
//! An adapter is handed one delivery at a time per lane and answers with a [`Verdict`]; it knows
//! nothing of lanes, tokens, retries or Postgres. The engine knows adapters only by [`Adapter`].
//! An adapter's future may be dropped at any await point (the worker lost its claim, or shuts
//! down); whatever it had sent by then may be sent again, and nothing of it goes on running.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::bucket::Bucket;
use crate::event::Event;
use crate::observed::{Cause, Observed};
use crate::trace::TraceContext;

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
    /// It was settled once, and this replay delivers it again: later events of its session have been delivered before it.
    pub replay_id: Option<i64>,
    /// The subscription asks for acknowledgements: an adapter whose destination can give one in its answer
    /// says `Sent` where it did not.
    pub asks_ack: bool,
    /// The trace context of this attempt. None: nothing is traced here, and what the producer stored with the
    /// event goes out as it is.
    pub trace: Option<&'a TraceContext>,
    /// Where the adapter notes what is for figures and spans only. None: nobody reads it.
    pub observed: Option<&'a Observed>,
}

impl Delivery<'_> {
    /// The destination answered with this HTTP status.
    pub fn answered(&self, status: u16) {
        if let Some(observed) = self.observed {
            observed.answered(status);
        }
    }

    /// There was no answer, or none that says more, for this reason.
    pub fn failed_by(&self, cause: Cause) {
        if let Some(observed) = self.observed {
            observed.failed_by(cause);
        }
    }
}

/// What the destination made of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The destination has it: the cursor may pass the event. Where the subscription asks for acknowledgements, the
    /// destination has acknowledged it.
    Accepted,
    /// The destination has it and has not acknowledged it: where the subscription requires that, its acknowledgement is
    /// awaited. The same as `Accepted` where it asks for none.
    Sent,
    /// Failed in a way that time may mend. Burns an attempt; `after` overrides the schedule.
    Retry {
        error: String,
        after: Option<Duration>,
    },
    /// A step of it is done, and what is left draws on the limits once more: the same event is handed over
    /// again at its next turn. Burns no attempt.
    Partial,
    /// The destination asked for a pause (429 or 503 with Retry-After). Burns no attempt. `of`: the one
    /// bucket that it asked it for; `None`: all that the delivery drew on.
    Throttled {
        reason: String,
        after: Duration,
        of: Option<Bucket>,
    },
    /// It was not sent, for a want of the worker's own: it had no file descriptor left, for example. Burns no attempt,
    /// and says nothing of the destination.
    NotSent { reason: String },
    /// Will never be accepted: the event is exhausted at once.
    Rejected { error: String },
    /// The destination wants nothing more (410): the event stays, the subscription is paused.
    Gone { error: String },
}

impl Verdict {
    /// A failure that follows the subscription's own retry schedule.
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry {
            error: error.into(),
            after: None,
        }
    }
}

/// What the destination made of a batch. The events from the first one on that it accepted are settled; an attempt is
/// counted for the first that failed, and what comes behind it is delivered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchVerdict {
    /// One verdict for the request as a whole. `Rejected`: the destination does not say which event it refuses, so they
    /// are delivered one at a time.
    Whole(Verdict),
    /// A verdict for each event, from the first one on. What the list does not reach counts as not sent.
    Each(Vec<Verdict>),
}

impl BatchVerdict {
    /// The verdict on the event at this position; `None` where the destination says nothing of it.
    pub fn of(&self, position: usize) -> Option<&Verdict> {
        match self {
            Self::Whole(verdict) => match verdict {
                Verdict::Accepted | Verdict::Sent => Some(verdict),
                _ => Some(verdict).filter(|_| position == 0),
            },
            Self::Each(verdicts) => verdicts.get(position),
        }
    }
}

/// What an event is to a destination where messages can be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A message of its own, or the last version of one: never left out.
    Whole,
    /// The last version of the message of this key: never left out, and it makes earlier ones needless.
    Final { key: String },
    /// A version of the message of this key that a newer one makes needless.
    Progress { key: String },
}

/// What of a payload is enough to tell its role: the texts, numbers and truth values at these places. Texts
/// may be cut behind their first thousand characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// JSON pointers.
    pub pointers: Vec<String>,
    /// Characters of a text beyond which the event is a message of its own, whatever it says.
    pub longest: usize,
}

/// Where a destination is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address.
    pub host: Arc<str>,
    pub port: u16,
}

/// Speaks to one destination on behalf of one subscription.
#[async_trait]
pub trait Adapter: Send + Sync + 'static {
    /// Delivers one event. Must bound its own time; the engine adds no time-out of its own.
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict;

    /// The most events of one lane that go in one request. 1, the default: each goes by itself, and
    /// [`Adapter::deliver_batch`] is never called. An adapter with buckets of its own ([`Adapter::is_paced`]) gets no
    /// batches.
    fn max_batch(&self) -> usize {
        1
    }

    /// Delivers consecutive events of one lane in one request: at least two, at most [`Adapter::max_batch`], in their
    /// order. Bounds its own time, as [`Adapter::deliver`] does.
    async fn deliver_batch(&self, deliveries: &[Delivery<'_>]) -> BatchVerdict {
        match deliveries.first() {
            Some(first) => BatchVerdict::Each(vec![self.deliver(first).await]),
            None => BatchVerdict::Each(Vec::new()),
        }
    }

    /// What it speaks to, for spans. None where there is no such thing.
    fn server(&self) -> Option<Server> {
        None
    }

    /// Whether all sessions go to one place, so that failures of some say something of the others. Otherwise no circuit
    /// opens.
    fn is_one_place(&self) -> bool {
        true
    }

    /// Whether its destination can acknowledge in its answer. Otherwise what it accepts counts as sent where a
    /// subscription requires acknowledgements.
    fn acknowledges(&self) -> bool {
        false
    }

    /// What the delivery of this event draws on beside the subscription's own limits: where a
    /// destination has limits per channel or chat, that of the event's. None by default.
    fn buckets(&self, _event: &Event) -> Vec<Bucket> {
        Vec::new()
    }

    /// Whether [`Adapter::buckets`] may name any.
    fn is_paced(&self) -> bool {
        false
    }

    /// What the destination said of its limits since this was last asked: buckets that are to be left alone
    /// for so long. Asked after every delivery.
    fn learned(&self) -> Vec<(Bucket, Duration)> {
        Vec::new()
    }

    /// Whether [`Adapter::role`] is worth asking.
    fn shows_progress(&self) -> bool {
        false
    }

    /// By what of a payload [`Adapter::role`] goes, so that of large ones only that is read and handed to it.
    /// `None`: events with large payloads are messages of their own.
    fn preview(&self) -> Option<Preview> {
        None
    }

    /// Whether some of what this event says is at the destination already, and the rest is to come: then it is
    /// not left out for a newer one.
    fn has_begun(&self, _message_id: Uuid) -> bool {
        false
    }

    /// What an event with this payload, or one with this preview, is to the destination.
    fn role(&self, _payload: &str) -> Role {
        Role::Whole
    }
}
