//! The lifecycle feed: what happens to destinations, subscriptions and workers, as events of the stream
//! `lifecycle`, which is delivered like any other (C10).
//!
//! An event is published only while a subscription of that stream exists, paused or not. Publishing takes a
//! connection of the pool and has a time-out; a failure is logged and affects nothing else. Nothing is published
//! about the feed's own deliveries: a destination that is down would otherwise feed itself.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::append::{self, NewEvent};
use lanekeeper_postgres::inspect::StalledState;
use serde::Serialize;
use tokio::time::timeout;

use crate::claiming::route::Route;
use crate::shared::Shared;

/// The name of the stream.
pub const STREAM: &str = append::RESERVED_STREAM;
const WITHIN: Duration = Duration::from_secs(10);

/// An event of the feed. Its session is the object that it is about, so that each object's events are in order.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum LifecycleEvent {
    /// Several sessions in a row failed at a destination; only probes are sent to it.
    CircuitOpened {
        destination: String,
        subscription: String,
    },
    /// The destination accepts again.
    CircuitClosed {
        destination: String,
        subscription: String,
    },
    /// The destination answered that it is gone (410).
    SubscriptionPaused {
        subscription: String,
        reason: String,
    },
    /// Connections of a worker are gone; this worker took over their lanes.
    TakenOver {
        lost_worker_id: i64,
        lanes: i64,
        charged: i64,
    },
    /// A session of a subscription has nearly as many undelivered events as it may have.
    QueueDeep {
        subscription: String,
        pending: i64,
        max_pending: i64,
    },
    /// No session of it has half as many any more.
    QueueRelieved {
        subscription: String,
        pending: i64,
        max_pending: i64,
    },
    /// A lane of it has had work for long, and makes no progress.
    SubscriptionStalled {
        subscription: String,
        state: StalledState,
        session: String,
        /// The worker that holds the lane.
        #[serde(skip_serializing_if = "Option::is_none")]
        holder: Option<i64>,
        stalled_s: f64,
    },
    /// It makes progress again.
    SubscriptionMoves { subscription: String },
    /// A claim loop of the worker stands still; its connection was ended.
    ClaimLoopStalled { worker: i64, backend_pid: i32 },
    /// So many of its messages failed for good since the last look.
    MessagesFailing { subscription: String, failed: i64 },
}

impl LifecycleEvent {
    pub(super) fn event_type(&self) -> &'static str {
        match self {
            Self::CircuitOpened { .. } => "circuit_opened",
            Self::CircuitClosed { .. } => "circuit_closed",
            Self::SubscriptionPaused { .. } => "subscription_paused",
            Self::TakenOver { .. } => "taken_over",
            Self::QueueDeep { .. } => "queue_deep",
            Self::QueueRelieved { .. } => "queue_relieved",
            Self::MessagesFailing { .. } => "messages_failing",
            Self::SubscriptionStalled { .. } => "subscription_stalled",
            Self::SubscriptionMoves { .. } => "subscription_moves",
            Self::ClaimLoopStalled { .. } => "claim_loop_stalled",
        }
    }

    fn session(&self) -> String {
        match self {
            Self::CircuitOpened { destination, .. } | Self::CircuitClosed { destination, .. } => {
                format!("destination {destination}")
            }
            Self::SubscriptionPaused { subscription, .. }
            | Self::QueueDeep { subscription, .. }
            | Self::QueueRelieved { subscription, .. }
            | Self::MessagesFailing { subscription, .. }
            | Self::SubscriptionStalled { subscription, .. }
            | Self::SubscriptionMoves { subscription } => {
                format!("subscription {subscription}")
            }
            Self::TakenOver {
                lost_worker_id: worker,
                ..
            }
            | Self::ClaimLoopStalled { worker, .. } => format!("worker {worker}"),
        }
    }
}

/// Whether a route delivers the feed itself.
pub fn is_feed(route: &Route) -> bool {
    &*route.subscription.stream == STREAM
}

/// Appends the event, in a task of its own.
pub fn publish(shared: &Arc<Shared>, event: LifecycleEvent) {
    if !shared.maintenance.has_feed() {
        return;
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let appended = timeout(WITHIN, append(&shared, &event)).await;
        let appended = appended.unwrap_or_else(|_| Err("Postgres did not answer in time".into()));
        if let Err(error) = appended {
            tracing::warn!(
                error = &*error,
                ?event,
                "the event is missing from the lifecycle feed; nothing else is affected"
            );
        }
    });
}

/// A session's name has at most 512 bytes; that of a destination or of another session may make it longer.
pub(super) fn session_name(mut name: String) -> String {
    let mut end = name.len().min(512);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

async fn append(
    shared: &Shared,
    event: &LifecycleEvent,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    #[derive(Serialize)]
    struct Payload<'a> {
        worker_id: i64,
        #[serde(flatten)]
        event: &'a LifecycleEvent,
    }
    let payload = serde_json::to_string(&Payload {
        worker_id: shared.peers.worker_id(),
        event,
    })?;
    let session = session_name(event.session());
    let client = shared.pool.get().await?;
    let event = NewEvent::new(&session, event.event_type(), &payload);
    append::enqueue(&**client, STREAM, &event).await?;
    Ok(())
}
